"""A published release, read from the public folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import ConfigError
from dpstream.core.schema.predicate import Predicate, parse_predicate
from dpstream.io.objects import AnyPath, ObjectPath, any_path, is_web_url, web_path
from dpstream.io.sinks.period_tables import has_periods
from dpstream.io.sinks.release_reader import (
    Frame,
    MeasuredStep,
    measured_steps,
    panel_labels,
    read_manifest,
    read_model,
    read_table,
    readable_steps,
    released_alike,
    released_schema,
)
from dpstream.io.sinks.signing import signed_folder
from dpstream.stream.release import estimates, flows
from dpstream.stream.release.answers import (
    Answer,
    check_cells,
    impossible_answer,
    measured_answer,
    with_bias,
    with_simulated,
)
from dpstream.stream.release.averages import Average, Numbers
from dpstream.stream.release.combined import CellsOf, misfit
from dpstream.stream.release.estimates import Combine, Estimate, Flowing, Missing, Published
from dpstream.stream.release.flow_kinds import BlockFlows, NoFlows, PresentFlows, flowing
from dpstream.stream.release.flows import Change, Events, Moment, Series, Timeline
from dpstream.stream.release.released_verdicts import NumberOfRecords, number_of_records
from dpstream.stream.release.sampling import given, published_model, sampled
from dpstream.stream.release.showing import codes_of, release_html, spent_of

if TYPE_CHECKING:
    from dpstream.core.privacy import Budget
    from dpstream.core.schema import Schema
    from dpstream.mechanisms import ModelSynthesis
    from dpstream.stream.release.pictures import Picture

_COUNTED = "Counted in the released table"


class PublicRelease:
    """What the releases folder says about one step, and about the others. Every file is checked against its hash.

    Attributes:
        folder: where the releases are.
        step: the step that ``table``, ``manifest`` and ``answer`` are about where no other one is asked for.
    """

    def __init__(self, folder: AnyPath, step: int) -> None:
        self.folder = folder
        self.step = step
        self._known: dict[int, Published] = {}
        self._read: dict[int, list[MeasuredStep]] = {}
        self._models: dict[int, tuple[ModelSynthesis, Schema]] = {}

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose tables can be read, in order."""
        return readable_steps(self.folder)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the released table's columns.

        Errors:
            ConfigError: releases other than tables of records.
        """
        schema = released_schema(self.folder, self.manifest())
        return tuple(column.name for column in schema.released_columns)

    @property
    def spent(self) -> Budget:
        """What all releases up to and including this one cost one unit of protection."""
        return spent_of(self.manifest())

    def manifest(self, step: int | None = None) -> dict[str, Any]:
        """What was published about a step: guarantee, spending, accuracy, how the table was made.

        Errors:
            ConfigError: no such step. StoreDamagedError: files that differ from the published hashes.
        """
        return read_manifest(self.folder, self._step(step))

    def number_of_records(self, step: int | None = None) -> NumberOfRecords:
        """The released number of records (under ``max_events``: of admitted ones), its error, and up to which step it
        is measured; errors as of ``manifest``."""
        return number_of_records(self.manifest(step))

    def table(self, step: int | None = None, *, frame: Frame = "arrow", ids: bool = False) -> Any:
        """The released table; arguments and errors as of ``dpstream.io.sinks.read_table``."""
        return read_table(self.folder, self._step(step), frame=frame, ids=ids)

    def sample(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        where: str | None = None,
        step: int | None = None,
    ) -> Any:
        """Synthetic records as a pyarrow Table, drawn from the published model.

        Args:
            rows: how many; by default as many as the table has. seed: repeats a draw.
            where: only records that satisfy a question, such as ``"zip = '94102' and rent >= 2000"``; exactly as often
                as the model has them among such records.

        Errors:
            ConfigError: a step without a model; a condition that fewer than one record is expected to satisfy.
            SchemaError, ConfigError: a condition that cannot be read. LimitError: it joins too many columns by ``or``.
            StoreDamagedError: files that differ from the published hashes.
        """
        manifest, (model, schema) = self.manifest(step), self._model(step)
        count = int(manifest["rows_in_table"]) if rows is None else rows
        return sampled(model, schema, count, seed, where, manifest, partial(self.answer, step=step))

    def probability(self, where: str, step: int | None = None) -> float:
        """The share of records that satisfy a question, exactly under the published model. Errors as of ``sample``;
        ``answer`` has the measured number, and its error."""
        left = given(*self._model(step), where)
        return 0.0 if left is None else left[1]

    def _model(self, step: int | None) -> tuple[ModelSynthesis, Schema]:
        """The published model of a step, with its columns; read once."""
        number = self._step(step)
        if number not in self._models:
            facts = read_model(self.folder, number)
            manifest, place = self.manifest(number), f"{self.folder}, model of step {number}"
            schema = released_schema(self.folder, manifest)
            self._models = {number: published_model(facts, schema, manifest, place)}
        return self._models[number]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The released table for whoever takes Arrow streams: ``polars.DataFrame(release)``,
        ``pyarrow.table(release)``, ``duckdb.sql("FROM release")``, ``pandas.DataFrame.from_arrow(release)``.
        Errors as of ``table``."""
        return self.table().__arrow_c_stream__(requested_schema)

    def measurements(self, step: int | None = None) -> list[NoisyCounts]:
        """The noisy counts that were published with the steps up to this one, in their order.

        Every query and every field is described in docs/reference/measurements.md.

        Errors:
            StoreDamagedError: files that are missing or differ from the published hashes.
        """
        return [one for _, counts in self._measured(step) for one in counts]

    def measured(
        self,
        columns: Sequence[str],
        step: int | None = None,
        *,
        as_of: int | None = None,
        combine: Combine = "reconciled",
    ) -> Estimate | None:
        """What was measured of a marginal, over all steps: unbiased numbers of ``Estimate.records``, exact intervals.

        Args:
            columns: names; none for the number of records. step: use what was published up to it.
            as_of: the step at whose end the estimate holds; by default the last one by which anything was measured.
            combine: ``mean``: measurements that have all of the columns and were not chosen by earlier ones, weighted
                by inverse variance. ``reconciled``: so too, but levels agree. ``least squares``: all that overlap.

        Returns:
            None where records of some steps were not measured so: ``missing`` says which.

        Errors:
            SchemaError, ConfigError: wrong columns or step. LimitError: too many cells.
            StoreDamagedError: files that differ from the published hashes.
        """
        found = self._estimate(columns, step, as_of, combine)
        return found if isinstance(found, Estimate) else None

    def missing(
        self,
        columns: Sequence[str],
        step: int | None = None,
        *,
        as_of: int | None = None,
        combine: Combine = "reconciled",
    ) -> Missing | None:
        """Why ``measured`` gives None, and which steps were not measured; None where it gives an estimate.

        Errors:
            As ``measured``.
        """
        found = self._estimate(columns, step, as_of, combine)
        return found if isinstance(found, Missing) else None

    def _estimate(
        self, columns: Sequence[str], step: int | None, as_of: int | None, combine: Combine
    ) -> Estimate | Missing:
        if has_periods(self.manifest(step)):
            return Missing((), "A panel has no table of records: its counts are of people.")
        known = None if columns else self._flowing(step)
        if isinstance(known, PresentFlows):
            return known.stock(as_of, combine)
        if isinstance(known, NoFlows | BlockFlows):
            number = known.gained(0, self._step(step) if as_of is None else as_of)
            if number is not None:  # public
                return number
        return (self._sums(columns, step) or self._published(step)).estimate(columns, as_of, combine)

    def flow(
        self,
        columns: Sequence[str] = (),
        start: Moment | None = None,
        end: Moment | None = None,
        *,
        events: Events = "net",
        cover: bool = False,
        combine: Combine = "reconciled",
    ) -> Estimate:
        """How many records came from one day to another, both included: a sum of measurements, with exact intervals.
        Under ``max_events``: how many admitted records, of which later periods hold fewer.

        Args:
            columns: names; none for the number of records. start, end: days, ``"2024-03-31"``, or numbers of steps.
            events: ``net``: those that came less those that left; ``came``; ``left``.
            cover: widen a span that is not measured as a whole to the nearest one that is; ``span`` says which.
            combine: as of ``measured``.

        Errors:
            ConfigError: a span with gaps in what is measured; it names the nearest ones. Others as ``measured``.
        """
        timeline = self._timeline(columns)
        return timeline.flow(columns, timeline.asked(start, end), events, combine, cover=cover)

    def change(
        self,
        columns: Sequence[str] = (),
        *,
        earlier: tuple[Moment, Moment],
        later: tuple[Moment, Moment],
        events: Events = "net",
        combine: Combine = "reconciled",
    ) -> Change:
        """The later flow less the earlier one; periods in both cancel, with their noise. Arguments and errors as of
        ``flow``. ``Change.direction`` says what rose and what fell, but under ``max_events``: the first events of a
        user are admitted, so later periods hold fewer."""
        timeline = self._timeline()
        spans = timeline.asked(*earlier), timeline.asked(*later)
        return flows.change(timeline, columns, *spans, events, combine)

    def series(
        self,
        columns: Sequence[str] = (),
        every: str | int | None = None,
        *,
        events: Events = "net",
        combine: Combine = "reconciled",
    ) -> Series:
        """The flow of each period, one after the other; ``to_table`` has a row a period and value.

        Args:
            every: ``week``, ``month``, ``quarter``, ``year`` or a number of steps; None: as it was measured. A step
                belongs to the period that holds its last day.

        Errors:
            ConfigError: no period is measured as a whole, or an unknown one.
        """
        return flows.series(self._timeline(columns), columns, every, events, combine)

    def _timeline(self, columns: Sequence[str] = ()) -> Timeline:
        known = self._sums(columns, None) or self._flowing(None)
        return Timeline.of(known, [manifest for manifest, _ in self._measured(None)])

    def _sums(self, columns: Sequence[str], step: int | None) -> Published | None:
        """What was measured for a mean among the columns."""
        names = [columns] if isinstance(columns, str) else columns
        means = any(name.startswith("mean(") for name in names)
        return self._published(step).sums(names) if means else None

    def _flowing(self, step: int | None) -> Flowing:
        return flowing(self._measured(step), lambda: self._published(step), lambda: panel_labels(self.folder))

    def people(self, times: int | None = None, step: int | None = None) -> Estimate | None:
        """Of a panel: the number of its people, without padding; None where it was not measured.

        Args:
            times: of a panel that counts: only those who reported one of the counted values at least so many times so
                far.
            step: use what was published up to it.

        Errors:
            StoreDamagedError: files that differ from the published hashes.
        """
        return self._others(step).people(times)

    def patterns(self, step: int | None = None) -> Estimate | None:
        """Of a panel of windows: how many people reported what in each of the newest periods, with an axis for each
        column of each period. ``sum`` of it answers questions about these periods. None for other streams.

        Errors:
            As ``people``.
        """
        return self._others(step).patterns()

    def departures(self, since: int = 0, step: int | None = None) -> Estimate | None:
        """Of a table whose records come and leave: how many that a census had counted have left, as of the last count
        of departures. A step that was never published ends the sum: ``as_of`` and ``note`` say where.

        Args:
            since: only those that left after this census (its step).
            step: use what was published up to it.

        Returns:
            None where they were not measured: no census yet, departures are public, or the first step after
            ``since`` that could have counted them was never published.

        Errors:
            As ``people``.
        """
        return self._others(step).departures(since)

    def cells(self, depth: int, step: int | None = None) -> Estimate | None:
        """Of points: how many are in each of the 2^depth cells of one depth, of all points that were measured in it.
        ``note`` says which points these are: blocks of points, whose first and last ones are missing as a rule.

        Returns:
            None where no cell of this depth was measured.

        Errors:
            As ``people``.
        """
        return self._others(step).cells(depth)

    def measured_kinds(self, step: int | None = None) -> dict[str, Estimate]:
        """All of ``people``, ``patterns``, ``departures`` and ``cells`` that were measured, by name: ``people``,
        ``patterns``, ``at least 2``, ``departures``, ``depth 5``.

        Errors:
            As ``people``.
        """
        return kinds_there(self._others(step))

    def answer(self, question: str, step: int | None = None, *, as_of: int | None = None) -> Answer:
        """How many records satisfy a question such as ``"paid = 1"``, counted in the released table. Under
        ``max_events`` the answer and its error are about admitted records.

        Where its columns were measured without a gap, the answer has an exact interval around the measured number;
        else its error by simulation, where ``dpstream errors`` published it. ``error_kind`` and ``note`` say which,
        and as of which step. Where the table was cut, the count is scaled to the released number of records.

        Args:
            step: the step of the table; measurements up to it are used.
            as_of: another step for ``measured_value`` and ``interval``.

        Errors:
            ConfigError, SchemaError: the question cannot be read, or cuts through a bin; other releases than tables.
            LimitError: its columns have too many cells. StoreDamagedError: files that differ from the published
                hashes.
        """
        manifest = self.manifest(step)
        schema = released_schema(self.folder, manifest)
        asked = parse_predicate(question, schema)
        check_cells(schema.domain, asked.columns, "answer")
        none = impossible_answer(asked, schema)
        if none is not None:
            return none
        counted = self._counted(asked, schema, manifest, step)
        if "base" in manifest:
            note = f"{_COUNTED}, in part from an earlier table: errors are not known."
            answer = Answer(counted, None, note)
        else:
            answer = measured_answer(counted, self._published(step), asked, as_of)
            if answer.as_of is None:
                answer = replace(answer, note=f"{_COUNTED}. {answer.note}")
        if answer.error_kind is not None:
            return answer
        answer = with_bias(answer, manifest)
        return with_simulated(answer, self.folder, self._step(step), asked, schema)

    def mean(
        self, column: str, where: str | None = None, step: int | None = None, *, of: Estimate | None = None
    ) -> Average:
        """The average of a column of numbers in the released table, with an interval from published counts.

        Args:
            where: of the records that satisfy a question such as ``"carrier = 'AA'"``. step: of the table.
            of: what was measured of these columns in a period, in the place of the table: ``flow(["delay"], ...)``, or
                ``flow(["mean(delay)"], ...)`` of a headline. Without it such a headline stands for the table.

        Errors:
            ConfigError, SchemaError: another column than one of numbers, a question that cannot be read.
            LimitError: too many cells. StoreDamagedError: files that differ from the published hashes.
        """
        return self._numbers(column, where, step, of, sums=True).mean()

    def quantile(
        self,
        column: str,
        share: float,
        where: str | None = None,
        step: int | None = None,
        *,
        of: Estimate | None = None,
    ) -> Average:
        """The number that a share of the released table's records does not exceed, with an interval from published
        counts: ``quantile("delay", 0.5)`` is the median. Other arguments and errors as of ``mean``."""
        return self._numbers(column, where, step, of).quantile(share)

    def _numbers(
        self, column: str, where: str | None, step: int | None, of: Estimate | None, *, sums: bool = False
    ) -> Numbers:
        manifest = self.manifest(step)
        schema = released_schema(self.folder, manifest)
        counts = of or (None if "base" in manifest else self._published(step))
        return Numbers.of(schema, column, where, partial(self.table, step), counts, sums=sums)

    def plot(self, columns: str | Sequence[str] | None = None, step: int | None = None) -> Picture:
        """The released table as a picture: ``release.plot("rent").save("rent.pdf")``; a notebook shows it.

        Args:
            columns: one (bars, with a 95 % interval where one is known), two (a map of shares), or none for up to
                twelve columns side by side.

        Errors:
            ConfigError: matplotlib is not installed (``dpstream[plot]``), unknown columns, or no rows.
            StoreDamagedError: files that differ from the published hashes.
        """
        from dpstream.stream.release.showing import PicturedRelease, draw_release

        manifest = self.manifest(step)
        counted = None if "base" in manifest else self._published(step)
        schema = released_schema(self.folder, manifest)
        return draw_release(
            PicturedRelease(manifest, self.table(step), schema, counted, self.folder), columns
        )

    def _published(self, step: int | None) -> Published:
        number = self._step(step)
        if number not in self._known:
            schema = released_schema(self.folder, self.manifest(number))
            self._known = {number: Published.of(schema, self._measured(number))}
        return self._known[number]

    def _others(self, step: int | None) -> OtherKinds:
        return OtherKinds.of(self.folder, self._measured(step))

    def _measured(self, step: int | None) -> list[MeasuredStep]:
        """What was published up to a step; read once."""
        number = self._step(step)
        if number not in self._read:
            self._read = {number: list(measured_steps(self.folder, number))}
        return self._read[number]

    def _counted(self, asked: Predicate, schema: Schema, manifest: dict[str, Any], step: int | None) -> float:
        """How many records of the released table satisfy a question."""
        table = self.table(step)
        satisfied = asked.mask()
        columns = [schema.columns[i] for i in asked.columns]
        for axis, column in enumerate(columns):
            alike = satisfied.take([-2, -1], axis=axis)  # other, then missing
            cells = table.column(column.name)
            if released_alike(column) and cells.null_count and (alike.min(axis) != alike.max(axis)).any():
                raise ConfigError(
                    f"column {column.name!r} shows {column.other!r} and {column.missing!r} both as null",
                    where="question",
                    allowed="both or neither; or Stream.release",
                )
        codes = tuple(codes_of(column, table) for column in columns)
        count = float(satisfied[codes].sum()) if columns else 0.0
        return count * (manifest["rows"] / table.num_rows if table.num_rows else 1.0)

    def __repr__(self) -> str:
        return f"PublicRelease({str(self.folder)!r}, step={self.step})"

    def _repr_html_(self) -> str:
        return release_html(self.manifest(), self.table())

    def _step(self, step: int | None) -> int:
        if step is None:
            return self.step
        return _checked(step)


def read(
    folder: str | AnyPath,
    step: int | None = None,
    *,
    token: str | None = None,
    key: str | Sequence[str] | None = None,
) -> PublicRelease:
    """A published release; needs the releases folder and nothing else.

    Args:
        folder: the releases; also in an object store, as ``s3://bucket/releases``, and on a web server, as
            ``https://example.org/v1/streams/evictions`` of ``dpstream serve releases``.
        step: which one; the last one whose table can be read by default.
        token: for a web server that asks for one; by default what the variable DPSTREAM_TOKEN holds.
        key: the owner's public key in 64 hexadecimal digits, or several. Each file is compared with what one of them
            signed, when it is read.

    Errors:
        ConfigError: no folder of releases, no such step, or one whose table was withdrawn or dropped; a server that
            wants another token; no signature of these keys.
        StoreDamagedError: files that differ from the published hashes or the signed ones. StoreError: a store or a
            server that does not answer.
    """
    if not isinstance(folder, str | Path | ObjectPath):
        raise ConfigError(f"expected a path, got {type(folder).__name__}", where="read", allowed="a path")
    if token is not None and not is_web_url(folder):
        raise ConfigError("a token is for a web server", where="read", allowed="with https://...")
    root = web_path(str(folder), token) if token is not None else any_path(folder)
    root = root if key is None else signed_folder(root, key)
    if step is not None:
        _checked(step)
    there = readable_steps(root)
    if step is None and there:
        step = there[-1]
    if step is None or step not in there:
        read_table(root, step)  # says why not
        raise ConfigError(f"step {step} cannot be read", where=str(root), allowed="another step")
    return PublicRelease(root, step)


def _checked(step: int) -> int:
    if isinstance(step, bool) or not isinstance(step, int):
        raise ConfigError(f"expected a step, got {step!r}", where="step", allowed="a whole number from 1")
    return step


# Estimates beyond marginals of records: people of a panel, records that left, points in cells of the plane.


@dataclass(frozen=True)
class OtherKinds:
    """Noisy counts of a stream up to a step that are about people, departures or points.

    Attributes:
        lines: with the step that published each.
        labels: of the values of a panel's columns.
        public_people: the exact number of people, where the owner declared it public.
        missing: steps that readers know nothing of, such as rejected ones: what they measured is missing.
        learnt: as of ``Estimate``.
    """

    lines: tuple[tuple[int, NoisyCounts], ...]
    labels: Mapping[str, tuple[str, ...]]
    public_people: int | None = None
    missing: tuple[int, ...] = ()
    learnt: tuple[int, ...] = ()

    @classmethod
    def of(cls, folder: str | AnyPath, steps: Sequence[MeasuredStep]) -> OtherKinds:
        """Those of some steps of a folder of releases.

        Errors:
            StoreDamagedError: a panel's codebook cannot be read.
        """
        lines = [(int(manifest["step"]), one) for manifest, counts in steps for one in counts]
        manifest = steps[-1][0] if steps else {}
        is_panel = any(one.counted == "people" for _, one in lines)
        public = is_panel and manifest["accuracy"]["total_standard_error"] == 0.0
        there = {int(manifest["step"]) for manifest, _ in steps}
        return cls(
            tuple(lines),
            panel_labels(folder) if is_panel else {},
            int(manifest["rows"]) if public else None,
            tuple(step for step in range(1, max(there, default=0)) if step not in there),
            tuple(step for manifest, _ in steps for step in estimates.learnt_at(manifest)),
        )

    def people(self, times: int | None = None) -> Estimate | None:
        """The number of people in the panel; or, of a panel that counts, of those who reported one of the counted
        values at least so many times so far."""
        if times is not None:
            found = self._newest("at least", times=times)
            words = f"the people who reported it at least {times} times"
            return None if found is None else _one(*found, f"{words} up to period {found[1].last}")
        if self.public_people is not None:
            step = max(step for step, one in self.lines if one.counted == "people")
            number = np.array(float(self.public_people))
            return Estimate((), (), number, step, (), False, (), "the people", "people")
        if (patterns := self.patterns()) is not None:
            return patterns.sum(np.ones(patterns.values.shape, bool))
        found = self._newest("marginal", counted="people")
        return None if found is None else _one(*found, "the people")

    def patterns(self) -> Estimate | None:
        """Of a panel of windows: how many people reported what in each of the newest periods; an axis for each column
        of each period, the first period first."""
        found = self._newest("patterns")
        if found is None:
            return None
        step, one = found
        columns, periods = one.query["columns"], range(one.first, one.last + 1)
        try:
            labels = tuple(self.labels[name] for _ in periods for name in columns)
            values = one.values.reshape([len(own) for own in labels]).astype(np.float64)
        except (KeyError, ValueError):
            raise misfit(one) from None
        names = tuple(f"{name}, period {period}" for period in periods for name in columns)
        about = f"the people in periods {one.first} to {one.last}"
        return Estimate(
            names, labels, values, step, ((one.first, one.last),), False, (CellsOf(one, 1.0, 1),), about
        )

    def departures(self, since: int = 0) -> Estimate | None:
        """How many records left that a census had counted, up to the last count, or up to the last one before the first
        step that is missing: who was counted then is in no other count.

        Args:
            since: count only those that left after this census (a step).
        """
        missing = next((step for step in self.missing if step > since), None)
        own = [
            one
            for step, one in self.lines
            if one.counted == "left" and one.end > since and (missing is None or step < missing)
        ]
        if not own:
            return None
        last = max(one.end for one in own)
        about = f"the counted records that left{f' since step {since}' if since else ''}, up to step {last}"
        if missing is not None:
            about += f" (step {missing} was never published: later counts cannot be added)"
        like = replace(_one(last, own[0], about), learnt=self.learnt)
        return estimates.sum_of([(1.0, _one(last, one, about)) for one in own], like)

    def cells(self, depth: int) -> Estimate | None:
        """How many points are in each cell of one depth: the sum over blocks of points that follow each other, up to
        the newest one that was measured."""
        own = [
            (step, one)
            for step, one in self.lines
            if one.query["kind"] == "cells" and one.query["depth"] == depth
        ]
        blocks: list[NoisyCounts] = []
        for _, one in reversed(own):
            if blocks and one.last + 1 != blocks[-1].first:
                break  # what a step measured that was rejected is missing
            if one.values.shape != (1 << depth,):
                raise misfit(one)
            blocks.append(one)
        if not blocks:
            return None
        blocks.reverse()
        return Estimate(
            (f"cell of depth {depth}",),
            (tuple(map(str, range(1 << depth))),),
            np.sum([one.values for one in blocks], axis=0).astype(np.float64),
            own[-1][0],
            tuple((one.first, one.last) for one in blocks),
            False,
            tuple(CellsOf(one, 1.0, 1) for one in blocks),
            f"points number {blocks[0].first} to {blocks[-1].last}",
        )

    def _newest(self, kind: str, **wanted: Any) -> tuple[int, NoisyCounts] | None:
        """The newest line of a kind of query, whose query (or what it counts) has these values."""
        for step, one in reversed(self.lines):
            facts = {"counted": one.counted, **one.query}
            if facts["kind"] == kind and all(facts.get(key) == value for key, value in wanted.items()):
                return step, one
        return None


def kinds_there(kinds: OtherKinds) -> dict[str, Estimate]:
    """All that can be estimated, by its name: ``people``, ``at least 2``, ``patterns``, ``departures``, ``depth 5``."""
    queries = [one.query for _, one in kinds.lines]
    times = sorted({int(query["times"]) for query in queries if query["kind"] == "at least"})
    depths = sorted({int(query["depth"]) for query in queries if query["kind"] == "cells"})
    found = {
        "people": kinds.people(),
        "patterns": kinds.patterns(),
        **{f"at least {number}": kinds.people(number) for number in times},
        "departures": kinds.departures(),
        **{f"depth {depth}": kinds.cells(depth) for depth in depths},
    }
    return {name: one for name, one in found.items() if one is not None}


def _one(step: int, one: NoisyCounts, about: str) -> Estimate:
    """A single number."""
    if one.values.shape != (1,):
        raise misfit(one)
    value = np.array(float(one.values[0]))
    return Estimate((), (), value, step, ((one.first, one.last),), False, (CellsOf(one, 1.0, 1),), about)
