"""Sizes of growing junction trees, kept part by part, against eliminating the whole graph every time."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.graphical import TreeSizes, junction_tree, tree_cells
from dpstream.core.graphical.junction_tree import clique_list
from dpstream.core.schema.domain import Clique, Domain


def _domain(sizes: list[int]) -> Domain:
    return Domain(tuple(f"c{i}" for i in range(len(sizes))), tuple(sizes))


@st.composite
def growing(draw: st.DrawFn) -> tuple[Domain, list[Clique], list[Clique]]:
    """A domain, cliques in the order in which they come, and candidates: sparse, dense, or in groups."""
    many = draw(st.integers(2, 12))
    least = draw(st.sampled_from([1, 2]))
    sizes = draw(st.lists(st.integers(least, 6), min_size=many, max_size=many))
    column = st.integers(0, many - 1)
    clique = st.sets(column, min_size=1, max_size=3).map(lambda own: tuple(sorted(own)))
    pair = st.sets(column, min_size=2, max_size=2).map(lambda own: tuple(sorted(own)))
    cliques = draw(st.lists(draw(st.sampled_from([pair, clique])), max_size=14))
    pairs = list(itertools.combinations(range(many), 2))
    return _domain(sizes), cliques, [*pairs, (0,), *draw(st.lists(clique, max_size=6))]


def _check(domain: Domain, cliques: list[Clique], candidates: list[Clique], begin: int, every: int) -> None:
    sizes = TreeSizes(domain, candidates, cliques[:begin])
    asked = np.arange(len(candidates))
    for done in range(begin, len(cliques) + 1):
        if (done - begin) % every == 0:
            held = cliques[:done]
            wanted = [tree_cells(domain, [*held, candidate]) for candidate in candidates]
            assert sizes.cells == tree_cells(domain, held)
            most = int(np.median(wanted))
            # First the question that may be answered without the exact number.
            assert sizes.within(asked[::-1], most).tolist() == [w <= most for w in reversed(wanted)]
            assert sizes.cells_with(asked).tolist() == wanted
        if done < len(cliques):
            sizes.add(cliques[done])


@given(growing(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_each_clique_adds_what_eliminating_everything_says(
    case: tuple[Domain, list[Clique], list[Clique]], begin: int
) -> None:
    domain, cliques, candidates = case
    _check(domain, cliques, candidates, min(begin, len(cliques)), 1)


def test_parts_of_more_than_64_columns() -> None:
    random = np.random.default_rng(5)
    for trial in range(3):
        many = 90
        domain = _domain(random.integers(2, 8, many).tolist())
        ends = random.integers(0, many, (110 + 10 * trial, 2))
        cliques = [tuple(sorted((int(a), int(b)))) for a, b in ends if a != b]
        drawn = random.integers(0, many, (150, 2))
        candidates = [tuple(sorted((int(a), int(b)))) for a, b in drawn if a != b]
        _check(domain, cliques, candidates, 50, 25)


def test_sizes_beyond_what_a_double_counts() -> None:
    domain = _domain([10**6] * 4)
    cliques = [(0, 1, 2), (1, 2, 3)]
    _check(domain, cliques, [(0, 3), (1, 2), (0, 1, 2, 3)], 0, 1)


@given(growing())
@settings(max_examples=60, deadline=None)
def test_homes_of_many_cliques_are_those_of_each(case: tuple[Domain, list[Clique], list[Clique]]) -> None:
    domain, cliques, candidates = case
    tree = junction_tree(domain, cliques)
    every = [*candidates, *((i,) for i in range(len(domain))), ()]
    cells = np.diff(tree.arrays.cell_off)

    def scan(clique: Clique) -> int:
        holders = [c for c, axes in enumerate(tree.nodes) if set(clique) <= set(axes)]
        return min(holders, key=lambda c: int(cells[c]), default=-1)

    assert tree.homes(clique_list(domain, every)).tolist() == [scan(clique) for clique in every]
