"""``[discovery]``: open columns reach the plan, or one sentence says what is wrong."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from cli_stream import dpstream as invoked
from small_configs import PAID, load, write_config, write_rows

import dpstream
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Randomness, Relay
from dpstream.core.privacy.entries import Entry
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.project import Config, describe
from dpstream.project.statement import statement
from dpstream.project.status import status_facts
from dpstream.tools.errors.invented_tables import read_domain
from dpstream.tools.evaluate import evaluate_run

OPEN = '[schema.columns.zip]\ntype = "categorical"\nvalues = "discover"\nknown = ["a"]\nother = "rest"\n'
DELTA = '[discovery]\ndelta = "1e-9"'
WEEKS = 'path = "data/*.csv"\ntime_column = "day"\nevery = "week"\nstart = "2024-01-01"\nend = "2024-12-29"'


def test_open_columns_reach_the_plan(tmp_path: Path) -> None:
    config = load(tmp_path, columns=OPEN + PAID, source=WEEKS, rest=f'{DELTA}\nshare = "1/4"\nat_most = 9')
    plan = config.plan()
    own = plan.discovery.recipe
    assert (plan.open_columns, own.share, own.year, own.at_most) == (("zip",), Fraction(1, 4), 52, 9)
    assert (own.columns[0].known, own.columns[0].other) == (("a", "rest"), 1)
    facts = describe(config)
    assert facts["budget"]["text"] == "epsilon = 1, delta = 1e-9"
    assert facts["budget"]["exceptions"] == "1/1000000000"
    assert "approximate differential privacy with epsilon = 1, delta = 1e-9" in facts["guarantee"]


def test_with_a_pattern_the_guarantee_stays_pure(tmp_path: Path) -> None:
    config = load(tmp_path, columns=f'{OPEN}pattern = ["[0-9]{{5}}"]\n{PAID}')
    assert config.plan().discovery.thresholds["zip"].universe == 10**5
    with pytest.raises(ConfigError, match="values of zip are discovered, so records cannot be invented"):
        read_domain(config)
    assert "pure differential privacy" in describe(config)["guarantee"]


class AllPass(Relay):
    """Every text of a pattern passes."""

    def exceeding(self, law: DiscreteLaplace, above: int, size: int) -> list[tuple[int, int]]:
        return [(rank, above + 1) for rank in range(size)]


def test_a_text_that_means_null_is_never_invented(tmp_path: Path) -> None:
    columns = f'[schema]\nnull_values = ["NA", ""]\n{OPEN}pattern = ["[M-O][A-B]"]\nmissing = "none"\n{PAID}'
    rule = load(tmp_path, columns=columns).plan().discovery.rule("zip")
    entered = rule.publish([], AllPass(Randomness.seeded(1)))
    assert [value for value, _ in entered] == ["MA", "MB", "NB", "OA", "OB"]


def test_a_budget_may_end_before_the_source(tmp_path: Path) -> None:
    budget = 'epsilon = "1"\nhorizon = 3'
    config = load(tmp_path, columns=OPEN + PAID, source=WEEKS, budget=budget, rest=DELTA)
    assert describe(config)["discovery"]["ends"] == [1, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": OPEN}, r"\[discovery\]: delta is missing"),
        ({"columns": PAID, "rest": DELTA}, r"\[discovery\]: a column is missing"),
        ({"columns": OPEN, "rest": f'{DELTA}\nshare = "2"'}, "share"),
        ({"columns": OPEN, "rest": DELTA, "mechanism": 'name = "dpstabs"'}, "discovers no values"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, **given)


def test_a_person_with_many_records_is_told_their_delta(tmp_path: Path) -> None:
    """Not a record's: a value that nobody else has passes more often, the more often it is there."""
    given = {"columns": OPEN + PAID, "source": WEEKS, "rest": f'{DELTA}\nshare = "1/2"'}
    config = load(tmp_path, budget='epsilon = "2"', **given)
    page = statement(config, status_facts(config), date="1 May 2026").markdown()
    entry = Entry(config.plan().discovery.thresholds["zip"])
    for many in (1, 2, 10):
        told = re.search(rf"(?:{many} records|One record): epsilon = {2 * many}, delta = ([0-9.e-]+);", page)
        passes = entry.passes(many)
        assert passes * (1 - 1e-9) <= float(told[1]) <= 2.8 * passes, "tau is a whole number"
    assert passes > 1000e-9, "control: a record's delta would not hold"
    assert "both streams have seen costs the sum: on the same terms epsilon = 4, delta = 2e-9" in page
    assert "delta for discovered values can be more than k times as large" in page
    monthly = WEEKS.replace("week", "month") + '\nuser_column = "who"'
    unit = 'unit = "user"\nmax_events = 4\nper = "month"'
    lives = describe(load(tmp_path, stream=unit, **{**given, "source": monthly}))["words"]["lives"]
    assert re.search(r"the loss is epsilon = 12, delta = [0-9.]+e-8; no bound; no bound, and a guess", lives)


def test_a_frequent_value_enters_a_stream_with_its_noisy_count(tmp_path: Path) -> None:
    """Of records with their values; its manifest says from which step on."""
    schema = Schema([Categorical("zip", "discover", known=["a"], other="rest"), Boolean("paid")])
    rows = {"zip": ["a"] * 40 + ["b"] * 200 + ["c"], "paid": [True] * 241}
    given = {"epsilon": 4, "mechanism": "pooled", "discovery": {"delta": "1e-9"}}
    with dpstream.open(tmp_path, schema, **given) as stream:
        first, second = (stream.step(rows, name=name) for name in ("one", "two"))
    entered = first.manifest["discovered"]["zip"]
    # Noise of scale 5/2: further off than 60 with probability 4e-11.
    assert [(one["value"], one["from_step"], abs(one["noisy_count"] - 200) < 60) for one in entered] == [
        ("b", 2, True)
    ]
    assert "exceptions" in second.manifest["guarantee"]
    assert "b" in second.table().column("zip").to_pylist()


def test_screens_say_the_delta_of_what_was_lost(tmp_path: Path) -> None:
    config = write_config(tmp_path, columns=OPEN + PAID, rest=DELTA)
    rows = [f"{step},a,true" for step in range(1, 10)] + ["1,v-often,true"] * 500 + ["5,v-often,true"] * 500
    write_rows(tmp_path, "1.csv", "step,zip,paid", rows)
    assert "loss so far epsilon = 1, delta = 1e-9" in invoked("run", config).stdout
    # The page and the report hold numbers of before the value had a cell.
    invoked("report", config, "--out", tmp_path / "report.html")
    for page in ("report.html", "releases/index.html"):
        text = (tmp_path / page).read_text("utf-8")
        assert "v-often" in text
        assert "dpstream errors" not in text, "of discovered values no records are invented"
    assert "dpstream errors" not in invoked("plan", config, "--all", "--quick").stdout
    # In the truth the value has a code from the first step on: half of its records were published as ``other``.
    assert 0.3 < evaluate_run(Config.load(config), judged=False).last.errors.tv[0] < 0.7
    for verb in (("status",), ("ledger", "show")):
        assert "epsilon = 1, delta = 1e-9" in invoked(*verb, config).stdout
