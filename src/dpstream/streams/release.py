"""What a step gave: records, marginals and answers, all public post-processing."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.errors import ConfigError, LimitError
from dpstream.mechanism import Synthesis
from dpstream.streams.predicate import parse_predicate

if TYPE_CHECKING:
    from dpstream.schema import Schema

__all__ = ["MAX_CELLS", "Answer", "Marginal", "Release", "draw_table"]

#: Largest joint domain that ``marginal`` and ``answer`` evaluate.
MAX_CELLS = 2_000_000


@dataclass(frozen=True)
class Marginal:
    """Estimated numbers of records by cell.

    Attributes:
        columns: names, in the order asked for.
        labels: one tuple of labels per column.
        values: estimates, one axis per column.
        standard_error: standard deviation of the noise in one cell where public noise scales give it.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: NDArray[np.float64]
    standard_error: float | None

    def to_table(self) -> Any:
        """One row per cell: the labels and ``estimate``, as a pyarrow Table."""
        import pyarrow as pa

        cells = np.indices(self.values.shape).reshape(len(self.columns), -1)
        data = {
            name: pa.array(np.array(labels, dtype=object)[codes].tolist(), pa.string())
            for name, labels, codes in zip(self.columns, self.labels, cells, strict=True)
        }
        return pa.table({**data, "estimate": self.values.ravel()})


@dataclass(frozen=True)
class Answer:
    """An estimated number of records.

    ``standard_error`` is the noise's standard deviation where one measured cell answers, an upper bound
    where several do (``note`` says which), and None where public noise scales do not give it.
    """

    value: float
    standard_error: float | None
    note: str


class Release:
    """The published result of one step. Everything it does is free: no data, no budget.

    Attributes:
        step, batch_id: which step, and the owner's name for its batch (the name is not published).
        manifest: what was published about it.
    """

    def __init__(
        self, step: int, batch_id: str, manifest: dict[str, Any], synthesis: Synthesis | None, schema: Schema
    ) -> None:
        self.step = step
        self.batch_id = batch_id
        self.manifest = manifest
        self._synthesis = synthesis
        self._schema = schema

    def __repr__(self) -> str:
        return f"Release(stream={self.manifest['stream']!r}, step={self.step})"

    @property
    def total(self) -> float:
        """The noisy number of records; may be negative early in a stream."""
        return self._model.total

    @property
    def rows(self) -> int:
        """Rows of the released table: the rounded noisy total, at least 0."""
        return int(self.manifest["rows_in_table"])

    def sample(self, rows: int | None = None, seed: int | None = None) -> Any:
        """Synthetic records as a pyarrow Table, typed as the source.

        Args:
            rows: how many; the released number by default.
            seed: repeats a draw. With neither argument: exactly the released table.

        Errors:
            ConfigError: negative rows or seed, or a step whose model was dropped.
        """
        count = self.rows if rows is None else rows
        if seed is None:
            seed = int(self.manifest["sampling_seed"]) if rows is None else secrets.randbits(63)
        for name, value in (("rows", count), ("seed", seed)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
                raise ConfigError(f"{value!r} cannot be used", where=name, allowed="an integer from 0")
        return draw_table(self._model, self._schema, int(count), int(seed))

    def marginal(self, columns: Sequence[str]) -> Marginal:
        """Estimated counts of all value combinations of some columns.

        Errors:
            SchemaError: an unknown column. ConfigError: none, or one twice. LimitError: too many cells.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        domain = self._schema.domain
        asked = [domain.index(name) for name in names]
        if not asked or len(set(asked)) != len(asked):
            raise ConfigError("name each column once", where="marginal", allowed="one or more columns")
        clique = tuple(sorted(asked))
        self._check_cells(clique, "marginal")
        estimate = self._model.marginal(clique)
        shaped = np.asarray(estimate.values, dtype=np.float64).reshape(domain.shape(clique))
        values = shaped.transpose([clique.index(i) for i in asked])
        labels = tuple(self._schema.columns[i].labels() for i in asked)
        return Marginal(names, labels, values, estimate.standard_error)

    def answer(self, question: str) -> Answer:
        """How many records satisfy a question such as ``"non_payment = 1 and zip = '94103'"``.

        Evaluated exactly on the model's marginal of the columns involved (see ``predicate`` for the grammar).

        Errors:
            ConfigError, SchemaError: the question cannot be read or cuts through a bin.
            LimitError: its columns have more than ``MAX_CELLS`` cells together.
        """
        predicate = parse_predicate(question, self._schema)
        self._check_cells(predicate.columns, "answer")
        estimate = self._model.marginal(predicate.columns)
        mask = predicate.mask()
        values = np.asarray(estimate.values, dtype=np.float64).reshape(mask.shape)
        cells = int(mask.sum())
        value = float(values[mask].sum())
        error, note = _error_of_sum(cells, estimate.standard_error)
        return Answer(value, error, note)

    def _check_cells(self, clique: tuple[int, ...], where: str) -> None:
        domain = self._schema.domain
        if domain.cells(clique) > MAX_CELLS:
            raise LimitError(
                f"{domain.label(clique)} has {domain.cells(clique)} cells",
                where=where,
                allowed=f"{MAX_CELLS}",
            )

    @property
    def _model(self) -> Synthesis:
        if self._synthesis is None:
            raise ConfigError(
                f"the model of step {self.step} was dropped",
                where="release",
                allowed='keep = "all", or a later step',
            )
        return self._synthesis


def draw_table(synthesis: Synthesis, schema: Schema, rows: int, seed: int) -> Any:
    """Records of a synthesis as a typed table; equal for equal arguments and program versions."""
    codes = synthesis.sample(rows, seed)
    # Another seed inside the bins: equal generators would tie a record to its place in the bin.
    inner = int.from_bytes(hashlib.sha256(b"decode:%d" % seed).digest()[:8], "little") >> 1
    return schema.decode(codes, inner)


def _error_of_sum(cells: int, error: float | None) -> tuple[float | None, str]:
    if error is None:
        return None, "the public noise scales give no standard error for this marginal"
    if cells == 0:
        return 0.0, "no value combination satisfies the question"
    if cells == 1:
        return error, "standard deviation of the noise in the one cell that answers"
    # Cauchy-Schwarz: holds whatever the correlation between the cells.
    return error * cells, f"upper bound: {cells} cells answer, and their noise may be correlated"
