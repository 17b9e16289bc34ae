"""Errors by simulation of a stream that began with the release of another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_stream import certain, dpstream
from scipy.stats import chi2

import dpstream as dp
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.core.tables import EncodedBatch
from dpstream.io.sinks import read_manifest
from dpstream.project import Config
from dpstream.tools.errors import Simulation, publish_errors, simulate_errors
from dpstream.tools.errors.published import StepErrors

OLD = '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b"]\n'
NEW = '[schema.columns.place]\ntype = "categorical"\nvalues = ["a", "b1", "b2"]\n'
BASE = (
    '[base]\nreleases = "../old/releases"\n[base.rename]\nplace = "zip"\n'
    '[base.map.place]\nb = {b1 = "1/4", b2 = "3/4"}\n'
)
COUNTED = 'name = "{name}"\n{k}workload = "all-1-way"'
#: Gaussian noise of a known variance, so the sum of squares has a chi-square law; both ends together.
FALSE_ALARM = 1e-6


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
        config = Config.load(path)
        for _ in dp.run(config, randomness=Randomness.seeded(1)):
            pass
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


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (3.0, False), (1 / 3, False)])
def test_the_error_of_what_came_since_is_found(
    noisy: tuple[Config, Simulation], factor: float, agrees: bool
) -> None:
    """Of a value that was not split: the noise of one step alone; ``factor`` plants a wrong standard error."""
    config, simulation = noisy
    predicted = config.plan().expected_errors([1])
    assert predicted is not None
    known = predicted[0].every_step
    assert known is not None
    squares = (StepErrors.of(simulation, 1).errors[0][:, 0] / (known * factor)) ** 2
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], squares.size)
    assert bool(low <= squares.sum() <= high) == agrees


@pytest.mark.parametrize(("name", "k"), [("pooled", ""), ("baseline", "")])
def test_every_mechanism_that_can_begin_with_a_table(tmp_path: Path, name: str, k: str) -> None:
    """Also with deletes of records of the base; from public files alone, and the reader's answers have the error."""
    config = renewed(tmp_path, name, k, op_column='"op"')
    shutil.rmtree(tmp_path / "new" / "data")
    for part in ("old", "new"):
        shutil.rmtree(tmp_path / part / "state")
    (facts,) = [one for one in publish_errors(simulate_errors(config, runs=3)) if one["step"] == 2]
    assert facts["total"]["invented"] == pytest.approx(620, abs=15)
    assert facts["total"]["standard_error"] < 60  # without the base it would be about 400
    assert "is taken as true" in facts["words"]
    answer = dp.read(config.output.dir).answer("place = 'a'")
    assert answer.error_kind == "simulated"
    assert "is taken as true" in answer.note
    assert not (tmp_path / "new" / "state").exists()


def test_a_base_that_is_gone_is_said(tmp_path: Path) -> None:
    config = renewed(tmp_path, "pooled")
    shutil.rmtree(tmp_path / "old" / "releases")
    with pytest.raises(ConfigError, match="there are no releases") as found:
        simulate_errors(config, runs=2)
    assert "[base]" in str(found.value)
    assert "no releases" in dpstream("errors", config.path, "--runs", 2, code=2).stderr


def test_a_base_that_changed_is_refused(tmp_path: Path) -> None:
    config = renewed(tmp_path, "pooled")
    dpstream("withdraw", tmp_path / "old" / "dpstream.toml", "--step", 2, "--reason", "a mistake")
    with pytest.raises(ConfigError, match="another one than this stream began with"):
        simulate_errors(config, runs=2)
