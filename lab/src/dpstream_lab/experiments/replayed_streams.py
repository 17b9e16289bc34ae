"""Streams that experiments replay: the paper's six, and any configuration's own.

The six streams of Kumar, Strohmer, Vershynin (2024), section 7.1. Adult: the 48,813 records released with Liu et
al. (2021), projected to 13 columns; ``ordered`` sorts the projected rows lexicographically, ``randomized``
permutes them. Their batches are step numbers attached to records beforehand. Eviction: notices of the San
Francisco Rent Board 1997 to 2016, 1,000 of the paper's 1,409 weeks, by week or fortnight counted from the first
filing date.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, UnitError, did_you_mean
from dpstream.core.paths import parse_json
from dpstream.core.privacy import Event
from dpstream.core.schema.domain import Codes, Domain
from dpstream.core.tables import EncodedBatch
from dpstream.project import Config
from dpstream.tools.evaluate.true_table import encoded_steps

ADULT_COLUMNS = (
    "sex", "income>50K", "race", "relationship", "marital-status", "workclass", "occupation",
    "education-num", "native-country", "capital-gain", "capital-loss", "hours-per-week", "age_10",
)  # fmt: skip
KUMAR_STREAMS = (
    "Eviction-weekly",
    "Eviction-bi-weekly",
    "Adult-randomized-bs-50",
    "Adult-randomized-bs-200",
    "Adult-ordered-bs-50",
    "Adult-ordered-bs-200",
)


@dataclass(frozen=True, repr=False)
class Replay:
    """All private records of a stream, in order, with the first record of every step. For evaluation only.

    Attributes:
        codes, borders: inserted records, shape (records, columns); step ``t`` has the rows from
            ``borders[t - 1]`` to ``borders[t]``.
        deleted, deleted_borders: the same of deletes; None where the stream declares none.
        unit: who is protected.
    """

    name: str
    domain: Domain
    codes: Codes
    borders: NDArray[np.int64]
    deleted: Codes | None = None
    deleted_borders: NDArray[np.int64] | None = None
    unit: Event = field(default_factory=Event)

    def __repr__(self) -> str:
        return f"Replay(name={self.name!r}, steps={len(self)}, records hidden)"

    def __len__(self) -> int:
        return len(self.borders) - 1

    @property
    def deletions(self) -> bool:
        """Whether the stream declares deletes."""
        return self.deleted is not None

    def inserts(self, step: int) -> Codes:
        """Inserted records of step 1, 2, ..."""
        return self.codes[self.borders[step - 1] : self.borders[step]]

    def deletes(self, step: int) -> Codes | None:
        """Deleted records of a step."""
        if self.deleted is None or self.deleted_borders is None:
            return None
        return self.deleted[self.deleted_borders[step - 1] : self.deleted_borders[step]]

    def batch(self, step: int) -> EncodedBatch:
        """The batch of a step, for a mechanism."""
        return EncodedBatch(self.domain, self.inserts(step), self.deletes(step))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of records and borders, so that results of other data are not taken for these."""
        found = hashlib.sha256(json.dumps([self.domain.names, self.domain.sizes]).encode())
        for array in (self.codes, self.borders, self.deleted, self.deleted_borders):
            found.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:16]


class StreamSource(ABC):
    """The source of a stream. It is small, so that it can be sent to other processes."""

    label: str

    @abstractmethod
    def load(self, repeat: int) -> Replay:
        """The stream of one repetition. Remembered: every process reads a file once."""


@dataclass(frozen=True)
class KumarSource(StreamSource):
    """One of the paper's streams; a randomized one has another order at every repetition."""

    label: str
    stream: str
    folder: Path

    def load(self, repeat: int) -> Replay:
        """See ``StreamSource.load``."""
        return kumar_stream(self.stream, self.folder, seed=repeat if "randomized" in self.stream else 0)


@dataclass(frozen=True)
class ConfigSource(StreamSource):
    """The batches of a configuration's source, cut as ``dpstream run`` cuts them."""

    label: str
    path: Path

    def load(self, repeat: int) -> Replay:
        """See ``StreamSource.load``; the same at every repetition."""
        return _config_stream(self.label, self.path)


@lru_cache(maxsize=8)
def kumar_stream(name: str, folder: Path, seed: int = 0) -> Replay:
    """One of ``KUMAR_STREAMS`` from the folder that holds ``adult/`` and ``eviction/``.

    Args:
        seed: permutes the randomized ones (a general generator: the order is part of the experiment).

    Errors:
        ConfigError: an unknown name, or a folder without the files.
        DataError: a file that is not what it should be.
    """
    if name not in KUMAR_STREAMS:
        raise ConfigError(
            f"unknown stream {name!r}{did_you_mean(name, KUMAR_STREAMS)}",
            where="streams",
            allowed=", ".join(KUMAR_STREAMS),
        )
    if name.startswith("Eviction"):
        domain, codes, days = _eviction(folder / "eviction")
        steps = days // (7 if name == "Eviction-weekly" else 14)
        return Replay(name, domain, codes, np.searchsorted(steps, np.arange(steps[-1] + 2)))
    _, order, _, size = name.split("-")
    domain, codes = _adult(folder / "adult")
    if order == "ordered":
        codes = codes[np.lexsort(codes.T[::-1])]
    else:
        codes = codes[np.random.default_rng(seed).permutation(len(codes))]
    return Replay(name, domain, codes, np.append(np.arange(0, len(codes), int(size)), len(codes)))


def _read_json(path: Path) -> Any:
    return parse_json(_read(path))


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            allowed="the folder (--data, or DPSTREAM_DATA) that holds adult/ and eviction/",
        ) from None
    try:
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        raise DataError("the file is damaged", where=str(path), allowed="gzipped UTF-8 text") from None


@cache
def _adult(folder: Path) -> tuple[Domain, Codes]:
    sizes = _read_json(folder / "adult_48813-domain.json")
    path = folder / "adult_48813.csv.gz"
    rows = list(csv.reader(_read(path).splitlines()))
    try:
        position = [rows[0].index(column) for column in ADULT_COLUMNS]
        codes = np.array(rows[1:], dtype=np.int32)[:, position]
        return Domain(ADULT_COLUMNS, tuple(sizes[column] for column in ADULT_COLUMNS)), codes
    except (ValueError, KeyError, IndexError):
        raise DataError("this is not the expected Adult table", where=str(path), allowed=_columns()) from None


def _columns() -> str:
    return f"whole codes in the columns {', '.join(ADULT_COLUMNS)}"


@cache
def _eviction(folder: Path) -> tuple[Domain, Codes, NDArray[np.int64]]:
    values = _read_json(folder / "domain.json")
    columns = tuple(values)
    lookup = [{str(v): code for code, v in enumerate(values[column])} for column in columns]
    path = folder / "eviction.csv.gz"
    reader = csv.DictReader(_read(path).splitlines())
    try:
        rows = [
            (row["file_date"], [codes[row[column]] for column, codes in zip(columns, lookup, strict=True)])
            for row in reader
        ]
        first = date.fromisoformat(rows[0][0])
        days = np.array([(date.fromisoformat(day) - first).days for day, _ in rows])
    except (KeyError, IndexError, ValueError):
        raise DataError(
            "this is not the expected eviction table",
            where=str(path),
            allowed="file_date and the columns and values of domain.json",
        ) from None
    codes = np.array([row for _, row in rows], dtype=np.int32)
    return Domain(columns, tuple(len(values[c]) for c in columns)), codes, days


@lru_cache(maxsize=8)
def _config_stream(label: str, path: Path) -> Replay:
    config = Config.load(path)
    config.table_recipe("compare")
    unit = config.unit
    if not isinstance(unit, Event):
        raise UnitError(
            "methods are compared event by event, and the unit 'user' leaves records out",
            where=f"{path} [stream] unit",
            allowed="event, event-replace",
        )
    if config.base_options is not None:
        raise ConfigError(
            "methods are compared from an empty table on, and this stream began with another one's",
            where=f"{path} [base]",
            allowed="a copy of the configuration without [base]",
        )
    inserts: list[Codes] = []
    deletes: list[Codes] = []
    declared = config.source_options.op_column is not None
    for _, _, came, went in encoded_steps(config):
        inserts.append(came)
        deletes.append(went)
    if not inserts:
        raise DataError("the stream has no step", where=str(path), allowed="data for at least one step")
    codes, borders = _joined(inserts)
    gone, gone_borders = _joined(deletes) if declared else (None, None)
    return Replay(label, config.schema().domain, codes, borders, gone, gone_borders, unit)


def _joined(parts: list[Codes]) -> tuple[Codes, NDArray[np.int64]]:
    borders = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return np.concatenate(parts), borders
