"""What a search for marked private values needs: their spellings, and everything that left the program."""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import json
import logging
import os
import re
import stat
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.csv
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from dpstream.cli import main
from dpstream.core import durable

#: Unique enough to be searched for; none of them is declared anywhere.
TEXT, PERSON = "Zq7-Korvath-Lane", "usr-9f41c7d2e0"
NUMBER, REAL = 73_912_846, 48_217.90361
DAY = datetime.date(1931, 8, 23)
#: Records of one step: no number that the program prints for another reason.
COUNT = 1_237
#: Folders that hold private things by design; the files of ``state`` are looked at for their modes only.
PRIVATE_FOLDERS = ("data", "state")


def spellings() -> dict[str, re.Pattern[bytes]]:
    """Each mark as it may be written: plain, quoted, encoded, hashed, or as the parts of a number."""
    days = (DAY - datetime.date(1970, 1, 1)).days
    plain = {
        "text": [TEXT, TEXT.lower(), TEXT.upper()],
        "person": [PERSON],
        "number": [str(NUMBER), f"{NUMBER:,}", f"{NUMBER:_}", hex(NUMBER)],
        "real": [str(REAL), f"{REAL:.2f}", f"{REAL:,.2f}", f"{REAL:.6g}"],
        "day": [DAY.isoformat(), f"{DAY:%Y%m%d}", f"{DAY:%d.%m.%Y}", "(1931, 8, 23", f"{days}"],
    }
    found = {}
    for name, words in plain.items():
        encoded = [word.encode() for word in words]
        for word in words[:1]:
            raw = word.encode()
            encoded += [raw.hex().encode(), raw.hex().upper().encode(), word.encode("utf-16-le")]
            encoded += [_base64(raw, offset) for offset in range(3)]
            encoded += [hashlib.new(kind, raw).hexdigest().encode() for kind in ("md5", "sha1", "sha256")]
        parts = b"|".join(re.escape(one) for one in encoded)
        # A number inside a longer one (a hash, a seed) is none of ours.
        found[name] = re.compile(rb"(?<![0-9A-Za-z.])-?(?:%s)(?![0-9A-Za-z])" % parts)
    return found


def _base64(raw: bytes, offset: int) -> bytes:
    """The characters that depend on ``raw`` only, where it begins ``offset`` bytes into a group of three."""
    text = base64.b64encode(b"\0" * offset + raw)
    return text[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]


SPELLINGS = spellings()
COUNTED = re.compile(rb"(?<![\w.-])1[,_ ]?237(?![\w.])")


class Spill:
    """Everything that the command printed, logged, raised, or left in a file, with where it was seen."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.folder = folder
        self.caplog = caplog
        self.seen: list[tuple[str, bytes]] = []
        #: Files whose whole purpose is private (a draft); they have to be 0600.
        self.private_files: set[Path] = set()
        #: Hashes of input files would tell whoever guesses their content.
        self.inputs: set[bytes] = set()

    def run(self, *args: object, code: int | None = 0) -> Result:
        """One command; what it printed is kept."""
        words = [str(arg) for arg in args]
        result = CliRunner().invoke(main, words)
        where = f"dpstream {' '.join(words)}"
        self.seen += [(f"{where}: output", result.stdout_bytes), (f"{where}: errors", result.stderr_bytes)]
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, (where, result.output)
        return result

    def found(self) -> list[str]:
        """Every mark that left, as ``where: mark``."""
        formatter = logging.Formatter()
        for record in self.caplog.records:
            self.seen.append((f"log {record.name}", f"{formatter.format(record)} {record.args}".encode()))
        leaks = []
        for where, data in self.seen:
            leaks += [f"{where}: {mark}" for mark in _marks(data)]
            if COUNTED.search(data) and not where.startswith("file "):
                leaks.append(f"{where}: number of records")
        for path in self.published():
            name = f"file {path.relative_to(self.folder)}"
            leaks += [f"{name}: {mark}" for data in _contents(path) for mark in self._marks_of_file(data)]
            leaks += [f"{name}: {mark} (its name)" for mark in _marks(str(path.name).encode())]
        return leaks

    def published(self) -> Iterator[Path]:
        """Every file outside of the private folders."""
        for path in sorted(self.folder.rglob("*")):
            inside = set(path.relative_to(self.folder).parts) & set(PRIVATE_FOLDERS)
            if path.is_file() and not inside and path not in self.private_files:
                yield path

    def wrong_modes(self) -> list[str]:
        """State that others can read, and private files likewise."""
        wrong = []
        for state in self.folder.rglob("state"):
            wanted = [(state, 0o700), *((path, 0o600) for path in state.rglob("*"))]
            wrong += [str(p) for p, mode in wanted if stat.S_IMODE(p.stat().st_mode) != mode]
        return wrong + [str(p) for p in self.private_files if stat.S_IMODE(p.stat().st_mode) != 0o600]

    def remember_input(self, path: Path) -> None:
        """The plain hash of an input file is a mark as well."""
        self.inputs |= {
            hashlib.new(kind, path.read_bytes()).hexdigest().encode() for kind in ("md5", "sha1", "sha256")
        }

    def _marks_of_file(self, data: bytes) -> list[str]:
        return _marks(data) + [f"hash of an input {one!r}" for one in self.inputs if one in data]


def _marks(data: bytes) -> list[str]:
    return [name for name, pattern in SPELLINGS.items() if pattern.search(data)]


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes, and for Parquet the values behind its compression."""
    data = path.read_bytes()
    yield data
    if data[:4] == b"PAR1":
        table = pyarrow.parquet.read_table(io.BytesIO(data))
        yield json.dumps({k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}).encode()
        sink = io.BytesIO()
        pyarrow.csv.write_csv(table, sink)
        yield sink.getvalue()


@pytest.fixture
def spill(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Spill:
    """Sees output, logs at the lowest level, whole tracebacks, and the bytes of every file under way."""
    caplog.set_level(logging.DEBUG, logger="dpstream")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    kept = Spill(tmp_path, caplog)
    real_main, real_write = click.Group.main, durable.write

    def traced(*args: Any, **kwargs: Any) -> Any:
        try:
            return real_main(*args, **kwargs)
        except BaseException as error:
            kept.seen.append(("traceback", "".join(traceback.format_exception(error)).encode()))
            raise

    def teed(descriptor: int, data: bytes) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if "state" not in path.parts and path not in kept.private_files:
            kept.seen.append((f"file under way {path.name}", bytes(data)))
        real_write(descriptor, data)

    monkeypatch.setattr(click.Group, "main", traced)
    monkeypatch.setattr(durable, "write", teed)
    return kept
