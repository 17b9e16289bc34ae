"""Every recipe, of whatever family: calibrated alike, and read from its own options."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_configs import load, of_mechanism

from dpstream import Boolean, Config, Event, PureDP, Schema
from dpstream.core.contracts import Option, RecipeContext, build, option
from dpstream.core.contracts.recipe_options import keys_of_recipes
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, UnitError
from dpstream.families import registry
from dpstream.project.config_draft import draft_config
from dpstream.project.keys import section_of
from dpstream.project.reader import Section
from dpstream.project.sections import read_recipe
from dpstream_lab.experiments.methods import Method


@pytest.mark.parametrize("mechanism", registry.mechanisms())
def test_a_budget_and_an_amount_give_the_same_plan(mechanism: str, tmp_path: Path) -> None:
    config = load(tmp_path, **of_mechanism(mechanism))
    recipe: Any = config.recipe
    budget, unit, horizon = config.budget.budget, config.unit, config.budget.horizon
    amount = {"epsilon": budget.epsilon} if isinstance(budget, PureDP) else {"rho": budget.rho}
    plans = [
        recipe.calibrate(budget, unit, horizon),
        recipe.calibrate(**amount, unit=unit, horizon=horizon),
        config.plan(),
    ]
    told = [(plan.name, plan.budget, plan.unit, plan.horizon, plan.options(), plan.parts()) for plan in plans]
    assert told[0] == told[1] == told[2]
    with pytest.raises(BudgetError, match="budget given twice"):
        recipe.calibrate(budget, unit, horizon, **amount)
    with pytest.raises(BudgetError, match="1: expected a budget"):
        recipe.calibrate(1, unit, horizon)
    with pytest.raises(BudgetError, match="give either epsilon or rho"):
        recipe.calibrate(unit=unit, horizon=horizon)
    with pytest.raises(BudgetError, match="delta needs epsilon"):
        recipe.calibrate(rho=1, delta="1/100", unit=unit, horizon=horizon)
    for wrong in (0, -1, True, "12", 2.5):
        with pytest.raises(HorizonError, match="none, or 1 or more"):
            recipe.calibrate(budget, unit, wrong)
    with pytest.raises(UnitError, match="cannot protect the unit"):
        recipe.calibrate(budget, "somebody", horizon)


@pytest.mark.parametrize("mechanism", registry.mechanisms())
def test_a_draft_offers_all_options_and_is_read_once_it_is_filled_in(mechanism: str, tmp_path: Path) -> None:
    family = registry.family_of(mechanism)
    days, columns = [date(2026, 1, 1)] * 2, ("late",) if family.limits.people else ("price", "size")
    person = "who" if family.limits.people else None
    values: list[Any] = [True, False] if family.limits.people else [1.5, 2.5]
    data = {"day": days, **({"who": ["a", "b"]} if person else {}), **dict.fromkeys(columns, values)}
    text = draft_config(data, "day", person_column=person, mechanism=mechanism, public="*")
    for key in family.keys:
        assert (f"\n{key.name} = " in text or f"\n# {key.name} = " in text) == (mechanism in key.mechanisms)
    path = tmp_path / "dpstream.toml"
    path.write_text(text.replace("YYYY-MM-DD", "2026-01-01").replace("FILL IN", "decided"), encoding="utf-8")
    config = Config.load(path)
    assert config.plan().name == mechanism
    assert config.unit.name == family.limits.units[0]
    # Values that are offered as comments can be used.
    offered = re.findall(r"^# (\w+ = (?!\.\.\.$).*)\n$", text[text.index("[mechanism]") :], re.MULTILINE)
    for line in offered:
        assert tomllib.loads(line), line


def test_a_person_column_is_for_who_has_a_use_for_it() -> None:
    data = {"who": ["a"], "x": ["b"]}
    drafted = tomllib.loads(draft_config(data, person_column="who", mechanism="dpstabs"))
    assert (drafted["stream"]["unit"], drafted["source"]["user_column"]) == ("user", "who")
    with pytest.raises(ConfigError, match="a panel needs to know who a row is"):
        draft_config(data, mechanism="panel-window")
    with pytest.raises(ConfigError, match="a stream of points has no use for a person column"):
        draft_config(data, person_column="who", mechanism="points")
    with pytest.raises(ConfigError, match=r"unknown mechanism 'nobody' \(allowed: .*pooled"):
        draft_config(data, mechanism="nobody")


SHARED = Option(
    "a number", "shared by two", "it is small", read=lambda section, given, found: section.count("both")
)


@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = option(3, allowed="1 or more", reason="enough", meaning="of the inner one")


@dataclasses.dataclass(frozen=True)
class Other:
    width: int | None = option(
        None,
        allowed="1 or more",
        reason="no need",
        shown="not set",
        meaning="the counter draws noise of another kind than its budget",
    )
    both: int | None = option(None, SHARED)


@dataclasses.dataclass(frozen=True)
class Outer:
    schema: Schema
    inner: Any = option(
        None, key="box", reason="it is the first", meaning="which", one_of={"inner": Inner, "other": Other}
    )
    names: tuple[str, ...] = option((), allowed="a list", reason="nobody", meaning="who")
    sure: bool = option(True, allowed="true, false", reason="mostly", meaning="whether")


ROWS = {key.name: key for key in keys_of_recipes("mechanism", {"outer": Outer})}
GIVEN = RecipeContext(Schema([Boolean("a")]).domain, Schema([Boolean("a")]))


def read(**table: Any) -> Outer:
    outer: Outer = build(Section("file", "mechanism", table, ROWS), Outer, GIVEN)
    return outer


def test_a_recipe_in_a_recipe_is_read_with_its_own_options() -> None:
    assert read() == Outer(GIVEN.schema, Inner(3), (), True)  # type: ignore[arg-type]
    assert read(depth=5, names=["a"], sure=False).inner == Inner(5)
    assert read(box="other", width=2, both=4).inner == Other(2, 4)
    assert list(ROWS) == ["both", "depth", "width", "box", "names", "sure"]
    assert [(row.default, dict(row.fragment)) for row in ROWS.values()][1:4] == [
        ("3", {"type": "integer", "minimum": 1}),
        ("not set", {"type": "integer", "minimum": 1}),
        ("inner", {"enum": ["inner", "other"]}),
    ]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"box": "third"}, ("file [mechanism] box", "'third'", "inner, other")),
        ({"width": 2}, ("file [mechanism] width", "box = 'inner' has no option", 'with box = "other"')),
        ({"box": "other", "depth": 2}, ("file [mechanism] depth", "box = 'other' has no option 'depth'")),
        ({"depth": 0}, ("file [mechanism] depth", "0 is not a whole number")),
        ({"sure": 1}, ("file [mechanism] sure", "1 is not a choice", "true, false")),
        ({"names": "a"}, ("file [mechanism] names", "expected columns")),
    ],
)
def test_errors_name_the_place(table: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**table)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["points", "panel-window", "pmwg"])
def test_methods_that_are_compared_are_streams_of_tables(name: str) -> None:
    stream: Any = SimpleNamespace(domain=GIVEN.domain, deletions=False, unit=Event())
    with pytest.raises(ConfigError, match="methods are compared for streams of tables") as caught:
        Method("own", {"name": name}, "compare.toml").plan(stream, "1", "all-1-way")
    assert "compare.toml [methods.own] name" in str(caught.value)


def test_where_only_the_domain_is_known_a_classifier_says_what_it_needs() -> None:
    options = {"name": "scheduler", "first_run": 8, "black_box": "erm", "target": "a"}
    with pytest.raises(ConfigError, match=r"file \[mechanism\]: ERM needs a schema"):
        read_recipe(section_of("file", "mechanism", options), RecipeContext(GIVEN.domain))


def test_a_workload_of_groups_is_in_the_plan_as_it_was_written(tmp_path: Path) -> None:
    written = 'workload = ["all-1-way", {pairs_with = ["zip"], weight = "1/2"}]'
    config = load(tmp_path, mechanism=written)
    columns = len(config.schema().columns)
    told = {used.key: used.value for used in config.used if used.section == "mechanism"}
    assert told["workload"] == f"{2 * columns - 1} chosen marginals"
    kept = ["all-1-way", {"pairs_with": ["zip"], "weight": "1/2"}]
    assert config.plan().options()["workload"] == kept
    size = config.plan().facts()["size"]
    assert size["marginals"] == 2 * columns - 1
    assert size["step_bytes"] > size["cells"]
    assert size["step_seconds"] == 1
