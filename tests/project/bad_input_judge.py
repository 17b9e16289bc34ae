"""The world that each case of bad input gets a copy of, and the judge of how the case went."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from small_configs import write_config, write_rows

from dpstream.cli import main

__all__ = ["MARKS", "ROWS", "Case", "World", "configure", "judge"]

#: Private values of the tables; no output may hold one.
MARKS = ("Zq7-Korvath", "73912846")
CODES = (0, 2, 3, 4, 6, 7)
SECONDS = 20


@dataclass
class Case:
    """One command line, and what is done to a copy of the world before it."""

    name: str
    args: list[str]
    prepare: Callable[[Path], object] = field(default=lambda folder: None)
    #: Whether it may be accepted after all (the value is odd and not wrong).
    may_pass: bool = False


# The world: a stream that took all its steps, and everything that verbs read.


def configure(folder: Path, file: str, path: str, places: str = "") -> None:
    write_config(
        folder,
        file=file,
        name="bad",
        source=f'path = "{path}"\ntime_column = "step"\nend = 2',
        columns='[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b"]\nother = "other"\n'
        '[schema.columns.age]\ntype = "integer"\nedges = [0, 5, 10]\noutside = "clip"\n',
        mechanism='name = "baseline"\nk = 1\niterations = 1',
        rest=f'[output]\nformat = "csv"\n{places}',
    )


ROWS = "".join(f"{step},{zip},{age}\n" for step in (1, 2) for zip, age in (("a", 3), ("b", 7), MARKS))


class World:
    """The folder that each case gets a copy of, and the folder around all copies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = root / "model"
        write_rows(self.model, "1.csv", "step,zip,age", ROWS.splitlines())
        configure(self.model, "dpstream.toml", "data/*.csv")
        with chdir(self.model):
            for line in (
                *("run", "ledger export --out ledger.jsonl", "store export --out copy.dpstore"),
                *("store key --out a.key", "ledger account create an.account --limit epsilon=2"),
            ):
                done = CliRunner().invoke(main, line.split())
                assert done.exit_code == 0, done.output
        (self.model / "questions.txt").write_text("age >= 5\n", encoding="utf-8")
        self.number = 0

    def copy(self) -> Path:
        self.number += 1
        folder = self.root / f"case-{self.number}"
        shutil.copytree(self.model, folder)
        return folder


def judge(world: World, case: Case) -> list[str]:
    """Run a case; what is wrong with how it went."""
    folder = world.copy()
    case.prepare(folder)
    before, devices, around = spent(folder), device_facts(folder), sorted(os.listdir(world.root))
    with chdir(folder), deadline():
        try:
            done = CliRunner().invoke(main, case.args, prog_name="dpstream", input="")
        except TooLate:
            return ["it does not end"]
    found = []
    said = [line for line in done.stderr.splitlines() if line.lower().startswith("error: ")]
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        found.append(f"a traceback: {type(done.exception).__name__}: {done.exception}"[:300])
    if done.exit_code not in CODES:
        found.append(f"exit code {done.exit_code}")
    if done.exit_code == 0 and not case.may_pass:
        found.append("accepted")
    if done.exit_code in (2, 3) and len(said) != 1:
        found.append(f"{len(said)} lines with an error")
    if "Traceback" in done.output:
        found.append("a traceback is printed")
    if len(done.stderr) > 3000:
        found.append(f"{len(done.stderr)} characters of message")
    found += [f"prints {mark}" for mark in MARKS if mark in done.output]
    if done.exit_code != 0 and spent(folder) != before:
        found.append("something was spent")
    if device_facts(folder) != devices:
        found.append("a device, a pipe or a link was changed or replaced")
    if sorted(os.listdir(world.root)) != around:
        found.append("something was written outside of the folder")
    shutil.rmtree(folder)
    return found


def spent(folder: Path) -> list[Any]:
    """Steps, reservations and charges of every store below the folder; the bytes where it is no database any more."""
    found: list[Any] = []
    for path in sorted(folder.rglob("*")):
        if (
            path.name not in ("stream.db", "store.db", "an.account", "ledger.sqlite")
            and path.suffix != ".sqlite"
        ):
            continue
        if not path.is_file():
            continue
        table = "entries" if path.name == "an.account" else "steps"
        try:
            with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as db:
                rows = db.execute(f"SELECT count(*) FROM {table}").fetchall()
            db.close()
        except sqlite3.Error as error:
            # A writer gives an empty file its header before it sees that no table is there.
            rows = ["no table"] if "no such table" in str(error) else [path.read_bytes()]
        # A store without a step is as good as none: nothing was drawn.
        if rows != [(0,)]:
            found.append((path.name, rows))
    return found


def device_facts(folder: Path) -> list[tuple[str, int, int, int]]:
    """Kind, mode and place of everything that is no file and no folder."""
    there = [Path("/dev/null"), Path("/dev/full")]
    there += [
        path for path in folder.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())
    ]
    facts = []
    for path in sorted(there):
        found = path.lstat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            facts.append((str(path), found.st_mode, found.st_rdev, found.st_ino))
    return facts


class TooLate(BaseException):
    """No handler of the program may take it for an error of the system."""


@contextmanager
def deadline() -> Iterator[None]:
    """Stops what hangs."""

    def late(*_: object) -> None:
        raise TooLate

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
