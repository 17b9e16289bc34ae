"""True and synthetic answers to the same questions, step by step. For evaluation only: reads private data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.tables.predicate import parse_predicate
from dpstream.io.sinks import read_table

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.project import Config

__all__ = ["Line", "Panel", "Series", "compare"]


@dataclass(frozen=True)
class Line:
    """One curve: the share of records that satisfy ``question``, among those that satisfy ``among``.

    Both are questions as ``Release.answer`` reads them; ``among`` None means all records. Without a question
    the curve is the number of records.
    """

    label: str
    question: str | None = None
    among: str | None = None


@dataclass(frozen=True)
class Panel:
    """Curves that are drawn into one frame; ``what`` says what the axis measures."""

    title: str
    what: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Series:
    """One line's values at steps 1, 2, ...; shares are between 0 and 1, NaN where nobody is among."""

    line: Line
    truth: NDArray[np.float64]
    synthetic: NDArray[np.float64]

    @property
    def gap(self) -> float:
        """Mean distance between the two curves."""
        return float(np.nanmean(np.abs(self.truth - self.synthetic)))


class _Counter:
    """Counts the records of coded tables that satisfy a question."""

    def __init__(self, question: str | None, schema: Schema) -> None:
        self._shape: tuple[int, ...] = ()
        if question is not None:
            predicate = parse_predicate(question, schema)
            self._columns, self._shape = predicate.columns, predicate.shape
            self._mask = predicate.mask().ravel()

    def count(self, codes: NDArray[np.int32]) -> int:
        if not self._shape:
            return len(codes)
        cells = np.ravel_multi_index([codes[:, column] for column in self._columns], self._shape)
        return int(self._mask[cells].sum())


class _Share:
    """A line's value for some counts."""

    def __init__(self, line: Line, schema: Schema) -> None:
        both = [f"({text})" for text in (line.question, line.among) if text is not None]
        self._part = _Counter(" and ".join(both) or None, schema)
        self._whole = None if line.question is None else _Counter(line.among, schema)

    def counts(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Part and whole; they add up over batches."""
        whole = 0 if self._whole is None else self._whole.count(codes)
        return np.array([self._part.count(codes), whole])

    def value(self, counts: NDArray[np.int64]) -> float:
        part, whole = counts.tolist()
        if self._whole is None:
            return float(part)
        return part / whole if whole > 0 else float("nan")


def compare(config: Config, releases: Path, lines: tuple[Line, ...], steps: int) -> tuple[Series, ...]:
    """Every line's true and synthetic values at steps 1 to ``steps``.

    The truth is counted in the private data, batch by batch; the synthetic values in the released tables and
    nothing else, as a reader of the releases would.

    Guarantee: none. The result holds private truth and must not be published.

    Cost: reads the data once and every released table once.
    """
    schema = config.schema()
    shares = [_Share(line, schema) for line in lines]
    truth = np.array(
        [[s.value(c) for s, c in zip(shares, row, strict=True)] for row in _true(config, shares, steps)]
    )
    synthetic = np.array(
        [[s.value(s.counts(codes)) for s in shares] for codes in _released(releases, schema, steps)]
    )
    return tuple(Series(line, truth[:, i], synthetic[:, i]) for i, line in enumerate(lines))


def _true(config: Config, shares: list[_Share], steps: int) -> Iterator[NDArray[np.int64]]:
    """Running counts of the private table: inserts minus deletes up to every step."""
    schema = config.schema()
    running = np.zeros((len(shares), 2), dtype=np.int64)
    for entry in config.source().steps(1):
        if entry.step > steps:
            return
        for sign, frame in ((1, entry.inserts), (-1, entry.deletes)):
            if frame is not None:
                codes = schema.encode(frame)
                running += sign * np.array([share.counts(codes) for share in shares])
        yield running.copy()


def _released(releases: Path, schema: Schema, steps: int) -> Iterator[NDArray[np.int32]]:
    for step in range(1, steps + 1):
        yield schema.encode(read_table(releases, step))
