"""A stream that is interrupted at random, twenty times, beside one that is left alone: the same ledger and releases.

    python tests/streams/interrupted_life.py [--interruptions 20] [--seed 1] [--postgres URL] [--control publish-first]

Every start is ``dpstream run`` in a child process, which is killed (SIGKILL) at a random moment, or before a random
call to commit, write, fsync, rename or unlink. After each kill the store and the releases are looked at: everything
that is published has to be committed, and nothing that was committed or published may have changed. At the end,
``dpstream ledger verify`` has to find nothing, and ledger and released files have to be those of the life that was
left alone, byte by byte, times and chain hashes aside.

Test entropy: ``--test-seed`` gives the words at the start, and here every step begins its own words, from the seed and
the number of the step. So a step that was reserved, killed and computed afresh sees the same noise as one that was not,
which makes the two lives comparable. A real run never derives noise from the number of a step.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fault_harness import PublishFirst, faulty, forked, in_child, kill

from dpstream.cli import main as dpstream
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.stream import Stream, read_ledger
from dpstream.stream.ledger.reading import Ledger
from dpstream.stream.store.postgres import PostgresServer, schema_name

NAME, URL, SEED = "interrupted", "DPSTREAM_TEST_URL", 7
CONTROLS = ("publish-first", "one-entropy")
CONFIG = f"""
format = 1
[stream]
name = "{NAME}"
[source]
path = "data/*.csv"
time_column = "step"
end = %d
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.paid]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
[mechanism]
name = "dpstabs"
k = 1
[budget]
epsilon = "1"
[output]
format = "csv"
keep = 5
records = "persistent"
publish = "both"
"""


@dataclass
class Life:
    """What an interrupted life did, and what it broke."""

    interruptions: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """A stream's folder, and the server that has its store (None: a file in the folder)."""

    home: Path
    server: PostgresServer | None

    @property
    def config(self) -> Path:
        return self.home / "dpstream.toml"

    def prepare(self, steps: int) -> None:
        """Data and configuration of ``steps`` steps."""
        (self.home / "data").mkdir(parents=True)
        state = "" if self.server is None else f'[state]\nurl_env = "{URL}"\n'
        self.config.write_text(CONFIG % steps + state)
        rng = random.Random(3)
        for step in range(1, steps + 1):
            rows = [
                f"{step},{rng.choice('abc')},{rng.choice(['true', 'false'])},{rng.choice('xy')}\n"
                for _ in range(rng.randrange(30))
            ]
            (self.home / "data" / f"{step:03d}.csv").write_text("step,zip,paid,kind\n" + "".join(rows))

    def run(self, until: int | None = None) -> int:
        """``dpstream run`` in this process; its exit code."""
        more = [] if until is None else ["--until", str(until)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            try:
                dpstream(["run", str(self.config), "--test-seed", str(SEED), *more])
            except SystemExit as end:
                if end.code:
                    print(told.getvalue(), file=sys.__stderr__)
                return int(end.code or 0)
        return 0

    def ledger(self) -> Ledger | None:
        """The ledger as it is, without times; None before the first start. Of a file a copy is read, because
        opening it would take in and remove the log that the next start has to cope with."""
        with tempfile.TemporaryDirectory() as copy:
            state = Path(copy) / "state"
            state.mkdir(mode=0o700)
            for path in (self.home / "state").glob("*"):
                shutil.copy(path, state / path.name)
            try:
                found = read_ledger(state, server=self.server)
            except ConfigError:
                return None
        return replace(found, spends=tuple(replace(spend, time=None) for spend in found.spends))

    def released(self) -> dict[str, str]:
        """All released files, by hash."""
        files = [path for path in (self.home / "releases").rglob("*") if path.is_file()]
        files = [path for path in files if path.name != ".head.json"]
        return {
            str(p.relative_to(self.home)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)
        }

    def published(self) -> dict[int, str]:
        """What the world can see: the manifests' hashes by step."""
        found = (self.home / "releases").glob("step-*/manifest.json")
        return {int(path.parent.name[5:]): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@contextlib.contextmanager
def entropy_by_step(control: str | None) -> Iterator[None]:
    """Each step has words of its own; with a control, the program is wrong."""
    compute = Stream._compute

    def computed(self: Stream, reservation: Any, *rest: Any) -> Any:
        if control != "one-entropy":
            self._randomness = Randomness.seeded(f"{SEED}/{reservation.step}")
        if control == "publish-first":
            self.__class__ = PublishFirst
        return compute(self, reservation, *rest)

    Stream._compute = computed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stream._compute = compute  # type: ignore[method-assign]


@dataclass
class Killer:
    """Starts the program and kills it.

    Attributes:
        calls: made for one step.
        seconds: from a start to the latest moment of a kill; half of it after each start that was quicker, so that
            few starts are lost on however slow a machine it was measured.
    """

    rng: random.Random
    calls: int
    seconds: float

    def before_a_call(self, place: Place, until: int) -> int:
        """Exit status of a start that is killed before one of the next two steps' calls."""

        def disturbed() -> None:
            with faulty(self.rng.randrange(1, 2 * self.calls), kill):
                os._exit(place.run(until))

        return in_child(disturbed)

    def at_a_moment(self, place: Place, until: int) -> int:
        """Exit status of a start that is killed after a while."""
        child = forked()
        if child == 0:
            code = 1
            try:
                code = place.run(until)
            finally:
                os._exit(code)
        time.sleep(self.rng.random() * self.seconds)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.seconds *= 1 if code else 0.5
        return code


def look(place: Place, before: dict[int, str], life: Life) -> dict[int, str]:
    """Promises that hold after every kill; gives what is committed."""
    ledger = place.ledger()
    committed = {} if ledger is None else {spend.step: spend.manifest_sha256 for spend in ledger.spends}
    life.violations += [
        f"step {step} is published and not committed like that"
        for step, digest in place.published().items()
        if committed.get(step) != digest
    ]
    life.violations += [
        f"step {step} was drawn again after its commit"
        for step, digest in before.items()
        if committed.get(step) != digest
    ]
    return committed


def interrupted_life(
    home: Path,
    interruptions: int = 20,
    seed: int = 1,
    *,
    url: str | None = None,
    control: str | None = None,
    moments: bool = True,
) -> Life:
    """Both lives, one after the other.

    Args:
        home: an empty folder.
        url: a server for the store; its schema of this stream is dropped.
        control: something wrong that has to be found (``CONTROLS``).
        moments: also kill at random moments, which no seed repeats.
    """
    server = None
    if url is not None:
        os.environ[URL] = url
        server = PostgresServer(url, schema_name(NAME))
    steps = 2 * interruptions
    calm, place = Place(home / "calm", server), Place(home / "interrupted", server)
    life, rng = Life(), random.Random(seed)
    with entropy_by_step(None if control == "publish-first" else control):
        calm.prepare(steps)
        with faulty(None, kill) as calls:
            assert calm.run() == 0
        expected, files = calm.ledger(), calm.released()
        lasted = []
        for _ in range(3):  # the quickest: the machine may be busy with something else in between
            began = time.monotonic()
            assert calm.run() == 0
            lasted.append(time.monotonic() - began)
        killer = Killer(rng, len(calls) // steps, 2 * min(lasted))
    forget(server)
    place.prepare(steps)
    committed: dict[int, str] = {}
    ways = (killer.before_a_call, killer.at_a_moment) if moments else (killer.before_a_call,)
    with entropy_by_step(control):
        while life.interruptions.total() < interruptions and len(committed) < steps:
            way = ways[life.interruptions.total() % len(ways)]
            # No more than two steps, so that the life lasts for all interruptions.
            code = way(place, len(committed) + 2)
            if code not in (0, -signal.SIGKILL):
                life.violations.append(f"a start ended with {code}")
                return life
            life.interruptions[way.__name__] += code != 0
            committed = look(place, committed, life)
            life.steps.append(len(committed))
        if place.run() != 0:
            life.violations.append("the stream cannot be finished")
            return life
    look(place, committed, life)
    if place.ledger() != expected:
        life.violations.append("the ledger is another one")
    if place.released() != files:
        life.violations.append("the releases are others")
    with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
        dpstream(["ledger", "verify", str(place.config), "--json"], standalone_mode=False)
    if '"findings": []' not in told.getvalue():
        life.violations.append(f"the ledger's own check: {told.getvalue()}")
    forget(server)
    return life


def forget(server: PostgresServer | None) -> None:
    """Drop the stream's schema."""
    if server is not None:
        import psycopg

        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {server.schema} CASCADE".encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--interruptions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", metavar="URL", help="a server that keeps the store")
    parser.add_argument("--control", choices=CONTROLS, help="a wrong program: has to be found")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        life = interrupted_life(
            Path(home), options.interruptions, options.seed, url=options.postgres, control=options.control
        )
    print(f"interruptions: {dict(life.interruptions)}; committed steps after each: {life.steps}")
    print("; ".join(life.violations) or "the same ledger and the same releases as an undisturbed life")
    return 1 if life.violations else 0


if __name__ == "__main__":
    sys.exit(main())
