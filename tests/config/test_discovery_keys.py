"""``[discovery]``: open columns reach the plan, or one sentence says what is wrong."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from cli_stream import dpstream as invoked
from small_configs import PAID, load, write_config, write_rows

import dpstream
from dpstream.core.errors import ConfigError
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.project.planning import describe

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
    assert "pure differential privacy" in describe(config)["guarantee"]


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
    write_rows(tmp_path, "1.csv", "step,zip,paid", [f"{step},a,true" for step in range(1, 10)])
    assert "loss so far epsilon = 1, delta = 1e-9" in invoked("run", config).stdout
    for verb in (("status",), ("ledger", "show")):
        assert "epsilon = 1, delta = 1e-9" in invoked(*verb, config).stdout
