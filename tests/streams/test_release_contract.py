"""What a batch grants a plan, of frames in this process as of an engine that keeps its records elsewhere; and what the
release of every family offers, asked without knowing which family it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import toy_stream
from numpy.typing import NDArray
from small_batches import same
from small_streams import small_schema, small_step, small_stream

from dpstream import Batch, Boolean, Event, Individual, Real, Schema, Stream, Workload
from dpstream.core.contracts import PrivateBatch, StreamPlan
from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError
from dpstream.core.privacy import AnyNoise, CubeNoise, DiscreteLaplace, PermuteAndFlip, Randomness, Relay
from dpstream.core.tables import BatchAccess, EncodedBatch, EncodedRecords, EncodedReports, ReadRequest
from dpstream.families.growing import ERM, BBScheduler
from dpstream.families.panel import PanelWindow
from dpstream.families.points import Points
from dpstream.families.tabular import DPStabs, Pooled
from dpstream.io.sinks import read_changes
from dpstream.io.sinks import read_table as read
from dpstream.stream import Publishing, open_stream
from dpstream.stream.admission import RecordRows
from dpstream.stream.stream import WatchedRandomness

FLAGS, ONE, LINE = small_schema("paid", "poor"), small_schema("poor"), small_schema("x")


@dataclass
class ToyBatch:
    """An engine's batch: codes, and whose they are; ``stingy`` grants less than a plan asks for."""

    codes: NDArray[np.int32]
    users: list[str] | None = None
    stingy: bool = False

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        domain, none, owners = wanted.schema.domain, self.codes[:0], None
        kind = EncodedRecords if wanted.reads == "records" and not self.stingy else EncodedBatch
        view: PrivateBatch = kind(domain, self.codes, None)
        if self.users is not None:
            names = [blake2b(user.encode(), digest_size=16, key=wanted.key).digest() for user in self.users]
            marks = np.frombuffer(b"".join(names), np.uint8).reshape(-1, 16)
            owners = (marks.copy().view(np.int64), np.zeros((0, 2), np.int64))
            order = np.argsort(names)
            view = view if self.stingy else EncodedReports(domain, self.codes[order], marks[order])
        return BatchAccess(view, RecordRows(domain, self.codes, none, owners), None)


@dataclass(frozen=True)
class Case:
    plan: StreamPlan
    schema: Schema
    users: bool = False


READING = {
    "counts": Case(DPStabs(Workload.all_k_way(FLAGS.domain, 2)).calibrate(epsilon=1), FLAGS),
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


@pytest.mark.parametrize("name", list(READING))
def test_an_engine_gives_the_same_releases(name: str, tmp_path: Path) -> None:
    """Same entropy, same counts: the same releases; a repetition is known, and another batch is refused."""
    case = READING[name]
    with opened(case, tmp_path / "frames") as frames, opened(case, tmp_path / "engine") as engine:
        for step in (1, 2):
            codes, users = rows_of(case, step)
            left = frames.step(Batch(codes, users=users), str(step))
            right = engine.step(ToyBatch(codes, users), str(step))
            if name != "reports":  # the order of people follows their marks, which follow the store's key
                assert public(frames, left) == public(engine, right)
            assert left.total == right.total
            assert engine.step(ToyBatch(codes, users), str(step)).manifest == right.manifest
            with pytest.raises(StepError):
                engine.step(ToyBatch(codes[::2], None if users is None else users[::2]), str(step))


@pytest.mark.parametrize("name", ["records", "reports"])
def test_a_plan_refuses_what_grants_too_little(name: str, tmp_path: Path) -> None:
    codes, users = rows_of(READING[name], 1)
    batch = ToyBatch(codes, users, stingy=True)
    with (
        opened(READING[name], tmp_path / "state") as stream,
        pytest.raises(DataError, match=r"batch (must|needs)"),
    ):
        stream.step(batch, "1")


@pytest.mark.parametrize("name", list(READING))
def test_frames_grant_what_is_declared_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, seen = READING[name], list[PrivateBatch]()
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


# What the release of every family offers


CLASSIFIER = BBScheduler(ERM(small_schema("zip", "paid"), "paid"), 40, gamma="1/10")
#: Mechanism -> the family of its stream, and what is not as the family has it.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "pooled": ("table", {}),
    "dpstabs": ("table", {"mechanism": "dpstabs"}),
    "baseline": ("table", {"mechanism": "baseline"}),
    "census": ("keyed", {}),
    "scheduler": ("growing", {}),
    "classifier": ("growing", {"mechanism": CLASSIFIER}),
    "pmwg": ("growing", {"mechanism": {"name": "pmwg", "alpha": "1/5", "start": 40}}),
    "window": ("panel", {}),
    "cumulative": ("panel", {"mechanism": "panel-cumulative"}),
    "points": ("points", {}),
}


@pytest.mark.parametrize("name", list(CASES))
def test_every_release_keeps_the_contract(name: str, tmp_path: Path) -> None:
    family, options = CASES[name]
    with small_stream(tmp_path, family, 3, **options) as stream:
        release, plan, schema = stream.release(), stream.plan, stream._schema
    synthesis, released = release._synthesis, plan.released_schema(schema)
    assert synthesis.domain.names == schema.names
    table = release.sample()
    there = read(tmp_path / "releases", step=3).num_rows
    assert table.num_rows == release.rows == synthesis.rows(released, 10**7) == there
    assert table.equals(release.sample())
    assert release.manifest["accuracy"]["words"]
    again = plan.unpack_synthesis(synthesis.pack())
    assert again.released(released, release.rows, 5).equals(synthesis.released(released, release.rows, 5))
    if synthesis.answers is None:
        for ask in (
            lambda: release.marginal(["paid"]),
            lambda: release.answer("paid = 1"),
            lambda: release.sample(3),
            lambda: release.sample(seed=3),
        ):
            with pytest.raises(ConfigError, match="is a classifier: it gives neither records nor counts"):
                ask()
    else:
        assert synthesis.answers.marginal((0,)).values.shape == synthesis.domain.shape((0,))
        assert synthesis.answers.sample(7, 1).shape == (7, len(schema))
        assert release.sample(7, 1).num_rows == 7
        assert release.marginal([schema.names[0]]).values.size == schema.domain.sizes[0]
    if synthesis.grows is not None:
        assert synthesis.grows.table(released).equals(table)
        added = {"person", "period", *schema.names, "weight"}
        assert set(synthesis.grows.additions(released).column_names) == added


@pytest.mark.parametrize("name", list(CASES))
def test_a_stream_that_is_opened_again_at_every_step_is_the_same_stream(name: str, tmp_path: Path) -> None:
    """State and randomness come back bit by bit, so that the releases are those of one long life."""
    family, options = CASES[name]
    lives = []
    for closing in (False, True):
        randomness, found = Randomness.seeded(4), []
        stream = small_stream(tmp_path / str(closing), family, seed=randomness, **options)
        for step in range(1, 7):
            if closing:
                stream.close()
                stream = small_stream(tmp_path / str(closing), family, seed=randomness, **options)
            synthesis = small_step(stream, family, step)._synthesis
            assert synthesis is not None
            found.append(synthesis.pack())
        stream.close()
        lives.append(found)
    assert all(map(same, *lives))


# Every way to ask for noise is handed on, and noted before it is served


class Tape(Randomness):
    """Ones in place of noise."""

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        return np.ones(size, np.int64)


LAW, COUNTS = DiscreteLaplace(Fraction(5)), np.array([4, 5, 6])
REQUESTS: dict[str, tuple[Callable[[Randomness], Any], Any]] = {
    "words": (lambda source: source.words(1).tolist(), [0]),
    "draw": (lambda source: source.draw(CubeNoise(Fraction(5), 3), 3).tolist(), [1, 1, 1]),
    "nothing drawn": (lambda source: source.draw(LAW, 0).tolist(), []),
    "measure": (lambda source: source.measure(COUNTS, LAW).tolist(), [5, 6, 7]),
    "measure what was drawn": (lambda source: source.measure(COUNTS, LAW, COUNTS).tolist(), [8, 10, 12]),
    "test": (lambda source: source.test(3, 4, LAW), True),
    "test, below": (lambda source: source.test(3, 5, LAW), False),
    "waiting times": (lambda source: source.waiting_times(COUNTS, LAW, 9).tolist(), [0, 0, 0]),
    "reaches": (lambda source: source.reaches(2, 3, LAW), True),
    "select": (lambda source: source.select([9, 1], 1, PermuteAndFlip(Fraction(1), 1)), 0),
    "coins": (lambda source: source.coins("a test", 2).tolist(), [0, 0]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_is_served_by_the_inner_randomness_and_noted(name: str) -> None:
    watched = WatchedRandomness(Tape(bytes))
    assert not watched.used
    request, served = REQUESTS[name]
    assert request(watched) == served
    assert watched.used


def test_a_relay_hands_on_every_request_there_is() -> None:
    asked = {name for name in dir(Randomness) if not name.startswith("_")} - {"system", "seeded", "secure"}
    assert asked == {name for name in vars(Relay) if not name.startswith("_")}


# Labels


SCHEMA = Schema([Boolean("paid"), Real("rent", [0, 500, 2000.5, 1e6], missing="missing")])
ROWS = {"paid": [True, False] * 40, "rent": [100.0, None, 700.0, 30_000.0] * 20}


def start(home: Path, form: Any, policy: Publishing) -> Stream:
    plan = Pooled(Workload.all_k_way(SCHEMA.domain, 2)).calibrate(epsilon=1)
    options: dict[str, Any] = {"plan": plan, "schema": SCHEMA, "randomness": Randomness.seeded(4)}
    return toy_stream.start(home, form=form, publishing=policy, name="Rents", **options)


def run(home: Path, form: Any, policy: Publishing, steps: int = 4) -> dict[str, bytes]:
    with start(home, form, policy) as stream:
        for step in range(1, steps + 1):
            stream.step(Batch(ROWS), f"b{step}", f"2026-W0{step}")
    folder = home / "releases"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("step-*/*"))}


BOTH = Publishing(records="persistent", publish="both")


@pytest.mark.parametrize("policy", [Publishing(), BOTH], ids=["fresh", "persistent"])
def test_every_file_says_what_it_is(tmp_path: Path, policy: Publishing) -> None:
    run(tmp_path / "p", "parquet", policy)
    made = run(tmp_path / "c", "csv", policy)
    manifest = json.loads(made["step-000003/manifest.json"])
    for kind in ("table", "changes") if policy is BOTH else ("table",):
        there = pyarrow.parquet.read_schema(tmp_path / "p" / "releases" / "step-000003" / f"{kind}.parquet")
        told = json.loads(there.metadata[b"dpstream"])
        beside = json.loads(made[f"step-000003/{kind}.csv-metadata.json"])
        assert (beside["url"], beside["notes"]) == (f"{kind}.csv", [manifest["label"]])
        assert (told["synthetic"], told["step"], told["period"]) == (True, 3, "2026-W03")
        assert manifest["guarantee"]["words"] in beside["dc:description"]
        assert "NO GUARANTEE" in told["words"], "a seeded stream promises nothing, in its files neither"
        assert f"{kind}.csv-metadata.json" in manifest["files"]
    read(tmp_path / "c" / "releases", 3)


def test_the_codebook_names_a_table_that_is_there(tmp_path: Path) -> None:
    policy = Publishing(records="persistent", publish="changes", full_every=3)
    made = run(tmp_path, "csv", policy)
    texts = [line.rsplit(b",", 1)[1] for line in made["step-000001/table.csv"].splitlines()[1:]]
    assert len(texts) > 20
    assert max(map(len, texts)) <= 6, "a thousandth of a bin's width: 123.4, 1234, 123400"
    for path in ("step-000004/table.csv", "step-000001/table.csv"):
        book = json.loads((tmp_path / "releases" / "codebook.json").read_bytes())["resources"][0]
        assert book["path"] == path
        names = pa.csv.read_csv(tmp_path / "releases" / path).column_names
        assert names == [field["name"] for field in book["schema"]["fields"]]
        with start(tmp_path, "csv", policy) as stream:
            stream.withdraw(4, "a mistake")


@pytest.mark.parametrize("kind", ["table", "changes"])
@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_a_harmed_label_beside_a_csv_file_is_told_to_its_reader(tmp_path: Path, kind: str, harm: str) -> None:
    run(tmp_path, "csv", BOTH, steps=2)
    reader = read if kind == "table" else read_changes
    releases = tmp_path / "releases"
    reader(releases, 2)
    label = releases / "step-000002" / f"{kind}.csv-metadata.json"
    if harm == "changed":
        label.write_bytes(label.read_bytes().replace(b"Synthetic records", b"Genuine records"))
    else:
        label.unlink()
    with pytest.raises(StoreDamagedError, match=label.name):
        reader(releases, 2)
