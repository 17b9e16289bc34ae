"""Planning by error: guesses, predictions beside what runs measure, wishes, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream
from small_configs import PAID, ZIP, write_config

from dpstream.core.contracts import ExpectedTable
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, Budget, Event, Individual, PureDP, Randomness
from dpstream.core.schema import Boolean, Domain, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.families.points.estimates import half_errors
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.project import Config
from dpstream.project.planning import parse_wish
from dpstream_lab.audits.points_audit import cube_cells, cube_plan

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 6, 2))
BUDGETS = (PureDP.of(1), ZCDP.of("1/50"))
STEPS, EACH = 16, 300
STEPPED = 'time_column = "step"\nend = {}'


def batches() -> list[EncodedBatch]:
    """One column drifts, so that every epoch measures all of them."""
    generator, made = np.random.default_rng(1), []
    for step in range(STEPS):
        codes = np.column_stack([generator.integers(0, size, EACH) for size in DOMAIN.sizes]).astype(np.int32)
        codes[:, 1] = generator.choice(3, EACH, p=[0.8, 0.1, 0.1] if step % 2 else [0.1, 0.1, 0.8])
        made.append(EncodedBatch(DOMAIN, codes))
    return made


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("headline", [(), (("a", "d"),)], ids=["", "headline"])
def test_pooled_predicts_the_noise_that_its_epochs_then_have(
    headline: Any, relation: Any, budget: Budget
) -> None:
    recipe = Pooled(Workload.all_k_way(DOMAIN, 2), headline=headline)
    plan = recipe.calibrate(budget, Event(relation), STEPS)
    state, randomness = plan.start(), Randomness.seeded("predicted")
    table = ExpectedTable(STEPS * EACH, EACH, "grows")
    for step, part in enumerate(batches(), 1):
        release = plan.step(state, part, randomness)
        if step not in (1, 4, 9, STEPS):
            continue
        (one,) = plan.expected_errors([step], table)
        own = state.sides[0].estimates
        asked: list[tuple[str, ...]] = [*((name,) for name in DOMAIN.names), *headline]
        for names in asked:
            i = plan.cells.cliques.index(tuple(DOMAIN.names.index(name) for name in names))
            mine = [v for v, index in zip(own.variances, own.marginals, strict=True) if index == i]
            assert len(mine) == len(own.records), "measured in every epoch"
            error = one.of(names)
            assert error is not None
            # Epochs follow the noisy size of the one before, and designs change with it a little. Chosen pairs say
            # something of their columns as well: what is measured may be nearer than a plan can know, and not farther.
            measured = math.sqrt(sum(mine))
            assert 0.95 * measured < error.error < 1.5 * measured
        assert one.total == pytest.approx(release.total_error or 0.0, rel=0.1)
        assert one.size == step * EACH


def test_turnover_is_measured_on_both_sides() -> None:
    workload = Workload.all_k_way(DOMAIN, 1)
    for one, two in (
        (Pooled(workload), Pooled(workload, deletions=True)),
        (DPStabs(workload, k=4), DPStabs(workload, k=4, deletions=True)),
    ):
        grows = one.calibrate(PureDP.of(1), Event(), 50)
        turns = two.calibrate(PureDP.of(1), Event(), 50)
        (alone,) = grows.expected_errors([50], ExpectedTable(5000, 100, "grows")) or ()
        (both,) = turns.expected_errors([50], ExpectedTable(1000, 100, "turns-over")) or ()
        assert (alone.size, both.size) == (5000, 1000)
        for name in DOMAIN.names:
            few, more = alone.of([name]), both.of([name])
            assert few is not None
            assert more is not None
            assert more.error == pytest.approx(math.sqrt(2) * few.error, rel=0.05)


def test_marginals_that_are_always_measured_have_exact_errors_and_give_their_columns() -> None:
    workload = Workload.all_k_way(DOMAIN, 2)
    plan = DPStabs(workload, k=len(workload.cliques)).calibrate(PureDP.of(1), Event(), 8)
    state, randomness = plan.start(), Randomness.seeded("always")
    release = None
    for part in batches()[:8]:
        release = plan.step(state, part, randomness)
    assert release is not None
    (one,) = plan.expected_errors([8], ExpectedTable(8 * EACH, EACH, "grows")) or ()
    for clique, measured in release.measured.items():
        found = one.of(DOMAIN.names[i] for i in clique)
        assert found is not None
        assert found.error == pytest.approx(measured.standard_error)
    column, pair = one.of(["a"]), one.of(["a", "d"])
    assert column is not None
    assert pair is not None
    assert column.error == pytest.approx(pair.error * math.sqrt(2)), "two cells of the smallest pair"


def test_panels_are_as_wrong_as_predicted() -> None:
    """400 runs: a root mean square is 3.6 % wrong by chance, so 18 % is 5 of these (6e-7); two thirds are rejected."""
    people, periods, runs = 800, 4, 400
    reports = np.random.default_rng(2).random((periods, people)) < 0.3
    schema, rho = Schema((Boolean("poor"),)), "1/10"
    window = PanelWindow(schema, 2).calibrate(ZCDP.of(rho), Individual(), periods)
    reaching = PanelCumulative(schema).calibrate(ZCDP.of(rho), Individual(), periods)
    off: dict[str, list[float]] = {"poor": [], "total": [], "at least 1": []}
    for run in range(runs):
        randomness = Randomness.seeded(run)
        state, counting = window.start(people), reaching.start(people)
        release = reached = None
        for now in reports:
            release = window.advance(state, now.astype(np.int64), randomness)
            reached = reaching.advance(counting, now.astype(np.int64), randomness)
        assert release is not None
        assert reached is not None
        counts = release.counts - window.padding
        off["poor"].append(float(counts[1::2].sum() - reports[-1].sum()))
        off["total"].append(float(counts.sum() - people))
        off["at least 1"].append(float(reached.estimates[1] - reports.any(axis=0).sum()))
    table = ExpectedTable(people, 0, "steady")
    (one,), (two,) = window.expected_errors([periods], table), reaching.expected_errors([periods], table)
    poor, least = one.of(["poor"]), two.of(["at least 1"])
    assert poor is not None
    assert least is not None
    assert one.total is not None
    for name, predicted in (("poor", poor.error), ("total", one.total), ("at least 1", least.error)):
        measured = math.sqrt(float(np.mean(np.square(off[name]))))
        assert abs(measured / predicted - 1.0) < 0.18, name
        assert abs(measured / (predicted * 1.5) - 1.0) > 0.18, name
    (early,) = window.expected_errors([1], table)
    assert (early.total, early.marginals) == (None, ()), "nothing is released before the first full window"


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("variant", ["default", "paper"])
def test_halves_of_coordinates_are_as_wrong_as_predicted(dimension: int, variant: Any) -> None:
    """120 runs: a root mean square is 6.5 % wrong by chance, so 33 % is 5 of these; half the noise is rejected."""
    plan = cube_plan(dimension, variant)
    schedule = plan.schedule
    last = schedule.start(schedule.level_of(1000)) - 1
    where = np.random.default_rng(3).random((last + 1, dimension)) ** 1.7
    cells = cube_cells(where, 20)
    predicted = half_errors(plan.schedule, last)
    assert len(predicted) == dimension
    assert half_errors(plan.schedule, schedule.start(1) - 1) == []
    off: list[list[float]] = [[] for _ in predicted]
    for run in range(120):
        randomness = Randomness.seeded(run)
        state = plan.start()
        plan.read(state, cells, randomness)
        for depth in range(dimension):
            since = (
                0
                if schedule.rereads_all
                else schedule.start(depth if plan.schedule.design.history else depth + 1) - 1
            )
            true = float((where[since:last, depth] >= 0.5).sum())
            off[depth].append(float(state.stored[depth].reshape(-1, 2)[:, 1].sum()) - true)
    for error, distances in zip(predicted, off, strict=True):
        measured = math.sqrt(float(np.mean(np.square(distances))))
        assert abs(measured / error - 1.0) < 0.33
        assert abs(measured / (2.0 * error) - 1.0) > 0.33


def config(folder: Path, *, steps: str = "52", horizon: str = "horizon = 52", **parts: str) -> Path:
    usual = {"budget": 'epsilon = "1"', "expect": "[expect]\nrecords_per_step = 100", "source": ""} | parts
    budget, expect = f"{usual.pop('budget')}\n{horizon}", usual.pop("expect")
    source = f'path = "data/*.csv"\ntime_column = "step"\nend = {steps}\n{usual["source"]}'
    columns = ZIP.replace('"c"', '"c", "d"') + PAID
    return write_config(
        folder, **{**usual, "source": source, "columns": columns, "budget": budget, "rest": expect}
    )


def plan(path: Path, *words: str, code: int = 0) -> Any:
    done = dpstream("plan", path, *words, code=code)
    return " ".join(done.output.split()) if code or "--json" not in words else json.loads(done.stdout)


def test_what_is_not_measured_is_predicted_for_steps_that_differ_as_guessed(tmp_path: Path) -> None:
    """Step 10 is the first of an epoch of two: the number of records is that of step 9, and once more the last step."""

    def totals(guess: str, *steps: int) -> Any:
        expect = f"[expect]\nrecords_per_step = 100\n{guess}"
        loaded = Config.load(config(tmp_path, horizon="", steps="1000", expect=expect))
        return [one.total for one in loaded.plan().expected_errors(steps, loaded.expected)]

    measured, usual, before, last = totals("", 9, 10, 999, 1000)
    (noise,), (same, more) = totals("varies = 0", 10), totals("varies = 0.5", 9, 10)
    assert same == measured, "what is measured does not depend on the guess"
    assert measured < noise < 1.5 * measured, "the noise of the last epoch, twice"
    assert usual**2 - noise**2 == pytest.approx(2 * 30.0**2)
    assert more**2 - noise**2 == pytest.approx(2 * 50.0**2)
    with pytest.raises(ConfigError, match=r"varies = 11 cannot be used \(allowed: a number from 0 to 10"):
        totals("varies = 11")
    assert last < before, "the last planned step is measured"


def test_a_plan_predicts_and_judges(tmp_path: Path) -> None:
    facts = plan(config(tmp_path), "--json")
    found = facts["expected_errors"]
    assert [one["step"] for one in found["steps"]] == [1, 2, 5, 10, 20, 50, 52]
    last = found["steps"][-1]
    assert last["size"] == 5200
    assert last["total_share"] == pytest.approx(last["total"] / 5200)
    assert {one["name"]: one["share"] for one in last["marginals"]} == {
        one["name"]: pytest.approx(one["standard_error"] * one["cells"] / 5200) for one in last["marginals"]
    }
    assert [one["use"] for one in found["verdicts"]] == ["totals", "columns", "pairs", "small groups"]
    assert "records_per_step = 100 is published ([expect])" in str(facts["declared_public"])
    statement = dpstream("statement", config(tmp_path)).output.replace("\\", "")
    for one in found["verdicts"]:
        assert one["words"] in statement
    # Without guesses nothing is called fine.
    assert plan(config(tmp_path, expect=""), "--json")["expected_errors"] is None


def test_a_hopeless_budget_is_told(tmp_path: Path) -> None:
    def hopeless(**parts: str) -> bool:
        path = config(tmp_path, horizon="horizon = 4", **parts)
        text = dpstream("plan", path, "--quick").stdout
        told = plan(path, "--json")["expected_errors"]["hopeless"]
        assert ("HOPELESS" in text.splitlines()[1]) == bool(told)
        return bool(told)

    assert hopeless(budget='epsilon = "0.01"', expect="[expect]\nrecords_per_step = 50")
    many = "[expect]\nrecords_per_step = 5000"
    assert not hopeless(expect=many)
    # Each event of a user has a part of the budget.
    users = 'unit = "user"\nmax_events = 100000'
    assert hopeless(expect=many, stream=users, source='user_column = "who"')


@pytest.mark.parametrize(
    ("source", "horizon", "words", "step"),
    [
        (STEPPED.format(30), "horizon = 4", [], 4),
        (STEPPED.format(30), "", [], 30),
        (STEPPED.format(30), "", ["--at", "7"], 7),
        ('time_column = "step"\nevery = "month"\nstart = "2026-01-01"\nend = "today"', "", [], 12),
        ('every = "files"', "", [], 100),
    ],
)
def test_the_step_of_the_verdicts_is_one_that_comes(
    tmp_path: Path, source: str, horizon: str, words: list[str], step: int
) -> None:
    budget, expect = f'epsilon = "1"\n{horizon}', "[expect]\nrecords_per_step = 500"
    path = write_config(tmp_path, source=f'path = "data/*.csv"\n{source}', budget=budget, rest=expect)
    found = plan(path, *words, "--json")["expected_errors"]
    assert found["steps"][-1]["step"] == found["verdict_step"]["step"] == step


@pytest.mark.parametrize("budget", ['epsilon = "1"', 'epsilon = "1"\ndelta = "1e-9"', 'rho = "1/50"'])
def test_a_wish_is_fulfilled_by_the_smallest_budget_only(tmp_path: Path, budget: str) -> None:
    path = config(tmp_path, budget=budget)
    wanted = plan(path, "--want", "zip within 10 %", "--want", "total within 2%", "--json")["wanted"]
    assert wanted["step"] == 52
    # The end of the source says it as well as a horizon does.
    ending = config(tmp_path / "ending", budget=budget, horizon="")
    assert plan(ending, "--want", "zip within 10 %", "--json")["wanted"]["step"] == 52
    assert [one["words"] for one in wanted["wishes"]] == ["zip within 10 %", "total within 2%"]
    shares = [one["with_the_smallest"] for one in wanted["wishes"]]
    assert shares[0] <= 0.10
    assert shares[1] <= 0.02
    # One step of the grid less does not do.
    name = wanted["amount"].split()[0]
    at = float(wanted["smallest"])
    less = at - 10.0 ** (math.floor(math.log10(at)) - 1)
    changed = config(tmp_path, budget=budget.replace('"1"', f'"{less:g}"').replace('"1/50"', f'"{less:g}"'))
    last = plan(changed, "--json")["expected_errors"]["steps"][-1]
    zips = next(one["share"] for one in last["marginals"] if one["name"] == "zip")
    assert zips > 0.10 or last["total_share"] > 0.02, name


def test_what_no_budget_reaches_is_said(tmp_path: Path) -> None:
    path = config(tmp_path, expect="[expect]\nrecords_per_step = 1")
    assert plan(path, "--want", "zip within 0.001 %", "--json")["wanted"]["smallest"] is None


@pytest.mark.parametrize(
    ("parts", "words", "told"),
    [
        ({}, ["--want", "zap within 5 %"], "unknown column 'zap' (allowed: some of total, zip, paid"),
        ({}, ["--want", "zip within few %"], "cannot be read"),
        ({}, ["--want", "zip within 0 %"], "leaves no room for noise"),
        ({}, ["--want", "zip, zip within 5 %"], "names a column twice"),
        ({}, ["--want", "zip, paid within 5 %"], "predicts no error of zip, paid at step 52"),
        ({}, ["--at", "53"], "step 53 lies beyond the horizon"),
        ({"expect": ""}, ["--at", "3"], "--at: nothing says how large the table will be"),
        ({"horizon": "", "steps": '"data"'}, ["--want", "zip within 5 %"], "when the wish is to hold"),
        ({"expect": ""}, ["--want", "zip within 5 %"], "nothing says how large the table will be"),
        ({"expect": "[expect]"}, [], "the section holds no guess"),
        ({"expect": "[expect]\nsize = 5"}, [], None),
        ({"expect": "[expect]\nsize = 5", "horizon": ""}, [], "size needs a horizon"),
        ({"expect": "[expect]\nsize = 50\nrecords_per_step = 100"}, [], "100 records come in a step"),
        ({"expect": "[expect]\nsize = 100000\nrecords_per_step = 100"}, [], "52 steps bring 5200 records"),
        ({"expect": "[expect]\nsize = 15000\nrecords_per_step = 100"}, [], None),
        # Most of them leave within a step.
        ({"expect": "[expect]\nsize = 50\nrecords_per_step = 100", "source": 'op_column = "op"'}, [], None),
    ],
)
def test_one_sentence_for_what_cannot_be(
    tmp_path: Path, parts: dict[str, str], words: list[str], told: str | None
) -> None:
    path = config(tmp_path, **parts)
    if told is None:
        plan(path, "--json", *words)
        return
    text = plan(path, *words, code=2)
    assert text.startswith("error: ")
    assert told in text


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        ("size = 1000", None),
        ("records_per_step = 3", "everybody reports"),
        ("", "the number of people is missing"),
    ],
)
def test_a_panel_has_people(tmp_path: Path, expect: str, told: str | None) -> None:
    path = write_config(
        tmp_path,
        stream='unit = "individual"',
        source='path = "data.csv"\nuser_column = "id"\nperiod_columns = "{column}_{period:02}"',
        columns=PAID,
        mechanism='name = "panel-window"\nwindow = 3',
        budget='rho = "1/100"\nhorizon = 12',
        rest=f"[expect]\n{expect}",
    )
    if told is not None:
        assert told in plan(path, code=2)
        return
    facts = plan(path, "--json", "--want", "paid within 5 %")
    steps = {one["step"]: one for one in facts["expected_errors"]["steps"]}
    assert {one["size"] for one in steps.values()} == {1000}
    assert steps[2]["marginals"] == []
    assert steps[12]["marginals"][0]["name"] == "paid"
    assert float(facts["wanted"]["smallest"]) > 0


def test_wishes_are_read_exactly() -> None:
    names = ("zip", "a b")
    assert parse_wish(" zip ,a b  within 2.5% ", names).columns == ("zip", "a b")
    assert str(parse_wish("total within 2.5 %", names).share) == "1/40"
    for wrong in ("zip", "zip within", "within 5 %", "zip within -5 %", "zip within 5", "zip within 1e3 %"):
        with pytest.raises(ConfigError):
            parse_wish(wrong, names)


def test_a_typical_word_follows_from_the_share() -> None:
    from dpstream.stream.release.verdicts import EXACT, verdicts_from

    borders = (0.05, 0.15, 0.30)
    for share, word in zip((0.0, *itertools.chain(*((b, b + 1e-6) for b in borders))), ("good", "good", "usable",
        "usable", "poor", "poor", "unfit"), strict=True):  # fmt: skip
        found = verdicts_from(1000.0, 1000.0 * share, (), EXACT)
        assert [one.word for one in found] == [word, "not known", "not known", "not known"]
        assert all("run dpstream errors" in one.words for one in found[1:])
    assert {one.word for one in verdicts_from(0.0, 0.0, (), EXACT)} == {"unfit"}


def test_bounds_call_nothing_unfit() -> None:
    from dpstream.core.contracts import MarginalError
    from dpstream.stream.release.verdicts import EXACT, PREDICTED, only_good_news, verdicts_from

    errors = (MarginalError(("a",), 4, 1.0), MarginalError(("a", "b"), 9, 9.0))
    found = only_good_news(verdicts_from(100.0, 90.0, errors, PREDICTED, EXACT))
    assert [one.word for one in found] == ["unfit", "good", "not known", "not known"]
