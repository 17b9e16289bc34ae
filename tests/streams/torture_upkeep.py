"""What owners do to a tortured stream besides running it: each is stopped somewhere, repeated, and judged."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torture_life as lives
from fault_harness import Fault, faulty, in_child, kill, owner_decides
from torture_judge import scratch
from torture_life import Settings

from dpstream.core.errors import ConfigError
from dpstream.io.sinks import Publisher
from dpstream.stream import StateKey, Stream, verify_ledger
from dpstream.stream.identity import plan_facts
from dpstream.stream.inspection import check_store, wrong_state
from dpstream.stream.release.render import steps_to_keep
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.sealed_history import outside_heads
from dpstream.stream.store.store import Store
from dpstream.stream.store.upkeep import rekey_store, stored_key

#: What is done to a life's own store; what of it is restored from a copy: ``FORGOTTEN``.
OWN = ("move", "compact", "rekey")
OTHER_KEY = StateKey(b"o" * 32)


def move(home: Path, settings: Settings) -> None:
    """Away into an archive and back; a repetition goes on where one stopped."""
    archive, state, key = home / "moving", home / "state", lives.key_of(settings)
    server = lives.server_of(home, settings)
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
    server, key = lives.server_of(home, settings), lives.key_of(settings)
    with Store(home / "state", facts(settings), server=server, key=key) as store:
        store.apply_keep(steps_to_keep(lives.policy_of(settings), store))
    lives.opened(home, settings, 0).close()
    with Store(home / "state", facts(settings), server=server, key=key) as store:
        store.compact()


def rekey(home: Path, settings: Settings) -> None:
    """To another key and back to the first one (or to none)."""
    state, server, own = home / "state", lives.server_of(home, settings), lives.key_of(settings)
    if stored_key(state, server=server) != OTHER_KEY.name:
        rekey_store(state, old=own, new=OTHER_KEY, server=server)
    rekey_store(state, old=OTHER_KEY, new=own, server=server)


def withdraw(home: Path, settings: Settings) -> None:
    """Take back the newest table that readers have."""
    with lives.opened(home, settings, 0) as stream:
        stream.withdraw(max(stream._store.in_publication("published"), default=0), "a test")


def reject(home: Path, settings: Settings) -> None:
    """Say no to a step that is held."""
    with lives.opened(home, settings, 0) as stream:
        stream.withdraw(stream.held()[0], "a test")


def hold(home: Path, settings: Settings) -> None:
    """Take the next step, which waits for approval."""
    settings = replace(settings, hold=True)
    with lives.opened(home, settings, 0) as stream:
        owner_decides(stream)
        step = stream.last_step + 1
        stream.step(lives.batch(step, settings), f"b{step}")


def fail(home: Path, settings: Settings) -> None:
    """Fail at the next step, after noise was drawn for it."""
    with lives.opened(home, settings, 0) as stream:
        owner_decides(stream)
        step = stream.last_step + 1
        failing = mock.patch.object(Stream, "_prepare", side_effect=ZeroDivisionError)
        with failing, contextlib.suppress(ZeroDivisionError):
            stream.step(lives.batch(step, settings), f"b{step}")


def leave(home: Path, settings: Settings) -> None:
    """Move the stream away."""
    key = lives.key_of(settings)
    outside = outside_heads(home / "releases")
    export_store(home / "state", home / "moving", move=True, key=key, outside=outside)


#: What a restored copy does not know: what comes before the copy is made, and what after it.
FORGOTTEN: dict[str, tuple[Callable[[Path, Settings], None] | None, Callable[[Path, Settings], None]]] = {
    "lost_withdrawal": (None, withdraw),
    "lost_rejection": (hold, reject),
    "lost_held_step": (None, hold),
    "lost_failure": (None, fail),
    "lost_move": (None, leave),
}


def restored(kind: str, home: Path, settings: Settings, rng: random.Random) -> tuple[bool, list[str]]:
    """The database alone, or the whole state, is restored from before a deed; the releases stay. Every verb says so.
    Afterwards all is as it was."""
    before, deed = FORGOTTEN[kind]
    state = home / "state"

    def done(work: Callable[[Path, Settings], None]) -> bool:
        return in_child(lambda: lives.guarded(lambda: work(home, settings))) == 0

    found: list[str] = []
    with scratch() as good, scratch() as older:
        shutil.copytree(home, good, dirs_exist_ok=True)
        # A step beyond the horizon, or nothing that could be withdrawn: there is no such deed.
        hit = done(lambda *_: None if before is None else before(home, settings))
        shutil.copytree(state, older, dirs_exist_ok=True)
        if hit and done(deed):
            whole = rng.random() < 0.3
            for path in list(state.iterdir()) if whole else list(state.glob("stream.sqlite*")):
                (shutil.rmtree if path.is_dir() else Path.unlink)(path)
            for path in older.iterdir() if whole else older.glob("stream.sqlite*"):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, state / path.name)
            code = in_child(lambda: lives.live(home, settings))
            if code != lives.REFUSED:
                found.append(f"{kind}: a run ended with code {code} instead of a refusal")
            sink, key = Publisher(home / "releases"), lives.key_of(settings)
            told = {
                "check": check_store(state, home / "releases", key=key).problems,
                "verify": verify_ledger(state, releases=home / "releases", key=key),
                "health": [wrong_state(state, sink.directory) or ""],
            }
            silent = [who for who, words in told.items() if not any("rolled back" in text for text in words)]
            found += [f"{kind}: {who} does not see it" for who in silent]
        else:
            hit = False
        shutil.rmtree(home)
        shutil.copytree(good, home)
    return hit, found


def facts(settings: Settings) -> dict[str, object]:
    """What the streams of a life are pinned to."""
    return dict(plan_facts(lives.plan_of(settings), lives.schema_of(settings), "stream"))


def stopped(work: Callable[[], None], rng: random.Random, most: int) -> tuple[bool, int]:
    """Do ``work`` in a child with a fault in its first ``most`` durability calls; whether it hit, and the exit code."""
    fault: Fault = rng.choice([kill, lives.kill_after, lives.io_error, lives.short_write, lives.lying_commit])
    at = rng.randrange(1, most)

    def disturbed() -> None:
        with faulty(at, fault):
            lives.guarded(work)

    code = in_child(disturbed)
    return code != 0, code


def tend(kind: str, home: Path, settings: Settings, rng: random.Random) -> tuple[bool, list[str]]:
    """One verb on the life's own store, stopped once and then finished."""
    verb, calls = {"move": (move, 12), "compact": (compact, 5), "rekey": (rekey, 5)}[kind]
    if not lives.has_store(home, settings):
        return False, []
    hit, code = stopped(lambda: verb(home, settings), rng, calls)
    found = [] if code in (0, lives.REFUSED, -9) else [f"{kind}: exit {code}"]
    code = in_child(lambda: lives.guarded(lambda: verb(home, settings)))
    return hit, found if code == 0 else [*found, f"{kind} cannot be finished: exit {code}"]
