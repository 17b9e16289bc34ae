"""Streams of tables as invented truth: whatever reads counts, records or present records of ordinary columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpstream.core.contracts import StartTable
from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, EncodedRecords, KeyedChanges, PresentBatch, PresentTable
from dpstream.core.tables.present_table import KEY_WORDS, PresentView
from dpstream.io.sinks import read_table
from dpstream.tools.errors.additions import Grouping, choose, never_falling, without
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Guess,
    Invented,
    InventedTable,
    Observation,
    Released,
)
from dpstream.tools.errors.imagined_columns import (
    Draw,
    correlated_columns,
    like_records,
    uniform_columns,
)
from dpstream.tools.evaluate.array_types import Codes, Ints
from dpstream.tools.evaluate.synthetic_side import read_codes

if TYPE_CHECKING:
    from dpstream.project import Config

__all__ = ["TABLES_SIMULATION", "Changes", "changes_of", "imagined_changes", "totals_of"]

#: For each step: who comes, who leaves, where those stood who leave, and the table at its end.
Changes = Iterator[tuple[Codes, Codes, Ints, Codes]]
#: Rows of a run's table at most; larger ones stand for more than one record each.
_MOST_ROWS = 1_000_000
#: Groupings that a step's records are chosen by, at most.
_MOST_GROUPINGS = 24


def totals_of(released: Released, *, falling: bool) -> Ints:
    """Records at the end of each step, from the released numbers; between them, where a step has none."""
    steps = np.arange(1, released.last + 1)
    known = np.array(sorted(step for step in released.rows if step <= released.last))
    rows = np.interp(steps, known, [released.rows[int(step)] for step in known])
    return np.maximum(0, np.rint(rows if falling else never_falling(rows))).astype(np.int64)


def changes_of(
    targets: dict[int, Codes],
    totals: Ints,
    grouping: Grouping,
    *,
    falling: bool,
    seed: int,
    begin: Codes | None = None,
) -> Changes:
    """For each step: who comes, who leaves, where those stood who leave, and the running table at its end.

    Args:
        targets: released tables by step; a step without one follows the next one that is there.
        totals: records at the end of each step.
        falling: whether records may leave.
        begin: records that are there before the first step; None for none.
    """
    generator = np.random.default_rng([seed, 11])
    steps = sorted(targets)
    there = targets[steps[0]][:0] if begin is None else begin
    for step, total in enumerate(totals.tolist(), start=1):
        target = targets[steps[int(np.searchsorted(steps, step))]]
        if 0 < len(target) < total:
            # A table that was cut: its rows stand for more than one record.
            target = target[generator.integers(len(target), size=total)]
        gone = np.zeros(0, np.int64)
        if falling and total < len(there):
            surplus = len(there) - total
            gone = choose(there, surplus, there, target, grouping, generator)
        stay = np.delete(there, gone, axis=0)
        pool = without(target, stay)
        come = pool[choose(pool, max(0, total - len(stay)), target, stay, grouping, generator)]
        left, there = there[gone], np.concatenate([stay, come])
        yield come, left, gone, there


def _invent(config: Config, released: Released, steps: Sequence[int], seed: int) -> Invented:
    domain = read_domain(config)
    schema, plan = config.schema(), config.plan()
    targets = {
        step: read_codes(read_table(released.folder, step), schema, f"the table of step {step}")
        for step in released.readable
    }
    falling = plan.reads == "present" or config.source_options.deletions
    totals = totals_of(released, falling=falling)
    grouping = _grouping(domain, _cliques(config, domain))
    begin = None if released.base is None else _records(released.base, seed)
    changes = changes_of(targets, totals, grouping, falling=falling, seed=seed, begin=begin)
    return stream_of(config, changes, steps, falling=falling, base=released.base)


def read_domain(config: Config) -> Domain:
    """The declared columns, where the mechanism reads them as they are.

    Errors:
        ConfigError: it reads others, or publishes no tables.
    """
    config.table_recipe("simulating errors")
    schema, plan = config.schema(), config.plan()
    if plan.reading_schema(schema).domain != schema.domain:
        raise ConfigError(
            f"releases of the mechanism {plan.name!r} cannot be taken as an invented stream",
            where=str(config.path),
            allowed="a stream of tables, whose mechanism reads the declared columns",
        )
    return schema.domain


def stream_of(
    config: Config,
    changes: Changes,
    compared: Sequence[int],
    *,
    falling: bool,
    base: StartTable | None = None,
) -> Invented:
    """Changes as the batches that the mechanism of a configuration reads, and the truth at the steps that are compared.

    Args:
        falling: whether records may leave.
        base: the public table that it begins with.
    """
    schema, plan = config.schema(), config.plan()
    domain, keyed = schema.domain, plan.reads == "present"
    cliques = _cliques(config, domain)
    labels = tuple(tuple(map(str, column.labels())) for column in schema.columns)
    batches: list[Any] = []
    truth = {}
    present, keys, next_key = PresentTable.empty(domain), np.zeros(0, np.int64), 0
    for step, (come, left, gone, there) in enumerate(changes, start=1):
        if keyed:
            new = np.arange(next_key, next_key + len(come))
            next_key += len(come)
            change = _keyed(keys[gone], new, come)
            keys = np.concatenate([np.delete(keys, gone), new])
            present, departed = present.after(change, step)
            batches.append(PresentBatch(PresentView(present, departed)))
        else:
            kind = EncodedRecords if plan.reads == "records" else EncodedBatch
            batches.append(kind(domain, _codes(come), _codes(left) if falling else None))
        if step in compared:
            truth[step] = InventedTable(domain, labels, cliques, Observation(_codes(there)))
    return Invented(batches, truth, base)


def _records(base: StartTable, seed: int) -> Codes:
    """As many records as the table stands for: one that was cut has fewer rows."""
    codes, total = base.records(), round(base.total)
    if not 0 < len(codes) < total:
        return codes
    return codes[np.random.default_rng([seed, 12]).integers(len(codes), size=total)]


def _keyed(gone: Ints, new: Ints, codes: Codes) -> KeyedChanges:
    """The changes of one step; a record's key is its number, and the new ones are the largest."""
    gone = np.sort(gone)
    keys = np.zeros((len(gone) + len(new), KEY_WORDS), np.uint64)
    keys[:, 0] = np.concatenate([gone, new])
    return KeyedChanges(keys, np.arange(len(keys)) >= len(gone), _codes(codes))


def _codes(codes: Codes) -> Codes:
    return np.asfortranarray(codes.astype(np.int32))


def _cliques(config: Config, domain: Domain) -> tuple[Clique, ...]:
    """The marginals of the workload, and of every column."""
    columns: list[Clique] = [(i,) for i in range(len(domain))]
    workload = getattr(config.recipe, "workload", None)
    own = itertools.combinations(range(len(domain)), 2) if workload is None else workload.cliques
    headline = [
        tuple(sorted(domain.names.index(name) for name in one))
        for one in getattr(config.recipe, "headline", ())
    ]
    return tuple(dict.fromkeys([*columns, *own, *headline]))


def _grouping(domain: Domain, cliques: Sequence[Clique]) -> Grouping:
    """By every column, and by as many of the marginals as are looked at at no great cost."""
    chosen = list(cliques[:_MOST_GROUPINGS])

    def groups(codes: Codes) -> list[tuple[Ints, int]]:
        return [
            (np.ravel_multi_index(tuple(codes[:, list(c)].T), domain.shape(c)), domain.cells(c))
            for c in chosen
        ]

    return groups


def _observe(config: Config, synthesis: Any, truth: InventedTable, seed: int) -> Observation:
    answers = synthesis.answers
    wanted = 0 if answers is None else max(0, round(answers.total))
    rows = min(wanted, _MOST_ROWS)
    if answers is None or rows == 0:
        return Observation(np.zeros((0, len(truth.domain)), np.int32))
    codes = answers.sample(rows, seed)
    return Observation(codes, None if rows == wanted else np.full(rows, wanted / rows))


def _imagine(config: Config, guess: Guess) -> Invented:
    domain = read_domain(config)
    records = np.zeros((0, len(domain)), np.int32) if guess.base is None else guess.base.records()
    tree = np.random.default_rng([guess.seed, 13])
    if guess.columns == "correlated":
        draw = correlated_columns(domain, tree)
    elif guess.columns == "uniform" or not len(records):
        draw = uniform_columns(domain)
    else:
        draw = like_records(records)
    falling = guess.table.change != "grows"
    changes = imagined_changes(guess, draw, records)
    return stream_of(config, changes, guess.compared, falling=falling, base=guess.base)


def imagined_changes(guess: Guess, draw: Draw, there: Codes) -> Changes:
    """The steps of a guessed table: numbers vary as those of independent arrivals do, and all records leave alike.

    Args:
        there: the public table that it begins with. What is in it stays.
    """
    generator = np.random.default_rng([guess.seed, 14])
    table, first = guess.table, len(there)
    for step in range(1, guess.steps + 1):
        many = generator.poisson(table.records_per_step)
        if table.change == "steady":
            many = table.size if step == 1 else many
            leaves = generator.random(len(there) - first) < table.records_per_step / table.size
            gone = first + np.flatnonzero(leaves)
        else:
            over = max(0, len(there) - first + many - table.size) if table.change == "turns-over" else 0
            own = np.arange(first, len(there))
            gone = np.sort(generator.choice(own, min(over, len(own)), replace=False))
        come = draw(int(many), generator)
        left, there = there[gone], np.concatenate([np.delete(there, gone, axis=0), come])
        yield come, left, gone, there


TABLES_SIMULATION: Final = FamilySimulation(_invent, _observe, imagine=_imagine)
