"""The package's front: its names, and the README's Python as a newcomer pastes it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpstream as dp
from dpstream.core.privacy import Randomness
from dpstream.core.tables import Workload

ROOT = Path(__file__).resolve().parents[2]


SCHEMA = dp.Schema([dp.Categorical("zip", ["94102", "94103"], other="other"), dp.Boolean("paid")])
ROWS = {"zip": ["94102", "94103", "10001"] * 20, "paid": [True, False, False] * 20}


def readme_python() -> list[str]:
    """The README's Python block, and those of its page but the first, which is nearly the same."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/start/python.md")]
    readme, page = (
        [str(one) for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL)] for text in texts
    )
    return [*readme, *page[1:]]


def python(code: str, folder: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    """Each snippet as a person pastes it; the engineer's and the consumer's where a configuration is."""
    analyst, engineer, consumer, researcher = readme_python()
    # ``make demo`` installs requirements/run.txt; data frames of other libraries are the reader's choice.
    alone = "import sys; sys.modules.update(polars=None)\n"
    out = python(
        alone + analyst + "\nprint(release.step, release.rows, release.table().num_rows)\n", tmp_path
    )
    assert out.startswith("Plan of pooled")
    step, rows, published = out.splitlines()[-1].split()
    assert (step, rows) == ("2", published)
    # 1,200 records; the noisy total is some 6 cells' noise of scale 2 away (beyond 300 in one run of 1e30).
    assert 900 < int(rows) < 1500
    assert sorted(path.name for path in (tmp_path / "notices").iterdir()) == ["releases", "state"]
    simulate = [sys.executable, "-m", "dpstream", "simulate", "evictions", "--steps", "3", "--out", "x"]
    subprocess.run(simulate, cwd=tmp_path, check=True, capture_output=True)
    assert (
        python(engineer + "\nprint(release.step, release.spent)\n", tmp_path / "x")
        == "3 epsilon = 1 (pure)\n"
    )
    # All is released: nothing is due, and the engineer's prints nothing.
    said = "\nprint(release.steps, release.answer('non_payment').value)\n"
    shown = python(f"{engineer}\n{consumer}{said}", tmp_path / "x")
    assert shown.startswith("(1, 2, 3) ")
    python(researcher, tmp_path)


def test_every_public_name_is_documented_and_loads_alone() -> None:
    assert 25 <= len(dp.__all__) <= 37
    assert set(dp.__all__) <= set(dir(dp))
    (typed,) = (one for one in ast.parse(Path(dp.__file__).read_text()).body if isinstance(one, ast.If))
    imported = [alias.name for one in typed.body for alias in one.names]  # type: ignore[attr-defined]
    assert sorted(imported) == sorted(dp.__all__), "what mypy knows of the lazy names"
    check = (
        "import sys, dpstream\n"
        "thing = getattr(dpstream, sys.argv[1])\n"
        "lab = [name for name in sys.modules if name.startswith('dpstream_lab')]\n"
        "assert not lab, lab\n"
    )
    for name in dp.__all__:
        assert name == "__version__" or (getattr(dp, name).__doc__ or "").strip(), name
    for name in ("certify", "open", "read", "Config", "counters"):
        run = subprocess.run([sys.executable, "-c", check, name], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
    with pytest.raises(AttributeError, match="no attribute 'Bach'"):
        _ = dp.Bach  # type: ignore[attr-defined]


def open_with(**given: Any) -> Any:
    return lambda place: dp.open(**{"place": place, "schema": SCHEMA, "epsilon": 1, **given})


def step_with(*args: Any, **named: Any) -> Any:
    def call(place: Path) -> None:
        with dp.open(place, SCHEMA, epsilon=1, randomness=Randomness.seeded(1)) as stream:
            stream.step(*args, **named)

    return call


WORKLOAD = Workload.all_k_way(SCHEMA.domain, 1)
OTHER = Workload.all_k_way(dp.Schema([dp.Boolean("x")]).domain, 1)
BAD_CALLS = [
    (open_with(place=5), "allowed: a path"),
    (open_with(place=""), "allowed: a path"),
    (open_with(schema={"zip": ["a"]}), "expected a schema, got dict"),
    (open_with(epsilon=None), "the budget is missing"),
    (open_with(budget={"rho": 1}), "epsilon and rho do not make a budget"),
    (open_with(budget={"epsilon": 1}), "epsilon is given twice"),
    (open_with(budget=dp.PureDP(1), epsilon=None), "has to be a table"),
    (open_with(unit="event"), "unknown unit"),
    (open_with(unit=dp.Event(), stream={"unit": "event"}), "unit is given twice"),
    (open_with(unit=dp.Individual()), "individual"),
    (open_with(mechanism=7), "expected a recipe"),
    (open_with(mechanism=dp.tabular.Pooled), "expected a recipe"),
    (open_with(mechanism=dp.tabular.Pooled(WORKLOAD), expect={"size": 3}), "expect beside a recipe"),
    (open_with(mechanism=dp.tabular.Pooled(WORKLOAD), deletions=True), "deletions beside a recipe"),
    (open_with(mechanism=dp.tabular.Pooled(WORKLOAD), stream={"season": 12}), "season beside a recipe"),
    (open_with(mechanism=dp.tabular.Pooled(OTHER)), "other columns"),
    (open_with(mechanism="points"), "points"),
    (open_with(mechanism="panel-window", epsilon=None, budget={"rho": 1}), "window"),
    (open_with(horizon=3), "it is a key of budget"),
    (open_with(stalenes="1/2"), "unknown argument 'stalenes'"),
    (open_with(outptu={}), "did you mean 'output'"),
    (open_with(source={"path": "x"}), "unknown argument 'source'"),
    (open_with(deletions="yes"), "deletions"),
    (open_with(accuracy={"simulate": 20}), "only runs of a file simulate"),
    (open_with(stream=5), "has to be a table"),
    (open_with(randomness=7), "randomness"),
    (step_with(5, name="1"), "expected a table"),
    (step_with(ROWS, name=None), "name"),
    (step_with(ROWS, name=""), "name"),
    (step_with(ROWS, name="1", period=3), "period"),
    (step_with(ROWS, name="1", deletes=3), "expected a table"),
    (step_with(ROWS, name="1", users=["a"] * 60), "user"),
    (step_with(dp.Batch(ROWS), name="1", deletes=ROWS), "inside the batch"),
    (lambda place: dp.read(5), "expected a path"),
    (lambda place: dp.read(place), "no releases"),
    (lambda place: dp.read(place, step="last"), "expected a step"),
    (lambda place: dp.Config.load(5), "expected a path"),
    (lambda place: dp.Config.load(place / "dpstream.toml"), "dpstream.toml"),
    (lambda place: dp.certify(dp.counters.Tree(4), 4), "expected a calibrated counter, got"),
    (lambda place: dp.certify(dp.counters.Tree(4).calibrate(dp.PureDP(1), dp.Event()), "four"), "four"),
    (lambda place: dp.counters.Tree(4).calibrate(1, dp.Event()), "budget"),
    (lambda place: dp.counters.Tree(4).calibrate(dp.PureDP(1), "event"), "unit"),
    (lambda place: dp.PureDP("much"), "amount"),
    (lambda place: dp.ZCDP(None), "amount"),
    (lambda place: dp.User("many"), "max_events"),
    (lambda place: dp.Event("swap"), "relation"),
    (lambda place: dp.Schema(5), "columns"),
    (lambda place: dp.Categorical("zip", 5), "zip"),
    (lambda place: dp.Categorical(5, ["a"]), "name"),
    (lambda place: dp.Real("rent", 5), "rent"),
    (lambda place: dp.Date("day", 5), "day"),
    (lambda place: dp.DateTime("at", start=5), "at"),
    (lambda place: dp.Workload.all_k_way(SCHEMA.domain, "two"), "k"),
    (lambda place: dp.Workload.parse(SCHEMA.domain, 5), "workload"),
    (lambda place: dp.Publisher(5), ": expected a path"),
]


@pytest.mark.parametrize(("call", "words"), BAD_CALLS)
def test_wrong_arguments_get_the_librarys_own_error(tmp_path: Path, call: Any, words: str) -> None:
    with pytest.raises(dp.DpstreamError) as caught:
        call(tmp_path / "place")
    assert words in str(caught.value)
    # Nothing was spent, and where nothing was opened nothing was written.
    assert not list((tmp_path / "place" / "releases").glob("step-*"))
