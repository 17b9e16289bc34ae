"""The probability of single records, against the explicit joint table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import InputError
from dpstream.core.graphical import Model, junction_tree
from dpstream.core.schema.domain import Domain
from dpstream.mechanisms.table_release import ModelSynthesis


def joint(model: Model) -> np.ndarray:
    """From the definition: exp of the sum of all potentials, normalised."""
    domain = model.domain
    log = np.zeros(domain.sizes)
    for clique in [(i,) for i in range(len(domain))] + list(model.cliques):
        log = log + model.potentials[model.tree.slot(clique)].reshape(
            [n if i in clique else 1 for i, n in enumerate(domain.sizes)]
        )
    table = np.exp(log - log.max())
    return table / table.sum()


def everything(domain: Domain) -> np.ndarray:
    return np.indices(domain.sizes).reshape(len(domain), -1).T


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_densities_are_those_of_the_joint_table(data: st.DataObject, seed: int) -> None:
    sizes = data.draw(
        st.lists(st.integers(1, 4), min_size=1, max_size=6).filter(lambda s: math.prod(s) <= 800)
    )
    domain = Domain(tuple("abcdef"[: len(sizes)]), tuple(sizes))
    subsets = st.sets(st.integers(0, len(sizes) - 1), min_size=1).map(lambda c: tuple(sorted(c)))
    generator = np.random.default_rng(seed)
    models = []
    for _ in range(2):
        tree = junction_tree(domain, data.draw(st.lists(subsets, max_size=5, unique=True)))
        models.append(Model(tree, generator.normal(0, 2, tree.parameters), 10.0))
    cells = everything(domain)
    for model in models:
        assert np.exp(model.log_density(cells)) == pytest.approx(joint(model).reshape(-1), rel=1e-9)
    mixture = np.exp(ModelSynthesis(tuple(models), 10.0).log_density(cells.astype(np.int32)))
    assert mixture == pytest.approx((joint(models[0]) + joint(models[1])).reshape(-1) / 2, rel=1e-9)


def test_codes_that_do_not_fit_are_refused() -> None:
    model = Model.uniform(Domain(("a", "b"), (2, 3)), 5.0)
    assert model.log_density(np.empty((0, 2), dtype=np.int32)).shape == (0,)
    for wrong in (
        np.zeros((2, 3), int),
        np.zeros(2, int),
        np.zeros((2, 2)),
        np.array([[0, 3]]),
        np.array([[-1, 0]]),
    ):
        with pytest.raises(InputError, match="log_density"):
            model.log_density(wrong)
