"""Which records come and leave at a step, so that a running table follows the released ones. All of it public."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpstream.tools.evaluate.array_types import Codes, Floats, Ints

#: Records -> for each way of grouping them the group of each record, and how many groups there are.
Grouping = Callable[[Codes], Sequence[tuple[Ints, int]]]
#: A step's records are chosen in so many rounds; after each it is counted again what is lacking.
_ROUNDS = 12
#: A record whose groups lack twice as much is so many times (as a power of 2) as likely to be chosen.
_SHARPNESS = 3.0


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
