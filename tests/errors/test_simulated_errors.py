"""Errors by simulation agree with errors that are known, repeat themselves, go on, and read public files only.

Also those of a stream that began with the release of another one; then ``dpstream errors`` for every family, and
``[accuracy] simulate`` in a run.
"""

from __future__ import annotations

import json
import math
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import COLUMNS, certain, dpstream, make, write_step
from evaluated_runs import copy_of
from scipy.stats import chi2
from small_configs import rewrite, write_rows

import dpstream as dp
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import parse_predicate
from dpstream.core.tables import EncodedBatch
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks.simulated_errors import FOLDER, SimulatedErrors, simulated_errors, unseen
from dpstream.project import Config
from dpstream.tools.errors import Simulation, doubling_steps, publish_errors, simulate_errors
from dpstream.tools.errors import simulation as module
from dpstream.tools.errors.invented_tables import choose, never_falling, without
from dpstream.tools.errors.published import StepErrors
from dpstream.tools.simulate import Stock, simulate

ONE = '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b", "c"]\n'
ALL_MEASURED = 'name = "dpstabs"\nk = 1\nworkload = "all-1-way"'
#: Both ends together; Gaussian noise of a known variance, so the sum of squares has a chi-square law.
FALSE_ALARM = 1e-6
#: A stream, its simulation, and what was published of it.
Done = tuple[Config, Simulation, list[dict[str, object]]]


def released(path: Path) -> Config:
    """The stream of a file, run with predictable noise."""
    config = Config.load(path)
    for _ in dp.run(config, randomness=Randomness.seeded(1)):
        pass
    return config


def measured_at_every_step(folder: Path) -> Config:
    """One column, counted at every step with Gaussian noise; far from 0, where nothing is cut."""
    path = make(folder, 3, mechanism=ALL_MEASURED, columns=ONE)
    for step in (1, 2, 3):
        rows = "".join(f"{step},{value}\n" for value in ["a"] * 300 + ["b"] * 250 + ["c"] * 200)
        (folder / "data" / f"{step:03d}.csv").write_text(f"step,zip\n{rows}", encoding="utf-8")
    path.write_text(path.read_text().replace('epsilon = "1"', 'rho = "0.01"'), encoding="utf-8")
    return released(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Four small steps, released; never changed by a test."""
    return released(certain(tmp_path_factory.mktemp("small"), mechanism='name = "pooled"'))


def published(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / FOLDER).iterdir())}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Simulation]:
    config = measured_at_every_step(tmp_path_factory.mktemp("measured"))
    return config, simulate_errors(config, runs=60)


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (3.0, False), (1 / 3, False)])
@pytest.mark.parametrize("stream", ["measured", "noisy"])
def test_a_known_error_is_found(
    request: pytest.FixtureRequest, stream: str, factor: float, agrees: bool
) -> None:
    """At the first step each cell has its own noise; ``factor`` plants a wrong standard error. Of a stream with a base:
    what came since, of a value that was not split."""
    config, simulation = request.getfixturevalue(stream)
    predicted = config.plan().expected_errors([1])
    assert predicted is not None
    known, first = predicted[0].every_step, StepErrors.of(simulation, 1)
    looked = [first.errors[0][:, :1] / known]
    if stream == "measured":
        looked = [first.errors[0] / known, first.total_errors / (predicted[0].total or 1.0)]
    for errors in looked:
        squares = (errors / factor) ** 2
        low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], squares.size)
        assert bool(low <= squares.sum() <= high) == agrees


def test_equal_seeds_give_equal_files_whatever_the_processes_and_nothing_private_is_read(
    small: Config, tmp_path: Path
) -> None:
    one, public, other = (copy_of(small, tmp_path / name) for name in ("one", "public", "other"))
    shutil.rmtree(public.path.parent / "data")
    shutil.rmtree(public.state_dir)
    publish_errors(simulate_errors(one, runs=4))
    publish_errors(simulate_errors(public, runs=4, jobs=2))
    publish_errors(simulate_errors(other, runs=4, seed=1))
    assert published(one.output.dir) == published(public.output.dir)
    assert published(one.output.dir) != published(other.output.dir)
    assert not public.state_dir.exists()


def test_a_stopped_call_goes_on(small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parted = copy_of(small, tmp_path / "whole"), copy_of(small, tmp_path / "parted")
    publish_errors(simulate_errors(whole, runs=5))
    done: list[int] = []
    real = module._run

    def dies(task: module._Task, number: int) -> None:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(number)
        real(task, number)

    monkeypatch.setattr(module, "_run", dies)
    with pytest.raises(KeyboardInterrupt):
        simulate_errors(parted, runs=5)
    monkeypatch.setattr(module, "_run", lambda task, number: (done.append(number), real(task, number))[1])
    told: list[tuple[int, int]] = []
    publish_errors(simulate_errors(parted, runs=5, progress=lambda *numbers: told.append(numbers)))
    assert done == [1, 2, 3, 4, 5]
    assert told == [(3, 5), (4, 5), (5, 5)]
    assert published(whole.output.dir) == published(parted.output.dir)


def test_a_limit_of_time_leaves_two_runs(small: Config, tmp_path: Path) -> None:
    config = copy_of(small, tmp_path / "run")
    assert len(simulate_errors(config, runs=9, seconds=0).runs) == 2
    assert len(simulate_errors(config, runs=9, stop=lambda: True).runs) == 3


@pytest.fixture(scope="module")
def done(small: Config, tmp_path_factory: pytest.TempPathFactory) -> Done:
    config = copy_of(small, tmp_path_factory.mktemp("done") / "run")
    simulation = simulate_errors(config, runs=3)
    question = "zip = 'a' and paid"
    return config, simulation, publish_errors(simulation, questions=[question])


def test_questions_are_answered_from_the_published_files(done: Done) -> None:
    config, simulation, facts = done
    found = simulated_errors(config.output.dir, 4)
    assert isinstance(found, SimulatedErrors)
    asked = parse_predicate("zip = 'a' and paid", config.schema())
    names = [config.schema().names[i] for i in asked.columns]
    error = found.of_question(names, np.asarray(asked.mask()))
    told = facts[-1]["questions"][0]  # type: ignore[index]
    assert error is not None
    assert math.isclose(error.standard_error, told["standard_error"], rel_tol=1e-6)
    assert math.isclose(error.bias, told["bias"], abs_tol=1e-6)
    assert math.isclose(error.half_width(), told["half_width"], rel_tol=1e-4)
    truth = simulation.invented.truth[4].table.codes
    off = [
        float(((run[4].codes[:, 0] == 0) & (run[4].codes[:, 1] == 1)).sum())
        - float(((truth[:, 0] == 0) & (truth[:, 1] == 1)).sum())
        for run in simulation.runs
    ]
    assert math.isclose(error.standard_error, math.sqrt(sum(x**2 for x in off) / 3), rel_tol=1e-6)
    assert found.of_question(["zip", "paid", "kind"], np.ones((3, 2, 2), bool)) is None
    assert found.of_question([], np.array(True)) == found.total
    assert "cannot see" in error.words
    assert "by simulation" in error.words


def test_answers_have_their_error_by_simulation_where_none_is_exact(done: Done) -> None:
    config, _, facts = done
    release, question = dp.read(config.output.dir), "zip = 'a' and paid"
    with config.open_stream() as stream:
        own = stream.release(4).answer(question)
    answer, told = release.answer(question), facts[-1]["questions"][0]  # type: ignore[index]
    for one in (own, answer):
        assert (one.error_kind, one.as_of, one.measured_value) == ("simulated", None, None)
        assert one.standard_error == pytest.approx(told["standard_error"], rel=1e-6)
        low, high = one.interval() or (0.0, 0.0)
        assert (high - low) / 2 == pytest.approx(told["half_width"], rel=1e-6)
        assert (high + low) / 2 == one.value
        assert "by simulation" in one.note
    narrow, wide = answer.interval(0.5), answer.interval(0.999)
    assert narrow is not None
    assert wide is not None
    assert wide[0] < narrow[0] < answer.value < narrow[1] < wide[1]
    # What was measured comes first, and is no simulation; a step that was not simulated has no error.
    exact = release.answer("zip = 'a'")
    assert (exact.error_kind, exact.as_of) == ("exact", 4)
    assert exact.note.startswith("exact")
    third = release.answer(question, step=3)
    assert (third.error_kind, third.standard_error, third.interval()) == (None, None, None)
    assert third.note.endswith("The last errors by simulation are of step 2.")


def test_damaged_files_are_refused(done: Done, tmp_path: Path) -> None:
    folder = tmp_path / "releases"
    shutil.copytree(done[0].output.dir, folder)
    cells = folder / FOLDER / "step-000004.parquet"
    cells.write_bytes(cells.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreDamagedError, match="unreadable simulated errors"):
        simulated_errors(folder, 4)
    assert simulated_errors(folder, 3) is None


def test_what_cannot_be_simulated_is_refused(small: Config, tmp_path: Path) -> None:
    config = copy_of(small, tmp_path / "run")
    with pytest.raises(ConfigError, match="too few runs"):
        simulate_errors(config, runs=1)
    with pytest.raises(ConfigError, match="tables are missing"):
        simulate_errors(config, runs=2, until=0)
    rewrite(config.path, 'epsilon = "100"', 'epsilon = "99"')
    with pytest.raises(ConfigError, match="another plan"):
        simulate_errors(Config.load(config.path), runs=2)
    shutil.rmtree(config.output.dir)
    with pytest.raises(ConfigError, match="releases are missing") as refused:
        simulate_errors(config, runs=2)
    assert refused.value.exit_code == 2


def test_expired_steps_are_filled(tmp_path: Path) -> None:
    path = certain(tmp_path, 4, mechanism='name = "pooled"')
    path.write_text(path.read_text().replace('format = "csv"', 'format = "csv"\nkeep = 1'))
    simulation = simulate_errors(released(path), runs=2)
    assert simulation.releases.readable == (4,)
    sizes = [len(table.table.codes) for table in simulation.invented.truth.values()]
    assert sizes == sorted(sizes)
    assert abs(sizes[0] - 10) <= 3
    assert abs(sizes[-1] - 40) <= 3


def test_numbers_that_never_fall_are_the_nearest_ones() -> None:
    values = np.random.default_rng(0).normal(size=9)
    found = never_falling(values)
    assert (np.diff(found) >= 0).all()
    # No other rising numbers are nearer: each block is its own mean.
    for level in np.unique(found):
        assert math.isclose(values[found == level].mean(), level)


def test_choosing_fills_what_is_lacking() -> None:
    pool = np.repeat(np.arange(4), 50)[:, None]
    there, target = np.zeros((50, 1), int), np.repeat([0, 1, 2], [50, 30, 10])[:, None]
    places = choose(pool, 40, target, there, lambda codes: [(codes[:, 0], 4)], np.random.default_rng(0))
    counts = np.bincount(pool[places, 0], minlength=4)
    assert len(set(places.tolist())) == 40
    assert np.abs(counts - [0, 30, 10, 0]).max() <= 3
    assert counts[[0, 3]].tolist() == [0, 0]
    assert without(target, there)[:, 0].tolist() == [1] * 30 + [2] * 10


def test_small_rules() -> None:
    assert doubling_steps(1) == (1,)
    assert doubling_steps(9) == (1, 2, 4, 8, 9)
    assert unseen(np.array([3.0]), []).tolist() == [0.0]


OLD = '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b"]\n'
NEW = '[schema.columns.place]\ntype = "categorical"\nvalues = ["a", "b1", "b2"]\n'
BASE = (
    '[base]\nreleases = "../old/releases"\n[base.rename]\nplace = "zip"\n'
    '[base.map.place]\nb = {b1 = "1/4", b2 = "3/4"}\n'
)
COUNTED = 'name = "{name}"\n{k}workload = "all-1-way"'


def renewed(
    folder: Path, name: str, k: str = "", budget: str = 'epsilon = "100"', **source: object
) -> Config:
    """A stream of two steps that began with 400 records of another one, of which half have a split value."""
    mechanism = COUNTED.format(name=name, k=k)
    old = certain(folder / "old", 2, mechanism=mechanism, columns=OLD)
    new = certain(folder / "new", 4, mechanism=mechanism, columns=NEW, start=3, **source)
    new.write_text(new.read_text().replace('epsilon = "100"', budget) + BASE, encoding="utf-8")
    op = "op," if source else ""
    for path, step, values in (
        (old, 1, ["a"] * 200),
        (old, 2, ["b"] * 200),
        (new, 3, ["a"] * 120),
        (new, 4, ["b1"] * 150),
    ):
        column = "zip" if path is old else "place"
        own = op if path is new else ""
        rows = [f"{step},{'insert,' if own else ''}{value}\n" for value in values]
        if own and step == 4:
            rows += [f"{step},delete,a\n"] * 50
        (path.parent / "data" / f"{step:03d}.csv").write_text(
            f"step,{own}{column}\n{''.join(rows)}", encoding="utf-8"
        )
    for step in (1, 2):
        (new.parent / "data" / f"{step:03d}.csv").unlink()
    for path in (old, new):
        list(dp.run(Config.load(path), randomness=Randomness.seeded(1)))
    return Config.load(new)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Simulation]:
    config = renewed(tmp_path_factory.mktemp("noisy"), "dpstabs", "k = 1\n", 'rho = "0.01"')
    return config, simulate_errors(config, runs=40)


def test_the_invented_truth_is_the_base_and_what_came_since(noisy: tuple[Config, Simulation]) -> None:
    config, simulation = noisy
    base = simulation.invented.base
    assert base is not None
    begin = np.bincount(base.records()[:, 0], minlength=3)
    assert abs(begin.sum() - 400) <= 8  # next to no noise in the earlier stream
    first = simulation.invented.batches[0]
    assert isinstance(first, EncodedBatch)
    came = first.count([(0,)], "inserts")[0]
    truth = simulation.invented.truth[1].table.marginals(simulation.invented.truth[1].domain, [(0,)])[0]
    np.testing.assert_array_equal(truth, begin + came)
    assert abs(truth.sum() - read_manifest(config.output.dir, 1)["rows"]) <= 1
    # The control: the stream of a run that begins empty is off by all of the base.
    assert truth.sum() > 2 * came.sum()


@pytest.mark.parametrize("name", ["pooled", "baseline"])
def test_every_mechanism_that_can_begin_with_a_table(tmp_path: Path, name: str) -> None:
    """Also with deletes of records of the base; from public files alone, and the reader's answers have the error."""
    config = renewed(tmp_path, name, op_column='"op"')
    shutil.rmtree(tmp_path / "new" / "data")
    for part in ("old", "new"):
        shutil.rmtree(tmp_path / part / "state")
    (facts,) = [one for one in publish_errors(simulate_errors(config, runs=3)) if one["step"] == 2]
    assert facts["total"]["invented"] == pytest.approx(620, abs=15)
    assert facts["total"]["standard_error"] < 60  # without the base it would be about 400
    assert "come on top" in facts["words"]
    answer = dp.read(config.output.dir).answer("place = 'a'")
    assert answer.error_kind == "simulated"
    assert "come on top" in answer.note
    assert not (tmp_path / "new" / "state").exists()


def test_a_base_that_changed_or_is_gone_is_refused(tmp_path: Path) -> None:
    config = renewed(tmp_path, "pooled")
    dpstream("withdraw", tmp_path / "old" / "dpstream.toml", "--step", 2, "--reason", "a mistake")
    with pytest.raises(ConfigError, match=r"differs from \[base\]"):
        simulate_errors(config, runs=2)
    shutil.rmtree(tmp_path / "old" / "releases")
    refused = dpstream("errors", config.path, "--runs", 2, code=2).stderr
    assert "[base] releases" in refused
    assert "[base]" in refused


def facts(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dpstream("errors", *arguments, "--json").stdout)
    return found


def test_of_tables(tmp_path: Path) -> None:
    path = certain(tmp_path, mechanism='name = "pooled"')
    dpstream("run", path, "--test-seed", 1)
    text = dpstream("errors", path, "--runs", 2, "--question", "zip = 'a' or paid", "--all").output
    assert "by simulation" in text
    assert "zip = 'a' or paid" in text
    assert "cannot see" in " ".join(text.split())
    assert [one["step"] for one in facts(path, "--runs", 2)] == [1, 2, 4]
    assert [one["step"] for one in facts(path, "--runs", 2, "--until", 3)] == [1, 2, 3]
    assert "street" in dpstream("errors", path, "--question", "street = 'a'", code=2).stderr


def test_of_admitted_records(tmp_path: Path) -> None:
    path = certain(tmp_path, 1, mechanism='name = "pooled"', user_column='"who"')
    rewrite(path, 'name = "test"', 'name = "test"\nunit = "user"\nmax_events = 5')
    rows = [f"1,w{n // 7},{'abc'[n % 3]},true,x" for n in range(700)]
    write_rows(tmp_path, "001.csv", "step,who,zip,paid,kind", rows)
    dpstream("run", path, "--test-seed", 1)
    text = " ".join(dpstream("errors", path, "--runs", 2, "--all").output.split())
    assert "step admitted records ± records" in text
    assert "Errors are about admitted records, at most 5 events of a user" in text


def test_of_columns_that_show_both_bins_as_null(tmp_path: Path) -> None:
    """As drafts declare them: a null of the released table is taken for a missing value."""
    bins = 'type = "boolean"\nother = "odd"\nmissing = "unknown"'
    path = make(tmp_path, 2, mechanism='name = "pooled"', columns=COLUMNS.replace('type = "boolean"', bins))
    dpstream("run", path, "--test-seed", 1)
    assert any(table.read_text().count(",,") for table in (tmp_path / "releases").glob("step-*/table.csv"))
    assert [one["step"] for one in facts(path, "--runs", 2)] == [1, 2]


def simulated(folder: Path, name: str, steps: int, *changes: tuple[str, str], **options: Any) -> Path:
    """A released stream of a family."""
    path = simulate(name, steps, folder / name, **options)
    dpstream("run", rewrite(path, *chain(*changes)), "--test-seed", 1)
    return path


def test_of_records_with_keys(tmp_path: Path) -> None:
    steps = facts(simulated(tmp_path, "stock", 3, stock=Stock(records=60, columns=3)), "--runs", 2)
    assert [one["step"] for one in steps] == [1, 2, 3]
    assert steps[-1]["total"]["standard_error"] > 0


def test_of_panels(tmp_path: Path) -> None:
    """Padding is no error: weights take it out on both sides."""
    path = simulated(tmp_path, "panel", 4, rows_per_step=300)
    (step,) = facts(path, "--runs", 3)
    plan = Config.load(path).plan()
    assert step["step"] == 4
    assert step["total"]["standard_error"] < plan.padding * plan.patterns  # type: ignore[attr-defined]
    assert "streams of tables" in dpstream("errors", path, "--question", "poor", code=2).stderr


def test_of_panels_that_count(tmp_path: Path) -> None:
    counting = ('"panel-window"', '"panel-cumulative"'), ("window = 3\n", "")
    steps = facts(simulated(tmp_path, "panel", 3, *counting, rows_per_step=300), "--runs", 2)
    assert [one["step"] for one in steps] == [1, 2, 3]
    assert steps[-1]["marginals"][0]["columns"] == ["times so far"]


def test_of_points(tmp_path: Path) -> None:
    *_, last = facts(simulated(tmp_path, "points", 2, rows_per_step=100), "--runs", 2)
    assert (last["total"]["standard_error"], last["total"]["bias"]) == (0.0, 0.0)
    assert 0 < last["distances"]["W1"]["mean"] < 1


def accurate(folder: Path, lines: str) -> Path:
    path = make(folder, 3, mechanism='name = "pooled"')
    path.write_text(path.read_text() + f"[accuracy]\n{lines}\n", encoding="utf-8")
    return path


def test_a_run_simulates_where_steps_double_and_goes_on_where_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = accurate(tmp_path, "simulate = 2"), tmp_path / "releases" / FOLDER
    dpstream("run", path, "--steps", 1)
    assert [file.name for file in folder.glob("*.json")] == ["step-000001.json"]
    assert [release.step for release in dp.run(path, steps=1)] == [2]
    assert sorted(file.name for file in folder.glob("*.json")) == ["step-000001.json", "step-000002.json"]
    assert not caplog.messages

    def fails(*_: object, **__: object) -> None:
        raise ValueError("a value that nobody may see")

    monkeypatch.setattr("dpstream.tools.errors.simulate_errors", fails)
    write_step(tmp_path, 4)
    path.write_text(path.read_text().replace("end = 3", "end = 4"))
    assert [release.step for release in dp.run(path)] == [3, 4]
    assert caplog.messages == ["errors were not simulated: ValueError"]


def test_runs_that_time_left_out_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpstream.tools.errors import simulation

    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(simulation.time, "process_time", lambda: next(clock))
    told = dpstream("run", accurate(tmp_path, "simulate = 5\nsimulate_seconds = 50"))
    assert "2 of 5 runs; dpstream errors" in told.stderr


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("simulate = 1", "1 is not a whole number from 2 to 1000"),
        ("simulate_seconds = 5", "simulate"),
        ("simulated = 5", "did you mean 'simulate'"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, lines: str, sentence: str) -> None:
    assert sentence in dpstream("plan", accurate(tmp_path, lines), code=2).stderr


def test_a_table_that_was_taken_back_leaves_no_counts_behind(tmp_path: Path) -> None:
    path = certain(tmp_path, 3, mechanism='name = "pooled"')
    dpstream("run", path, "--test-seed", 1)
    facts(path, "--runs", 2)
    dpstream("withdraw", path, "--step", 3, "--reason", "a mistake")
    facts(path, "--runs", 2)
    there = sorted(file.name for file in (tmp_path / "releases" / FOLDER).iterdir())
    assert there == [f"step-00000{step}.{kind}" for step in (1, 2) for kind in ("json", "parquet")]
