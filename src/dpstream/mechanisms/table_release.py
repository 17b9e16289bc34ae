"""What a tabular step gives: models (or a table) that answer marginals and draw records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CellEstimate, Measured, NoisyCounts, Packed, SyntheticTable
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Model
from dpstream.core.privacy.law import Law, unpack_law
from dpstream.core.schema.domain import Clique, Domain, Impossible, pack_impossible, unpack_impossible
from dpstream.core.tables import count_marginals

if TYPE_CHECKING:
    from dpstream.core.graphical.model import DrawnBlocks

#: Numbers of a model that readers get, of twenty bytes each.
_MOST_PUBLISHED = 2**18


def average_marginals(
    models: Sequence[Model], cliques: Sequence[Clique], weights: Sequence[float] | None = None
) -> list[NDArray[np.float64]]:
    """The marginals of the mixture of some models, in equal parts or by weights that add up to 1."""
    if len(models) == 1:
        return models[0].marginals(cliques)
    parts = [model.marginals(cliques) for model in models]
    return [np.average(columns, axis=0, weights=weights) for columns in zip(*parts, strict=True)]


def pack_models(models: Sequence[Model]) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Several models' JSON, and their arrays side by side in one container."""
    metas, arrays = [], {}
    for i, model in enumerate(models):
        packed = model.pack()
        metas.append(packed.meta)
        arrays.update({f"model/{i}/{key}": value for key, value in packed.arrays.items()})
    return metas, arrays


def unpack_models(metas: Sequence[dict[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> list[Model]:
    """The inverse of ``pack_models``; other arrays in the container are left alone."""
    models = []
    for i, meta in enumerate(metas):
        prefix = f"model/{i}/"
        own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        models.append(Model.unpack(Packed(meta, own)))
    return models


@dataclass(frozen=True)
class ModelSynthesis(SyntheticTable):
    """A mixture of one or more graphical models.

    Attributes:
        models: all over one domain, with one total.
        records: the noisy number of records; may be negative early in a stream.
        errors: standard deviation of the noise in one cell of each measured marginal. It says how noisy
            the measurement behind a marginal is; what the model adds (or repairs) is not in it.
        counts: the measurements themselves, flat in C order (what counters have released), of the same marginals.
        noise: the law of the noise in one of their cells, where it is known.
        total_error: standard error of ``records``; 0 where it is public, None where it is not known.
    """

    models: tuple[Model, ...]
    records: float
    errors: Mapping[Clique, float] = field(default_factory=dict)
    counts: Mapping[Clique, NDArray[np.int64]] = field(default_factory=dict)
    noise: Law | None = None
    total_error: float | None = None
    #: Parts of the mixture, not negative, adding up to 1; None: equal ones.
    weights: tuple[float, ...] | None = None
    #: See ``Synthesis``.
    passed: tuple[float, float] | None = None
    measured_up_to: int | None = None
    total_measured_up_to: int | None = None
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(default=(), compare=False)

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.models[0].domain

    @property
    def total(self) -> float:
        """The noisy number of records."""
        return self.records

    @property
    def measured(self) -> dict[Clique, Measured]:
        """The marginals measured at every step, as measured."""
        return {
            clique: Measured(
                values.reshape(self.domain.shape(clique)).astype(np.float64), self.errors[clique], self.noise
            )
            for clique, values in self.counts.items()
        }

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat, in records."""
        return average_marginals(self.models, cliques, self.weights)

    def marginal(self, clique: Clique) -> CellEstimate:
        """One marginal, shaped, with the standard error where the marginal was measured."""
        values = self.marginals([clique])[0].reshape(self.domain.shape(clique))
        return CellEstimate(values, self.errors.get(clique))

    @property
    def density(self) -> Callable[[NDArray[np.int32]], NDArray[np.float64]]:
        """See ``log_density``."""
        return self.log_density

    def log_density(self, codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Logarithm of the probability of each record under the mixture, shape (rows,)."""
        parts = [model.log_density(codes) for model in self.models]
        if len(parts) == 1:
            return parts[0]
        with np.errstate(divide="ignore"):  # a part of nothing has the density 0
            shares = np.log(self._shares())
        return np.asarray(np.logaddexp.reduce([p + s for p, s in zip(parts, shares, strict=True)], axis=0))

    def _shares(self) -> NDArray[np.float64]:
        count = len(self.models)
        return np.full(count, 1.0 / count) if self.weights is None else np.array(self.weights)

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Draw records: public post-processing, repeatable for one seed."""
        generator = np.random.default_rng(seed)
        shares = self._rows_of_each(rows, generator)
        drawn = [
            model.sample(int(share), int(generator.integers(2**63)))
            for model, share in zip(self.models, shares, strict=True)
        ]
        table = np.concatenate(drawn)
        return table[generator.permutation(rows)]

    def blocks(self, rows: int, seed: int, size: int) -> DrawnBlocks:
        """See ``Synthesis.blocks``."""
        from dpstream.core.graphical import draw_blocks

        shares = self._rows_of_each(rows, np.random.default_rng(seed))
        return draw_blocks(self.models, shares, seed, size)

    def _rows_of_each(self, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """How many records each model gives: its share, rounded by a draw."""
        count = len(self.models)
        if self.weights is None:
            shares = np.full(count, rows // count)
            shares[generator.permutation(count)[: rows % count]] += 1
            return shares
        exact = rows * self._shares()
        shares = np.floor(exact).astype(np.int64)
        lacks = exact - shares
        left = rows - int(shares.sum())
        if left:
            shares[generator.choice(count, left, replace=False, p=lacks / lacks.sum())] += 1
        return shares

    def model(self) -> list[dict[str, Any]] | None:
        """See ``Synthesis.model``."""
        if sum(model.tree.parameters for model in self.models) > _MOST_PUBLISHED:
            return None
        shares = self._shares().tolist()
        return [{"weight": w, **one.law()} for w, one in zip(shares, self.models, strict=True)]

    @classmethod
    def of_model(cls, domain: Domain, parts: Sequence[Mapping[str, Any]], records: float) -> ModelSynthesis:
        """The inverse of ``model``. KeyError, TypeError, ValueError, InputError."""
        models = tuple(Model.of_law(domain, part, records) for part in parts)
        weights = tuple(float(part["weight"]) for part in parts)
        if not models or not min(weights) >= 0.0 or not abs(sum(weights) - 1.0) < 1e-6:
            raise ValueError
        return cls(models, records, weights=None if len(set(weights)) == 1 else weights)

    def given(self, excluded: Sequence[Impossible]) -> tuple[ModelSynthesis, float] | None:
        """See ``SyntheticTable.given``."""
        parts = [(model.given(excluded), w) for model, w in zip(self.models, self._shares(), strict=True)]
        left = [(part[0], float(w) * part[1]) for part, w in parts if part is not None and w * part[1] > 0.0]
        share = sum(w for _, w in left)
        if not left:
            return None
        weights = tuple(w / share for _, w in left)
        return ModelSynthesis(tuple(model for model, _ in left), self.records * share, weights=weights), share

    def pack(self) -> Packed:
        """Models side by side in one container."""
        metas, arrays = pack_models(self.models)
        errors = [[list(clique), error] for clique, error in self.errors.items()]
        arrays.update({f"count/{','.join(map(str, clique))}": v for clique, v in self.counts.items()})
        meta = {
            "models": metas,
            "records": self.records,
            "errors": errors,
            "noise": None if self.noise is None else self.noise.pack(),
            "total_error": self.total_error,
            "measured_up_to": self.measured_up_to,
            "total_measured_up_to": self.total_measured_up_to,
            "weights": self.weights,
            "passed": self.passed,
        }
        return Packed(meta, arrays)

    @classmethod
    def unpack(cls, packed: Packed) -> ModelSynthesis:
        """The inverse of ``pack``."""
        meta = packed.meta
        errors = {tuple(clique): error for clique, error in meta["errors"]}
        names = {clique: f"count/{','.join(map(str, clique))}" for clique in errors}
        counts = {clique: packed.arrays[name] for clique, name in names.items() if name in packed.arrays}
        return cls(
            tuple(unpack_models(meta["models"], packed.arrays)),
            meta["records"],
            errors,
            counts,
            None if meta["noise"] is None else unpack_law(meta["noise"]),
            meta["total_error"],
            None if meta["weights"] is None else tuple(meta["weights"]),
            passed=None if meta["passed"] is None else tuple(meta["passed"]),
            measured_up_to=meta["measured_up_to"],
            total_measured_up_to=meta["total_measured_up_to"],
        )


@dataclass(frozen=True)
class TableSynthesis(SyntheticTable):
    """A synthetic table itself, as codes of shape (records, columns)."""

    domain: Domain
    codes: NDArray[np.int32]
    records: float
    total_error: float | None = None
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(default=(), compare=False)

    @property
    def total(self) -> float:
        """The noisy number of records (the table has the nearest number of rows, at least 0)."""
        return self.records

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat, in records."""
        counts = count_marginals(self.codes, self.domain, cliques)
        return [count.astype(np.float64) for count in counts]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """The table's rows in random order; more rows than it has are drawn again from it."""
        generator = np.random.default_rng(seed)
        available = len(self.codes)
        if available == 0:
            if self.domain.impossible:
                return Model.uniform(self.domain, 0.0).sample(rows, seed)
            sizes = np.array(self.domain.sizes)
            return generator.integers(0, sizes, size=(rows, len(sizes)), dtype=np.int32)
        passes = [generator.permutation(available) for _ in range(-(-rows // available))] or [
            np.empty(0, dtype=np.int64)
        ]
        return self.codes[np.concatenate(passes)[:rows]]

    def pack(self) -> Packed:
        """The table in the smallest integer type that holds its codes."""
        kind = np.uint8 if max(self.domain.sizes) <= 256 else np.int32
        meta = {
            "names": list(self.domain.names),
            "sizes": list(self.domain.sizes),
            "records": self.records,
            "total_error": self.total_error,
            **pack_impossible(self.domain),
        }
        return Packed(meta, {"codes": self.codes.astype(kind)})

    @classmethod
    def unpack(cls, packed: Packed) -> TableSynthesis:
        """The inverse of ``pack``."""
        if "codes" not in packed.arrays:
            raise StoreDamagedError("a packed table lacks its records", where="state")
        names, sizes = tuple(packed.meta["names"]), tuple(packed.meta["sizes"])
        domain = Domain(names, sizes, unpack_impossible(packed.meta))
        codes = packed.arrays["codes"].astype(np.int32)
        return cls(domain, codes, packed.meta["records"], packed.meta["total_error"])
