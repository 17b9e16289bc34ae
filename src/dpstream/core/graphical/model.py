"""A calibrated graphical model: a distribution over records, times a number of records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import InputError, StoreDamagedError, StoreFormatError
from dpstream.core.graphical.junction_tree import JunctionTree, check_clique, clique_list, junction_tree
from dpstream.core.graphical.shape import Shape
from dpstream.core.schema.domain import Clique, Domain, pack_impossible, unpack_impossible

_KIND = "graphical-model"
_FORMAT = 1


@dataclass(frozen=True)
class FitReport:
    """How a fit ended. ``loss`` is half the squared residuals over their variances, summed.

    ``divergence``: KL divergence from the fit's starting model, in nats per record. ``step``: the last
    step size, in units of the inverse of the largest curvature; a warm start continues with it.
    """

    loss: float
    divergence: float
    iterations: int
    step: float
    dropped: tuple[Clique, ...] = ()


class Model:
    """A calibrated graphical model; immutable, and everything it gives is post-processing.

    ``total`` is the (noisy) number of records: any finite number. The model's *shape* is a probability
    distribution in any case; marginals are the shape's times ``total``.
    """

    __slots__ = ("_cliques", "_report", "_shape", "_total")

    def __init__(
        self,
        tree: JunctionTree,
        potentials: NDArray[np.float64],
        total: float,
        *,
        cliques: Iterable[Clique] | None = None,
        report: FitReport | None = None,
    ) -> None:
        """``potentials``: flat, as the tree lays them out. ``cliques``: the tree's, most recent first."""
        if len(potentials) != tree.parameters or not np.isfinite(potentials).all():
            raise InputError("the potentials do not fit the cliques", where="graphical model")
        self._total = _finite(total)
        self._shape = Shape(tree, np.array(potentials, dtype=np.float64))
        self._cliques = tree.cliques if cliques is None else tuple(cliques)
        self._report = report

    @classmethod
    def uniform(cls, domain: Domain, total: float) -> Model:
        """Every record equally likely."""
        tree = junction_tree(domain, ())
        return cls(tree, np.zeros(tree.parameters), total)

    @property
    def domain(self) -> Domain:
        return self._shape.tree.domain

    @property
    def total(self) -> float:
        return self._total

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """Cliques of the potentials of two or more attributes, most recently measured first.

        Each single attribute has a potential besides.
        """
        return self._cliques

    @property
    def tree(self) -> JunctionTree:
        return self._shape.tree

    @property
    def potentials(self) -> NDArray[np.float64]:
        """All potentials, flat, as ``tree`` lays them out (a copy)."""
        return self._shape.potentials.copy()

    def potential(self, clique: Clique) -> NDArray[np.float64]:
        """One potential (of a single attribute, or of one of ``cliques``), flat (a copy)."""
        return self._shape.potentials[self.tree.slot(clique)].copy()

    @property
    def report(self) -> FitReport | None:
        """How the fit that made this model ended; None for a model that was not fitted."""
        return self._report

    def with_total(self, total: float) -> Model:
        """The same shape with another number of records (shares everything computed so far)."""
        other = object.__new__(Model)
        other._total = _finite(total)
        other._shape = self._shape
        other._cliques = self._cliques
        other._report = self._report
        return other

    def bounded(self, limit: float) -> Model:
        """The same model with its log-potentials clipped, so that nothing is all but impossible.

        Every single attribute's potential stays within ``limit`` below its maximum, every interaction within
        ``limit`` of zero. As a prior, a model that has not seen a value for long would otherwise give it
        e.g. probability 1e-50, and no number of records could bring it back soon.
        """
        potentials = self.potentials
        singles = sum(self.domain.sizes)
        start = 0
        for size in self.domain.sizes:
            own = potentials[start : start + size]
            np.maximum(own, own.max() - limit, out=own)
            start += size
        np.clip(potentials[singles:], -limit, limit, out=potentials[singles:])
        return Model(self.tree, potentials, self._total, cliques=self._cliques, report=self._report)

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Exact marginals in records, flat in C order, one per clique; each sums to ``total``.

        No sampling; also for cliques that no tree clique holds. Pairs are done all at once. A clique of
        three or more attributes spread over the tree is summed out along the tree, at a cost of its
        own cells times the separators it passes.
        """
        asked = clique_list(self.domain, cliques)
        flat, ends = self._shape.marginals(asked, self._total), asked.ends.tolist()
        return [flat[begin:end] for begin, end in pairwise(ends)]

    def flat_marginals(self, cliques: Sequence[Clique]) -> NDArray[np.float64]:
        """``marginals`` one after the other, without an array for each."""
        return self._shape.marginals(clique_list(self.domain, cliques), self._total)

    def marginal(self, clique: Clique) -> NDArray[np.float64]:
        """One marginal (see ``marginals``)."""
        return self.marginals([clique])[0]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """``rows`` records as codes, shape (rows, attributes), column-major; repeatable for one seed.

        Each record follows the model exactly (unbiased). Records are dealt, not drawn independently:
        within a tree clique every cell's count, given its separator's count, is within one of its
        expectation, so one table has far less sampling error than independent draws would.
        """
        if rows < 0 or rows >= 2**31:
            raise InputError(f"rows = {rows}", where="sample", allowed="0 to 2147483647")
        return self._shape.sample(rows, seed)

    def log_density(self, codes: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Logarithm (base e) of the probability of each record, shape (rows,); -inf where it is zero.

        Args:
            codes: records, shape (rows, attributes).

        Errors:
            InputError: codes of another shape or outside the domain.

        Cost: one look-up per record and tree clique.
        """
        given = np.asarray(codes)
        sizes = np.array(self.domain.sizes)
        if given.ndim != 2 or given.shape[1] != len(sizes) or given.dtype.kind not in "iu":
            raise InputError("the codes do not fit the model", where="log_density")
        if given.size and (given.min() < 0 or (given.max(axis=0) >= sizes).any()):
            raise InputError("a code lies outside the domain", where="log_density")
        return self._shape.log_density(given)

    def pack(self) -> Packed:
        """Arrays and JSON from which ``unpack`` gives an equal model (same results, bit for bit)."""
        meta: dict[str, Any] = {
            "kind": _KIND,
            "format": _FORMAT,
            "names": list(self.domain.names),
            "sizes": list(self.domain.sizes),
            "cliques": [list(c) for c in self._cliques],
            "total": self._total,
            "report": None if self._report is None else asdict(self._report),
            **pack_impossible(self.domain),
        }
        return Packed(meta, {"potentials": self._shape.potentials.copy()})

    @classmethod
    def unpack(cls, packed: Packed) -> Model:
        """The inverse of ``pack``. StoreFormatError, StoreDamagedError."""
        meta = packed.meta
        if meta.get("kind") != _KIND or meta.get("format") != _FORMAT:
            raise StoreFormatError(
                "this is not a graphical model this version reads", where="model", allowed=f"format {_FORMAT}"
            )
        try:
            sizes = tuple(int(s) for s in meta["sizes"])
            domain = Domain(tuple(meta["names"]), sizes, unpack_impossible(meta))
            cliques = tuple(check_clique(domain, c) for c in meta["cliques"])
            potentials = np.array(packed.arrays["potentials"], dtype=np.float64)
            tree = junction_tree(domain, cliques)
            if len(set(cliques)) != len(cliques) or len(cliques) != len(tree.cliques):
                raise InputError("cliques repeat or are too small", where="model")
            report = meta["report"]
            if report is not None:
                dropped = tuple(tuple(c) for c in report["dropped"])
                report = FitReport(**{**report, "dropped": dropped})
            return cls(tree, potentials, float(meta["total"]), cliques=cliques, report=report)
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise StoreDamagedError(f"a packed model contradicts itself: {error}", where="model") from error

    def __repr__(self) -> str:
        return f"Model(total={self._total:.6g}, cliques={list(self._cliques)})"


def _finite(total: float) -> float:
    value = float(total)
    if not math.isfinite(value):
        raise InputError(f"the total is {value}", where="graphical model", allowed="a finite number")
    return value
