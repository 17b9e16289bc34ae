"""Errors by simulation agree with errors that are known, repeat themselves, go on, and read public files only."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_stream import certain, make
from scipy.stats import chi2

import dpstream as dp
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import Randomness
from dpstream.core.schema.predicate import parse_predicate
from dpstream.io.sinks.simulated_errors import FOLDER, SimulatedErrors, simulated_errors, unseen
from dpstream.project import Config
from dpstream.tools.errors import Simulation, doubling_steps, publish_errors, simulate_errors
from dpstream.tools.errors import simulation as module
from dpstream.tools.errors.invented_tables import choose, never_falling, without
from dpstream.tools.errors.published import StepErrors

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


def copied(config: Config, folder: Path) -> Config:
    shutil.copytree(config.path.parent, folder)
    return Config.load(folder / "dpstream.toml")


def published(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / FOLDER).iterdir())}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Simulation]:
    config = measured_at_every_step(tmp_path_factory.mktemp("measured"))
    return config, simulate_errors(config, runs=60)


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (2.0, False), (0.5, False)])
def test_a_known_error_is_found(measured: tuple[Config, Simulation], factor: float, agrees: bool) -> None:
    """At the first step each cell has its own noise; ``factor`` plants a wrong standard error."""
    config, simulation = measured
    predicted = config.plan().expected_errors([1])
    assert predicted is not None
    known = predicted[0].every_step
    assert known is not None
    squares = (StepErrors.of(simulation, 1).errors[0] / (known * factor)) ** 2
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], squares.size)
    assert bool(low <= squares.sum() <= high) == agrees
    total = (StepErrors.of(simulation, 1).total_errors / (predicted[0].total or 1.0) / factor) ** 2
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], total.size)
    assert bool(low <= total.sum() <= high) == agrees


def test_equal_seeds_give_equal_files_whatever_the_processes(small: Config, tmp_path: Path) -> None:
    one, two, other = (copied(small, tmp_path / name) for name in ("one", "two", "other"))
    publish_errors(simulate_errors(one, runs=4))
    publish_errors(simulate_errors(two, runs=4, jobs=2))
    publish_errors(simulate_errors(other, runs=4, seed=1))
    assert published(one.output.dir) == published(two.output.dir)
    assert published(one.output.dir) != published(other.output.dir)


def test_a_stopped_call_goes_on(small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parted = copied(small, tmp_path / "whole"), copied(small, tmp_path / "parted")
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
    config = copied(small, tmp_path / "run")
    assert len(simulate_errors(config, runs=9, seconds=0).runs) == 2
    assert len(simulate_errors(config, runs=9, stop=lambda: True).runs) == 3


def test_nothing_private_is_read(small: Config, tmp_path: Path) -> None:
    """With the source and the state gone, the files are the same."""
    with_all, without_any = copied(small, tmp_path / "all"), copied(small, tmp_path / "public")
    shutil.rmtree(without_any.path.parent / "data")
    shutil.rmtree(without_any.state_dir)
    for config in (with_all, without_any):
        publish_errors(simulate_errors(config, runs=2))
    assert published(with_all.output.dir) == published(without_any.output.dir)
    assert not without_any.state_dir.exists()


@pytest.fixture(scope="module")
def done(small: Config, tmp_path_factory: pytest.TempPathFactory) -> Done:
    config = copied(small, tmp_path_factory.mktemp("done") / "run")
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


def test_what_was_published_says_where_it_comes_from(done: Done) -> None:
    config, simulation, facts = done
    assert [one["step"] for one in facts] == [1, 2, 4]
    read = json.loads((config.output.dir / FOLDER / "step-000004.json").read_text())
    assert read == json.loads(json.dumps(facts[-1]))
    assert (read["label"], read["runs"], read["seed"]) == ("by simulation", 3, 0)
    assert read["plan_hash"] == simulation.plan_hash
    assert len(read["marginals"]) == 6  # three columns, and three pairs of them


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
    with pytest.raises(StoreDamagedError, match="by simulation cannot be read"):
        simulated_errors(folder, 4)
    assert simulated_errors(folder, 3) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("nothing released", "there are no releases"),
        ("no table", "no release has a table"),
        ("another plan", "another plan"),
        ("one run", "1 runs tell no spread"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    small: Config, tmp_path: Path, change: str, sentence: str
) -> None:
    config, runs, until = copied(small, tmp_path / "run"), 2, None
    if change == "nothing released":
        shutil.rmtree(config.output.dir)
    elif change == "another plan":
        config.path.write_text(config.path.read_text().replace('epsilon = "100"', 'epsilon = "99"'))
    elif change == "one run":
        runs = 1
    elif change == "no table":
        until = 0
    if change == "another plan":
        config = Config.load(config.path)
    with pytest.raises(ConfigError, match=sentence) as found:
        simulate_errors(config, runs=runs, until=until)
    assert found.value.exit_code == 2


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
