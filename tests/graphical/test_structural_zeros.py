"""Models over a domain with impossible cells have the law restricted to the possible, and no record outside."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.graphical import Measurement, Model, TreeSizes, draw_blocks, fit, tree_cells
from dpstream.core.graphical.junction_tree import junction_tree
from dpstream.core.schema.domain import Clique, Domain, Impossible

NAMES, SIZES = ("a", "b", "c", "d", "e"), (2, 3, 2, 4, 2)
PLAIN = Domain(NAMES, SIZES)
CLIQUES = [c for k in (1, 2, 3) for c in itertools.combinations(range(len(SIZES)), k)]


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    """One to three constraints over one to three columns each; some are severe."""
    found = []
    for clique in draw(st.lists(st.sampled_from(CLIQUES), min_size=1, max_size=3, unique=True)):
        cells = PLAIN.cells(clique)
        mask = np.array(draw(st.lists(st.booleans(), min_size=cells, max_size=cells)))
        found.append(Impossible(clique, np.packbits(mask).tobytes()))
    return Domain(NAMES, SIZES, tuple(found))


def possible(domain: Domain) -> NDArray[np.bool_]:
    """Which cells of the whole table are possible, by looking at each."""
    table = np.ones(domain.sizes, dtype=bool)
    for one in domain.impossible:
        rest = [size if i in one.clique else 1 for i, size in enumerate(domain.sizes)]
        table &= ~one.mask(domain).reshape(rest)
    return table


def violations(domain: Domain, codes: NDArray[np.int32]) -> int:
    return int((~possible(domain)[tuple(codes.T)]).sum())


def tilted(domain: Domain, cliques: list[Clique], seed: int, spread: float) -> Model:
    tree = junction_tree(domain, cliques)
    return Model(tree, np.random.default_rng(seed).normal(0.0, spread, tree.parameters), 1000.0)


@settings(max_examples=60, deadline=None)
@given(
    domains(),
    st.lists(st.sampled_from(CLIQUES), max_size=4),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 40.0]),
)
def test_a_model_is_its_potentials_restricted_to_the_possible(
    domain: Domain, cliques: list[Clique], seed: int, spread: float
) -> None:
    inside = possible(domain)
    if not inside.any():
        with pytest.raises(ConfigError, match="together exclude every record"):
            tilted(domain, cliques, seed, spread)
        return
    model = tilted(domain, cliques, seed, spread)
    log = np.zeros(domain.sizes)
    for own in [(i,) for i in range(len(domain))] + list(model.cliques):
        rest = [size if i in own else 1 for i, size in enumerate(domain.sizes)]
        log += model.potentials[model.tree.slot(own)].reshape(rest)
    law = np.where(inside, np.exp(log - log[inside].max()), 0.0)
    law *= 1000.0 / law.sum()
    for clique in CLIQUES:
        truth = law.sum(axis=tuple(i for i in range(len(SIZES)) if i not in clique)).reshape(-1)
        found = model.marginal(clique)
        np.testing.assert_allclose(found, truth, atol=1e-6)
        nothing = inside.any(axis=tuple(i for i in range(len(SIZES)) if i not in clique)).reshape(-1)
        if model.tree.homes(_listed(domain, clique))[0] >= 0:
            assert (found[~nothing] == 0.0).all()
    blocks = draw_blocks([model], np.array([301]), seed, 100)
    for codes in (model.sample(500, seed), *(make() for make in blocks)):
        assert violations(domain, codes) == 0
    assert np.isneginf(model.log_density(np.argwhere(~inside).astype(np.int32))).all()
    again = Model.unpack(model.pack())
    assert again.domain == domain
    assert (again.sample(50, 1) == model.sample(50, 1)).all()


def _listed(domain: Domain, clique: Clique):  # type: ignore[no-untyped-def]
    from dpstream.core.graphical.junction_tree import clique_list

    return clique_list(domain, [clique])


@settings(max_examples=40, deadline=None)
@given(domains(), st.lists(st.sampled_from(CLIQUES), min_size=1, max_size=5), st.integers(0, 2**32))
def test_noise_in_impossible_cells_brings_no_record(domain: Domain, cliques: list[Clique], seed: int) -> None:
    assume(possible(domain).any())
    generator = np.random.default_rng(seed)
    noisy = [Measurement(c, generator.normal(20.0, 30.0, domain.cells(c)), 900.0) for c in cliques]
    model = fit(domain, noisy, iterations=30)
    assert violations(domain, model.sample(300, seed)) == 0
    assert np.isfinite(model.potentials).all()
    again = fit(domain, noisy[:1], warm=model, iterations=10)
    assert violations(domain, again.sample(300, seed)) == 0


@settings(max_examples=40, deadline=None)
@given(domains(), st.lists(st.sampled_from(CLIQUES), min_size=1, max_size=6, unique=True))
def test_sizes_count_the_columns_of_constraints(domain: Domain, cliques: list[Clique]) -> None:
    together = [one.clique for one in domain.impossible]
    assert tree_cells(domain, cliques) == tree_cells(PLAIN, [*cliques, *together])
    sizes = TreeSizes(domain, cliques)
    assert sizes.cells == tree_cells(PLAIN, together)
    expected = [tree_cells(PLAIN, [clique, *together]) for clique in cliques]
    assert sizes.cells_with(np.arange(len(cliques))).tolist() == expected


def test_without_the_zeros_records_would_violate() -> None:
    """The negative control: the same potentials over the plain domain give such records."""
    mask = np.zeros(6, dtype=bool)
    mask[1] = True
    domain = Domain(NAMES, SIZES, (Impossible((0, 1), np.packbits(mask).tobytes()),))
    assert violations(domain, tilted(PLAIN, [(0, 1)], 1, 0.1).sample(1000, 1)) > 50
    assert violations(domain, tilted(domain, [(0, 1)], 1, 0.1).sample(1000, 1)) == 0
