"""Streams of tables as invented truth: whatever reads counts, records or present records of ordinary columns.

The stream of a forecast (``foreseen_changes``) is what a stream of a guessed size is like as a rule: columns depend on
each other along a tree; the shares of two kinds of records move from step to step and with the season.

Trusted base: invented (draws and counts invented records).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpstream.core.contracts import NoisyCounts, StartTable, StreamPlan
from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, EncodedRecords, KeyedChanges, PresentBatch, PresentTable
from dpstream.core.tables.present_table import KEY_WORDS, PresentView
from dpstream.io.sinks import read_measurements
from dpstream.mechanisms.headlines import headline_cliques
from dpstream.mechanisms.means import marginals_of
from dpstream.tools.errors.contract import (
    FamilySimulation,
    Guess,
    Invented,
    InventedTable,
    Observation,
    Released,
)
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints
from dpstream.tools.evaluate.run_folder import released_codes

if TYPE_CHECKING:
    from dpstream.project import Config


#: A number of records and a generator -> codes, shape (records, columns).
Draw = Callable[[int, np.random.Generator], Codes]
#: For each step: who comes, who leaves, where those stood who leave, the table at its end; and how many of those who
#: come and leave, the first ones, are the same records that only changed.
Foreseen = Iterator[tuple[Codes, Codes, Ints, Codes, int]]
#: Ranges of each column's skew and each pair's dependence: standard deviations of logarithms of
#: shares. 0: all values alike; 1: shares that differ by a factor of about 3 as a rule; 2: by a factor of 7 and more.
SKEW, DEPENDENCE = (0.0, 2.5), (0.3, 1.0)
#: Correlation of the kinds that come in neighbouring steps.
_KIND_LIKE_BEFORE = 0.95
#: How far apart the two kinds are, as ``SKEW``; how far their shares move, and move over a season, on the logistic
#: scale; by which share arrivals move over a season.
_APART, _DRIFT, _SEASON, _ARRIVALS = 1.0, 1.0, 1.0, 0.4
#: Two columns each make a stay longer or shorter, by this logarithm. So many of the records change once in a stay.
_STAYS, _CHANGED = 0.5, 0.5
#: Fractions of their multiples are spread evenly, whatever their number is.
_GOLDEN, _SILVER = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1


def foreseen_changes(guess: Guess, domain: Domain, season: float | None) -> Foreseen:
    """The steps of a guessed table.

    Args:
        season: steps of a year, where the owner says that the stream has one.
    """
    generator, table = np.random.default_rng([guess.seed, 16]), guess.table
    kinds = _two_kinds(domain, generator)
    times = np.arange(guess.steps) / (season or 1) + generator.random()
    wave = np.cos(2 * np.pi * times) * (season is not None)
    moving = _DRIFT * wandering(guess.steps, generator, _KIND_LIKE_BEFORE) + _SEASON * wave

    def draw(rows: int, step: int) -> Codes:
        first = generator.binomial(rows, 1 / (1 + np.exp(-moving[step - 1])))
        return np.concatenate([kinds[0](first, generator), kinds[1](rows - first, generator)])

    steady = table.change == "steady"
    # Who comes and goes within a step is not seen.
    turnover = -math.expm1(-table.records_per_step / table.size) if steady else 0.0
    mean = turnover * table.size if steady else table.records_per_step
    rates = mean * np.exp(table.varies * wandering(guess.steps, generator)) * (1 + _ARRIVALS * wave)
    columns, there = generator.permutation(len(domain))[:2], np.zeros((0, len(domain)), np.int32)
    for step, rate in enumerate(rates.tolist(), start=1):
        many, size = generator.poisson(rate), len(there)
        leaving = generator.binomial(size, turnover)
        if steady and step == 1:
            many = table.size
        elif table.change == "turns-over":
            leaving = min(size, max(0, size + many - table.size))
        sooner = generator.gumbel(size=size) + _STAYS * (2 * (there[:, columns] % 2) - 1).sum(axis=1)
        order = np.argsort(-sooner, kind="stable")
        changed = order[leaving:][generator.random(size - leaving) < _CHANGED * turnover]
        new, fresh, places = there[changed], draw(len(changed), step), np.arange(len(changed))
        column = generator.integers(len(domain), size=len(changed))
        new[places, column] = fresh[places, column]
        gone = np.concatenate([changed, order[:leaving]])
        come, left = np.concatenate([new, draw(int(many), step)]), there[gone]
        there = np.concatenate([np.delete(there, gone, axis=0), come])
        yield come, left, gone, there, len(changed)


def _two_kinds(domain: Domain, generator: np.random.Generator) -> tuple[Draw, Draw]:
    """Records of two kinds, on one tree: each value's shares differ. All sizes have their part of all skews."""
    order = generator.permutation(len(domain)).tolist()
    parents = {column: order[(place - 1) // 2] if place else None for place, column in enumerate(order)}
    by_size = np.argsort(np.argsort(domain.sizes, kind="stable"), kind="stable")
    skews, ties = (
        low + (high - low) * ((generator.random() + by_size * apart) % 1)
        for (low, high), apart in ((SKEW, _GOLDEN), (DEPENDENCE, _SILVER))
    )
    kinds: tuple[dict[int, Floats], dict[int, Floats]] = {}, {}
    for column, parent in parents.items():
        size, rows = domain.sizes[column], 1 if parent is None else domain.sizes[parent]
        logs = skews[column] * generator.standard_normal((1, size))
        logs = logs + (0 if parent is None else ties[column]) * generator.standard_normal((rows, size))
        apart = _APART / 2 * generator.standard_normal((1, size))
        kinds[0][column], kinds[1][column] = logs + apart, logs - apart
    return drawing(parents, kinds[0]), drawing(parents, kinds[1])


def drawing(parents: Mapping[int, int | None], logs: Mapping[int, Floats]) -> Draw:
    """Records of a tree, column by column.

    Args:
        parents: of each column, parents first; None for the root.
        logs: of each column the logarithms of its values' shares, up to a constant: a row for each value of its parent.
    """
    ends: dict[int, Floats] = {}
    for column, values in logs.items():
        shares = np.exp(values - values.max(axis=1, keepdims=True))
        sums = (shares / shares.sum(axis=1, keepdims=True)).cumsum(axis=1)
        sums[:, -1] = 1  # and not a rounding error less
        # One row after another: row r between r and r + 1.
        ends[column] = (sums + np.arange(len(sums))[:, None]).ravel()

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        codes = np.zeros((rows, len(parents)), np.int32)
        for column, parent in parents.items():
            row = 0 if parent is None else codes[:, parent]
            size = logs[column].shape[1]
            places = np.searchsorted(ends[column], row + generator.random(rows), side="right")
            codes[:, column] = np.minimum(places - row * size, size - 1)
        return codes

    return draw


def wandering(steps: int, generator: np.random.Generator, like_before: float = 0.8) -> Floats:
    """Standard normal numbers that correlate with the one before; by default as in weeks and months of real streams."""
    values = generator.standard_normal(steps)
    for step in range(1, steps):
        values[step] = like_before * values[step - 1] + math.sqrt(1 - like_before**2) * values[step]
    return values


#: Records -> for each way of grouping them the group of each record, and how many groups there are.
Grouping = Callable[[Codes], Sequence[tuple[Ints, int]]]
#: A step's records are chosen in so many rounds; after each it is counted again what is lacking.
_ROUNDS = 12
#: A record whose groups lack twice as much is so many times (as a power of 2) as likely to be chosen.
_SHARPNESS = 3.0
#: How far the shares of two kinds of records move, on the logistic scale.
_DRIFT = 0.4


def never_falling(values: Floats) -> Floats:
    """The nearest numbers (least squares) that never fall.

    >>> never_falling(np.array([1.0, 3.0, 2.0, 5.0])).tolist()
    [1.0, 2.5, 2.5, 5.0]
    """
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, many = value, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean, many = (mean * many + before * others) / (many + others), many + others
        blocks.append((mean, many))
    return np.repeat([mean for mean, _ in blocks], [many for _, many in blocks]).astype(np.float64)


def without(records: Codes, others: Codes) -> Codes:
    """``records`` less ``others``, as bags of whole rows.

    >>> without(np.array([[1], [1], [2]]), np.array([[1], [3]])).tolist()
    [[1], [2]]
    """
    if not len(records) or not len(others):
        return records
    _, kinds = np.unique(np.concatenate([records, others]), axis=0, return_inverse=True)
    own, theirs = np.split(kinds.reshape(-1), [len(records)])
    order = np.argsort(own, kind="stable")
    ranked = own[order]
    rank = np.arange(len(own)) - np.searchsorted(ranked, ranked)
    taken = np.bincount(theirs, minlength=int(kinds.max()) + 1)
    stays = np.ones(len(records), bool)
    stays[order] = rank >= taken[ranked]
    return records[stays]


def choose(
    pool: Codes,
    many: int,
    target: Codes,
    there: Codes,
    grouping: Grouping,
    generator: np.random.Generator,
) -> Ints:
    """Places of ``many`` records of ``pool`` that bring ``there`` towards ``target``, group by group.

    With the deletes of a table, ``there`` and ``target`` change places: chosen is what there is too much of.
    """
    if many >= len(pool):
        return np.arange(len(pool))
    groups = list(zip(grouping(pool), grouping(target), grouping(there), strict=True))
    lacking = []
    for (_, size), (goal, _), (now, _) in groups:
        lacking.append(np.bincount(goal, minlength=size) - np.bincount(now, minlength=size).astype(float))
    left = np.ones(len(pool), bool)
    chosen: list[Ints] = []
    for part in range(_ROUNDS):
        wanted = (many * (part + 1)) // _ROUNDS - (many * part) // _ROUNDS
        if not wanted:
            continue
        places = np.flatnonzero(left)
        score = np.zeros(len(places))
        for ((own, size), _, _), lack in zip(groups, lacking, strict=True):
            # A group that lacks as many records as the pool has left gives each of them the whole weight; one that
            # has got too many takes as much away.
            there_are = np.bincount(own[places], minlength=size)
            score += (lack / np.maximum(there_are, 1))[own[places]]
        # Groupings that tell records apart stand beside those that do not: the power makes up for their mean.
        weight = _SHARPNESS * np.log(np.maximum(score, 0.0) / max(1, len(groups)) + 1e-3)
        taken = places[np.argsort(-(weight + generator.gumbel(size=len(places))), kind="stable")[:wanted]]
        left[taken] = False
        chosen.append(taken)
        for ((own, size), _, _), lack in zip(groups, lacking, strict=True):
            lack -= np.bincount(own[taken], minlength=size)
    return np.sort(np.concatenate([np.zeros(0, np.int64), *chosen]))


# Records of a table that nobody has seen: uniform columns, columns that depend on each other, or like a
# public table.
#
# All of it is invented from public facts, with an ordinary generator.


def uniform_columns(domain: Domain) -> Draw:
    """All combinations of values alike."""

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        return generator.integers(np.array(domain.sizes), size=(rows, len(domain))).astype(np.int32)

    return draw


def correlated_columns(domain: Domain, generator: np.random.Generator) -> Draw:
    """Skewed columns that depend on each other along a random tree.

    The logarithm of a value's share is normal, and so is what a value of the parent adds to it: some columns are
    nearly even and some nearly constant, some pairs nearly independent and some nearly a function of each other.

    Args:
        generator: of the tree and the shares; the records have their own.
    """
    order = generator.permutation(len(domain)).tolist()
    parents: dict[int, int | None] = {
        column: order[int(generator.integers(place))] if place else None for place, column in enumerate(order)
    }
    logs: dict[int, Floats] = {}
    for column, parent in parents.items():
        size = domain.sizes[column]
        logs[column] = generator.uniform(*SKEW) * generator.standard_normal((1, size))
        if parent is not None:
            rows = domain.sizes[parent]
            logs[column] = logs[column] + generator.uniform(*DEPENDENCE) * generator.standard_normal(
                (rows, size)
            )
    return drawing(parents, logs)


def like_records(records: Codes) -> Draw:
    """Records of a public table, drawn again and again."""

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        return records[generator.integers(len(records), size=rows)].astype(np.int32)

    return draw


#: For each step: who comes, who leaves, where those stood who leave, and the table at its end.
Changes = Iterator[tuple[Codes, Codes, Ints, Codes]]
#: Rows of a run's table at most; larger ones stand for more than one record each.
_MAX_ROWS = 1_000_000
#: Groupings that a step's records are chosen by, at most.
_MAX_GROUPINGS = 24


def totals_of(released: Released, *, falling: bool) -> Ints:
    """Records at the end of each step, from the released numbers; between them, where a step has none."""
    steps = np.arange(1, released.last + 1)
    known = np.array(sorted(step for step in released.rows if step <= released.last))
    rows = np.interp(steps, known, [released.rows[int(step)] for step in known])
    return np.maximum(0, np.rint(rows if falling else never_falling(rows))).astype(np.int64)


def departures_of(counts: Sequence[NoisyCounts], last: int) -> Ints:
    """How many records left in each step up to the last one, as it was measured; 0 where nothing was.

    Noise is taken off by what never falls: their number since the first step.
    """
    least: dict[tuple[int, ...], tuple[float, float]] = {}
    borders = sorted({0, *(_end(one) for one in counts if one.counted in ("left", "present"))})
    for one in (marginal for drawn in counts for marginal in drawn.marginals):
        if one.counted not in ("left", "deletes") or one.columns is None or _end(one) > last:
            continue
        # The departures since the count before, of records of some first steps; or those of some steps.
        since = one.first if one.counted == "deletes" else borders[borders.index(_end(one)) - 1] + 1
        key = (since, _end(one), one.first, one.last)
        found = (one.variance * one.values.size, float(one.values.sum()))
        least[key] = min(found, least.get(key, found))
    left = np.zeros(last)
    for (since, end, _, _), (_, many) in least.items():
        left[since - 1 : end] += many / (end - since + 1)
    if least:  # as many as before where nothing was measured since
        end = max(end for _, end, _, _ in least)
        left[end:] = left[:end].mean()
    so_far = np.maximum(0.0, never_falling(np.cumsum(left)))
    return np.diff(np.rint(so_far), prepend=0.0).astype(np.int64)


def _end(one: NoisyCounts) -> int:
    return one.last if one.as_of is None else one.as_of


def changes_of(
    targets: dict[int, Codes],
    totals: Ints,
    grouping: Grouping,
    *,
    falling: bool,
    seed: int,
    departures: Ints | None = None,
    begin: Codes | None = None,
) -> Changes:
    """For each step: who comes, who leaves, where those stood who leave, and the running table at its end.

    It is made from the last step back to the first: at the last step the running table is the released one, whose
    dependences are what the releases know best, and before it there stand those of its records that the earlier
    releases speak for. From the first step on, a table would begin with what the earliest releases know, which is
    least, and could not lose it again.

    Args:
        targets: released tables by step; a step without one follows the next one that is there.
        totals: records at the end of each step.
        falling: whether records may leave.
        departures: how many leave in each step at least, where they may.
        begin: records that are there before the first step, and stay; None for none.
    """
    generator = np.random.default_rng([seed, 11])
    if begin is not None:
        totals = np.maximum(0, totals - len(begin))
        targets = {step: without(table, begin) for step, table in targets.items()}
    steps, last = sorted(targets), len(totals)

    def target_of(step: int) -> Codes:
        target, total = targets[steps[int(np.searchsorted(steps, step))]], int(totals[step - 1])
        if 0 < len(target) < total:
            # A table that was cut: its rows stand for more than one record.
            target = target[generator.integers(len(target), size=total)]
        return target

    records = target_of(last)
    records = records[np.sort(generator.permutation(len(records))[: int(totals[-1])])]
    first = np.ones(len(records), np.int64)  # the step in which each one comes
    leaves = np.full(len(records), last + 1)  # the step in which it leaves
    there: Ints = np.arange(len(records))
    for step in range(last, 1, -1):
        total, target = int(totals[step - 2]), target_of(step - 1)
        leaving = 0
        if falling:
            least = 0 if departures is None else int(departures[step - 1])
            leaving = min(total, max(least, total - len(there)))
        coming = min(len(there), max(0, len(there) + leaving - total))
        own = records[there]
        new = choose(own, coming, own, target, grouping, generator)
        first[there[new]] = step
        there = np.delete(there, new)
        pool = without(target, records[there])
        gone = pool[choose(pool, leaving, target, records[there], grouping, generator)]
        there = np.concatenate([there, len(records) + np.arange(len(gone))])
        records = np.concatenate([records, gone])
        first = np.concatenate([first, np.ones(len(gone), np.int64)])
        leaves = np.concatenate([leaves, np.full(len(gone), step)])
    there = np.zeros(0, np.int64)
    for step in range(1, last + 1):
        away: Ints = np.flatnonzero(leaves[there] == step)
        come = np.flatnonzero(first == step)
        left, there = there[away], np.concatenate([np.delete(there, away), come])
        now = records[there] if begin is None else np.concatenate([begin, records[there]])
        yield records[come], records[left], away, now


def _invent(config: Config, released: Released, steps: Sequence[int], seed: int) -> Invented:
    domain = read_domain(config)
    schema, plan = config.schema(), config.plan()
    targets = {step: released_codes(schema, released.folder, step) for step in released.readable}
    falling = plan.reads == "present" or config.source_options.deletions
    totals = totals_of(released, falling=falling)
    grouping = _grouping(domain, _cliques(config, domain))
    begin = None if released.base is None else _records(released.base, seed)
    departures = departures_of(read_measurements(released.folder, released.last), released.last)
    changes = changes_of(
        targets, totals, grouping, falling=falling, seed=seed, departures=departures, begin=begin
    )
    return stream_of(config, ((*c, 0) for c in changes), steps, falling=falling, base=released.base)


def read_domain(config: Config) -> Domain:
    """The declared columns, where the mechanism reads them as they are.

    Errors:
        ConfigError: it reads others, or publishes no tables.
    """
    config.table_recipe("simulating errors")
    schema, plan = config.schema(), config.plan()
    if plan.open_columns:
        raise ConfigError(
            f"the values of {', '.join(plan.open_columns)} are discovered, so records cannot be invented",
            where=str(config.path),
            allowed="errors of measurements: dpstream measured, plan",
        )
    if getattr(plan, "sums", None) is None and plan.reading_schema(schema).domain != schema.domain:
        raise ConfigError(
            f"the mechanism {plan.name!r} reads other columns",
            where=str(config.path),
            allowed="a stream of tables of the declared columns",
        )
    return schema.domain


def stream_of(
    config: Config,
    changes: Foreseen,
    compared: Sequence[int],
    *,
    falling: bool,
    base: StartTable | None = None,
    lazily: bool = False,
) -> Invented:
    """Changes as the batches that the mechanism of a configuration reads, and the truth at the steps that are compared.

    Args:
        falling: whether records may leave.
        base: the public table that it begins with.
        lazily: whether batches are made while they are read: a run that ends early does not pay for the others.
    """
    schema, plan = config.schema(), config.plan()
    domain, keyed = schema.domain, plan.reads == "present"
    cliques = _cliques(config, domain)
    labels = tuple(tuple(map(str, column.labels())) for column in schema.columns)
    truth: dict[int, InventedTable] = {}

    def batches() -> Iterator[Any]:
        present, keys, next_key = PresentTable.empty(domain), np.zeros(0, np.int64), 0
        for step, (come, left, gone, there, kept) in enumerate(changes, start=1):
            if step in compared:
                truth[step] = InventedTable(domain, labels, cliques, Observation(_codes(there)))
            if keyed:
                new = np.concatenate([keys[gone[:kept]], np.arange(next_key, next_key + len(come) - kept)])
                next_key += len(come) - kept
                events = _keyed(keys[gone[kept:]], new, come)
                keys = np.concatenate([np.delete(keys, gone), new])
                present, departed = present.after(events, step)
                yield PresentBatch(PresentView(present, departed))
            else:
                kind = EncodedRecords if plan.reads == "records" else EncodedBatch
                read = finer(plan, _codes(come)), finer(plan, _codes(left)) if falling else None
                yield kind(plan.reading_schema(schema).domain, *read)

    return Invented(batches() if lazily else list(batches()), truth, base)


def _records(base: StartTable, seed: int) -> Codes:
    """As many records as the table stands for: one that was cut has fewer rows."""
    codes, total = base.records(), round(base.total)
    if not 0 < len(codes) < total:
        return codes
    return codes[np.random.default_rng([seed, 12]).integers(len(codes), size=total)]


def _keyed(gone: Ints, new: Ints, codes: Codes) -> KeyedChanges:
    """The changes of one step; a record's key is its number, and the new ones are the largest."""
    numbers = np.concatenate([gone, new])
    order = np.argsort(numbers)
    keys = np.zeros((len(numbers), KEY_WORDS), np.uint64)
    keys[:, 0] = numbers[order]
    present = order >= len(gone)
    return KeyedChanges(keys, present, _codes(codes[order[present] - len(gone)]))


def finer(plan: StreamPlan, codes: Codes) -> Codes:
    """The codes of a batch, which has finer bins of columns whose means are measured: always the first one."""
    sums: Any = getattr(plan, "sums", None)
    for place, scale in () if sums is None else sums.scales.items():
        codes[:, place] = scale.starts[codes[:, place]]
    return codes


def _codes(codes: Codes) -> Codes:
    return np.asfortranarray(codes.astype(np.int32))


def _cliques(config: Config, domain: Domain) -> tuple[Clique, ...]:
    """The marginals of the workload, and of every column."""
    columns: list[Clique] = [(i,) for i in range(len(domain))]
    workload = getattr(config.recipe, "workload", None)
    own = itertools.combinations(range(len(domain)), 2) if workload is None else workload.cliques
    headline = headline_cliques(domain, marginals_of(getattr(config.recipe, "headline", ())))
    return tuple(dict.fromkeys([*columns, *own, *headline]))


def _grouping(domain: Domain, cliques: Sequence[Clique]) -> Grouping:
    """By every column, and by as many of the marginals as are looked at at no great cost."""
    chosen = list(cliques[:_MAX_GROUPINGS])

    def groups(codes: Codes) -> list[tuple[Ints, int]]:
        return [
            (np.ravel_multi_index(tuple(codes[:, list(c)].T), domain.shape(c)), domain.cells(c))
            for c in chosen
        ]

    return groups


def _observe(config: Config, synthesis: Any, truth: InventedTable, seed: int) -> Observation:
    answers = synthesis.answers
    wanted = 0 if answers is None else max(0, round(answers.total))
    rows = min(wanted, _MAX_ROWS)
    if answers is None or rows == 0:
        return Observation(np.zeros((0, len(truth.domain)), np.int32))
    codes = answers.sample(rows, seed)
    return Observation(codes, None if rows == wanted else np.full(rows, wanted / rows))


def _imagine(config: Config, guess: Guess) -> Invented:
    domain = read_domain(config)
    records = np.zeros((0, len(domain)), np.int32) if guess.base is None else guess.base.records()
    tree = np.random.default_rng([guess.seed, 13])
    falling = guess.table.change != "grows"
    if guess.columns == "foreseen" and not guess.table.ordered:
        season = getattr(config.recipe, "season", None)
        foreseen = foreseen_changes(guess, domain, None if season is None else float(season))
        return stream_of(config, foreseen, guess.compared, falling=falling, lazily=True)
    if guess.columns in ("correlated", "foreseen"):
        kinds = correlated_columns(domain, tree), correlated_columns(domain, tree)
        draw = drifting(*kinds, guess.steps, tree)
    elif guess.columns == "uniform" or not len(records):
        draw = uniform_columns(domain)
    else:
        draw = like_records(records)
    changes = imagined_changes(guess, draw, records)
    return stream_of(config, ((*c, 0) for c in changes), guess.compared, falling=falling, base=guess.base)


def imagined_changes(guess: Guess, draw: Draw, there: Codes) -> Changes:
    """The steps of a guessed table. Arrivals rise and fall over several steps; all records leave alike.

    Args:
        there: the public table that it begins with. What is in it stays.
    """
    generator = np.random.default_rng([guess.seed, 14])
    table, first = guess.table, len(there)
    if table.ordered:
        draw = _in_order(draw, round(guess.steps * table.records_per_step), generator)
    rates = table.records_per_step * np.exp(wandering(guess.steps, generator) * table.varies)
    for step, rate in enumerate(rates.tolist(), start=1):
        many = generator.poisson(rate)
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


def drifting(first: Draw, second: Draw, steps: int, generator: np.random.Generator) -> Draw:
    """Records of two kinds, in shares that move from step to step; a call is a step."""
    shares = iter(1 / (1 + np.exp(-_DRIFT * wandering(steps, generator))))

    def draw(rows: int, generator: np.random.Generator) -> Codes:
        of_first = generator.binomial(rows, next(shares, 0.5))
        codes = np.concatenate([first(of_first, generator), second(rows - of_first, generator)])
        return codes[generator.permutation(rows)]

    return draw


def _in_order(draw: Draw, many: int, generator: np.random.Generator) -> Draw:
    """Records that come sorted by their columns, these in an order by chance; of the last kind any number more."""
    codes = draw(many, generator)
    by = generator.permutation(codes.shape[1])
    codes = codes[np.lexsort(codes[:, by].T)]
    taken = 0

    def following(rows: int, _: np.random.Generator) -> Codes:
        nonlocal taken
        taken += rows
        return codes[np.minimum(np.arange(taken - rows, taken), many - 1)]

    return following


TABLES_SIMULATION: Final = FamilySimulation(_invent, _observe, imagine=_imagine)
