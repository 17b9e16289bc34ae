"""What a batch grants: the same of frames in this process, and of an engine that keeps its records elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from small_streams import small_schema

from dpstream.core.contracts import PrivateBatch, StreamPlan
from dpstream.core.errors import DataError, StepError
from dpstream.core.privacy import Event, Individual, Randomness
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.core.tables.access import BatchAccess, ReadRequest
from dpstream.families.panel import PanelWindow
from dpstream.families.points import Points
from dpstream.families.tabular import DPStabs
from dpstream.stream import Batch, Stream, open_stream

FLAGS, ONE, LINE = small_schema("paid", "poor"), small_schema("poor"), small_schema("x")
PAIRS = Workload.all_k_way(FLAGS.domain, 2)
Row = tuple[int, ...]


class ToyView:
    """Counts of codes in a list."""

    declares_deletes = False

    def __init__(self, wanted: ReadRequest, rows: list[Row], marks: list[bytes]) -> None:
        self._sizes = wanted.schema.domain.sizes
        self._codes = np.array(rows, np.int32).reshape(-1, len(self._sizes), order="F")
        self.records = None if wanted.reads == "counts" else self._codes
        read = np.frombuffer(b"".join(marks), np.uint8).reshape(-1, 16)
        self.marks = read.copy() if wanted.reads == "reports" else None

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[NDArray[np.int64]]:
        counts = [np.zeros([self._sizes[i] for i in clique], np.int64) for clique in cliques]
        for table, clique in zip(counts, cliques, strict=True):
            if part != "deletes":
                np.add.at(table, tuple(self._codes[:, i] for i in clique), 1)
        return [table.ravel() for table in counts]


@dataclass
class ToyRows:
    """Whose which rows are, as a multiset."""

    owned: list[tuple[bytes, Row]]

    def fingerprint(self, key: bytes) -> bytes:
        return hashlib.blake2b(repr(self.owned).encode(), digest_size=32, key=key[:64]).digest()


@dataclass
class ToyBatch:
    """An engine's batch: tuples of codes, and whose they are; ``stingy`` grants less than a plan asks for."""

    rows: list[Row]
    users: list[str] | None = None
    stingy: bool = False
    granted: BatchAccess | None = None

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        marks = [
            hashlib.blake2b(user.encode(), digest_size=16, key=wanted.key).digest()
            for user in self.users or []
        ]
        owned = sorted(zip(marks or [b""] * len(self.rows), self.rows, strict=True))
        if wanted.reads == "reports" and len(set(marks)) != len(self.rows):
            raise DataError("a person has two reports in one period", where=wanted.where)
        view = ToyView(wanted, [row for _, row in owned] if marks else self.rows, sorted(marks))
        if self.stingy:
            view.records = view.marks = None
        self.granted = BatchAccess(view, ToyRows(owned), None)
        return self.granted


@dataclass(frozen=True)
class Case:
    plan: StreamPlan
    schema: Schema
    users: bool = False


CASES = {
    "counts": Case(DPStabs(PAIRS).calibrate(epsilon=1), FLAGS),
    "records": Case(Points(LINE).calibrate(epsilon=4, unit=Event("replace")), LINE),
    "reports": Case(PanelWindow(ONE, 2).calibrate(rho=1, unit=Individual(), horizon=4), ONE, users=True),
}


def rows_of(case: Case, step: int) -> tuple[NDArray[np.int32], list[str] | None]:
    """Codes as the plan reads them, and whose they are."""
    sizes = case.plan.reading_schema(case.schema).domain.sizes
    codes = np.random.default_rng(step).integers(0, sizes, (30, len(sizes))).astype(np.int32)
    return codes, [f"p{i}" for i in range(30)] if case.users else None


def opened(case: Case, path: Path) -> Stream:
    return open_stream(case.plan, case.schema, path, randomness=Randomness.seeded(7))


def public(stream: Stream, release: Any) -> dict[str, Any]:
    return {
        **release.manifest,
        "stream_id": None,
        "table": json.dumps(release.sample().to_pydict(), default=str),
    }


@pytest.mark.parametrize("name", list(CASES))
def test_an_engine_gives_the_same_releases(name: str, tmp_path: Path) -> None:
    """Same entropy, same counts: the same releases; a repetition is known, and another batch is refused."""
    case = CASES[name]
    with opened(case, tmp_path / "frames") as frames, opened(case, tmp_path / "engine") as engine:
        for step in (1, 2):
            codes, users = rows_of(case, step)
            toy = ToyBatch([tuple(row) for row in codes.tolist()], users)
            left = frames.step(Batch(codes, users=users), str(step))
            right = engine.step(toy, str(step))
            if name != "reports":  # the order of people follows their marks, which follow the store's key
                assert public(frames, left) == public(engine, right)
            assert left.total == right.total
            assert engine.step(ToyBatch(toy.rows, users), str(step)).manifest == right.manifest
            with pytest.raises(StepError):
                engine.step(ToyBatch(toy.rows[::2], None if users is None else users[::2]), str(step))
            assert toy.granted is not None
            view = toy.granted.view
            assert (view.records is None, view.marks is None) == (name == "counts", name != "reports")


@pytest.mark.parametrize("name", ["records", "reports"])
def test_a_plan_refuses_what_grants_too_little(name: str, tmp_path: Path) -> None:
    codes, users = rows_of(CASES[name], 1)
    batch = ToyBatch([tuple(row) for row in codes.tolist()], users, stingy=True)
    with (
        opened(CASES[name], tmp_path / "state") as stream,
        pytest.raises(DataError, match=r"batch (must|needs)"),
    ):
        stream.step(batch, "1")


@pytest.mark.parametrize("name", list(CASES))
def test_frames_grant_what_is_declared_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, seen = CASES[name], list[PrivateBatch]()
    step = type(case.plan).step
    monkeypatch.setattr(
        type(case.plan),
        "step",
        lambda plan, state, batch, rest: seen.append(batch) or step(plan, state, batch, rest),
    )
    codes, users = rows_of(case, 1)
    with opened(case, tmp_path) as stream:
        stream.step(Batch(codes, users=users), "1")
    assert (seen[0].records is None, seen[0].marks is None) == (name == "counts", name != "reports")
