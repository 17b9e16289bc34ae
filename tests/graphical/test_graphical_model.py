"""Marginals, trees and records of a model against the explicit joint table."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import InputError, LimitError, StoreDamagedError, StoreFormatError
from dpstream.core.graphical import Model, TreeSizes, junction_tree, tree_cells
from dpstream.core.schema.domain import Clique, Domain

NAMES = tuple("abcdefghij")


def joint(model: Model) -> NDArray[np.float64]:
    """The distribution, from the definition: exp of the sum of all potentials, normalised."""
    domain = model.domain
    log = np.zeros(domain.sizes)
    for clique in [(i,) for i in range(len(domain))] + list(model.cliques):
        shape = [domain.sizes[i] if i in clique else 1 for i in range(len(domain))]
        log = log + model.potentials[model.tree.slot(clique)].reshape(shape)
    table = np.exp(log - log.max())
    return table / table.sum()


def project(table: NDArray[np.float64], clique: Clique) -> NDArray[np.float64]:
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in clique)).reshape(-1)


def every_clique(attributes: int) -> list[Clique]:
    return [c for k in range(attributes + 1) for c in itertools.combinations(range(attributes), k)]


@st.composite
def domains_and_cliques(draw: st.DrawFn) -> tuple[Domain, list[Clique]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6).filter(lambda s: math.prod(s) <= 800))
    domain = Domain(NAMES[: len(sizes)], tuple(sizes))
    subsets = [c for c in every_clique(len(sizes)) if c]
    return domain, draw(st.lists(st.sampled_from(subsets), max_size=8, unique=True))


def random_model(domain: Domain, cliques: list[Clique], seed: int, spread: float = 2.0) -> Model:
    tree = junction_tree(domain, cliques)
    return Model(tree, np.random.default_rng(seed).normal(0, spread, tree.parameters), 100.0)


@settings(max_examples=120, deadline=None)
@given(domains_and_cliques(), st.integers(0, 2**32), st.sampled_from([0.5, 3.0, 30.0]))
def test_every_marginal_equals_the_joint_tables(
    case: tuple[Domain, list[Clique]], seed: int, spread: float
) -> None:
    domain, cliques = case
    model = random_model(domain, cliques, seed, spread)
    table = joint(model)
    wanted = every_clique(len(domain))
    for clique, marginal in zip(wanted, model.marginals(wanted), strict=True):
        expected = 100 * project(table, clique)
        np.testing.assert_allclose(marginal, expected, atol=1e-9)
        # One at a time takes other routes (single projections, elimination along the tree).
        np.testing.assert_allclose(model.marginal(clique), expected, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(domains_and_cliques())
def test_the_tree_is_a_junction_tree(case: tuple[Domain, list[Clique]]) -> None:
    domain, cliques = case
    tree = junction_tree(domain, cliques)
    assert tree.cells == tree_cells(domain, cliques) == sum(domain.cells(n) for n in tree.nodes)
    for clique in [*cliques, *[(i,) for i in range(len(domain))]]:
        assert any(set(clique) <= set(node) for node in tree.nodes)
    for c, parent in enumerate(tree.arrays.parent):
        assert parent < c
        before = set().union(*tree.nodes[:c]) if c else set()
        separator = set(tree.separators[c])
        # Running intersection: what a clique shares with all earlier ones is its separator, in its parent.
        assert before & set(tree.nodes[c]) == separator
        if parent >= 0:
            assert separator
            assert separator <= set(tree.nodes[parent])
        else:
            assert not separator
    for a, b in itertools.permutations(range(len(tree.nodes)), 2):
        assert not set(tree.nodes[a]) < set(tree.nodes[b])
    candidates = [c for c in every_clique(len(domain)) if len(c) == 2]
    each = TreeSizes(domain, candidates, cliques).cells_with(np.arange(len(candidates)))
    assert each.tolist() == [tree_cells(domain, [*cliques, c]) for c in candidates]


def test_many_attributes_with_a_hub_and_a_chain() -> None:
    # 2^20 joint cells: still explicit. A star, a chain and a separate component, in shuffled roles.
    domain = Domain(tuple(f"x{i}" for i in range(20)), (2,) * 20)
    star = [(0, i) for i in range(1, 8)]
    chain = [(i, i + 1) for i in range(7, 14)]
    model = random_model(domain, [*star, *chain, (15, 16), (16, 17), (15, 17)], seed=3, spread=1.0)
    table = joint(model)
    pairs = list(itertools.combinations(range(20), 2))
    for clique, marginal in zip(pairs, model.marginals(pairs), strict=True):
        np.testing.assert_allclose(marginal, 100 * project(table, clique), atol=1e-8)
    triple = (3, 11, 17)
    np.testing.assert_allclose(model.marginal(triple), 100 * project(table, triple), atol=1e-8)


def test_totals_scale_marginals_and_leave_the_shape() -> None:
    domain = Domain(("a", "b"), (2, 3))
    model = random_model(domain, [(0, 1)], seed=1)
    for total in (0.0, -7.5, 1e12):
        other = model.with_total(total)
        assert other.total == total
        np.testing.assert_allclose(other.marginal((1,)), model.marginal((1,)) * (total / 100), rtol=1e-12)
        assert other.marginal(()).tolist() == pytest.approx([total])
        assert (other.sample(50, 1) == model.sample(50, 1)).all()
    uniform = Model.uniform(domain, 12.0)
    np.testing.assert_allclose(uniform.marginal((0, 1)), np.full(6, 2.0))


def test_pack_continues_bit_for_bit_and_survives_json() -> None:
    domain = Domain(("a", "b", "c"), (3, 4, 5))
    model = random_model(domain, [(1, 2), (0, 1)], seed=5)
    packed = model.pack()
    meta = json.loads(json.dumps(packed.meta))
    again = Model.unpack(Packed(meta, packed.arrays))
    assert (again.total, again.cliques, again.domain) == (model.total, model.cliques, model.domain)
    wanted = every_clique(3)
    for a, b in zip(model.marginals(wanted), again.marginals(wanted), strict=True):
        assert a.tobytes() == b.tobytes()
    assert model.sample(1000, 3).tobytes() == again.sample(1000, 3).tobytes()
    with pytest.raises(StoreFormatError):
        Model.unpack(Packed({**meta, "format": 99}, packed.arrays))
    for broken in (
        Packed({**meta, "cliques": [[0, 9]]}, packed.arrays),
        Packed({**meta, "total": float("nan")}, packed.arrays),
        Packed(meta, {"potentials": packed.arrays["potentials"][:-1]}),
        Packed(meta, {}),
    ):
        with pytest.raises(StoreDamagedError):
            Model.unpack(broken)


def test_what_a_model_hands_out_cannot_change_it() -> None:
    model = random_model(Domain(("a", "b"), (2, 3)), [(0, 1)], seed=1)
    before = model.marginal((0, 1)).copy()
    model.marginal((0, 1))[:] = -1
    model.potentials[:] = 5
    model.pack().arrays["potentials"][:] = 5
    assert (model.marginal((0, 1)) == before).all()


def test_bad_cliques_and_trees_too_large_are_refused() -> None:
    domain = Domain(("a", "b", "c"), (1000, 1000, 1000))
    model = Model.uniform(domain, 1.0)
    for clique in ((1, 0), (0, 0), (0, 3), (-1, 0)):
        with pytest.raises(InputError):
            model.marginal(clique)
        with pytest.raises(InputError):
            tree_cells(domain, [clique])
    with pytest.raises(LimitError):
        junction_tree(domain, [(0, 1, 2)])
    assert tree_cells(domain, [(0, 1, 2)]) == 10**9
    with pytest.raises(InputError):
        model.with_total(float("inf"))
    with pytest.raises(InputError):
        model.sample(-1, 0)


class TestSampling:
    """Bounds are six standard deviations of sums of many cells: false alarms far below 1e-6."""

    domain = Domain(("a", "b", "c", "d", "e"), (3, 4, 2, 1, 5))
    cliques = [(0, 1), (1, 2), (2, 4)]  # noqa: RUF012

    def test_repeatable_and_inside_the_domain(self) -> None:
        model = random_model(self.domain, self.cliques, seed=2)
        records = model.sample(5000, seed=9)
        assert records.shape == (5000, 5)
        assert records.dtype == np.int32
        assert (records >= 0).all()
        assert (records < np.array(self.domain.sizes)).all()
        assert (records == model.sample(5000, seed=9)).all()
        assert (records != model.sample(5000, seed=10)).any()
        assert model.sample(0, seed=1).shape == (0, 5)
        assert model.sample(1, seed=-1).shape == (1, 5)

    def test_cells_inside_the_tree_are_dealt_within_one(self) -> None:
        model = random_model(self.domain, self.cliques, seed=4)
        rows = 20_000
        records = model.sample(rows, seed=1)
        root = model.tree.nodes[0]
        clique = tuple(sorted(root))
        expected = model.with_total(rows).marginal(clique)
        assert np.abs(_count(records, self.domain, clique) - expected).max() < 1 + 1e-6

    def test_single_records_follow_the_joint_distribution(self) -> None:
        # Unbiased also where no tree clique looks: the whole joint table, over many small draws.
        model = random_model(self.domain, self.cliques, seed=6, spread=1.0)
        runs, rows = 4000, 7
        everything = tuple(range(5))
        counts = np.zeros(self.domain.cells(everything))
        first = np.zeros_like(counts)
        for seed in range(runs):
            records = model.sample(rows, seed)
            counts += _count(records, self.domain, everything)
            first += _count(records[:1], self.domain, everything)
        probability = joint(model).reshape(-1)
        for observed, n in ((counts, runs * rows), (first, runs)):
            assert _chi_square_is_plausible(observed, probability, n)
            # Negative control: the same counts against a slightly flatter distribution are rejected.
            flatter = probability ** (2 / 3)
            assert not _chi_square_is_plausible(observed, flatter / flatter.sum(), n)


def _count(records: NDArray[np.int32], domain: Domain, clique: Clique) -> NDArray[np.float64]:
    index = np.ravel_multi_index([records[:, i] for i in clique], domain.shape(clique))
    return np.bincount(index, minlength=domain.cells(clique)).astype(float)


def _chi_square_is_plausible(observed: NDArray[np.float64], probability: NDArray[np.float64], n: int) -> bool:
    from scipy.stats import chi2

    expected = probability * n
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = float(((observed - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
    return bool(chi2.sf(statistic, len(expected) - 1) > 1e-7)
