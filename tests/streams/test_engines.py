"""What a batch grants: the same of frames in this process, and of an engine that keeps its records elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.contracts import PrivateBatch, StreamPlan
from dpstream.core.errors import DataError, StepError
from dpstream.core.privacy import Event, Individual, Randomness, User
from dpstream.core.schema import Boolean, Real, Schema
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.core.tables.access import BatchAccess, ReadRequest, UserEvents
from dpstream.families.panel import PanelWindow
from dpstream.families.points import Points
from dpstream.families.tabular import DPStabs
from dpstream.stream import Batch, Stream, open_stream

FLAGS = Schema((Boolean("paid"), Boolean("late")))
ONE = Schema((Boolean("late"),))
LINE = Schema((Real("x", [0, 0.5, 1]),))
PAIRS = Workload.all_k_way(FLAGS.domain, 2)
Row = tuple[int, ...]


class ToyView:
    """Counts of lists of tuples, in plain Python."""

    def __init__(
        self, wanted: ReadRequest, inserts: list[Row], deletes: list[Row], marks: list[bytes]
    ) -> None:
        self._sizes, self._inserts, self._deletes = wanted.schema.domain.sizes, inserts, deletes
        self.declares_deletes = False
        width = len(self._sizes)
        self.records = (
            None if wanted.reads == "counts" else np.array(inserts, np.int32).reshape(-1, width, order="F")
        )
        self.marks = (
            None
            if wanted.reads != "reports"
            else np.frombuffer(b"".join(marks), np.uint8).reshape(-1, 16).copy()
        )

    def count(
        self, cliques: Sequence[Clique], part: Literal["net", "inserts", "deletes"] = "net"
    ) -> list[NDArray[np.int64]]:
        found = []
        for clique in cliques:
            counts: Counter[Row] = Counter()
            if part != "deletes":
                counts.update(tuple(row[i] for i in clique) for row in self._inserts)
            if part != "inserts":
                gone = Counter(tuple(row[i] for i in clique) for row in self._deletes)
                (counts.update if part == "deletes" else counts.subtract)(gone)
            cells = product(*(range(self._sizes[i]) for i in clique))
            found.append(np.array([counts[cell] for cell in cells], np.int64))
        return found


@dataclass
class ToyBounded:
    """Takes the first events of each user that there is room for."""

    wanted: ReadRequest
    rows: list[tuple[bytes, Row]]

    def admit(self, events: Callable[[list[bytes]], NDArray[np.int64]]) -> tuple[PrivateBatch, UserEvents]:
        most = self.wanted.max_events
        assert most is not None
        ids = sorted({mark for mark, _ in self.rows})
        before = events(ids)
        used, kept = dict(zip(ids, before.tolist(), strict=True)), []
        for mark, row in sorted(self.rows):
            if used[mark] < most:
                used[mark] += 1
                kept.append(row)
        after = np.array([used[mark] for mark in ids], np.int64)
        changes = UserEvents(ids, before, after, len(self.rows) - len(kept))
        return ToyView(self.wanted, kept, [], []), changes


@dataclass
class ToyRows:
    """Whose which rows are, as a multiset."""

    owned: list[tuple[bytes, Row]]

    def fingerprint(self, key: bytes) -> bytes:
        return hashlib.blake2b(repr(self.owned).encode(), digest_size=32, key=key[:64]).digest()


@dataclass
class ToyBatch:
    """An engine's batch: tuples of codes, and whose they are."""

    rows: list[Row]
    users: list[str] | None = None
    granted: BatchAccess | None = None

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        marks = [
            hashlib.blake2b(user.encode(), digest_size=16, key=wanted.key).digest()
            for user in self.users or []
        ]
        owned = sorted(zip(marks or [b""] * len(self.rows), self.rows, strict=True))
        if wanted.reads == "reports" and len(set(marks)) != len(self.rows):
            raise DataError("a person has two reports in one period", where=wanted.where)
        rows = [row for _, row in owned] if marks else self.rows
        view = ToyView(wanted, rows, [], sorted(marks))
        bounded = None if wanted.max_events is None else ToyBounded(wanted, owned)
        self.granted = BatchAccess(view, ToyRows(owned), bounded)
        return self.granted


@dataclass(frozen=True)
class Case:
    plan: StreamPlan
    schema: Schema
    users: bool = False


CASES = {
    "counts": Case(DPStabs(PAIRS).calibrate(epsilon=1), FLAGS),
    "users": Case(DPStabs(PAIRS).calibrate(epsilon=1, unit=User(2)), FLAGS, users=True),
    "records": Case(Points(LINE).calibrate(epsilon=4, unit=Event("replace")), LINE),
    "reports": Case(PanelWindow(ONE, 2).calibrate(rho=1, unit=Individual(), horizon=4), ONE, users=True),
}


def rows_of(case: Case, step: int) -> tuple[NDArray[np.int32], list[str] | None]:
    """Codes as the plan reads them; nobody has more events than are admitted."""
    generator = np.random.default_rng(step)
    sizes = case.plan.reading_schema(case.schema).domain.sizes
    codes = np.stack([generator.integers(0, size, 30) for size in sizes], axis=1).astype(np.int32)
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
    with opened(case, tmp_path / "frames") as one, opened(case, tmp_path / "engine") as two:
        for step in (1, 2):
            codes, users = rows_of(case, step)
            toy = ToyBatch([tuple(row) for row in codes.tolist()], users)
            left = one.step(Batch(codes, users=users), str(step))
            right = two.step(toy, str(step))
            if name != "reports":  # the order of people follows their marks, which follow the store's key
                assert public(one, left) == public(two, right)
            assert left.total == right.total
            again = two.step(ToyBatch(toy.rows, users), str(step))
            assert again.manifest == right.manifest
            with pytest.raises(StepError):
                two.step(ToyBatch(toy.rows[::2], None if users is None else users[::2]), str(step))
            assert toy.granted is not None
            view = toy.granted.view
            assert (view.records is None, view.marks is None) == (
                name in ("counts", "users"),
                name != "reports",
            )


def test_an_engine_bounds_the_events_of_users(tmp_path: Path) -> None:
    case = CASES["users"]
    with opened(case, tmp_path / "state") as stream:
        stream.step(ToyBatch([(0, 1)] * 5, ["a", "a", "a", "b", "c"]), "1")
        assert stream.dropped_events == 1
        stream.step(ToyBatch([(1, 1)] * 3, ["a", "b", "b"]), "2")
        assert stream.dropped_events == 3


@pytest.mark.parametrize("name", ["records", "reports"])
def test_a_plan_refuses_what_grants_too_little(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    class Stingy(ToyBatch):
        def grant(self, wanted: ReadRequest) -> BatchAccess:
            granted = super().grant(wanted)
            granted.view.records = granted.view.marks = None  # type: ignore[misc]
            return granted

    codes, users = rows_of(case, 1)
    with opened(case, tmp_path / "state") as stream, pytest.raises(DataError, match="does not"):
        stream.step(Stingy([tuple(row) for row in codes.tolist()], users), "1")


def test_frames_grant_what_is_declared_and_nothing_else(tmp_path: Path, monkeypatch: Any) -> None:
    for name, case in CASES.items():
        seen: list[PrivateBatch] = []
        kind, real = type(case.plan), type(case.plan).step
        monkeypatch.setattr(
            kind,
            "step",
            lambda plan, state, batch, randomness, seen=seen, real=real: (
                seen.append(batch) or real(plan, state, batch, randomness)
            ),
        )
        codes, users = rows_of(case, 1)
        with opened(case, tmp_path / name) as stream:
            stream.step(Batch(codes, users=users), "1")
        assert (seen[0].records is None, seen[0].marks is None) == (
            case.plan.reads == "counts",
            case.plan.reads != "reports",
        )
        monkeypatch.undo()
