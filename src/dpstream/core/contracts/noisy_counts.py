"""Noisy counts as they were measured: the values that the guarantee pays for, before anything is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import CubeNoise, DiscreteGaussian, DiscreteLaplace, Noisy
from dpstream.core.privacy.joint import AnyNoise, HistogramCells, HistogramsNoise
from dpstream.core.privacy.law import Law, NoiseSum, unpack_law

#: What is counted: events of the steps ``first .. last`` (inserts, deletes, or inserts less deletes); records that are
#: present at the end of the step ``as_of``, or left since the count before, with first steps ``first .. last``; people
#: of a panel, in the periods ``first .. last``; the points number ``first .. last``.
Counted = Literal["inserts", "deletes", "net", "present", "left", "people", "points"]


@dataclass(frozen=True)
class NoisyCounts:
    """One vector of integers that a mechanism measured: true counts and noise. Public.

    Guarantee: part of what the mechanism's proof counts as its outputs; publishing it costs nothing more. Never holds
    scores or thresholds of a selection, nor values that noise was not added to (unless the owner declared them public).

    Attributes:
        draw: name of the draw; no other draw of the stream has it, and the same draw is published once.
        counted: what is counted.
        first, last: the steps that it is about, see ``Counted``. Of points: the numbers of the points, as they were
            read (their clock counts points, and the number of points of every step is public).
        query: which counts of them, JSON-able: ``{"kind": "marginal", "columns": ["zip", "paid"]}`` are all cells of a
            marginal in C order (no columns: the number of records); every other ``kind`` is described in
            docs/reference/measurements.md.
        values: shape (cells,), whole numbers; negative ones are normal.
        noise: of the values: the noise of each one, drawn independently; or one joint draw of them all
            (``CubeNoise``, ``HistogramsNoise``).
            A ``Law`` (of each value) where draws were added up: then values of one ``series`` share some of them.
        as_of: the step at whose end present records were counted; None: ``last``.
        series: values of one series are running sums that share draws, so they must not be added or averaged: use the
            newest one. None: the draw is independent of all others.

    >>> counts = NoisyCounts("epoch 1", "inserts", 1, 1, marginal_query(["paid"]), np.array([3, 5]), DiscreteLaplace(2))
    >>> NoisyCounts.from_line(counts.line()) == counts, round(counts.variance, 2)
    (True, 7.84)
    """

    draw: str
    counted: Counted
    first: int
    last: int
    query: Mapping[str, Any]
    values: Noisy
    noise: AnyNoise | HistogramCells | Law
    as_of: int | None = None
    series: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoisyCounts) and self.line() == other.line()

    def __hash__(self) -> int:
        return hash(self.draw)

    @property
    def variance(self) -> float:
        """Of each value."""
        return float(self.noise.variance)

    @property
    def law(self) -> Law | None:
        """Of each value, where values are independent; None for a joint draw, of which only the variance is used."""
        if isinstance(self.noise, CubeNoise | HistogramsNoise | HistogramCells):
            return None
        if isinstance(self.noise, DiscreteLaplace | DiscreteGaussian):
            return NoiseSum(((self.noise, 1),))
        return self.noise

    @property
    def end(self) -> int:
        """The step at whose end it holds."""
        return self.last if self.as_of is None else self.as_of

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Of a marginal; None for other queries."""
        return tuple(self.query["columns"]) if self.query["kind"] == "marginal" else None

    @property
    def marginals(self) -> tuple[NoisyCounts, ...]:
        """The marginals of a joint draw, each by itself, under the draw's name; of any other draw, itself."""
        if not isinstance(self.noise, HistogramsNoise):
            return (self,)
        ends = [*self.noise.starts, len(self.values)]
        told = {key: value for key, value in self.query.items() if key not in ("kind", "columns")}
        return tuple(
            replace(
                self,
                query={**marginal_query(columns), **told},
                values=Noisy(self.values[first:last]),
                noise=HistogramCells(self.noise, last - first),
            )
            for columns, (first, last) in zip(self.query["columns"], pairwise(ends), strict=True)
        )

    def line(self) -> str:
        """One line of JSON, with everything; ``from_line`` reads it."""
        return json.dumps(
            {
                "draw": self.draw,
                "counted": self.counted,
                "first": self.first,
                "last": self.last,
                **({} if self.as_of is None else {"as_of": self.as_of}),
                **({} if self.series is None else {"series": self.series}),
                "query": dict(self.query),
                "noise": _packed(self.noise),
                "variance": float(f"{self.variance:.6g}"),
                "values": self.values.tolist(),
            },
            ensure_ascii=False,
            allow_nan=False,
        )

    @classmethod
    def from_line(cls, line: str | bytes) -> NoisyCounts:
        """The inverse of ``line``.

        Errors:
            ConfigError: no such line.
        """
        try:
            own = json.loads(line)
            if own["counted"] not in get_args(Counted):
                raise ValueError
            return cls(
                str(own["draw"]),
                own["counted"],
                int(own["first"]),
                int(own["last"]),
                own["query"],
                Noisy(np.array(own["values"], dtype=np.int64)),
                _unpacked(own["noise"]),
                own.get("as_of"),
                own.get("series"),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError("unreadable noisy counts", where="measurements") from None


def marginal_query(columns: Sequence[str]) -> dict[str, Any]:
    """The query of a marginal."""
    return {"kind": "marginal", "columns": list(columns)}


def _packed(noise: AnyNoise | HistogramCells | Law) -> list[list[Any]]:
    """As ``Law.pack``, and the joint draw."""
    if isinstance(noise, CubeNoise):
        return [["cube", str(noise.scale), noise.dimension]]
    if isinstance(noise, HistogramsNoise):
        return [["histograms", str(noise.scale), list(noise.sizes), noise.level]]
    if isinstance(noise, HistogramCells):
        raise ConfigError("histograms of a joint draw are published together", where="measurements")
    if isinstance(noise, DiscreteLaplace | DiscreteGaussian):
        return NoiseSum(((noise, 1),)).pack()
    return noise.pack()


def _unpacked(packed: list[list[Any]]) -> AnyNoise | Law:
    if packed and packed[0][0] == "cube":
        return CubeNoise(Fraction(packed[0][1]), int(packed[0][2]))
    if packed and packed[0][0] == "histograms":
        return HistogramsNoise(Fraction(packed[0][1]), tuple(map(int, packed[0][2])), bool(packed[0][3]))
    return unpack_law(packed)
