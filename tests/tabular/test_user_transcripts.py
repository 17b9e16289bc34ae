"""What one user loses, exactly: all of a user's events, in one step and in several (see ``stream_loss``).

A plan for the unit ``user`` must keep every transcript's ratio within its budget when a whole user is added, and a plan
for single events must not: that is the group of events that the bound is for.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from door_runs import stream_loss

from dpstream.core.errors import UnitError
from dpstream.core.privacy import ZCDP, Event, Individual, PureDP, Randomness, User
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.core.tables.contribution import admit, read_owners
from dpstream.families.tabular import Baseline, DPStabs
from dpstream.stream.identity import spent_per_step

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
WORKLOAD = Workload.all_k_way(DOMAIN, 2)
STEPS, BOUND = 3, 3
KEY = bytes(range(32))


def draw(generator, rows):
    return np.column_stack([generator.integers(0, s, size=rows) for s in DOMAIN.sizes]).astype(np.int32)


def stream(others, mine, at, plan, bound):
    """Encoded batches of a stream with one user's events ``mine`` at the steps ``at``, bounded as a stream does it."""
    used, batches = {}, []
    for step, (came, went) in enumerate(others):
        rows = [record for record, place in zip(mine, at, strict=True) if place == step]
        inserts = np.vstack([came, *rows])
        names = [f"o{step}-{i}" for i in range(len(came))] + ["me"] * len(rows)
        users = (pa.chunked_array([pa.array(names)]), pa.chunked_array([pa.array([f"d{step}"] * len(went))]))
        owners = read_owners(users, (len(inserts), len(went)), key=KEY, where="test")
        before = np.array([used.get(user, 0) for user in owners.ids], np.int64)
        found = admit(inserts, went, owners, before, bound, KEY)
        used.update(zip(owners.ids, found.counts.tolist(), strict=True))
        deletes = went if plan.recipe.deletions else None
        whole = EncodedBatch(DOMAIN, inserts, deletes)
        batches.append(found.bounded(whole, inserts, went))
    return batches


def losses(plan, *, bound=BOUND, events=BOUND, equal=True, repeats=30):
    """Of random transcripts with a whole user more; every third time all events come in one step."""
    generator = np.random.default_rng(5)
    found = []
    for seed in range(repeats):
        others = [(draw(generator, 4), draw(generator, 2)) for _ in range(STEPS)]
        one = draw(generator, 1)[0]
        mine = [one if equal else draw(generator, 1)[0] for _ in range(events)]
        at = [0] * events if seed % 3 == 0 else generator.integers(0, STEPS, events).tolist()
        base, more = (stream(others, *part, plan, bound) for part in (([], []), (mine, at)))
        # Transcripts are typical ones of fixed words; the bound holds for every one of them.
        found.append(stream_loss(plan, base, more, Randomness.seeded(seed)))
    return np.abs(found).max()


def recipe_of(**options):
    return DPStabs(WORKLOAD, **{"k": 2, "select_share": "1/2", "iterations": 5} | options)


@pytest.mark.parametrize(
    "options",
    [{"past": "literal"}, {"deletions": True}, {"counter": "tree", "k": 3}],
    ids=["literal", "deletions", "tree"],
)
@pytest.mark.parametrize("equal", [True, False], ids=["equal records", "different records"])
def test_a_whole_user_loses_the_budget_at_most(options, equal):
    plan = recipe_of(**options).calibrate(epsilon="1", unit=User(BOUND), horizon=STEPS)
    assert losses(plan, equal=equal) <= 1.0 + 1e-9


def test_equal_records_reach_the_counters_share():
    """Nothing is wasted: three equal records in one step are the worst case, and a measure-only plan meets it."""
    plan = DPStabs(WORKLOAD, k=3, counter="simple", iterations=5).calibrate(epsilon="1", unit=User(BOUND))
    assert plan.selector is None
    assert losses(plan, repeats=30) == pytest.approx(1.0)


def test_events_beyond_the_bound_cost_nothing():
    plan = DPStabs(WORKLOAD, k=3, counter="simple", iterations=5).calibrate(epsilon="1", unit=User(BOUND))
    assert losses(plan, events=8, repeats=30) <= 1.0 + 1e-9
    # Negative control: the same plan on a stream that is not bounded.
    assert losses(plan, bound=8, events=8, repeats=30) > 2.0


def test_a_plan_for_single_events_is_caught():
    """Negative control: a budget for one event, and a user of three."""
    plan = recipe_of().calibrate(epsilon="1", unit=Event())
    assert losses(plan, repeats=30) > 1.5


@pytest.mark.parametrize("budget", [{"epsilon": "1"}, {"rho": "1/2"}], ids=["pure", "zCDP"])
@pytest.mark.parametrize("recipe", [recipe_of(), Baseline(WORKLOAD)], ids=["dpstabs", "baseline"])
def test_amounts_are_exact(recipe, budget):
    """The parts of all events add up to the budget of a user: linear for pure DP, quadratic for zCDP."""
    plan = recipe.calibrate(**budget, unit=User(BOUND))
    single = recipe.calibrate(**budget, unit=Event())
    factor = BOUND if "epsilon" in budget else BOUND**2
    assert plan.budget == single.budget
    assert spent_per_step(plan) == plan.budget.amount
    for part, one in zip(plan.parts(), single.parts(), strict=True):
        assert part.budget.amount == one.budget.amount / factor
        assert part.times == one.times * factor
    # The noise follows: three times the scale for pure DP, nine times the variance for zCDP.
    if isinstance(recipe, DPStabs):
        ours, theirs = plan.counter.materialize(4), single.counter.materialize(4)
        assert ours.loss(Event()) == theirs.loss(Event()) / factor
        assert plan.selector.budget.amount == single.selector.budget.amount / factor


def test_group_privacy_of_zcdp_is_quadratic_for_the_gaussian():
    """The c-fold shift of one Gaussian measurement costs exactly c^2 times the loss of one event."""
    rho = ZCDP.of("1/2")
    each = User(BOUND).per_event(rho)
    variance = Fraction(1, 2) / each.amount  # sigma^2 = D2^2 / (2 rho)
    assert Fraction(BOUND**2, 1) / (2 * variance) == rho.amount
    assert User(1).per_event(rho) == rho
    assert User(BOUND).per_event(PureDP.of(1)).amount == Fraction(1, BOUND)


def test_people_are_refused_by_tables():
    with pytest.raises(UnitError, match="individual"):
        recipe_of().calibrate(epsilon=1, unit=Individual())
