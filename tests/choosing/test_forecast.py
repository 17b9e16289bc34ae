"""What ``plan`` predicts by simulation: equal seeds, an independent run as the truth, streams that are cut."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from cli_stream import dpstream
from small_configs import rewrite

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.project import Config
from dpstream.tools.errors.contract import FamilySimulation, Guess
from dpstream.tools.errors.simulation import observations
from dpstream.tools.family_tools import tool_of
from dpstream.tools.forecast import forecast
from dpstream.tools.simulate import Stock, simulate

STEPS = 6


def example(folder: Path, name: str) -> Path:
    """An invented stream whose data are gone: nothing of what follows reads them."""
    options = {"stock": Stock(records=200, columns=4, mean_stay=4)} if name == "stock" else {}
    path = simulate(name, STEPS, folder / name, **options)
    for file in [*path.parent.rglob("*.csv"), *path.parent.rglob("*.parquet")]:
        file.unlink()
    return path


@pytest.mark.parametrize("name", ["evictions", "stock", "panel"])
def test_runs_of_another_seed_have_the_predicted_errors(tmp_path: Path, name: str) -> None:
    """Forty runs; the medians over columns and pairs are within a factor of 1.4, totals of 2 (they stay alike
    over a run). Seeds are fixed."""
    config = Config.load(example(tmp_path, name))
    made = forecast(config, STEPS, seconds=1000)
    assert (made.step, made.simulated_steps) == (STEPS, STEPS)
    tool, cliques = tool_of("simulation", FamilySimulation, config.family), None
    squares = []
    for run in range(40):
        assert config.expected is not None
        assert tool.imagine is not None
        guess = Guess(config.expected, STEPS, (STEPS,), "foreseen", None, 1000 + run)
        invented = tool.imagine(config, guess)
        truth = invented.truth[STEPS]
        cliques = [clique for clique in truth.cliques if len(clique) <= 2]
        for _, seen in observations(config, tool, invented, Randomness.seeded(f"other {run}"), run):
            if seen is not None:
                pairs = zip(
                    *(one.marginals(truth.domain, cliques) for one in (truth.table, seen)), strict=True
                )
                cells = [float(((a - b) ** 2).mean()) for a, b in pairs]
                squares.append([(seen.total - truth.table.total) ** 2, *cells])
    total, *cells = np.sqrt(np.mean(squares, axis=0)).tolist()
    assert 0.5 < made.total / max(total, 1e-9) < 2
    for width in sorted({len(clique) for clique in cliques or ()}):
        found = median(error for error, clique in zip(cells, cliques, strict=True) if len(clique) == width)
        said = median(one.error for one in made.marginals if len(one.columns) == width)
        assert 1 / 1.4 < said / found < 1.4


def test_equal_seeds_give_equal_errors_and_a_cut_run_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.load(example(tmp_path, "evictions"))
    # Time that stands still: as many runs as there may be.
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    first, again, other = (forecast(config, 3, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    cut = forecast(config, 100)
    assert cut.runs == 1
    assert cut.simulated_steps < cut.step == 100
    assert cut.size == config.expected.size_at(100)  # type: ignore[union-attr]
    # Where counts add up, errors grow with the square root of the steps.
    whole = config.plan().expected_errors([100], config.expected)
    assert whole is not None
    assert cut.total == pytest.approx(whole[0].total)
    assert all(math.isfinite(one.error) and one.error > 0 for one in cut.marginals)


def test_a_plan_shows_it_or_says_why_not(tmp_path: Path) -> None:
    path = example(tmp_path, "stock")

    def plan(*words: str) -> str:
        return dpstream("plan", path, *words).stdout

    facts = json.loads(plan("--json", "--seconds", "1"))
    found = facts["forecast"]
    assert [one["use"] for one in found["verdicts"]] == ["totals", "columns", "pairs", "small groups"]
    assert {one["how"] for one in found["verdicts"]} == {"invented"}
    assert json.loads(plan("--json", "--quick"))["forecast"] is None
    # The answer stands in the first lines, and fits a screen.
    lines = plan("--seconds", "1").splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert "number of records" in lines[3]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("records_per_step = ", "records_per_step = 9"), encoding="utf-8")
    config = Config.load(path)
    with pytest.raises(ConfigError, match="at most can be invented"):
        forecast(config, 10**6)
    path.write_text(text.split("[expect]")[0] + text[text.index("[schema") :], encoding="utf-8")
    rewrite(path, 'name = "census"', 'name = "census"\nturnover = 4')
    assert "into [expect]" in plan()
