"""What a tortured stream does in one life, and the faults that stop it (``torture.py`` draws and judges)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import toy_stream
from fault_harness import (
    Fault,
    PublishFirst,
    at_once,
    disk_error,
    faulty,
    forked,
    full_disk,
    in_child,
    kill,
    lying_commit,
    owner_decides,
)
from toy_stream import SCHEMA, ToyPlan

from dpstream import Batch, Boolean, DpstreamError, Event, Publisher, Real, Schema, Stream, User, Workload
from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import ConfigError, HorizonError, StoreDamagedError, StoreLockedError
from dpstream.core.privacy import Randomness
from dpstream.families.points import Points
from dpstream.families.tabular import DPStabs
from dpstream.io.sinks import read_catalogue, read_changes, read_manifest, read_measurements
from dpstream.io.sinks import (
    read_table as read,
)
from dpstream.stream import Account, Limit, PostgresServer, Publishing, StateKey, open_stream
from dpstream.stream.identity import plan_facts
from dpstream.stream.release import table_blocks
from dpstream.stream.release.render import steps_to_keep
from dpstream.stream.store import sealed_history as history
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.postgres import PostgresDatabase
from dpstream.stream.store.store import Store
from dpstream.stream.store.upkeep import rekey_store, stored_key

#: Exit codes of a child: any other error, a typed error, and a stream that somebody else has open.
FAILED, REFUSED, LOCKED = 1, 3, 4
#: The server of the streams whose store is on one.
URL = "DPSTREAM_TORTURE_URL"
KEY = StateKey(b"k" * 32)
#: Seconds after which a life counts as hanging (SIGALRM; an exit that no fault explains).
PATIENCE = 90
POINTS = Schema((Boolean("paid"), Real("place", [0, 1])))


@dataclass(frozen=True)
class Settings:
    """How a stream is made and published."""

    mechanism: str
    steps: int
    keep: int | str
    records: str
    publish: str
    format: str
    account: bool
    users: bool
    reopen: bool
    hold: bool
    withdraw: bool
    encrypted: bool
    postgres: bool
    wrong_order: bool
    blocks: bool


def draw_settings(rng: random.Random, wrong_order: bool, postgres: bool) -> Settings:
    """Random settings."""
    drawn = rng.random()
    mechanism = "dpstabs" if drawn < 0.1 else "points" if drawn < 0.2 else "toy"
    publish = rng.choice(["full", "full", "changes", "both"])
    return Settings(
        mechanism=mechanism,
        steps=rng.choice([3, 4]),
        keep=rng.choice([1, 2, "all"]),
        records="persistent" if publish != "full" else rng.choice(["fresh", "persistent"]),
        publish=publish,
        format=rng.choice(["csv", "parquet"]),
        account=rng.random() < 0.4 and mechanism != "points",
        users=mechanism == "toy" and rng.random() < 0.3,
        reopen=rng.random() < 0.5,
        hold=rng.random() < 0.25 and not wrong_order,
        withdraw=rng.random() < 0.25 and not wrong_order,
        encrypted=rng.random() < 0.3,
        postgres=postgres,
        wrong_order=wrong_order,
        blocks=rng.random() < 0.5 and not wrong_order,
    )


def plan_of(settings: Settings) -> StreamPlan:
    """A plan that pays for exactly the steps of a life."""
    if settings.mechanism == "dpstabs":
        recipe = DPStabs(Workload.all_k_way(SCHEMA.domain, 2), k=2, iterations=1)
        return recipe.calibrate(epsilon="1", horizon=settings.steps)
    if settings.mechanism == "points":
        points = Points(POINTS, max_depth=5)
        return points.calibrate(epsilon="1", unit=Event("replace"), horizon=settings.steps)
    return ToyPlan(horizon=settings.steps, unit=User(2) if settings.users else Event())


def schema_of(settings: Settings) -> Schema:
    """The columns of a life."""
    return POINTS if settings.mechanism == "points" else SCHEMA


def batch(step: int, settings: Settings) -> Batch:
    """The records of a step. A user's are all alike, so that it does not show which of them are admitted."""
    made = toy_stream.batch(step)
    frame = made.inserts
    if settings.mechanism == "points":
        place = np.random.default_rng(step).random(len(frame["paid"]))
        return Batch({"paid": frame["paid"], "place": place})
    if settings.users:
        return Batch(frame, users=[f"u{zip_code}-{i % 5}" for i, zip_code in enumerate(frame["zip"])])
    return made if settings.mechanism == "toy" else Batch(frame)


def prepare(home: Path, settings: Settings) -> None:
    """What is there before the stream: its account, where it has one."""
    if settings.account:
        Account.create(
            home / "account.jsonl", Limit.parse("epsilon=1"), "user" if settings.users else "event"
        )


def key_of(settings: Settings) -> StateKey | None:
    """The key of an encrypted store."""
    return KEY if settings.encrypted else None


def server_of(home: Path, settings: Settings) -> PostgresServer | None:
    """Each life has a schema of its own."""
    if not settings.postgres:
        return None
    return PostgresServer(os.environ[URL], f"t_{hashlib.sha256(str(home).encode()).hexdigest()[:20]}")


def has_store(home: Path, settings: Settings) -> bool:
    """Whether the stream was begun."""
    server = server_of(home, settings)
    if server is None:
        return (home / "state" / "stream.sqlite").exists()
    import psycopg

    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{server.schema}.meta",)).fetchone()
    return row is not None and bool(row[0])


def policy_of(settings: Settings) -> Publishing:
    """What is published, and when."""
    return Publishing(
        keep=None if settings.keep == "all" else int(settings.keep),
        records=settings.records,
        publish=settings.publish,
        full_every=3,
        approve=settings.hold,
    )


def opened(home: Path, settings: Settings, entropy: int) -> Stream:
    """The stream with noise of its own."""
    table_blocks.BLOCK = 8 if settings.blocks else 2**18
    stream = open_stream(
        plan_of(settings),
        schema_of(settings),
        home / "state",
        randomness=Randomness.seeded(entropy),
        publish_to=Publisher(home / "releases", format=settings.format),
        publishing=policy_of(settings),
        account=home / "account.jsonl" if settings.account else None,
        server=server_of(home, settings),
        key=key_of(settings),
    )
    if settings.wrong_order:
        stream.__class__ = PublishFirst
    return stream


def live(home: Path, settings: Settings, *, life: int = 0, retry: bool = False) -> None:
    """All steps, those that are committed already too. Noise depends on ``life`` and on the step."""
    guarded(lambda: _live(home, settings, life, retry))


def _live(home: Path, settings: Settings, life: int, retry: bool) -> None:
    stream = opened(home, settings, 1000 * life)
    try:
        for step in range(1, settings.steps + 1):
            if settings.reopen:
                stream.close()
                stream = opened(home, settings, 1000 * life)
            _step(stream, settings, step, life, retry)
            if step % 2 == 0:
                _approve(stream, step)
            if settings.withdraw and step == 2:
                stream.withdraw(2, "a test")
        _approve(stream, settings.steps)
    finally:
        stream.close()


def _approve(stream: Stream, last: int) -> None:
    """What is held up to this step: a life that begins anew holds later ones too, as the one before it did."""
    for step in stream.held():
        if step <= last:
            stream.approve(step)


def _step(stream: Stream, settings: Settings, step: int, life: int, retry: bool) -> None:
    for attempt in range(2 if retry else 1):
        # Each step starts its own words, whatever was drawn before it.
        stream._randomness = Randomness.seeded(1000 * life + step)
        owner_decides(stream)
        try:
            stream.step(batch(step, settings), f"b{step}")
            return
        except DpstreamError:
            if attempt == retry:
                raise


def beyond(home: Path, settings: Settings) -> None:
    """One step more than the plan pays for."""

    def work() -> None:
        with opened(home, settings, 7) as stream:
            try:
                stream.step(batch(settings.steps + 1, settings), "beyond")
            except HorizonError:
                os._exit(REFUSED)

    guarded(work)


def guarded(work: Callable[[], None]) -> None:
    """Typed errors as exit codes in a forked child (in the process that draws, they pass)."""
    if os.getpid() == MAIN:
        work()
        return
    signal.alarm(PATIENCE)
    code = 0
    try:
        work()
    except StoreLockedError:
        code = LOCKED
    except DpstreamError:
        code = REFUSED
    except BaseException:  # noqa: BLE001  (a child must never return into its parent's code)
        traceback.print_exc()
        code = FAILED
    sys.stderr.flush()
    os._exit(code)


MAIN = os.getpid()


# Faults


def kill_after(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Die when the call has taken effect."""
    call(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


def io_error(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """The device fails."""
    if name == "commit":
        raise disk_error(arguments[0])
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def short_write(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """From here on the system takes one half of what it is given, and the disk is full in this call."""
    real = os.write
    os.write = lambda descriptor, data: real(descriptor, data[: max(1, len(data) // 2)])
    if name == "write":
        descriptor, data = arguments
        real(descriptor, data[: len(data) // 2])
    full_disk(name, call, arguments)


def fault(kind: str, errors: str) -> Fault:
    """The fault of a kind; of a kind without one, the call as it is."""
    table = {
        "kill": kill,
        "kill_after": kill_after,
        "fail": full_disk if errors == "ENOSPC" else io_error,
        "short_write": short_write,
        "lying": lying_commit,
        **({"clock": kill} if errors == "EIO" else {}),
    }
    return table.get(kind, lambda _name, call, arguments: call(*arguments))


@contextlib.contextmanager
def cut(at: int | None, *, after: bool) -> Iterator[list[str]]:
    """The server ends the connection before or after its ``at``-th statement (from 1); the statements so far."""
    real, seen = PostgresDatabase.execute, []

    def execute(self: PostgresDatabase, statement: str, parameters: Any = ()) -> Any:
        seen.append(statement)
        now = len(seen) == at
        if now and not after:
            _terminate(self)
        found = real(self, statement, parameters)
        if now and after:
            _terminate(self)
        return found

    PostgresDatabase.execute = execute
    try:
        yield seen
    finally:
        PostgresDatabase.execute = real


def _terminate(session: PostgresDatabase) -> None:
    import psycopg

    pid = session._connection.info.backend_pid
    with psycopg.connect(os.environ[URL], autocommit=True) as other:
        # The second argument waits until it is gone (milliseconds).
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def killed_after(seconds: float, home: Path, settings: Settings, life: int) -> int:
    """Exit code of a life that is killed after a while."""
    child = forked()
    if child == 0:
        live(home, settings, life=life)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def move_clock(seconds: int) -> None:
    """The clock of this process goes wrong by ``seconds``."""

    class Moved(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz or UTC) + timedelta(seconds=seconds)

    history.datetime = Moved
    real = time.time
    time.time = lambda: real() + seconds


def race(home: Path, settings: Settings, lives: list[int], at: int | None) -> list[int]:
    """Two processes at once; the first may be killed. Whoever finds the stream taken tries again for a while."""
    same = lives[0] < 10

    def racer(position: int, life: int) -> None:
        def lived() -> None:
            with faulty(at if position == 0 else None, kill):
                live(home, settings, life=0 if same else life)

        code, end = LOCKED, time.monotonic() + 60
        while code == LOCKED and time.monotonic() < end:
            code = in_child(lived)
            time.sleep(0.01)
        os._exit(code if code >= 0 else 128 - code)

    found = at_once(*(partial(racer, position, life) for position, life in enumerate(lives)))
    return [code if code < 128 else 128 - code for code in found]


# What owners do besides: each verb is stopped somewhere, and repeated

#: What is done to a life's own store.
OWN = ("move", "compact", "rekey")
OTHER_KEY = StateKey(b"o" * 32)


def move(home: Path, settings: Settings) -> None:
    """Away into an archive and back; a repetition goes on where one stopped."""
    archive, state, key = home / "moving", home / "state", key_of(settings)
    server = server_of(home, settings)
    if not archive.exists():
        export_store(state, archive, server=server, move=True, key=key)
    try:
        import_store(archive, state, facts(settings), server=server, key=key)
    except ConfigError as error:
        # The import was through when it was stopped.
        if "there is a stream already" not in str(error):
            raise
    archive.unlink()


def compact(home: Path, settings: Settings) -> None:
    """As ``dpstream store compact`` does."""
    server, key = server_of(home, settings), key_of(settings)
    with Store(home / "state", facts(settings), server=server, key=key) as store:
        store.apply_keep(steps_to_keep(policy_of(settings), store))
    opened(home, settings, 0).close()
    with Store(home / "state", facts(settings), server=server, key=key) as store:
        store.compact()


def rekey(home: Path, settings: Settings) -> None:
    """To another key and back to the first one (or to none)."""
    state, server, own = home / "state", server_of(home, settings), key_of(settings)
    if stored_key(state, server=server) != OTHER_KEY.name:
        rekey_store(state, old=own, new=OTHER_KEY, server=server)
    rekey_store(state, old=OTHER_KEY, new=own, server=server)


def facts(settings: Settings) -> dict[str, object]:
    """What the streams of a life are pinned to."""
    return dict(plan_facts(plan_of(settings), schema_of(settings), "stream"))


def stopped(work: Callable[[], None], rng: random.Random, most: int) -> tuple[bool, int]:
    """Do ``work`` in a child with a fault in its first ``most`` durability calls; whether it hit, and the exit code."""
    fault: Fault = rng.choice([kill, kill_after, io_error, short_write, lying_commit])
    at = rng.randrange(1, most)

    def disturbed() -> None:
        with faulty(at, fault):
            guarded(work)

    code = in_child(disturbed)
    return code != 0, code


def tend(kind: str, home: Path, settings: Settings, rng: random.Random) -> tuple[bool, list[str]]:
    """One verb on the life's own store, stopped once and then finished."""
    verb, calls = {"move": (move, 12), "compact": (compact, 5), "rekey": (rekey, 5)}[kind]
    if not has_store(home, settings):
        return False, []
    hit, code = stopped(lambda: verb(home, settings), rng, calls)
    found = [] if code in (0, REFUSED, -9) else [f"{kind}: exit {code}"]
    code = in_child(lambda: guarded(lambda: verb(home, settings)))
    return hit, found if code == 0 else [*found, f"{kind} cannot be finished: exit {code}"]


# What is left


def head_step(home: Path) -> int:
    """The last step that the head file knows."""
    path = home / "state" / "head.json"
    return int(json.loads(path.read_bytes())["step"]) if path.exists() else 0


def unreadable(home: Path) -> list[str]:
    """Every table and every change that is not dropped can be read and agrees with its hashes, and so can what was
    measured."""
    root, found = home / "releases", []
    try:
        entries = read_catalogue(root)["steps"]
    except DpstreamError as error:
        return [f"the catalogue: {error}"]
    try:
        read_measurements(root)
    except StoreDamagedError as error:
        found.append(f"the measurements: {error}")
    for entry in entries:
        for reader in (read_manifest, read, read_changes):
            try:
                reader(root, entry["step"])
            except ConfigError:
                continue  # dropped by the keep policy, or published without changes
            except StoreDamagedError as error:
                found.append(f"step {entry['step']}: {error}")
    return found
