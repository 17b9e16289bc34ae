"""A configuration file: defaults, options, places, and the page about it."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from key_tables import with_tables
from small_configs import DEFAULTS, PUBLIC, ROWS, load, recipe_defaults, write_config

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import ZCDP, Event, PureDP, zcdp_to_delta
from dpstream.families.registry import DEFAULT_MECHANISM
from dpstream.families.tabular import Baseline, BaselinePlan, DPStabs, DPStabsPlan, Pooled, PooledPlan
from dpstream.mechanisms import AIM, MWEMPGM
from dpstream.project import SECTIONS, Config, describe
from dpstream.project.keys import keys_of
from dpstream.stream import Batch


def test_defaults_and_their_reasons(tmp_path: Path) -> None:
    config = load(tmp_path)
    plan = config.plan()
    assert isinstance(plan, PooledPlan)
    assert plan.recipe == Pooled(plan.recipe.workload)
    assert (config.unit, config.budget.budget, config.budget.horizon) == (Event(), PureDP.of(1), None)
    assert (config.output.dir, config.state_dir) == (tmp_path / "releases", tmp_path / "state")
    noted = {(used.section, used.key): used for used in config.used}
    for key in keys_of("mechanism").values():
        if not key.mechanisms or DEFAULT_MECHANISM in key.mechanisms:
            assert noted["mechanism", key.name].reason
    assert noted["budget", "epsilon"].reason is None
    assert noted["output", "format"].line().startswith("[output] format = parquet (default: ")
    chosen = load(tmp_path, mechanism='name = "dpstabs"').plan()
    assert isinstance(chosen, DPStabsPlan)
    assert chosen.recipe == DPStabs(chosen.recipe.workload, k=3)
    assert chosen.recipe.rounds == DPStabs(chosen.recipe.workload).rounds


def test_all_options_reach_the_mechanism(tmp_path: Path) -> None:
    mechanism = (
        'name = "dpstabs"\nworkload = [["zip", "paid"], {columns = ["kind"], weight = "1/2"}]\n'
        'k = 2\ncounter = "tree"\niterations = 7\nmax_cells = 99'
    )
    plan = load(tmp_path, mechanism=mechanism, budget='rho = "1/3"\nhorizon = 12').plan()
    assert isinstance(plan, DPStabsPlan)
    recipe = plan.recipe
    assert (recipe.k, recipe.iterations, recipe.max_cells) == (2, 7, 99)
    assert recipe.workload.weights == (Fraction(1), Fraction(1, 2))
    assert (plan.budget, plan.horizon, plan.counter.horizon) == (ZCDP(Fraction(1, 3)), 12, 12)


def test_the_baseline_may_run_aim(tmp_path: Path) -> None:
    """Every option of AIM is a key with AIM's default, and those of MWEM+PGM alone are refused."""
    lines = 'name = "baseline"\noffline = "aim"'
    config = load(tmp_path, mechanism=lines)
    plan = config.plan()
    assert isinstance(plan, BaselinePlan)
    assert plan.recipe.offline == AIM()
    used = {one.key: one for one in config.used if one.section == "mechanism"}
    assert set(used) - {"name", "workload", "offline", "prior"} == {
        field.name for field in dataclasses.fields(AIM) if "option" in field.metadata
    }
    for key, value in recipe_defaults(AIM).items():
        assert used[key].reason
        if value is not None:
            assert used[key].value == str(value).lower()
            assert str(value).lower() in str(keys_of("mechanism")[key].default)
    assert describe(config)["noise"]["one_measurement"] is None
    plan = load(tmp_path, mechanism=f"{lines}\niterations = 7\nmax_cells = 999", budget='rho = "1/3"').plan()
    assert isinstance(plan, BaselinePlan)
    assert plan.recipe.offline == AIM(iterations=7, max_cells=999)
    assert sum(part.total for part in plan.parts()) == Fraction(1, 3)


@pytest.mark.parametrize("op", [False, True])
def test_an_operation_column_makes_the_baseline_handle_deletes(tmp_path: Path, op: bool) -> None:
    source = DEFAULTS["source"] + ('\nop_column = "op"' if op else "")
    config = load(tmp_path, source=source, mechanism='name = "baseline"\nprior = "uniform"')
    plan = config.plan()
    assert isinstance(plan, BaselinePlan)
    (iterations,) = [used for used in config.used if used.key == "iterations"]
    assert "enough for a fit from little" in str(iterations.reason)
    assert plan.recipe == Baseline(plan.recipe.workload, offline=MWEMPGM(k=3), deletions=op, prior="uniform")


@pytest.mark.parametrize(
    ("stream", "relation"),
    [
        ("", "add-remove"),
        ('unit = "event"\ntotal = "private"', "add-remove"),
        ('unit = "event-replace"', "replace"),
        ('unit = "event-replace"\ntotal = "public"', "replace"),
        (PUBLIC, "replace"),
    ],
)
def test_unit_and_total_say_the_relation_together(tmp_path: Path, stream: str, relation: str) -> None:
    config = load(tmp_path, stream=stream)
    assert config.unit.relation == config.plan().unit.relation == relation  # type: ignore[union-attr]
    if relation == "replace":
        assert load(tmp_path, stream=stream, source=ROWS).source_options.rows == 50


def test_epsilon_and_delta_become_the_largest_rho_within(tmp_path: Path) -> None:
    config = load(tmp_path, budget='epsilon = "1"\ndelta = "1e-9"')
    budget = config.budget.budget
    assert isinstance(budget, ZCDP)
    assert config.budget.stated == (Fraction(1), Fraction(1, 10**9))
    assert zcdp_to_delta(budget, "1") <= 1e-9
    # Rounding down costs less than one part in 10^8.
    assert zcdp_to_delta(budget.scaled(1 + Fraction(1, 10**7)), "1") > 1e-9
    (note,) = [used for used in config.used if used.key == "rho"]
    assert "rounded down" in str(note.reason)


def test_workload_defaults_to_single_columns_where_there_is_one(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    document = path.read_text().split("[schema.columns.zip]")[0]
    path.write_text(
        f'{document}[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\n[budget]\nrho = 1'
    )
    config = Config.load(path)
    assert config.plan().domain.sizes == (1,)
    assert [u.value for u in config.used if u.key == "workload"] == ["all-1-way"]


def test_a_workload_larger_than_memory_is_refused(tmp_path: Path) -> None:
    columns = "\n".join(f'[schema.columns.c{i}]\ntype = "integer"\nmin = 0\nmax = 9999' for i in range(4))
    with pytest.raises(LimitError) as caught:
        load(tmp_path, rest=columns, mechanism='workload = "all-3-way"')
    assert "[mechanism] workload" in str(caught.value)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    write_config(tmp_path / "deep", rest='[output]\ndir = "../out"\n[state]\ndir = "secret"')
    monkeypatch.chdir(tmp_path)
    config = Config.load("deep/dpstream.toml")
    assert config.output.dir.resolve() == tmp_path / "out"
    assert config.state_dir.resolve() == tmp_path / "deep" / "secret"


def test_another_state_folder_is_checked_too(tmp_path: Path) -> None:
    config = load(tmp_path)
    with pytest.raises(ConfigError, match="inside each other"):
        config.at(tmp_path / "releases" / "state").open_stream()
    assert not (tmp_path / "releases").exists()


def test_a_draft_does_not_run(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.write_text(
        path.read_text().replace("[schema.columns.zip]", "[schema]\nconfirmed = false\n[schema.columns.zip]")
    )
    with pytest.raises(ConfigError, match="confirmed = true"):
        Config.load(path).open_stream()
    assert not (tmp_path / "state").exists()


def test_the_schema_may_stand_in_another_file(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    document: dict[str, Any] = tomllib.loads(path.read_text())
    text = path.read_text()
    start, end = text.index("[schema"), text.index("[mechanism]")
    (tmp_path / "schema.toml").write_text(text[start:end].replace("schema.columns", "columns"))
    path.write_text(text[:start] + '[schema]\nfile = "schema.toml"\n' + text[end:])
    assert Config.load(path).schema().names == tuple(document["schema"]["columns"])


def test_the_page_about_the_file_shows_every_section() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/configuration.md").read_text(
        encoding="utf-8"
    )
    marked = " ".join(re.findall(r"<!-- keys: ([a-z ]+) -->", page)).split()
    assert sorted([*marked, "schema", ""]) == sorted(SECTIONS)
    assert "## `[schema]`" in page
    assert with_tables(page) == page, "python docs/key_tables.py docs/reference/configuration.md"
    assert "|`epsilon`|" in page


def test_the_plan_says_what_is_public_and_a_public_end_may_move(tmp_path: Path) -> None:
    config = load(tmp_path)
    declared = describe(config)["declared_public"]
    assert any('late = "error"' in sentence for sentence in declared)
    assert any("'zip', 'paid', 'kind'" in sentence for sentence in declared)
    source = DEFAULTS["source"]
    with config.open_stream() as stream:  # a state that never began a step would take another plan
        stream.step(Batch(), "step-1")
    load(tmp_path, source=source.replace("end = 9", "end = 90")).open_stream().close()
    for changed in (
        source.replace("end = 9", 'end = "data"'),
        source + "\nstart = 2",
        source + '\nlate = "next-step"',
        source + '\nop_column = "op"',
    ):
        with pytest.raises(ConfigError, match=r"belongs to another plan: .*(source\.|declared_public)"):
            load(tmp_path, source=changed).open_stream()
