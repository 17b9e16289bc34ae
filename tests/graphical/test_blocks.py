"""Records in blocks: the counts of the whole table are as near to the model as where it is drawn at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.graphical import Model, draw_blocks
from dpstream.core.graphical.junction_tree import junction_tree
from dpstream.core.schema.domain import Domain

SIZES = (3, 4, 2, 5, 2)
DOMAIN = Domain(tuple("abcde"), SIZES)
#: Two components: a chain whose middle depends strongly on both ends, and a pair of its own.
CLIQUES = ((0, 1), (1, 2), (3, 4))


def model(seed: int, strength: float = 1.5) -> Model:
    tree = junction_tree(DOMAIN, CLIQUES)
    return Model(tree, np.random.default_rng(seed).normal(0.0, strength, tree.parameters), 1000.0)


def table(models: Sequence[Model], shares: Sequence[int], seed: int, size: int) -> list[NDArray[np.int32]]:
    return [block() for block in draw_blocks(models, np.array(shares), seed, size)]


def counts(codes: NDArray[np.int32], clique: tuple[int, ...]) -> NDArray[np.float64]:
    shape = tuple(SIZES[i] for i in clique)
    flat = np.ravel_multi_index(tuple(codes[:, i] for i in clique), shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(float)


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 5000])
def test_counts_are_within_one_of_their_expectation_whatever_the_size_of_a_block(size: int) -> None:
    """Given the separator's count, for every clique of the tree; for a root without a condition. As in Model.sample."""
    one = model(1)
    rows = 1003
    blocks = table([one], [rows], 5, size)
    assert [len(block) for block in blocks] == [min(size, rows - first) for first in range(0, rows, size)]
    codes = np.concatenate(blocks)
    assert codes.dtype == np.int32
    for node, separator in zip(one.tree.nodes, one.tree.separators, strict=True):
        clique = tuple(node)
        joint = one.marginal(tuple(sorted(clique))).reshape([SIZES[i] for i in sorted(clique)])
        joint = joint.transpose([sorted(clique).index(i) for i in clique])
        width = len(separator)
        given = counts(codes, tuple(clique[:width])) if width else np.array(float(rows))
        axes = tuple(range(width, len(clique)))
        expected = joint / joint.sum(axis=axes, keepdims=True)
        expected = expected * given.reshape(given.shape + (1,) * len(axes))
        assert np.abs(counts(codes, clique) - expected).max() < 1 + 1e-9


def test_equal_arguments_give_equal_blocks_in_any_order_and_other_seeds_others() -> None:
    def makers(seed: int) -> list[object]:
        return list(draw_blocks([model(1), model(2)], np.array([500, 300]), seed, 64))

    first = [block() for block in makers(3)]  # type: ignore[operator]
    backwards = [block() for block in reversed(makers(3))][::-1]  # type: ignore[operator]
    other = [block() for block in makers(4)]  # type: ignore[operator]
    assert all(np.array_equal(a, b) for a, b in zip(first, backwards, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_every_block_of_a_mixture_has_its_part_of_every_model() -> None:
    """Models that never give the same record tell which of them a record is from."""
    tree = junction_tree(DOMAIN, ())
    low, high = np.zeros(tree.parameters), np.zeros(tree.parameters)
    low[0], high[1] = 700.0, 700.0
    blocks = table([Model(tree, low, 1.0), Model(tree, high, 1.0)], [600, 400], 1, 100)
    assert sum(int((block[:, 0] == 0).sum()) for block in blocks) == 600
    assert all(abs(int((block[:, 0] == 0).sum()) - 60) <= 1 for block in blocks)
    # In random order: the first half of a block is not one model's.
    assert all(5 < int((block[:50, 0] == 0).sum()) < 50 for block in blocks)


def test_models_without_records_and_cells_without_probability_are_fine() -> None:
    blocks = table([model(1), model(2)], [0, 30], 1, 16)
    assert [len(block) for block in blocks] == [16, 14]
    assert table([model(1)], [0], 1, 16) == []
    # More cells than records, and potentials so far apart that some cells have no probability at all.
    assert sum(map(len, table([model(3, 400.0)], [9], 1, 4))) == 9


def deviation(position: int, draws: int, *, biased: bool = False) -> float:
    """The largest deviation of one record's joint law, over all seeds, in standard errors."""
    one = model(7)
    clique = (0, 1, 2)
    expected = one.marginal(clique).reshape([SIZES[i] for i in clique]) / one.total
    records = np.concatenate(
        [np.concatenate(table([one], [23], seed, 8))[position : position + 1] for seed in range(draws)]
    )
    if biased:
        records = np.where(records[:, :1] == 0, np.roll(records, 1, axis=0) % np.array(SIZES), records)
    seen = counts(records, clique) / draws
    likely = expected * draws > 20
    return float((np.abs(seen - expected) / np.sqrt(expected * (1 - expected) / draws))[likely].max())


@pytest.mark.parametrize("position", [0, 10, 22])
def test_each_record_follows_the_model_in_the_first_block_and_in_the_last(position: int) -> None:
    """Of attributes that no clique holds together, too. At most 24 cells, each beyond 6 standard errors with a
    probability below 1e-8: false alarms below 1e-6."""
    assert deviation(position, 3000) < 6.0


def test_the_check_of_the_law_finds_records_that_do_not_follow_it() -> None:
    """Negative control."""
    assert deviation(0, 3000, biased=True) > 6.0


def test_a_single_block_follows_the_model_at_every_place() -> None:
    """Its generator is another one than that of the cells, whose rounding it would repeat. 2 + 10 places, each beyond 6
    standard errors with a probability below 3e-9: false alarms below 1e-6."""
    tree = junction_tree(Domain(("a", "b"), (2, 2)), ())
    parameters = np.zeros(tree.parameters)
    parameters[0] = np.log(0.25 / 0.75)
    one, draws = Model(tree, parameters, 1.0), 3000
    expected = one.marginal((0,))[0] / one.total
    for rows in (2, 10):
        hits = sum(table([one], [rows], seed, rows)[0][:, 0] == 0 for seed in range(draws))
        assert np.abs(hits / draws - expected).max() < 6.0 * np.sqrt(expected * (1 - expected) / draws)
