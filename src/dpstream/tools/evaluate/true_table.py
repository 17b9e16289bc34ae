"""The true table, step by step, as the stream was fed it. Private: for evaluation only.

One rule for deletions. The true table at a step is the multiset *inserts minus deletes so far*: a delete takes
away one equal row, whether that row came in an earlier step, in the same step, or comes later. Deletes that
have found no row yet make counts negative (a mechanism is asked to follow exactly these counts);
``TrueTable.rows`` cannot hold fewer than no row, so ``TrueTable.unmatched_deletes`` says how many there are. Of records
with keys it is the table of those that are present.

Trusted base: owner (keeps the owner's private table).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, StepError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, count_marginals
from dpstream.core.tables.encoded_batch import batch_codes
from dpstream.project.base import BaseOptions, column_rules
from dpstream.project.keyed_check import KeyedCheck
from dpstream.project.pending import named_step, period_text
from dpstream.stream.admission import Batch, encode_batch
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.io.sources import StepInput
    from dpstream.project import Config


def old_stream(config: Config, options: BaseOptions) -> tuple[Config, int]:
    """The predecessor's configuration, and the last step that it published.

    Errors:
        ConfigError: the file does not say where it is, or names another stream.
    """
    from dpstream.project import Config

    if options.config is None:
        raise ConfigError(
            "earlier private records are missing",
            where=options.place,
            allowed='config = "..." (the earlier stream)',
        )
    base, old = config.base(), Config.load(options.config)
    assert base is not None
    if old.name != base.facts["stream"]:
        raise ConfigError(
            f"expected the stream {base.facts['stream']!r}, got {old.name!r}",
            where=f"{options.place} config",
        )
    return old, max(base.facts["step"], *base.facts["withdrawn_since"], 0)


def record_rule(options: BaseOptions, old: Schema, new: Schema) -> Callable[[Codes], Codes]:
    """Old records as new ones, where the rule names one value for each.

    Errors:
        ConfigError: a column whose values are spread by shares: what a record really has there is not known.
    """
    tables: list[tuple[int | None, Codes]] = []
    for column, rule in zip(new.columns, column_rules(options, old, new), strict=True):
        if not (rule.shares.max(axis=1) == 1.0).all():
            raise ConfigError(
                f"the old values of column {column.name!r} are declared shares",
                where=options.place,
                allowed="a rule with values",
            )
        codes = rule.shares.argmax(axis=1).astype(np.int32)
        if rule.old is None:
            tables.append((None, codes))
            continue
        size = old[rule.old.name].size
        # Where a release shows "other" and "missing" alike, the rule has one line for both.
        tables.append((old.domain.index(rule.old.name), codes[np.minimum(np.arange(size), len(codes) - 1)]))

    def mapped(records: Codes) -> Codes:
        columns = [
            np.full(len(records), codes[0], np.int32) if source is None else codes[records[:, source]]
            for source, codes in tables
        ]
        return np.asfortranarray(np.column_stack(columns).astype(np.int32))

    return mapped


#: Rows counted in one go; batches are often far smaller, and a call for each would be most of the cost.
_BLOCK_ROWS = 2**18
#: Sets of cliques whose running counts are kept.
_KEPT_SETS = 4
#: A mixed-radix word must stay below this.
_WORD = 2**63


class TrueTable:
    """The private table, grown batch by batch; for evaluation only, nothing here has noise.

    Args:
        domain: the public domain.

    Memory: every inserted and deleted row, in the smallest integers that hold the codes (one byte a cell where
    no column has more than 256 codes), and the running counts of the cliques last asked for.

    >>> table = TrueTable(Domain(("zip", "paid"), (3, 2)))
    >>> table.add(EncodedBatch(table.domain, np.array([[0, 1], [2, 0], [2, 0]], np.int32)))
    >>> table.add(EncodedBatch(table.domain, np.empty((0, 2), np.int32), np.array([[2, 0], [1, 1]], np.int32)))
    >>> table.records, [counts.tolist() for counts in table.marginals([(0,)])]
    (1, [[1, -1, 1]])
    >>> table.rows().tolist(), table.unmatched_deletes
    ([[0, 1], [2, 0]], 1)
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._inserts = _CodeRows(domain)
        self._deletes = _CodeRows(domain)
        self._running: OrderedDict[tuple[Clique, ...], _Running] = OrderedDict()
        self._held: tuple[tuple[int, int], NDArray[np.int32], int] | None = None

    def __repr__(self) -> str:
        return f"TrueTable(columns={self.domain.names!r}, records hidden)"

    def add(self, batch: EncodedBatch) -> None:
        """Apply one step's inserts and deletes."""
        inserts, deletes = batch_codes(batch)
        self._inserts.add(inserts)
        if deletes is not None:
            self._deletes.add(deletes)

    def events(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """All inserts and all deletes so far, as codes."""
        return self._inserts.all(), self._deletes.all()

    @property
    def records(self) -> int:
        """Inserts minus deletes; negative where more was deleted than inserted."""
        return self._inserts.count - self._deletes.count

    @property
    def unmatched_deletes(self) -> int:
        """Deletes that have found no equal row; ``rows`` has so many more rows than ``records``.

        Cost: see ``rows``.
        """
        return self._multiset()[1]

    def rows(self) -> NDArray[np.int32]:
        """The table itself: int32 codes, shape (rows, columns), column-major.

        Without deletions in the order of arrival, else in the order of the codes.

        Cost: with deletions one sort of all inserts and deletes; repeated calls between batches are free.
        """
        return self._multiset()[0]

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Inserts minus deletes in every cell, flat in C order, one array per clique (fresh copies).

        Cost: counts only the rows that came since the same cliques were last asked for.

        Errors:
            ConfigError: a malformed clique. LimitError: too many cells.
        """
        key = tuple(cliques)
        running = self._running.get(key)
        if running is None:
            running = _Running([np.zeros(self.domain.cells(clique), np.int64) for clique in key])
        for rows, seen, sign in ((self._inserts, running.inserts, 1), (self._deletes, running.deletes, -1)):
            for block in rows.since(seen):
                for total, counts in zip(
                    running.counts, count_marginals(block, self.domain, key), strict=True
                ):
                    total += sign * counts
        running.inserts, running.deletes = self._inserts.batches, self._deletes.batches
        self._running[key] = running
        self._running.move_to_end(key)
        if len(self._running) > _KEPT_SETS:
            self._running.popitem(last=False)
        return [counts.copy() for counts in running.counts]

    def _multiset(self) -> tuple[NDArray[np.int32], int]:
        version = (self._inserts.batches, self._deletes.batches)
        if self._held is None or self._held[0] != version:
            self._held = (version, *_subtract(self._inserts.all(), self._deletes.all(), self.domain))
        return self._held[1], self._held[2]


@dataclass(frozen=True, repr=False)
class TrueStep:
    """The truth after one step.

    ``table`` is one object that grows from step to step: ask it before asking for the next step.
    """

    step: int
    batch_id: str
    period: str | None
    table: TrueTable

    def __repr__(self) -> str:
        return f"TrueStep(step={self.step}, batch_id={self.batch_id!r}, records hidden)"


def encoded_steps(
    config: Config, until: int | None = None, schema: Schema | None = None
) -> Iterator[tuple[StepInput, EncodedBatch, Codes, Codes]]:
    """Every step of a configuration's source: as it was read, encoded, and the codes that come and go. Private.

    Args:
        until: stop after this step.
        schema: encode with this one; None: the configuration's.

    Errors:
        As ``true_steps``. A source whose records are gone once they were read has no truth to compare with.
    """
    if not config.source_options.repeatable:
        raise ConfigError(
            "the source cannot be read again",
            where=f"{config.path} [source]",
            allowed="a configuration with files",
        )
    schema = config.schema() if schema is None else schema
    records = KeyedCheck(schema, config.unit)
    for entry in config.source(schema=schema).steps(1):
        if until is not None and entry.step > until:
            return
        if entry.engine is not None:
            raise ConfigError(
                "the true records are in an engine",
                where=f"{config.path} [source]",
                allowed="a configuration with files",
            )
        if entry.keyed is not None:
            with named_step(entry.step, entry.batch_id):
                records.add(entry)
            yield entry, EncodedBatch(schema.domain, *records.rows), *records.rows
            continue
        with named_step(entry.step, entry.batch_id):
            encoded, came, went = encode_batch(
                Batch(entry.inserts, entry.deletes), schema, where=f"step {entry.batch_id!r}"
            )
        yield entry, encoded, came, went


def true_steps(config: Config, until: int | None = None) -> Iterator[TrueStep]:
    """The true table after every step, read from the configuration's source as ``dpstream run`` cuts it.

    Every record counts at the step that its own time names. A run that accepted late records
    (``late = "next-step"``) put them into a later step, and one that drops them never saw them: the truth here
    has them where they belong.

    Args:
        until: stop after this step.

    Errors:
        DataError, SchemaError: files that cannot be read, or records that do not fit the schema (step and
            column are named). ConfigError: a source that can be read only once (standard input).

    Guarantee: none; the result is private.

    A stream that began with another one's release begins with that one's true records, under the declared rule.
    """
    table = TrueTable(config.schema().domain)
    if config.base_options is not None:
        table.add(_before(config, config.base_options))
    for entry, encoded, _, _ in encoded_steps(config, until):
        table.add(encoded)
        yield TrueStep(entry.step, entry.batch_id, period_text(entry), table)


def source_ended(last: int, released: int) -> StepError:
    """The refusal of a source that ends before the releases."""
    return StepError(
        f"the source ends at step {last}, and step {released} is released",
        where="source",
        allowed="the run's data, or earlier steps",
    )


def _before(config: Config, options: BaseOptions) -> EncodedBatch:
    """What came and went in the predecessor's period, in the columns of this stream."""
    old, last = old_stream(config, options)
    mapped = record_rule(options, old.schema(), config.schema())
    steps = list(true_steps(old, last))
    if not steps or steps[-1].step < last:
        raise StepError(
            f"the source of {old.name!r} ends before its step {last}",
            where=str(old.path),
            allowed="all its records",
        )
    inserts, deletes = steps[-1].table.events()
    return EncodedBatch(config.schema().domain, mapped(inserts), mapped(deletes))


@dataclass
class _Running:
    """Counts of some cliques over the first batches of inserts and of deletes."""

    counts: list[NDArray[np.int64]]
    inserts: int = 0
    deletes: int = 0


class _CodeRows:
    """Batches of codes, kept small."""

    def __init__(self, domain: Domain) -> None:
        self._columns = len(domain)
        self._type = np.min_scalar_type(max(domain.sizes) - 1)
        self._chunks: list[NDArray[np.unsignedinteger]] = []
        self.count = 0

    @property
    def batches(self) -> int:
        return len(self._chunks)

    def add(self, codes: NDArray[np.int32]) -> None:
        self._chunks.append(codes.astype(self._type, order="F"))
        self.count += len(codes)

    def since(self, batch: int) -> Iterator[NDArray[np.int32]]:
        """The rows after the first ``batch`` batches, in blocks worth a call."""
        waiting: list[NDArray[np.unsignedinteger]] = []
        rows = 0
        for chunk in self._chunks[batch:]:
            waiting.append(chunk)
            rows += len(chunk)
            if rows >= _BLOCK_ROWS:
                yield self._joined(waiting)
                waiting, rows = [], 0
        if rows:
            yield self._joined(waiting)

    def all(self) -> NDArray[np.int32]:
        return self._joined(self._chunks)

    def _joined(self, chunks: Sequence[NDArray[np.unsignedinteger]]) -> NDArray[np.int32]:
        joined = np.empty((sum(map(len, chunks)), self._columns), np.int32, order="F")
        start = 0
        for chunk in chunks:
            joined[start : start + len(chunk)] = chunk
            start += len(chunk)
        return joined


def _subtract(
    inserts: NDArray[np.int32], deletes: NDArray[np.int32], domain: Domain
) -> tuple[NDArray[np.int32], int]:
    """Inserts without deletes as a multiset, and the number of deletes that found no row."""
    if not len(deletes):
        return inserts, 0
    both = np.asfortranarray(np.concatenate([inserts, deletes]))
    words = _words(both, domain)
    order = np.lexsort(words)
    new = np.ones(len(both), bool)
    new[1:] = np.logical_or.reduce([word[order][1:] != word[order][:-1] for word in words])
    starts = np.flatnonzero(new)
    signs = np.ones(len(both), np.int64)
    signs[len(inserts) :] = -1
    net = np.add.reduceat(signs[order], starts)
    kept = np.repeat(both[order[starts]], np.maximum(net, 0), axis=0)
    return np.asfortranarray(kept), int(-net[net < 0].sum())


def _words(codes: NDArray[np.int32], domain: Domain) -> list[NDArray[np.int64]]:
    """Each row as a few integers, for sorting; the least significant word comes first."""
    words: list[NDArray[np.int64]] = []
    span = _WORD
    for position, size in enumerate(domain.sizes):
        if span * size >= _WORD:
            words.append(np.zeros(len(codes), np.int64))
            span = 1
        words[-1] *= size
        words[-1] += codes[:, position]
        span *= size
    return words[::-1]
