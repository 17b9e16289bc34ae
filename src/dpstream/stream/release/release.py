"""What a step gave: records, marginals and answers, all public post-processing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Measured, Synthesis, SyntheticTable
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy.law import WeightedSum, check_confidence
from dpstream.core.schema import Clique, Domain, Schema, parse_predicate
from dpstream.io.sinks.release_reader import Frame, as_frame, check_frame, read_table
from dpstream.stream.release.answers import (
    NOT_MEASURED,
    Answer,
    ErrorKind,
    check_cells,
    impossible_answer,
    measured_answer,
    with_bias,
    with_simulated,
)
from dpstream.stream.release.averages import Average, Numbers
from dpstream.stream.release.estimates import Estimate, Published, label_columns
from dpstream.stream.release.manifest import DRAWN
from dpstream.stream.release.released_verdicts import NumberOfRecords, number_of_records
from dpstream.stream.release.sampling import given, sampled
from dpstream.stream.release.showing import estimate_html, release_html, spent_of

if TYPE_CHECKING:
    from dpstream.core.privacy import Budget
    from dpstream.stream.release.pictures import Picture

#: Why an answer carries no interval.
NO_INTERVAL = f"Not measured together at every step. {NOT_MEASURED}"


@dataclass(frozen=True)
class Marginal:
    """Estimated numbers of records by cell.

    Attributes:
        columns: names, in the order asked for.
        labels: one tuple of labels per column.
        values: estimates, one axis per column.
        standard_error: standard deviation of the noise in one cell of the measurement behind it, where the marginal
            was measured without a gap; else None.
        measured: that measurement itself, shaped as ``values``: unbiased, so that single cells may be negative.
            ``values`` come from a model fitted to it and are nearer to the truth as a rule, but no public number says
            how near.
        as_of: the step at whose end ``measured`` holds; None where there is none.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: NDArray[np.float64]
    standard_error: float | None
    measured: NDArray[np.float64] | None = None
    as_of: int | None = None
    #: Confidence -> half of the interval's width.
    _half_width: Callable[[float], float] | None = field(default=None, repr=False)

    def interval(self, confidence: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Low and high ends for every cell, around ``measured``; None where there is none.

        Each cell's truth is inside with the stated probability or more; all cells together with less.

        Errors:
            ConfigError: a confidence that is not above 0 and below 1 (up to 0.999999).
        """
        check_confidence(confidence)
        if self.measured is None or self._half_width is None:
            return None
        width = self._half_width(confidence)
        return self.measured - width, self.measured + width

    def _repr_html_(self) -> str:
        return estimate_html(self.columns, self.to_table(), self.interval())

    def to_table(self) -> Any:
        """One row per cell: the labels and ``estimate``, as a pyarrow Table."""
        import pyarrow as pa

        return pa.table({**label_columns(self.columns, self.labels), "estimate": self.values.ravel()})


class Release:
    """The published result of one step. Everything it does is free: no data, no budget.

    Attributes:
        step, batch_id: which step, and the owner's name for its batch (the name is not published).
        manifest: what was published about it.
    """

    def __init__(
        self,
        step: int,
        batch_id: str,
        manifest: dict[str, Any],
        synthesis: Synthesis | None,
        seed: int,
        schema: Schema,
        folder: Path | None = None,
    ) -> None:
        self.step = step
        self.batch_id = batch_id
        self.manifest = manifest
        self._synthesis = synthesis
        #: Of its table.
        self._seed = seed
        self._schema = schema
        #: Where it is published, if anywhere.
        self._folder = folder
        self._known: Published | None = None

    def __repr__(self) -> str:
        return f"Release(stream={self.manifest['stream']!r}, step={self.step})"

    def _repr_html_(self) -> str:
        try:
            table = self.table()
        except DpstreamError:  # a table that was dropped, or that waits for approval
            table = None
        return release_html(self.manifest, table)

    @property
    def spent(self) -> Budget:
        """What all releases up to and including this one cost one unit of protection."""
        return spent_of(self.manifest)

    def table(self, frame: Frame = "arrow") -> Any:
        """The released table.

        Args:
            frame: ``arrow`` gives a pyarrow Table, ``pandas`` and ``polars`` their frames (if installed).

        Errors:
            ConfigError: an unknown frame, a library that is not installed, a table that was dropped; or one with
            persistent records that is not published.
        """
        check_frame(frame)
        if (self.manifest.get("records") or {}).get("kind") != "persistent":
            return as_frame(self.sample(), frame)
        if self._folder is None:
            raise ConfigError(
                "persistent records need a place for releases",
                where="release",
                allowed="a stream with releases",
            )
        return read_table(self._folder, self.step, frame=frame)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The released table for whoever takes Arrow streams: ``polars.DataFrame(release)``,
        ``pyarrow.table(release)``, ``duckdb.sql("FROM release")``, ``pandas.DataFrame.from_arrow(release)``.
        Errors as of ``table``."""
        return self.table().__arrow_c_stream__(requested_schema)

    @property
    def total(self) -> float:
        """The noisy number of records; may be negative early in a stream."""
        return self._model.total

    @property
    def number_of_records(self) -> NumberOfRecords:
        """The released number of records, its error, and up to which step it is measured."""
        return number_of_records(self.manifest)

    @property
    def total_standard_error(self) -> float | None:
        """Standard error of ``total`` from noise alone; 0 where the owner declared it public, None where it is not
        known, as where records came since that are expected, not measured."""
        return self.number_of_records.noise_error

    @property
    def rows(self) -> int:
        """Rows of the released table: the rounded noisy total, at least 0."""
        return int(self.manifest["rows_in_table"])

    def sample(self, rows: int | None = None, seed: int | None = None, *, where: str | None = None) -> Any:
        """Synthetic records as a pyarrow Table, typed as the source.

        Args:
            rows: how many; the released number by default.
            seed: repeats a draw. Without arguments: exactly the released table where tables are drawn anew.
                Where records persist (``records = "persistent"``) the released table was carried over from the
                one before; this draws another table of the same model, with as many rows (``table``
                gives the released one).
            where: only records that satisfy a question; see ``PublicRelease.sample``.

        Errors:
            ConfigError: negative rows or seed, or a step whose model was dropped; arguments of a classifier. Others as
            ``PublicRelease.sample``.
        """
        asked = {"where": where, "rows": rows, "seed": seed}
        named = [name for name, value in asked.items() if value is not None]
        if named:
            self._answers(named[0])
        count, released = (self.rows if rows is None else rows), not named
        if released:
            seed = self._seed
        size = self.manifest.get(DRAWN) if released else None
        return sampled(self._model, self._schema, count, seed, where, self.manifest, self.answer, block=size)

    def probability(self, where: str) -> float:
        """The share of records that satisfy a question, under the model; see ``PublicRelease.probability``."""
        left = given(self._answers("where"), self._schema, where)
        return 0.0 if left is None else left[1]

    def marginal(self, columns: Sequence[str]) -> Marginal:
        """Estimated counts of all value combinations of some columns.

        Errors:
            SchemaError: an unknown column. ConfigError: none, or one twice. LimitError: too many cells.
        """
        model = self._answers("marginal")
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names or len(set(names)) != len(names):
            raise ConfigError("name each column once", where="marginal", allowed="one or more columns")
        domain = self._schema.domain
        if set(names) & {column.name for column in self._schema.released_columns[len(self._schema) :]}:
            return self._derived_marginal(names)
        asked = [domain.index(name) for name in names]
        clique = tuple(sorted(asked))
        check_cells(domain, clique, "marginal")
        estimate = model.marginal(clique)
        shaped = np.asarray(estimate.values, dtype=np.float64).reshape(domain.shape(clique))
        values = shaped.transpose([clique.index(i) for i in asked])
        labels = tuple(self._schema.columns[i].labels() for i in asked)
        if (published := self._published()) is not None:
            found = published.estimate(names)
            if isinstance(found, Estimate):
                law = found.law()
                width = None if found.chosen else law.half_width
                error = float(law.variance**0.5)
                return Marginal(names, labels, values, error, found.values, found.as_of, width)
        known = model.measured.get(clique)
        if known is None:
            return Marginal(names, labels, values, estimate.standard_error)
        measured = known.values.transpose([clique.index(i) for i in asked])
        width = partial(known.half_width, 1)
        return Marginal(names, labels, values, estimate.standard_error, measured, self.step, width)

    def _derived_marginal(self, names: tuple[str, ...]) -> Marginal:
        """A marginal with columns that follow from others: a sum of the cells of these."""
        assert self._schema.constraints is not None
        derived = {one.column.name: one for one in self._schema.constraints.derived}
        read = [
            source for name in names for source in (derived[name].sources if name in derived else (name,))
        ]
        known = self.marginal(tuple(dict.fromkeys(read)))
        at = {name: axis for axis, name in enumerate(known.columns)}
        place = np.indices(known.values.shape)
        axes, labels = [], []
        for name in names:
            if name in derived:
                one = derived[name]
                shape = [known.values.shape[at[source]] for source in one.sources]
                axes.append(np.array(one.codes).reshape(shape)[tuple(place[at[s]] for s in one.sources)])
                labels.append(one.column.labels())
            else:
                axes.append(place[at[name]])
                labels.append(known.labels[at[name]])
        values = np.zeros([len(own) for own in labels])
        np.add.at(values, tuple(axes), known.values)
        return Marginal(names, tuple(labels), values, None)

    def plot(self, columns: str | Sequence[str] | None = None) -> Picture:
        """The released table as a picture: ``release.plot("rent").save("rent.pdf")``; a notebook shows it.

        Args:
            columns: one (bars, with a 95 % interval where one is known), two (a map of shares), or none for up to
                twelve columns side by side.

        Errors:
            ConfigError: matplotlib is not installed (``dpstream[plot]``), unknown columns, or no rows; errors of
            ``table``.
        """
        from dpstream.stream.release.showing import PicturedRelease, draw_release

        drawn = PicturedRelease(self.manifest, self.table(), self._schema, self._published(), self._folder)
        return draw_release(drawn, columns)

    def answer(self, question: Any) -> Answer:
        """How many records satisfy a question such as ``"non_payment = 1 and zip = '94103'"``.

        Of a panel: for how many people something holds over periods, as an object of ``dpstream.families.panel``
        (``AtLeast``, ``Consecutive``, ``Pattern``) or in words such as ``"at least 2 of the last 3"``.

        Evaluated exactly on the model's marginal of the columns involved (see ``predicate`` for the grammar). Where
        published noisy counts of these columns cover all steps up to one (``as_of``), they give ``measured_value`` and
        ``interval`` as well, and ``PublicRelease.answer`` gives the same ones. Where they are not published, the
        smallest marginal that was measured at every step gives them. Where that gives no error either, the answer has
        the one by simulation, if one was published for this step; ``error_kind`` says which it is.

        Errors:
            ConfigError, SchemaError: the question cannot be read or cuts through a bin.
            LimitError: its columns have more than ``MAX_ANSWER_CELLS`` cells together.
        """
        model = self._answers("answer")
        people = model.own_answer(question, self._codes_of)
        if people is not None:
            kind: ErrorKind | None = None if people.count_error is None else "exact"
            unbiased = people.unbiased
            return Answer(
                people.count,
                people.count_error,
                people.words,
                unbiased,
                None if unbiased is None else people.count_error,
                people=people,
                as_of=None if unbiased is None else self.step,
                error_kind=kind,
            )
        predicate = parse_predicate(question, self._schema)
        check_cells(self._schema.domain, predicate.columns, "answer")
        none = impossible_answer(predicate, self._schema)
        if none is not None:
            return none
        estimate = model.marginal(predicate.columns)
        mask = predicate.mask()
        values = np.asarray(estimate.values, dtype=np.float64).reshape(mask.shape)
        cells = int(mask.sum())
        value = float(values[mask].sum())
        published = self._published()
        found = None if published is None else measured_answer(value, published, predicate)
        if found is not None and found.as_of is not None:
            return found
        smallest = _smallest(model.measured, predicate.columns, self._schema.domain)
        if smallest is None:
            error, note = _error_of_sum(cells, estimate.standard_error)
            if error is not None:
                return Answer(value, error, note, error_kind="bound" if cells > 1 else "exact")
            answer = with_bias(found or Answer(value, None, note), self.manifest)
            if self._folder is None:
                return answer
            return with_simulated(answer, self._folder, self.step, predicate, self._schema)
        clique, measured = smallest
        others = tuple(axis for axis, column in enumerate(clique) if column not in predicate.columns)
        counts = measured.values.sum(axis=others)
        cells *= measured.values.size // counts.size
        error = measured.error_of_sum(cells)
        note = _note(cells, f" of the measured marginal {self._schema.domain.label(clique)}")
        known = float(counts[mask].sum())
        width = partial(measured.half_width, cells) if cells else WeightedSum().half_width
        return Answer(
            value,
            error,
            note,
            known,
            error,
            as_of=self.step,
            error_kind="exact",
            _half_width=width,
        )

    def mean(self, column: str, where: str | None = None) -> Average:
        """The average of a column of numbers; see ``PublicRelease.mean``."""
        return self._numbers(column, where, sums=True).mean()

    def quantile(self, column: str, share: float, where: str | None = None) -> Average:
        """A quantile of a column of numbers; see ``PublicRelease.quantile``."""
        return self._numbers(column, where).quantile(share)

    def _numbers(self, column: str, where: str | None, *, sums: bool = False) -> Numbers:
        return Numbers.of(self._schema, column, where, self.table, self._published(), sums=sums)

    def _published(self) -> Published | None:
        """The noisy counts in the folder of releases; None where there are none, or where counts of the released table
        hold records of another stream's table, which they are not about."""
        if self._folder is None or "base" in self.manifest:
            return None
        if self._known is None:
            try:
                self._known = Published.read(self._folder, self._schema, self.step)
            except ConfigError:  # a step that is not published yet
                return None
        return self._known if self._known.counts else None

    def _codes_of(self, condition: str) -> tuple[int, ...]:
        """Whole records, as one number each, that satisfy a condition."""
        predicate = parse_predicate(condition, self._schema)
        domain, mask = self._schema.domain, predicate.mask()
        check_cells(domain, tuple(range(len(domain))), "answer")
        cells = np.indices(domain.sizes).reshape(len(domain), -1)
        return tuple(np.flatnonzero(mask[tuple(cells[i] for i in predicate.columns)]).tolist())

    def _answers(self, where: str) -> SyntheticTable:
        if self._model.answers is None:
            raise ConfigError(
                f"the release is {self._model.noun}: it gives neither records nor counts",
                where=where,
                allowed="sample() without arguments",
            )
        return self._model.answers

    @property
    def _model(self) -> Synthesis:
        if self._synthesis is None:
            raise ConfigError(
                f"the model of step {self.step} was dropped",
                where="release",
                allowed='keep = "all", or a later step',
            )
        return self._synthesis


def _smallest(
    measured: Mapping[Clique, Measured], columns: Clique, domain: Domain
) -> tuple[Clique, Measured] | None:
    """The measured marginal with these columns that has the fewest cells; the first of equals."""
    able = [clique for clique in measured if set(columns) <= set(clique)]
    if not able:
        return None
    chosen = min(able, key=domain.cells)
    return chosen, measured[chosen]


def _note(cells: int, where: str = "") -> str:
    if cells == 0:
        return "no combination satisfies the question"
    what = "cell" if cells == 1 else f"sum of {cells} cells"
    return f"standard deviation of the noise in the {what}{where}"


def _error_of_sum(cells: int, error: float | None) -> tuple[float | None, str]:
    """The error of a sum of cells, and what it means, for a marginal whose measurement is not at hand."""
    if error is None:
        return None, NO_INTERVAL
    if cells <= 1:
        return error * cells, _note(cells)
    # Cauchy-Schwarz: holds whatever the correlation between the cells.
    return error * cells, f"upper bound: {cells} cells answer; their noise may be correlated"
