"""Models of tables: the fit, the tree, and records drawn of them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, InputError, LimitError, StoreDamagedError, StoreFormatError
from dpstream.core.graphical import (
    Measurement,
    Model,
    TreeSizes,
    draw_blocks,
    estimate_total,
    fit,
    junction_tree,
    tree_cells,
)
from dpstream.core.graphical.compiled.inference import exp_nonpositive
from dpstream.core.graphical.junction_tree import clique_list
from dpstream.core.schema.domain import Clique, Domain, Impossible, pack_mask
from dpstream.mechanisms.table_release import ModelSynthesis

Case = tuple[Domain, list[Clique]]
DOMAIN = Domain(tuple("abcde"), (3, 4, 2, 1, 5))
CLIQUES: list[Clique] = [(0, 1), (1, 2), (2, 4)]


def every_clique(attributes: int) -> list[Clique]:
    return [c for k in range(attributes + 1) for c in itertools.combinations(range(attributes), k)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Domain, list[Clique]]:
    """A domain, often with impossible cells, some severe; and cliques of a model."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6).filter(lambda s: math.prod(s) <= 800))
    plain = Domain(tuple("abcdef"[: len(sizes)]), tuple(sizes))
    subsets = [c for c in every_clique(len(sizes)) if c]
    impossible = []
    for clique in draw(st.lists(st.sampled_from(subsets[:25]), max_size=3, unique=True)):
        cells = plain.cells(clique)
        mask = np.array(draw(st.lists(st.booleans(), min_size=cells, max_size=cells)))
        impossible.append(Impossible(clique, np.packbits(mask).tobytes()))
    cliques = draw(st.lists(st.sampled_from(subsets), max_size=8, unique=True))
    return Domain(plain.names, plain.sizes, tuple(impossible)), cliques


def random_model(domain: Domain, cliques: list[Clique], seed: int, spread: float = 2.0) -> Model:
    tree = junction_tree(domain, cliques)
    return Model(tree, np.random.default_rng(seed).normal(0, spread, tree.parameters), 100.0)


def _placed(values: NDArray[np.generic], clique: Clique, domain: Domain) -> NDArray[np.generic]:
    return values.reshape([n if i in clique else 1 for i, n in enumerate(domain.sizes)])


def possible(domain: Domain) -> NDArray[np.bool_]:
    """Which cells of the whole table are possible, by looking at each."""
    table = np.ones(domain.sizes, dtype=bool)
    for rule in domain.impossible:
        table &= ~_placed(rule.mask(domain), rule.clique, domain)
    return table


def joint(model: Model) -> NDArray[np.float64]:
    """The distribution: exp of the sum of all potentials where records are possible, normalised."""
    domain, inside = model.domain, possible(model.domain)
    log = np.zeros(domain.sizes)
    for clique in [(i,) for i in range(len(domain))] + list(model.cliques):
        log = log + _placed(model.potentials[model.tree.slot(clique)], clique, domain)
    table = np.where(inside, np.exp(np.minimum(log - log[inside].max(), 0.0)), 0.0)
    return table / table.sum()


def project(table: NDArray[np.generic], clique: Clique) -> NDArray[np.float64]:
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in clique)).reshape(-1)


def counted(records: NDArray[np.int32], domain: Domain, clique: Clique) -> NDArray[np.float64]:
    cells = np.ravel_multi_index([records[:, i] for i in clique], domain.shape(clique))
    return np.bincount(cells, minlength=domain.cells(clique)).astype(float)


def blocks(models: Sequence[Model], rows: Sequence[int], seed: int, size: int) -> list[NDArray[np.int32]]:
    return [block() for block in draw_blocks(models, np.array(rows), seed, size)]


@settings(max_examples=120, deadline=None)
@given(cases(), st.integers(0, 2**32), st.sampled_from([0.5, 3.0, 30.0, 1e5]))
def test_a_model_is_its_joint_table(case: Case, seed: int, spread: float) -> None:
    domain, cliques = case
    inside = possible(domain)
    if not inside.any():
        with pytest.raises(ConfigError, match="the constraints exclude every record"):
            random_model(domain, cliques, seed, spread)
        return
    model = random_model(domain, cliques, seed, spread)
    table, wanted = joint(model), every_clique(len(domain))
    for clique, marginal in zip(wanted, model.marginals(wanted), strict=True):
        expected = 100 * project(table, clique)
        np.testing.assert_allclose(marginal, expected, atol=1e-7)
        # One at a time takes other routes (single projections, elimination along the tree).
        alone = model.marginal(clique)
        np.testing.assert_allclose(alone, expected, atol=1e-7)
        if model.tree.homes(clique_list(domain, [clique]))[0] >= 0:
            assert (alone[project(inside, clique) == 0] == 0.0).all()
    cells = np.indices(domain.sizes).reshape(len(domain), -1).T.astype(np.int32)
    other = random_model(domain, cliques[:2], seed + 1)
    for density, law in (
        (model.log_density(cells), table),
        (ModelSynthesis((model, other), 10.0).log_density(cells), (table + joint(other)) / 2),
    ):
        assert np.exp(density) == pytest.approx(law.reshape(-1), rel=1e-7, abs=1e-12)
        assert np.isneginf(density[~inside.reshape(-1)]).all()
    for records in (model.sample(300, seed), *blocks([model], [301], seed, 100)):
        assert inside[tuple(records.T)].all()
    again = Model.unpack(model.pack())
    assert again.domain == domain
    assert (again.sample(50, 1) == model.sample(50, 1)).all()


def excluded_at_random(domain: Domain, seed: int) -> tuple[Impossible, ...]:
    """What a condition of one to three terms leaves out."""
    rng, cliques = np.random.default_rng(seed), every_clique(len(domain))[1:]
    chosen = [cliques[k] for k in rng.integers(len(cliques), size=rng.integers(1, 4))]
    return tuple(Impossible(own, pack_mask(rng.random(domain.cells(own)) < 0.5)) for own in chosen)


@settings(max_examples=120, deadline=None)
@given(cases(), st.integers(0, 2**32), st.sampled_from([0.5, 3.0, 30.0]))
def test_a_condition_leaves_its_part_of_the_joint_table_also_of_the_model_that_readers_get(
    case: Case, seed: int, spread: float
) -> None:
    domain, cliques = case
    assume(possible(domain).any())
    models = random_model(domain, cliques, seed, spread), random_model(domain, cliques[:2], seed + 1)
    owner = ModelSynthesis(models, 100.0, weights=(0.25, 0.75))
    law = 0.25 * joint(models[0]) + 0.75 * joint(models[1])
    plain, excluded = Domain(domain.names, domain.sizes), excluded_at_random(domain, seed)
    inside = possible(Domain(domain.names, domain.sizes, excluded))
    mass, cells = float(law[inside].sum()), np.indices(domain.sizes).reshape(len(domain), -1).T
    reader = ModelSynthesis.of_model(plain, json.loads(json.dumps(owner.model())), 100.0)
    assert (reader.sample(50, seed) == owner.sample(50, seed)).all()
    for table in (owner, reader):
        left = table.given(excluded)
        if left is None:
            assert mass < 1e-300
            continue
        part, share = left
        assert share == pytest.approx(mass, rel=1e-7)
        expected = np.where(inside, law, 0.0).reshape(-1) / mass
        assert np.exp(part.log_density(cells)) == pytest.approx(expected, rel=1e-7, abs=1e-9)
        assert inside[tuple(part.sample(200, seed).T)].all()


def test_records_under_a_condition_are_off_by_sampling_error_only() -> None:
    """Total variation below its mean's bound and what a thousand records may add (McDiarmid): false alarms below 1e-7.
    A model without its pairs, and one with a wider condition, are found out."""
    model, rows = random_model(DOMAIN, CLIQUES, 4), 20_000
    pairs = np.indices(DOMAIN.shape((0, 2))).sum(axis=0) % 2 == 1
    excluded = Impossible((0, 2), pack_mask(pairs)), Impossible((4,), pack_mask(np.arange(5) < 2))
    law = np.where(possible(Domain(DOMAIN.names, DOMAIN.sizes, excluded)), joint(model), 0.0).reshape(-1)
    law /= law.sum()
    bound = np.sqrt(law * (1 - law) / rows).sum() / 2 + math.sqrt(math.log(1e7) / (2 * rows))

    def variation(drawn_from: Model, left_out: Sequence[Impossible]) -> float:
        left = ModelSynthesis((drawn_from,), 1.0).given(left_out)
        assert left is not None
        codes = left[0].sample(rows, 1)
        cells = np.ravel_multi_index(tuple(codes.T), DOMAIN.sizes)
        return float(np.abs(np.bincount(cells, minlength=len(law)) / rows - law).sum() / 2)

    assert variation(model, excluded) < bound
    singles = model.tree.slot((len(DOMAIN) - 1,)).stop
    alone = Model(junction_tree(DOMAIN, ()), model.potentials[:singles], 1.0)
    assert variation(alone, excluded) > bound
    assert variation(model, excluded[:1]) > bound
    wide = Model.uniform(Domain(("a", "b"), (3000, 3000)), 1.0)
    with pytest.raises(LimitError, match="joins too many columns"):
        wide.given([Impossible((0, 1), pack_mask(np.zeros(9_000_000, dtype=bool)))])


@settings(max_examples=200, deadline=None)
@given(cases())
def test_the_tree_is_a_junction_tree(case: Case) -> None:
    domain, cliques = case
    assume(possible(domain).any())
    tree = junction_tree(domain, cliques)
    # Columns of a constraint are held together.
    plain, held = Domain(domain.names, domain.sizes), [*cliques, *(rule.clique for rule in domain.impossible)]
    assert tree.cells == tree_cells(domain, cliques) == tree_cells(plain, held)
    assert tree.cells == sum(domain.cells(node) for node in tree.nodes)
    for clique in [*held, *[(i,) for i in range(len(domain))]]:
        assert any(set(clique) <= set(node) for node in tree.nodes)
    for c, parent in enumerate(tree.arrays.parent):
        assert parent < c
        before = set().union(*tree.nodes[:c]) if c else set()
        separator = set(tree.separators[c])
        # Running intersection: what a clique shares with all earlier ones is its separator, in its parent.
        assert before & set(tree.nodes[c]) == separator
        assert bool(separator) == (parent >= 0)
        assert parent < 0 or separator <= set(tree.nodes[parent])
    for a, b in itertools.permutations(range(len(tree.nodes)), 2):
        assert not set(tree.nodes[a]) < set(tree.nodes[b])
    candidates = [c for c in every_clique(len(domain)) if len(c) == 2]
    sizes = TreeSizes(domain, candidates, cliques)
    assert sizes.cells == tree.cells
    each = sizes.cells_with(np.arange(len(candidates)))
    assert each.tolist() == [tree_cells(plain, [*held, c]) for c in candidates]


def test_totals_scale_marginals_and_leave_the_shape() -> None:
    model = random_model(DOMAIN, CLIQUES, seed=1)
    for total in (0.0, -7.5, 1e12):
        other = model.with_total(total)
        assert other.total == total
        np.testing.assert_allclose(other.marginal((1,)), model.marginal((1,)) * (total / 100), rtol=1e-12)
        assert other.marginal(()).tolist() == pytest.approx([total])
        assert (other.sample(50, 1) == model.sample(50, 1)).all()
    uniform = Model.uniform(DOMAIN, 12.0)
    np.testing.assert_allclose(uniform.marginal((0, 2)), np.full(6, 2.0))


def test_pack_continues_bit_for_bit_and_survives_json() -> None:
    model = random_model(DOMAIN, CLIQUES, seed=5)
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
    model = random_model(DOMAIN, CLIQUES, seed=1)
    before = model.marginal((0, 1)).copy()
    model.marginal((0, 1))[:] = -1
    model.potentials[:] = 5
    model.pack().arrays["potentials"][:] = 5
    assert (model.marginal((0, 1)) == before).all()


def test_what_does_not_fit_is_refused() -> None:
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
    assert model.log_density(np.empty((0, 3), dtype=np.int32)).shape == (0,)
    over, under = [[0, 0, 1000]], [[-1, 0, 0]]
    for wrong in (np.zeros((2, 2), int), np.zeros(3, int), np.zeros((2, 3)), np.array(over), np.array(under)):
        with pytest.raises(InputError, match="log_density"):
            model.log_density(wrong)


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(0, 2**32))
def test_noise_in_impossible_cells_brings_no_record(case: Case, seed: int) -> None:
    domain, cliques = case
    inside, generator = possible(domain), np.random.default_rng(seed)
    assume(inside.any())
    noisy = [Measurement(c, generator.normal(20.0, 30.0, domain.cells(c)), 900.0) for c in [*cliques, (0,)]]
    model = fit(domain, noisy, iterations=30)
    assert np.isfinite(model.potentials).all()
    again = fit(domain, noisy[:1], warm=model, iterations=10)
    for fitted in (model, again):
        assert inside[tuple(fitted.sample(300, seed).T)].all()


def test_without_the_zeros_records_would_violate() -> None:
    """The negative control: the same potentials over the plain domain give such records."""
    mask = np.arange(12) == 1
    domain = Domain(DOMAIN.names, DOMAIN.sizes, (Impossible((0, 1), np.packbits(mask).tobytes()),))
    plain, ruled = (
        counted(random_model(d, [(0, 1)], 1, 0.1).sample(1000, 1), d, (0, 1)) for d in (DOMAIN, domain)
    )
    assert plain[1] > 50
    assert ruled[1] == 0


def test_records_repeat_and_stay_inside_the_domain() -> None:
    model = random_model(DOMAIN, CLIQUES, seed=2)
    records = model.sample(5000, seed=9)
    assert (records.shape, records.dtype) == ((5000, 5), np.int32)
    assert ((records >= 0) & (records < np.array(DOMAIN.sizes))).all()
    assert (records == model.sample(5000, seed=9)).all()
    assert (records != model.sample(5000, seed=10)).any()
    assert model.sample(0, seed=1).shape == (0, 5)
    assert model.sample(1, seed=-1).shape == (1, 5)


@pytest.mark.parametrize("size", [None, 1, 7, 100, 1000, 5000])
def test_counts_are_within_one_of_their_expectation_at_once_and_in_blocks(size: int | None) -> None:
    """Given the separator's count, for every clique of the tree; for a root without a condition."""
    model, rows = random_model(DOMAIN, CLIQUES, 4), 1003
    if size is None:
        records = model.sample(rows, 5)
    else:
        drawn = blocks([model], [rows], 5, size)
        assert [len(block) for block in drawn] == [min(size, rows - first) for first in range(0, rows, size)]
        records = np.concatenate(drawn)
    assert records.dtype == np.int32
    table = joint(model)
    for node, separator in zip(model.tree.nodes, model.tree.separators, strict=True):
        seen = counted(records, DOMAIN, tuple(separator)) if separator else np.array([float(rows)])
        given_separator = table * (seen.reshape(-1) / project(table, tuple(separator))).reshape(
            [n if i in separator else 1 for i, n in enumerate(DOMAIN.sizes)]
        )
        clique = tuple(sorted(node))
        gap = counted(records, DOMAIN, clique) - project(given_separator, clique)
        assert np.abs(gap).max() < 1 + 1e-6


def plausible(records: NDArray[np.int32], law: NDArray[np.float64]) -> bool:
    """A chi-square test of the whole joint law, cells of few records together: false alarms below 1e-7."""
    from scipy.stats import chi2

    observed, expected = counted(records, DOMAIN, tuple(range(5))), law.reshape(-1) * len(records)
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = float(((observed - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
    return bool(chi2.sf(statistic, len(expected) - 1) > 1e-7)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_each_record_follows_the_joint_law_wherever_it_stands(in_blocks: bool) -> None:
    """Unbiased also where no clique of the tree looks: first and last records of many small draws, and all of them."""
    model = random_model(DOMAIN, CLIQUES, seed=6, spread=1.0)
    draws = np.array(
        [
            np.concatenate(blocks([model], [23], seed, 8)) if in_blocks else model.sample(23, seed)
            for seed in range(4000)
        ]
    )
    law = joint(model)
    flatter = law ** (2 / 3)
    for records in (draws[:, 0], draws[:, 10], draws[:, 22], draws.reshape(-1, 5)):
        assert plausible(records, law)
        # Negative control: the same records are rejected under a slightly flatter law.
        assert not plausible(records, flatter / flatter.sum())


def test_equal_arguments_give_equal_blocks_in_any_order_and_other_seeds_others() -> None:
    def makers(seed: int) -> list[object]:
        models = [random_model(DOMAIN, CLIQUES, number) for number in (1, 2)]
        return list(draw_blocks(models, np.array([500, 300]), seed, 64))

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
    drawn = blocks([Model(tree, low, 1.0), Model(tree, high, 1.0)], [600, 400], 1, 100)
    assert sum(int((block[:, 0] == 0).sum()) for block in drawn) == 600
    assert all(abs(int((block[:, 0] == 0).sum()) - 60) <= 1 for block in drawn)
    # In random order: the first half of a block is not one model's.
    assert all(5 < int((block[:50, 0] == 0).sum()) < 50 for block in drawn)


def test_models_without_records_and_cells_without_probability_are_fine() -> None:
    model = random_model(DOMAIN, CLIQUES, 1)
    assert [len(block) for block in blocks([model, model], [0, 30], 1, 16)] == [16, 14]
    assert blocks([model], [0], 1, 16) == []
    # More cells than records, and potentials so far apart that some cells have no probability at all.
    assert sum(map(len, blocks([random_model(DOMAIN, CLIQUES, 3, 400.0)], [9], 1, 4))) == 9


def test_a_single_block_follows_the_model_at_every_place() -> None:
    """Its generator is another one than that of the cells, whose rounding it would repeat. 2 + 10 places, each beyond 6
    standard errors with a probability below 3e-9: false alarms below 1e-6."""
    tree = junction_tree(Domain(("a", "b"), (2, 2)), ())
    parameters = np.zeros(tree.parameters)
    parameters[0] = np.log(0.25 / 0.75)
    model, draws = Model(tree, parameters, 1.0), 3000
    expected = model.marginal((0,))[0] / model.total
    for rows in (2, 10):
        hits = sum(blocks([model], [rows], seed, rows)[0][:, 0] == 0 for seed in range(draws))
        assert np.abs(hits / draws - expected).max() < 6.0 * np.sqrt(expected * (1 - expected) / draws)


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


# The fit: optimality by certificate and against other solvers, warm starts, totals, awkward input


NAMES = tuple("abcdefgh")


def loss(model: Model, measurements: list[Measurement]) -> float:
    return sum(
        float(((model.marginal(m.clique) - m.values) ** 2).sum()) / (2 * m.variance) for m in measurements
    )


def measure(
    domain: Domain, cliques: list[Clique], rng: np.random.Generator, sd: float, total: float = 1000.0
) -> list[Measurement]:
    """Noisy marginals of a random skewed table."""
    table = rng.gamma(0.3, size=domain.sizes) + 1e-9
    table *= total / table.sum()
    out = []
    for clique in cliques:
        axes = tuple(i for i in range(len(domain)) if i not in clique)
        true = table.sum(axis=axes).reshape(-1)
        out.append(Measurement(clique, true + rng.normal(0, sd, true.size), sd**2))
    return out


def linear_system(
    domain: Domain, measurements: list[Measurement]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``A`` and ``b`` with ``|A x - b|^2 / 2`` the loss of a table ``x`` of all cells."""
    codes = np.unravel_index(np.arange(math.prod(domain.sizes)), domain.sizes)
    rows, targets = [], []
    for m in measurements:
        place = np.ravel_multi_index([codes[i] for i in m.clique], domain.shape(m.clique))
        indicator = np.arange(len(m.values))[:, None] == place[None, :]
        rows.append(indicator / math.sqrt(m.variance))
        targets.append(m.values / math.sqrt(m.variance))
    return np.vstack(rows), np.concatenate(targets)


def regularised_optimum(
    domain: Domain, measurements: list[Measurement], total: float, penalty: float
) -> tuple[float, NDArray[np.float64]]:
    """The least ``loss + penalty KL(p | uniform)`` over all distributions, and the table: by a general solver."""
    from scipy.optimize import minimize

    matrix, target = linear_system(domain, measurements)
    cells = matrix.shape[1]

    def objective(logits: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        log_p = logits - np.logaddexp.reduce(logits)
        p = np.exp(log_p)
        residual = total * (matrix @ p) - target
        slope = total * (matrix.T @ residual) + penalty * (log_p + math.log(cells))
        value = residual @ residual / 2 + penalty * float(p @ (log_p + math.log(cells)))
        return value, p * (slope - p @ slope)

    found = minimize(
        objective, np.zeros(cells), jac=True, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return float(found.fun), total * np.exp(found.x - np.logaddexp.reduce(found.x))


def least_loss(domain: Domain, measurements: list[Measurement], total: float) -> float:
    """The least loss over *all* non-negative tables with this total: non-negative least squares."""
    from scipy.optimize import nnls

    rows, targets = linear_system(domain, measurements)
    cells = rows.shape[1]
    heavy = 1e4 * max(1 / math.sqrt(m.variance) for m in measurements)
    matrix = np.vstack([rows, np.full((1, cells), heavy)])
    target = np.concatenate([targets, [heavy * total]])
    table, _ = nnls(matrix, target, maxiter=100 * cells)
    table *= total / table.sum()
    return float(((matrix @ table - target) ** 2).sum()) / 2


@st.composite
def problems(draw: st.DrawFn) -> tuple[Domain, list[Clique], int, float]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5).filter(lambda s: math.prod(s) <= 256))
    domain = Domain(NAMES[: len(sizes)], tuple(sizes))
    subsets = [c for k in range(1, 4) for c in itertools.combinations(range(len(sizes)), k)]
    cliques = draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=7))  # repetitions welcome
    return domain, cliques, draw(st.integers(0, 2**32)), draw(st.sampled_from([0.5, 10.0, 200.0]))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_fit_is_optimal_over_all_tables(problem: tuple[Domain, list[Clique], int, float]) -> None:
    domain, cliques, seed, sd = problem
    measurements = measure(domain, cliques, np.random.default_rng(seed), sd)
    model = fit(domain, measurements, total=1000.0, iterations=3000, tolerance=1e-4)
    reached = loss(model, measurements)
    least = least_loss(domain, measurements, 1000.0)
    assert reached <= least * (1 + 1e-4) + 1e-2
    assert reached >= least * (1 - 1e-4) - 1e-2


@settings(max_examples=30, deadline=None)
@given(problems())
def test_the_regularised_optimum_is_that_of_a_general_solver(
    problem: tuple[Domain, list[Clique], int, float],
) -> None:
    # With a penalty the optimum is unique: the marginals must agree, not only the objective.
    domain, cliques, seed, sd = problem
    measurements = measure(domain, cliques, np.random.default_rng(seed), max(sd, 10.0))
    model = fit(domain, measurements, total=1000.0, iterations=6000, tolerance=1e-9, regularisation=0.05)
    shares = model.marginal(tuple(range(len(domain)))) / 1000.0
    divergence = float(np.sum(shares * np.log(np.maximum(shares * len(shares), 1e-300))))
    value = loss(model, measurements) + 0.05 * 1000.0 * divergence
    least, table = regularised_optimum(domain, measurements, 1000.0, 0.05 * 1000.0)
    assert value == pytest.approx(least, rel=1e-4, abs=1e-3)
    assert value <= least + 1e-6 * (1 + least)
    np.testing.assert_allclose(model.marginal(tuple(range(len(domain)))), table, atol=5.0)


def test_the_loss_never_rises_with_more_iterations_even_around_a_hub() -> None:
    domain = Domain(NAMES, (20, 5, 5, 5, 5, 5, 5, 5))
    cliques = [(0, i) for i in range(1, 8)]
    measurements = measure(domain, cliques, np.random.default_rng(1), sd=0.1, total=1e6)
    losses = [
        loss(fit(domain, measurements, iterations=n, tolerance=0.0), measurements)
        for n in (1, 2, 5, 10, 30, 100)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.01 * losses[0]


def test_weights_are_inverse_variances() -> None:
    domain = Domain(("a",), (2,))
    both = [Measurement((0,), np.array([70.0, 30.0]), 1.0), Measurement((0,), np.array([10.0, 90.0]), 9.0)]
    model = fit(domain, both, total=100.0, iterations=500, tolerance=1e-8)
    np.testing.assert_allclose(model.marginal((0,)), [64.0, 36.0], atol=1e-3)


def test_totals() -> None:
    domain = Domain(("a", "b"), (2, 3))
    first = Measurement((0,), np.array([60.0, 40.0]), 4.0)
    second = Measurement((0, 1), np.full(6, 20.0), 4.0)
    total, variance = estimate_total([first, second])
    assert total == pytest.approx((100 / 8 + 120 / 24) / (1 / 8 + 1 / 24))
    assert variance == pytest.approx(1 / (1 / 8 + 1 / 24))
    assert fit(domain, [first, second]).total == pytest.approx(total)
    assert estimate_total([]) == (0.0, math.inf)
    only_total = Measurement((), np.array([77.0]), 2.0)
    assert fit(domain, [only_total]).total == 77.0
    np.testing.assert_allclose(fit(domain, [only_total]).marginal((0,)), [38.5, 38.5])


@pytest.mark.parametrize("total", [None, 0.0, -50.0, 1e-9])
def test_empty_and_negative_tables_still_have_a_shape(total: float | None) -> None:
    domain = Domain(("a", "b"), (4, 3))
    rng = np.random.default_rng(2)
    noise = [Measurement((0, 1), rng.normal(-20, 50, 12), 2500.0)]
    model = fit(domain, noise, total=total)
    assert model.total == (noise[0].values.sum() if total is None else total)
    shape = model.with_total(1.0).marginal((0, 1))
    assert (shape >= 0).all()
    assert shape.sum() == pytest.approx(1.0)
    assert model.sample(100, 1).shape == (100, 2)


class TestWarmStart:
    domain = Domain(("a", "b", "c", "d"), (3, 3, 3, 3))

    def test_what_earlier_steps_learned_is_kept(self) -> None:
        rng = np.random.default_rng(5)
        ab, cd = measure(self.domain, [(0, 1), (2, 3)], rng, sd=1.0)
        earlier = fit(self.domain, [ab], total=1000.0)
        later = fit(self.domain, [cd], total=1000.0, warm=earlier)
        assert later.cliques == ((2, 3), (0, 1))
        np.testing.assert_allclose(later.marginal((0, 1)), earlier.marginal((0, 1)), atol=1e-8)

    def test_a_converged_warm_start_needs_few_iterations_and_stays(self) -> None:
        measurements = measure(self.domain, [(0, 1), (1, 2), (2, 3)], np.random.default_rng(7), sd=5.0)
        converged = fit(self.domain, measurements, iterations=2000, tolerance=1e-3)
        cold = fit(self.domain, measurements, iterations=3, tolerance=1e-3)
        warm = fit(self.domain, measurements, iterations=3, tolerance=1e-3, warm=converged)
        assert loss(warm, measurements) <= loss(converged, measurements) + 1e-6 < loss(cold, measurements)

    def test_the_tree_stays_within_its_limit_most_recent_first(self) -> None:
        pairs = list(itertools.combinations(range(4), 2))
        model = Model.uniform(self.domain, 1000.0)
        rng = np.random.default_rng(8)
        for clique in [*pairs, *pairs]:
            (m,) = measure(self.domain, [clique], rng, sd=5.0)
            model = fit(self.domain, [m], total=1000.0, warm=model, max_cells=60)
            assert model.cliques[0] == clique
            assert model.tree.cells == tree_cells(self.domain, model.cliques) <= 60
        assert len(model.cliques) < len(pairs)
        with pytest.raises(LimitError):
            fit(self.domain, [Measurement((0, 1, 2), np.ones(27), 1.0)], max_cells=26)

    def test_thousands_of_contradicting_refits_do_not_drift(self) -> None:
        # Two measurements that disagree about attribute b pull at each other for ever.
        rng = np.random.default_rng(9)
        fixed = measure(self.domain, [(0, 1), (1, 2)], rng, sd=20.0)
        model = Model.uniform(self.domain, 1000.0)
        sizes = []
        for _ in range(300):
            model = fit(self.domain, fixed, total=1000.0, warm=model, iterations=20)
            sizes.append(np.abs(model.potentials).max())
        assert sizes[-1] < 2 * sizes[20] + 10
        assert np.isfinite(model.marginal((0, 2))).all()

    def test_a_dead_cell_can_come_back(self) -> None:
        domain = Domain(("a", "b"), (2, 2))
        dead = Measurement((0, 1), np.array([500.0, 500.0, -30.0, 0.0]), 1.0)
        alive = Measurement((0, 1), np.array([250.0, 250.0, 250.0, 250.0]), 1.0)
        model = Model.uniform(domain, 1000.0)
        for _ in range(50):
            model = fit(domain, [dead], total=1000.0, warm=model, iterations=50)
        back = fit(domain, [alive], total=1000.0, warm=model, iterations=100)
        np.testing.assert_allclose(back.marginal((0, 1)), alive.values, atol=2.0)


def test_extreme_noise_stays_finite() -> None:
    domain = Domain(NAMES[:5], (7, 1, 9, 4, 3))
    rng = np.random.default_rng(11)
    cliques = [(0, 2), (2, 3), (3, 4), (0, 4), (1, 2, 4)]
    for scale in (1e-3, 1.0, 1e9):
        noisy = [Measurement(c, rng.normal(0, scale, domain.cells(c)), scale**2) for c in cliques]
        model = fit(domain, noisy, total=100.0)
        for clique in itertools.combinations(range(5), 2):
            marginal = model.marginal(clique)
            assert np.isfinite(marginal).all()
            assert marginal.sum() == pytest.approx(100.0)


def test_exp() -> None:
    x = -np.concatenate([np.linspace(0, 50, 20_001), np.linspace(50, 400, 101)])
    out: NDArray[np.float64] = x.copy()
    exp_nonpositive(out, np.empty_like(x))
    np.testing.assert_allclose(out, np.exp(np.maximum(x, -230)), rtol=1e-15)


@pytest.mark.parametrize(
    ("clique", "values", "variance"),
    [
        ((0,), [1.0, 2.0, 3.0], 1.0),
        ((0, 1), [[1.0, 2.0], [3.0, 4.0]], 1.0),
        ((1, 0), [1.0] * 4, 1.0),
        ((0, 2), [1.0] * 4, 1.0),
        ((0,), [1.0, math.nan], 1.0),
        ((0,), [1.0, 2.0], 0.0),
        ((0,), [1.0, 2.0], math.inf),
    ],
)
def test_measurements_that_do_not_fit_are_refused(
    clique: Clique, values: list[float], variance: float
) -> None:
    domain = Domain(("a", "b"), (2, 2))
    with pytest.raises(InputError):
        fit(domain, [Measurement(clique, np.array(values), variance)])


def test_options_out_of_range_are_refused() -> None:
    domain = Domain(("a",), (2,))
    other = Model.uniform(Domain(("b",), (2,)), 1.0)
    measurement = Measurement((0,), np.array([1.0, 2.0]), 1.0)
    for options in (
        {"iterations": 0},
        {"regularisation": -1.0},
        {"tolerance": math.nan},
        {"total": math.nan},
        {"warm": other},
    ):
        with pytest.raises(InputError):
            fit(domain, [measurement], **options)  # type: ignore[arg-type]


def test_bounded_keeps_the_moderate_and_lifts_the_impossible() -> None:
    domain = Domain(("a", "b"), (2, 3))
    moderate = fit(domain, [Measurement((0, 1), np.array([30.0, 20, 10, 5, 15, 20]), 1.0)], total=100)
    np.testing.assert_allclose(moderate.bounded(8.0).marginal((0, 1)), moderate.marginal((0, 1)), rtol=1e-9)
    dead, noisy = moderate, [Measurement((0,), np.array([100.0, -50.0]), 1.0)]
    for _ in range(40):
        dead = fit(domain, noisy, total=100, warm=dead, regularisation=0.1)
    assert dead.marginal((0,))[1] < 1e-6
    lifted = dead.bounded(8.0)
    assert 1e-3 < lifted.marginal((0,))[1] < 1.0
    assert lifted.total == dead.total
    np.testing.assert_allclose(lifted.bounded(8.0).marginal((0, 1)), lifted.marginal((0, 1)))
