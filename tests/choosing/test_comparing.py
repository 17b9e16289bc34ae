"""Comparing mechanisms on invented streams, and forecasts: what wins, what never does, and what is refused."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream, invoke
from small_configs import rewrite

from dpstream.core.contracts import Alternative
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, Randomness
from dpstream.project import Config
from dpstream.stream.predecessor_cost import Base
from dpstream.tools import choosing
from dpstream.tools.choosing import MechanismErrors, compare_mechanisms, contenders, recommend
from dpstream.tools.errors.contract import FamilySimulation, Guess
from dpstream.tools.errors.simulation import observations
from dpstream.tools.family_tools import tool_of
from dpstream.tools.forecast import forecast
from dpstream.tools.simulate import Stock, simulate

COLUMNS = """
[schema.columns.kind]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[schema.columns.size]
type = "integer"
edges = [0, 1, 2, 4, 8]
"""
PLANE = '[schema.columns.x]\ntype = "real"\nedges = [0, 1, 2]\n[schema.columns.red]\ntype = "boolean"\n'
POOR = '[schema.columns.poor]\ntype = "boolean"\n'


def events(
    folder: Path,
    mechanism: str = 'name = "pooled"',
    steps: int = 12,
    *,
    stream: str = "",
    source: str = "",
    budget: str = 'epsilon = "1"',
    horizon: bool = True,
    expect: str = "records_per_step = 100",
    columns: str = COLUMNS,
) -> Config:
    """A stream whose records nobody has; each argument is a section's lines."""
    lines = [
        *("format = 1", "[stream]", 'name = "invented"', stream),
        *("[source]", 'path = "nowhere/*.csv"', 'time_column = "when"', f"end = {steps}", source),
        *(["[mechanism]", mechanism] if mechanism else []),
        *("[budget]", budget, f"horizon = {steps}" if horizon else ""),
        *(["[expect]", expect] if expect else []),
        columns,
    ]
    path = folder / "dpstream.toml"
    path.write_text("\n".join(lines))
    return Config.load(path)


def keyed(folder: Path, op: str = 'op_column = "op"', size: str = "size = 1000\n", **more: Any) -> Config:
    source = f'key_column = "key"\n{op}'
    more = {"stream": 'unit = "record"', "expect": f"{size}records_per_step = 300", **more}
    return events(folder, "", source=source, **more)


def panel(folder: Path, mechanism: str) -> Config:
    options = {"source": 'user_column = "who"', "budget": 'rho = "0.05"', "expect": "size = 300"}
    return events(folder, mechanism, 6, columns=POOR, **options)


def plan(folder: Path, *words: str) -> Any:
    return invoke("plan", folder / "dpstream.toml", "--compare", *words)


def refused(result: Any, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    # One sentence, after the progress.
    message = result.output.strip().splitlines()[-1]
    assert message.startswith("error: ")
    for part in parts:
        assert part in message


def clock(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """CPU time that goes on by so much at every look at it."""
    ticks = iter(range(0, 10**9, seconds))
    monkeypatch.setattr(choosing.time, "process_time", lambda: float(next(ticks)))


def mechanisms(found: Any) -> tuple[str, ...]:
    """Those that were run; the configured one first."""
    return tuple(dict.fromkeys(one.mechanism for one in found.errors))


def by_name(found: Any, columns: str) -> dict[str, float]:
    return {one.mechanism: one.deciding for one in found.errors if one.columns == columns}


def test_equal_seeds_give_equal_results_and_others_do_not(tmp_path: Path) -> None:
    config = events(tmp_path)
    first, again = (compare_mechanisms(config, runs=2, steps=4, seconds=600) for _ in range(2))
    assert first == again
    assert mechanisms(first) == ("pooled", "dpstabs", "baseline", "baseline (offline = aim)")
    other = compare_mechanisms(config, runs=2, steps=4, seconds=600, seed=1)
    assert other.errors != first.errors
    assert first.errors[0].spread is not None
    # What one mechanism gets does not depend on what it is compared with.
    pair = compare_mechanisms(config, runs=2, steps=4, seconds=600, against=["dpstabs"])
    assert mechanisms(pair) == ("pooled", "dpstabs")
    assert by_name(pair, "correlated") == {
        name: value for name, value in by_name(first, "correlated").items() if not name.startswith("baseline")
    }


def test_a_mechanism_that_is_clearly_worse_is_said_to_be(tmp_path: Path) -> None:
    """A third of the table leaves at each step: whoever adds up all that came has the noise of all of it."""
    found = compare_mechanisms(keyed(tmp_path), runs=4, seconds=600)
    for columns in ("uniform", "correlated"):
        errors = by_name(found, columns)
        assert errors["pooled"] > 1.2 * errors["census"]
    assert found.recommendation.ratio == 1
    assert "census stays: its error (AvgWE) is the smallest" in found.recommendation.words
    assert "quarter of a rho" in found.needs["pooled"]
    # Every guarantee is that of a whole stay.
    made = {one.label: one.config for one in contenders(keyed(tmp_path))}
    assert made["pooled"].budget.budget.epsilon == Fraction(1, 2)
    assert made["pooled"].unit == Event()
    made = {one.label: one.config for one in contenders(keyed(tmp_path, budget='rho = "1/8"'))}
    assert made["dpstabs"].budget.budget.rho == Fraction(1, 32)


def test_a_better_mechanism_is_taken(tmp_path: Path) -> None:
    """Three columns: a run of the baseline measures all pairs, and spends nothing on selecting."""
    config = events(tmp_path, 'name = "dpstabs"')
    found = compare_mechanisms(config, runs=2, seconds=600, against=["baseline"])
    assert found.recommendation.mechanism.startswith("baseline")
    assert found.recommendation.ratio < 0.9
    assert found.recommendation.words.startswith(f"Take {found.recommendation.mechanism}: its error ")


def test_a_mechanism_that_is_planted_as_bad_never_wins(tmp_path: Path) -> None:
    """The configured mechanism itself, with a hundredth of the budget."""
    config = events(tmp_path)
    bad = Alternative("pooled", {"staleness": "1/9"}, named=True, events=100)
    planted = replace(config, family=replace(config.family, alternatives=lambda recipe, unit: (bad,)))
    found = compare_mechanisms(planted, runs=1, steps=6, seconds=600)
    assert mechanisms(found) == ("pooled", "pooled (staleness = 1/9)")
    assert found.recommendation.ratio == 1
    assert by_name(found, "correlated")[bad.label] > 2 * by_name(found, "correlated")["pooled"]


def test_ten_percent_are_no_difference() -> None:
    def judged(other: float, uniform: float = 1.0) -> Any:
        def one(name: str, columns: Any, value: float) -> MechanismErrors:
            return MechanismErrors(name, columns, value, 0.1, 0.1, {}, (value,))

        errors = [one("own", "uniform", 1.0), one("other", "uniform", uniform)]
        errors += [one("own", "correlated", 1.0), one("other", "correlated", other)]
        return recommend(errors, "AvgWE")

    assert judged(0.92).ratio == 1
    assert "other errors" in judged(0.92).words
    assert judged(0.90).mechanism == "other"
    assert judged(1.05).words.endswith("other is as good within 10 %.")
    assert judged(3.0).words.endswith("that of other is 3 times as large.")
    assert "On uniform, independent columns other would be better" in judged(1.2, 0.5).words
    # A table that is at most 10 % nearer than a uniform one says no more than its number of records.
    for trivial, little in ((1.05, True), (1.2, False)):
        known = [
            MechanismErrors(name, "correlated", x, 0.1, 0.1, {}, (x,))
            for name, x in (("own", 1.0), ("uniform", trivial))
        ]
        assert choosing._says_little(judged(3.0), known).words.endswith(choosing.LITTLE) == little


def test_every_family_says_what_its_alternatives_are(tmp_path: Path) -> None:
    public = {"stream": 'total = "public"'}
    plane = events(tmp_path, 'name = "points"\nmax_depth = 10', 4, columns=PLANE, **public)
    points = compare_mechanisms(plane, runs=1, seconds=600)
    assert mechanisms(points) == ("points", "points (variant = paper)")
    assert points.measure == "W1"
    assert all(one.deciding == one.distances["W1"] for one in points.errors)
    cumulative, tree = panel(tmp_path, 'name = "panel-cumulative"'), "panel-cumulative (counter = tree)"
    counted = compare_mechanisms(cumulative, runs=1, seconds=600, against=[tree])
    assert mechanisms(counted) == ("panel-cumulative", tree)
    scheduler = 'name = "scheduler"\nfirst_run = 100\ngamma = "0.5"'
    table = events(tmp_path, scheduler, 6, budget='epsilon = "1"\ndelta = "1e-9"', **public)
    growing = compare_mechanisms(table, runs=1, seconds=600)
    assert mechanisms(growing) == ("scheduler", "improver")
    with pytest.raises(ConfigError, match="no other mechanism publishes the same as 'panel-window'"):
        compare_mechanisms(panel(tmp_path, 'name = "panel-window"\nwindow = 2'))
    with pytest.raises(ConfigError, match="nothing is left to compare with 'census'"):
        compare_mechanisms(keyed(tmp_path), against=["census"])


def test_a_public_table_to_begin_with_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = events(tmp_path)

    class Start:
        domain = config.schema().domain
        total, total_error = 400.0, 0.0
        codes = np.asfortranarray(np.tile(np.array([[2, 1, 0]], np.int32), (400, 1)))

        def records(self) -> Any:
            return self.codes

        def marginals(self, cliques: Any) -> Any:
            from dpstream.core.tables import count_marginals

            return [one.astype(float) for one in count_marginals(self.codes, self.domain, cliques)]

    monkeypatch.setattr(Config, "base", lambda self: Base({}, Start))
    found = compare_mechanisms(config, runs=1, steps=4, seconds=600, against=["dpstabs"])
    assert [one.columns for one in found.errors[::2]] == ["uniform", "correlated", "like the base"]
    assert "columns like the first table" in found.recommendation.words


def test_a_configured_mechanism_that_cannot_be_made_again_stops_the_comparison(tmp_path: Path) -> None:
    """Nobody is told that another mechanism "stays" which the file does not name."""
    broken = Alternative("census", {"turnover": "never"})
    config = keyed(tmp_path)
    family = replace(config.family, alternatives=lambda recipe, unit: (broken, Alternative("pooled")))
    with pytest.raises(ConfigError, match="the configured mechanism 'census' cannot be compared: "):
        compare_mechanisms(replace(config, family=family), runs=1, steps=2)


def test_what_cannot_be_run_is_left_out_with_the_reason(tmp_path: Path) -> None:
    headline = '[accuracy]\nheadline = [["kind"]]\n'
    config = keyed(tmp_path, columns=COLUMNS + headline)
    found = compare_mechanisms(config, runs=1, steps=2, seconds=600)
    assert mechanisms(found) == ("census", "pooled")
    assert found.left_out == {"dpstabs": "the mechanism measures no headlines"}
    with pytest.raises(ConfigError, match=r"other mechanisms cannot run the stream \(dpstabs: the mechanism"):
        compare_mechanisms(events(tmp_path, columns=COLUMNS + headline))


def test_a_table_of_keys_that_nothing_leaves_may_be_a_census(tmp_path: Path) -> None:
    config = keyed(tmp_path, "insert_only = true", "")
    made = {one.label: one for one in contenders(config)}
    assert list(made) == ["pooled", "dpstabs", "baseline", "baseline (offline = aim)", "census"]
    assert made["census"].needs == "[source] insert_only = false"
    found = compare_mechanisms(config, runs=1, steps=2, seconds=600, against=["census"])
    assert mechanisms(found) == ("pooled", "census")


def test_the_command_prints_a_table_and_its_choice(tmp_path: Path) -> None:
    words = ("--runs", "1", "--steps", "3", "--against", "dpstabs", "--seconds", "600")
    same = compare_mechanisms(events(tmp_path), runs=1, steps=3, against=["dpstabs"], seconds=600)
    result = plan(tmp_path, *words)
    assert result.exit_code == 0, result.output
    assert "compared 3 of 4 runs" in result.stderr
    text = " ".join(result.stdout.split())
    assert "the first 3 of 12 steps, 1 run of each mechanism, seed 0" in text
    assert "total variation" in text
    assert same.recommendation.words in text
    facts = json.loads(plan(tmp_path, *words, "--json").stdout)["mechanisms_compared"]
    assert facts == json.loads(json.dumps(same.as_dict()))


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    config = events(tmp_path)
    refused(plan(tmp_path, "--against", "poled"), "unknown mechanism 'poled'; did you mean 'pooled'?")
    refused(plan(tmp_path, "--against", "census"), "'census' cannot take the place of 'pooled'")
    refused(plan(tmp_path, "--against", "pooled"), "nothing is left to compare with")
    refused(plan(tmp_path, "--steps", "13"), "step 13 lies beyond the horizon")
    refused(plan(tmp_path, "--runs", "101"), "runs = 101", "1 to 100")
    with pytest.raises(ConfigError, match=r"0.01 s of CPU are too few for 12 steps"):
        compare_mechanisms(config, seconds=0.01)
    with pytest.raises(ConfigError, match="seconds = 0"):
        compare_mechanisms(config, seconds=0)
    result = invoke("plan", tmp_path / "dpstream.toml", "--runs", 2)
    refused(result, "--runs", "with --compare")
    events(tmp_path, expect="")
    refused(plan(tmp_path), "the table's size is missing", "[expect] with size and records_per_step")
    text = (tmp_path / "dpstream.toml").read_text()
    (tmp_path / "dpstream.toml").write_text(text + "[expect]\nsize = 100000\nrecords_per_step = 100\n")
    refused(plan(tmp_path), "contradicts other guesses")
    events(tmp_path, expect="records_per_step = 1000000")
    refused(plan(tmp_path), "12,000,000 records; 1,000,000 at most can be invented", "fewer --steps")


def test_one_limit_of_cpu_holds_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 1)
    found = compare_mechanisms(events(tmp_path), runs=50, steps=2, seconds=40, against=["dpstabs"])
    assert 1 < found.runs < 50
    assert f"{found.runs} runs of 50, in 40 s of CPU" in found.words


def test_without_a_horizon_the_end_of_the_calendar_says_how_many_steps(tmp_path: Path) -> None:
    found = compare_mechanisms(events(tmp_path, steps=3, horizon=False), runs=1, seconds=600)
    assert (found.steps, found.planned) == (3, 3)
    # A public end may be moved on, so later steps can be asked for.
    later = compare_mechanisms(Config.load(tmp_path / "dpstream.toml"), runs=1, seconds=600, steps=4)
    assert later.steps == 4


def test_a_comparison_that_takes_too_long_costs_nobody_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, 1000)
    events(tmp_path)
    told = plan(tmp_path, "--seconds", "20")
    assert told.exit_code == 0, told.output
    sentence = "The mechanisms were not compared: 20 s of CPU are too few for 12 steps of each mechanism"
    assert sentence in " ".join(told.stdout.split())
    facts = json.loads(plan(tmp_path, "--json").stdout)
    assert facts["mechanisms_compared"]["words"].startswith("The mechanisms were not compared: 60 s")


def test_a_plan_says_what_public_facts_speak_for(tmp_path: Path) -> None:
    """And nothing where they do not: in any order of time."""
    for expect, told in (
        ("records_per_step = 10000", False),
        ('records_per_step = 100\norder = "sorted"', True),
    ):
        events(tmp_path, expect=expect)
        path = tmp_path / "dpstream.toml"
        advice = json.loads(invoke("plan", path, "--json", "--quick").stdout)["advice"]
        assert ["--compare" in words for words in advice] == [True] * told
        printed = " ".join(invoke("plan", path, "--all", "--quick").stdout.split())
        assert all(words in printed for words in advice)


# Forecasts


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
        for _, seen in observations(config, tool, invented, Randomness.seeded(f"other {run}"), run):
            if seen is not None:
                truth = invented.truth[STEPS]
                cliques = [clique for clique in truth.cliques if len(clique) <= 2]
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
