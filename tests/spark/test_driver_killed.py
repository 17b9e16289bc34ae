"""The driver of a whole run over a Spark source, killed at its durability calls; another one goes on."""

from __future__ import annotations

import signal
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fault_harness import committed_steps, faulty, in_child, kill, violations_after_stop
from spark_cases import EVERY_CALL
from test_release_tables import drawn, left_behind
from test_spark_source import FILE, visits

import dpstream as dp
from dpstream.core.privacy import Randomness
from dpstream.project import Config
from dpstream.spark import passes
from dpstream.spark.passes import Passes
from dpstream.spark.spark_batch import SparkBatch
from dpstream.spark.spark_source import SparkSource

STEPS = 2


@pytest.fixture
def counted_once(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose steps Spark has counted. Every life then gets what Spark gave: a forked child must not speak to the
    Java of its parent."""
    (tmp_path / "visits").mkdir()
    pq.write_table(visits(600), tmp_path / "visits" / "one.parquet")
    text = FILE.replace('end = "2026-01-07"', 'end = "2026-01-06"').replace(
        'name = "pooled"', 'name = "dpstabs"'
    )
    text = text.replace("parquet.`visits`", f"parquet.`{tmp_path}/visits`")
    path = tmp_path / "dpstream.toml"
    path.write_text(text + '[output]\nsink = "spark"\n', encoding="utf-8")
    # Of all stores the same, so that the rows' hashes are, too.
    monkeypatch.setattr("dpstream.stream.store.store.secrets.token_bytes", lambda size: bytes(range(size)))
    known: dict[Any, Any] = {}
    real = Passes._collect

    def collect(one: Passes, cliques: Any, key: bytes) -> Any:
        place = (one.where, cliques, key)
        if place not in known:
            known[place] = real(one, cliques, key)
        return known[place]

    monkeypatch.setattr(Passes, "_collect", collect)
    assert len(list(dp.run(path, randomness=Randomness.seeded(1)))) == STEPS
    assert len(known) == STEPS
    steps = list(Config.load(path).source().steps())
    monkeypatch.setattr(SparkSource, "_read", lambda *given: iter(steps[given[-1] - 1 :]))
    monkeypatch.setattr(
        SparkBatch,
        "passes",
        lambda own, schema, cliques, where: Passes(
            own.sides, schema, cliques, where, deletes=own.declares_deletes
        ),
    )
    monkeypatch.setattr(passes, "core_setting", lambda *_: "1g")
    return path


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_run_that_is_killed_at_any_durability_call_goes_on(
    counted_once: Path, here: list[int], small_blocks: None, tmp_path: Path
) -> None:
    text = counted_once.read_text(encoding="utf-8")

    def run(home: Path, seed: int) -> int:
        home.mkdir(exist_ok=True)
        (home / "dpstream.toml").write_text(text, encoding="utf-8")
        return len(list(dp.run(home / "dpstream.toml", randomness=Randomness.seeded(seed))))

    with faulty(None, kill) as calls:
        assert run(tmp_path / "whole", 1) == STEPS
    for at in range(1, len(calls) + 1, 1 if EVERY_CALL else 9):
        home = tmp_path / str(at)

        def disturbed(home: Path = home, at: int = at) -> None:
            with warnings.catch_warnings(), faulty(at, kill):
                run(home, 1)

        status = in_child(disturbed)
        # With other noise there may be a block more or less, and so a file.
        assert status == -signal.SIGKILL or at > len(calls) - 4
        assert violations_after_stop(home) == []
        before = committed_steps(home)
        assert run(home, 2) == STEPS - len(before), calls[at - 1]
        after = committed_steps(home)
        assert {step: after[step] for step in before} == before, "nothing is drawn again"
        assert sorted(after) == [1, 2]
        assert left_behind(home) == []
        with Config.load(home / "dpstream.toml").open_stream(randomness=Randomness.seeded(3)) as stream:
            for step in (1, 2):
                assert drawn(home, step).equals(stream.release(step).sample())
