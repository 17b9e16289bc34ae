"""Stop a small stream before each of its durability calls, finish it, and look for broken promises.

A child process is forked for every run. ``faulty`` wraps each function of ``dpstream.core.durable``: before the
N-th call the child kills itself (SIGKILL), or the call fails as on a full disk. What is left is finished by
another child without faults, and then judged by ``violations``, from the files alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import select
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from toy_stream import SCHEMA, ToyPlan, batch, start

from dpstream.core import durable
from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import DpstreamError, StoreError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Schema
from dpstream.io.sinks import StepFiles, read_catalogue
from dpstream.io.sinks import read_table as read
from dpstream.stream import Publishing, StateKey, Stream
from dpstream.stream.store.postgres import PostgresDatabase
from dpstream.stream.store.store import Prepared

STEPS = 3
#: Every primitive; the composite functions call these.
CALLS = ("commit", "write", "sync_file", "sync_directory", "rename", "link", "unlink")
Fault = Callable[[str, Callable[..., None], tuple[object, ...]], None]


def kill(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Die before the call; a write dies in its middle."""
    if name == "write":
        descriptor, data = arguments
        os.write(descriptor, data[: len(data) // 2])  # type: ignore[arg-type, index]
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """The call fails and has no effect."""
    if name == "commit":
        raise disk_error(arguments[0])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lying_commit(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """The call takes effect, and reports an error all the same."""
    call(*arguments)
    full_disk(name, call, arguments)


def disk_error(connection: object) -> Exception:
    """What the database says when its disk is full."""
    if isinstance(connection, PostgresDatabase):
        import psycopg

        return psycopg.errors.DiskFull("could not extend file: No space left on device")
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    return error


@contextlib.contextmanager
def faulty(at: int | None, fault: Fault) -> Iterator[list[str]]:
    """Call ``fault`` instead of the ``at``-th durability call (from 1); collect the names of all calls."""
    seen: list[str] = []
    originals = {name: getattr(durable, name) for name in CALLS}

    def wrap(name: str) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            seen.append(name)
            if len(seen) == at:
                fault(name, originals[name], arguments)
            else:
                originals[name](*arguments)

        return call

    for name in CALLS:
        setattr(durable, name, wrap(name))
    try:
        yield seen
    finally:
        for name, original in originals.items():
            setattr(durable, name, original)


@dataclass(frozen=True)
class Subject:
    """What the stopped stream is made of: every durable stream has the same promises.

    Attributes:
        stride: it is stopped before every so manieth call of its calls to ``durable``.
        judge: what else has to hold of its files at the end.
    """

    plan: StreamPlan
    schema: Schema
    batch: Callable[[int], Any]
    publishing: Publishing = field(default_factory=Publishing)
    keep: int | None = None
    key: StateKey | None = None
    stride: int = 5
    judge: Callable[[Path], None] = lambda _: None


TOY = Subject(ToyPlan(), SCHEMA, batch, keep=1)


class PublishFirst(Stream):
    """The wrong order, as a negative control: the world sees a release before it is committed."""

    def _commit_and_publish(self, prepared: Prepared, state: object) -> None:
        assert self._sink is not None
        step = prepared.reservation.step
        self._sink.put(StepFiles.of(step, {**prepared.files, "manifest.json": prepared.manifest}))
        super()._commit_and_publish(prepared, state)


def owner_decides(stream: Stream) -> None:
    """An attempt that failed after it had drawn, as on a disk that was full while a table was staged, may be made
    again."""
    if stream._undecided is not None:
        stream.discard_reservation()


def run_stream(
    home: Path, *, subject: Subject | None = None, wrong_order: bool = False, decide: bool = False
) -> None:
    """All steps, each in an opening of its own, with seeded noise; batches that are already committed are repeated.
    ``decide``: an attempt that failed after it had drawn may be made again."""
    subject = subject or TOY
    for step in range(1, STEPS + 1):
        # Noise that depends on the step makes a disturbed run comparable with an undisturbed one.
        stream = start(
            home,
            plan=subject.plan,
            schema=subject.schema,
            form="csv",
            randomness=Randomness.seeded(step),
            keep=subject.keep,
            key=subject.key,
            publishing=subject.publishing,
        )
        if wrong_order:
            stream.__class__ = PublishFirst
        with stream:
            if decide:
                owner_decides(stream)
            stream.step(subject.batch(step), f"b{step}")


def forked() -> int:
    """``os.fork``, made anew where the child hangs in it: threads of libraries may hold Python's locks just then.

    Such a child has run nothing yet: it says so by a pipe when it has come out of the fork.
    """
    for _ in range(10):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.write(writing, b"!")
            os.close(writing)
            return 0
        os.close(writing)
        begun = bool(select.select([reading], [], [], 20.0)[0]) and os.read(reading, 1) == b"!"
        os.close(reading)
        if begun:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise RuntimeError("no child came out of ten forks")


def at_once(*works: Callable[[], object]) -> list[int]:
    """Exit status of each in a forked child: 0, minus the signal, that of a typed error, or 1 for another one."""
    children = []
    for work in works:
        children.append(forked())
        if children[-1] == 0:
            status = 1
            try:
                work()
                status = 0
            except BaseException as error:  # noqa: BLE001  (a child must never return into the test runner)
                traceback.print_exc()
                status = error.exit_code if isinstance(error, DpstreamError) else 1
            finally:
                sys.stderr.flush()
                os._exit(status)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def in_child(work: Callable[[], object]) -> int:
    """Exit status of the only one."""
    return at_once(work)[0]


def failing_with(error: BaseException) -> Callable[..., None]:
    """A function that raises the error, whatever it is given."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def outcome(home: Path) -> dict[str, str]:
    """All released files by hash, but for the witness, whose seals have a key of each store."""
    files = sorted(path for path in (home / "releases").rglob("*") if path.is_file())
    files = [path for path in files if path.name != ".head.json"]
    return {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def published_steps(home: Path) -> dict[int, str]:
    """Manifest hashes of what the world can see."""
    found = (home / "releases").glob("step-*/manifest.json")
    return {int(path.parent.name[5:]): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def open_database(home: Path) -> Any:
    """The store's own tables, read past the program; None where there is no store."""
    path = home / "state" / "stream.sqlite"
    return sqlite3.connect(path) if path.exists() else None


@contextlib.contextmanager
def database(home: Path) -> Iterator[sqlite3.Connection]:
    """A store's SQLite file, changed past the program."""
    with contextlib.closing(sqlite3.connect(home / "state" / "stream.sqlite")) as db, db:
        yield db


def sql(home: Path, statement: str, *parameters: Any) -> list[Any]:
    """What a statement gives in that file."""
    with database(home) as db:
        return db.execute(statement, parameters).fetchall()


def committed_steps(home: Path) -> dict[int, str]:
    """Manifest hashes of what the ledger knows."""
    db = open_database(home)
    if db is None:
        return {}
    try:
        rows = db.execute("SELECT step, manifest FROM steps").fetchall()
    finally:
        db.close()
    return {step: hashlib.sha256(manifest).hexdigest() for step, manifest in rows}


def violations_after_stop(home: Path) -> list[str]:
    """Promises that hold at every instant."""
    committed = committed_steps(home)
    return [
        f"step {step} is published and not committed like that"
        for step, digest in published_steps(home).items()
        if committed.get(step) != digest
    ]


def violations_at_end(home: Path, before: dict[int, str]) -> list[str]:
    """Promises about a finished stream; ``before``: what was committed when it was stopped."""
    found = violations_after_stop(home)
    committed = committed_steps(home)
    for step, digest in before.items():
        if committed.get(step) != digest:
            found.append(f"step {step} was drawn again after its commit")
    if sorted(committed) != list(range(1, STEPS + 1)):
        found.append(f"the ledger holds {sorted(committed)}")
    if published_steps(home) != committed:
        found.append("published and committed releases differ")
    db = open_database(home)
    rows = db.execute("SELECT step, name, sha256 FROM files").fetchall()
    batches = [b for (b,) in db.execute("SELECT batch_id FROM steps ORDER BY step")]
    (spends,) = db.execute("SELECT count(spent) FROM steps").fetchone()
    kept = {s for (s,) in db.execute("SELECT step FROM steps WHERE publication = 'published'")}
    (left,) = db.execute("SELECT count(*) FROM latest WHERE name = 'reservation'").fetchone()
    db.close()
    if batches != [f"b{step}" for step in range(1, STEPS + 1)] or spends != STEPS or left:
        found.append("steps, batches and spends are not one to one")
    for step, name, digest in rows:
        path = home / "releases" / f"step-{step:06d}" / name
        if step in kept and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            found.append(f"published bytes of step {step} are not the stored ones")
        if step not in kept and path.exists() != (name == "measurements.ndjson"):
            found.append(f"{name} of step {step} outlived the keep policy, or should have")
    listed = read_catalogue(home / "releases")["steps"]
    if {entry["step"]: entry["manifest_sha256"] for entry in listed} != committed:
        found.append("the catalogue is not the ledger's")
    read(home / "releases")
    return found + strays(home)


def strays(home: Path) -> list[str]:
    """Files of attempts that are over."""
    left = [path for path in home.rglob("*") if path.name.endswith(".tmp") or ".new" in path.name]
    return [f"{path.name} was left behind" for path in [*left, *home.glob("state/staged/*")]]


def faults_in(
    folder: Path,
    work: Callable[[Path], object],
    *,
    fault: Fault = kill,
    calls: slice = slice(1, None),
    prepare: Callable[[Path], object] = lambda home: None,
) -> Iterator[tuple[Path, str]]:
    """A home for each of the durability calls of ``work``, which met ``fault`` there, and the name of the call.

    Killed work ran in a child; other faults hit this process, and what they raise is for ``work`` to catch.
    """

    def prepared(name: str) -> Path:
        home = folder / name
        home.mkdir()
        prepare(home)
        return home

    home = prepared("undisturbed")
    with faulty(None, kill) as names:
        work(home)
    for at in range(len(names) + 1)[calls]:
        home = prepared(str(at))

        def disturbed(home: Path = home, at: int = at) -> None:
            with faulty(at, fault):
                work(home)

        if fault is kill:
            assert in_child(disturbed) == -signal.SIGKILL
        else:
            disturbed()
        yield home, names[at - 1]


def finish(home: Path, at: object, work: Callable[[], object], expected: dict[str, str]) -> None:
    """What was stopped breaks no promise; ``work`` finishes it, and then nothing is broken either."""
    violations = violations_after_stop(home)
    assert not violations, (at, violations)
    before = committed_steps(home)
    work()
    violations = violations_at_end(home, before)
    assert not violations, (at, violations)
    # Creating the state takes words of the first seed: once it is reopened, step 1 sees other noise.
    if before:
        assert outcome(home) == expected, at


def killed_at_every(stride: int, folder: Path, subject: Subject = TOY, *, wrong_order: bool = False) -> int:
    """Kill a stream before every ``stride``-th durability call, finish it in another process, judge it.

    Nothing is drawn twice, and with equal entropy every file is equal. Gives the last call that met it.
    """

    def work(home: Path) -> None:
        run_stream(home, subject=subject, wrong_order=wrong_order)

    last = 0
    for home, name in faults_in(folder, work, calls=slice(1, None, stride)):
        at = (home.name, name)

        def in_another(home: Path = home, at: object = at) -> None:
            assert in_child(partial(work, home)) == 0, at

        finish(home, at, in_another, outcome(folder / "undisturbed"))
        subject.judge(home)
        last = int(home.name)
    return last


def fails_clearly_at(calls: slice, fault: Fault, folder: Path, subject: Subject) -> None:
    """A failing durability call is a ``StoreError``, and the stream can be finished with nothing lost."""
    failed = []

    def work(home: Path) -> None:
        try:
            run_stream(home, subject=subject)
        except StoreError:
            failed.append(home)

    for home, name in faults_in(folder, work, fault=fault, calls=calls):
        assert failed[-1:] == [home], (home.name, name)
        again = partial(run_stream, home, subject=subject, decide=True)
        finish(home, (home.name, name), again, outcome(folder / "undisturbed"))
