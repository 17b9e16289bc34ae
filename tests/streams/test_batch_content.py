"""What tells a repetition from other records: the rule of this version, and that of the formats 1 to 8."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_harness import faulty, in_child, kill
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_server import Cluster
from toy_stream import SCHEMA, ToyPlan, batch, start

from dpstream.core.errors import StepError, StoreFormatError
from dpstream.core.privacy import User
from dpstream.core.schema import Domain
from dpstream.io.sinks import Publisher
from dpstream.stream import Batch, PostgresServer, StateKey, Stream, open_stream
from dpstream.stream.batch_content import RULE, BatchContent, RecordRows
from dpstream.stream.store import store_database as database
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.rekey import rekey_store
from dpstream.stream.store.stored import Stored
from dpstream.stream.store.upkeep import check_store

RESERVED = Path(__file__).parent / "data" / "reserved-8.tar.xz"

#: What ``test_contents_as_they_were_stored`` expects.
OLD = [
    "4ca10f07f088413a297f562b9a72c8151a0f1687bc96cf4dc940cfb22b31f17d",
    "7da58cb08764a51bd61279dfc91db21ff464a1280536ec8f62b9bfe2675b7120",
    "3b436e91baec50769d9534a61a1a1f6c535e1d342a1f74192f4fa5e3896114b9",
]
NEW = [
    "02513b7ab12df3c779250d3381d617b5d81d53788e09137b654382b11d572d3d08",
    "02e8e566849d56c5f58ecf070033664b1702179bfa0714f9ce079cb123912eae23",
    "023eece5002fdde3026f99b5f9885ab2de1c857b58237bfbdd35ce43f7ebe73595",
]


def store() -> Any:
    """What a content needs of its store."""
    found = Stored()
    found.meta = {"key": bytes(range(32))}
    return found


def old(content: BatchContent) -> bytes:
    """As the versions of the formats 1 to 8 stored it."""
    return content.store.fingerprint(content.rows.in_order())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_by_both_rules_a_content_is_a_multiset(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 65535]), min_size=1, max_size=6)))
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    rows = st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=5)
    first, second = (np.array(data.draw(rows), np.int32).reshape(-1, len(sizes)) for _ in range(2))
    empty, kept = first[:0], store()
    here = BatchContent(kept, RecordRows(domain, first, empty))
    mixed = BatchContent(
        kept, RecordRows(domain, first[np.random.default_rng(0).permutation(len(first))], empty)
    )
    same = sorted(map(tuple, first.tolist())) == sorted(map(tuple, second.tolist()))
    for stored in (here.stored, old(here)):
        assert mixed.is_stored_as(stored)
        assert BatchContent(kept, RecordRows(domain, second, empty)).is_stored_as(stored) == same
        assert BatchContent(kept, RecordRows(domain, empty, first)).is_stored_as(stored) == (len(first) == 0)
        assert not mixed.is_stored_as(stored[:-1] + bytes([stored[-1] ^ 1]))


def test_contents_as_they_were_stored() -> None:
    """Made once: the first ones by the version before the rule changed."""
    domain = Domain(("a", "b", "c"), (3, 65535, 2**30))
    codes = np.array([[2, 7, 1], [0, 65534, 2**30 - 1], [2, 7, 1]], np.int32)
    owners = np.array([[5, -1], [2**62, 3], [5, 1]])
    contents = (
        BatchContent(store(), RecordRows(domain, codes, codes[:1])),
        BatchContent(store(), RecordRows(domain, codes, codes[:0], (owners, owners[:0]))),
        BatchContent(store(), RecordRows(domain, codes[:0], codes[:0])),
    )
    assert [old(one).hex() for one in contents] == OLD
    assert [one.stored.hex() for one in contents] == NEW


def reserved(home: Path) -> Path:
    """Three steps of at most two events a user, and a fourth that was reserved when the process was killed."""
    with tarfile.open(RESERVED) as packed:
        packed.extractall(home, filter="data")
    (home / "state").chmod(0o700)
    for file in (home / "state").iterdir():
        file.chmod(0o600)
    return home


def go_on(home: Path, server: PostgresServer | None = None, key: StateKey | None = None) -> Stream:
    sink = Publisher(home / "releases", format="csv")
    plan = ToyPlan(unit=User(2))  # type: ignore[arg-type]
    return open_stream(
        plan, SCHEMA, home / "state", name="stored", publish_to=sink, keep=2, server=server, key=key
    )


def theirs(number: int, *, shift: int = 0, backwards: bool = False) -> Batch:
    """The records of a step; with another ``shift`` they are other people's."""
    frame = {**batch(number).inserts, "person": [f"user-{k % 7 + number + shift}" for k in range(40)]}
    if backwards:
        frame = {name: values[::-1] for name, values in frame.items()}
    return Batch(frame, users="person")


def step(stream: Stream, number: int, **options: Any) -> int:
    return stream.step(theirs(number, **options), f"b{number}", position={"rows": 40 * number}).step


def marks(home: Path) -> list[bytes]:
    """How the contents of a store that is not encrypted begin, where they say a rule."""
    db = sqlite3.connect(home / "state" / "stream.sqlite")
    rows = db.execute("SELECT content FROM steps ORDER BY step").fetchall()
    db.close()
    return [b"" if len(content) == 32 else content[:1] for (content,) in rows]


def lives_on(stream: Stream) -> None:
    """Old steps, the old reservation and a new step are told from other records, whatever their order."""
    for number in (1, 2, 3):
        assert step(stream, number, backwards=True) == number
        with pytest.raises(StepError, match="used at step"):
            step(stream, number, shift=1)
    if stream.last_step == 3:
        with pytest.raises(StepError, match="reserved for other records under this id"):
            step(stream, 4, shift=1)
        with pytest.raises(StepError, match="reserved for the batch 'b4'"):
            stream.step(theirs(4), "other", position={"rows": 160})
    assert step(stream, 4, backwards=True) == 4
    assert step(stream, 5) == 5
    for number in (4, 5):
        assert step(stream, number, backwards=True) == number
        with pytest.raises(StepError, match="used at step"):
            step(stream, number, shift=1)


def test_a_reservation_of_format_8_is_compared_by_its_rule(tmp_path: Path) -> None:
    with go_on(reserved(tmp_path)) as stream:
        lives_on(stream)
    assert marks(tmp_path) == [b"", b"", b"", RULE, RULE]
    with go_on(tmp_path) as stream:
        lives_on(stream)
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()


def test_killed_anywhere_between_the_formats(tmp_path: Path) -> None:
    """From the opening of a store of format 8 to the commit of its reserved step."""
    made = reserved(tmp_path / "made")

    def work(home: Path) -> None:
        with go_on(home) as stream:
            step(stream, 4)

    shutil.copytree(made, tmp_path / "whole")
    with faulty(None, kill) as calls:
        work(tmp_path / "whole")
    for at in range(1, len(calls) + 1):
        home = tmp_path / str(at)
        shutil.copytree(made, home)

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                work(home)

        assert in_child(disturbed) == -signal.SIGKILL
        with go_on(home) as stream:
            with pytest.raises(StepError):
                step(stream, 4, shift=1)
            lives_on(stream)
        assert check_store(home / "state", home / "releases").problems == ()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("place", ["files", "server"])
def test_both_rules_in_an_archive_under_another_key_and_on_a_server(
    tmp_path: Path, request: pytest.FixtureRequest, place: str, encrypted: bool
) -> None:
    """The store moves while a reservation of the old rule is open, and again when it holds steps of both."""
    server = None
    if place == "server":
        cluster: Cluster = request.getfixturevalue("postgres")
        server = PostgresServer(cluster.url, f"t_rules_{encrypted:d}")
    home, key = reserved(tmp_path), StateKey.generate() if encrypted else None
    if encrypted:
        rekey_store(home / "state", old=None, new=key)
    for turn, (source, target) in enumerate(((None, server), (server, None))):
        with go_on(home, source, key) as stream:
            facts = dict(stream._facts)
            if turn:
                lives_on(stream)
        export_store(home / "state", home / f"moved-{turn}", server=source, move=True, key=key)
        import_store(home / f"moved-{turn}", home / "state", facts, server=target, key=key)
    if encrypted:
        rekey_store(home / "state", old=key, new=None)
    with go_on(home) as stream:
        lives_on(stream)
    assert marks(home) == [b"", b"", b"", RULE, RULE]


def test_an_older_version_refuses_the_new_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a repetition for other records."""
    with start(tmp_path, publish=False) as stream:
        stream.step(batch(1), "b1")
    before = (tmp_path / "state" / "stream.sqlite").read_bytes()
    written = database.FORMAT
    monkeypatch.setattr(database, "FORMAT", 8)
    with pytest.raises(StoreFormatError, match=f"written in format {written} by a newer version"):
        start(tmp_path, publish=False)
    assert (tmp_path / "state" / "stream.sqlite").read_bytes() == before
