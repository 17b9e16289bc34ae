"""Exact privacy checks of whole streams on transcripts (see ``dpstream.tools.audit.door``): of one event, of all events
of a user, and of two streams of which the second begins with what the first released.

The ratio must stay within the budget for every transcript; a plan that draws 2/3 of the noise must not, and a stream
that lets something exact through must lose everything.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from door_runs import run_loss, stream_loss
from small_batches import drawn_codes

from dpstream.core.counters import SimpleCounter
from dpstream.core.privacy import Event, PureDP, Randomness, User
from dpstream.core.privacy.unit import CUT_SHARE
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.core.tables.contribution import admit, read_owners
from dpstream.families.tabular import Baseline, DPStabs, DPStabsPlan
from dpstream.mechanisms import ModelSynthesis
from dpstream.project.base import ColumnSource, MappedTable
from dpstream.stream.identity import spent_per_step
from dpstream.tools.audit.door import Door, record, replay, stream_run, transcript_loss
from dpstream.tools.audit.transcripts import audit_subject
from dpstream_lab.audits.aim_audit import aim_subjects
from dpstream_lab.audits.period_audit import period_subjects
from dpstream_lab.audits.pooled_audit import pooled_subjects
from dpstream_lab.audits.turnover_audit import turnover_subjects

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
WORKLOAD = Workload.all_k_way(DOMAIN, 2)
STEPS, BOUND = 3, 3


def recipe_of(workload=WORKLOAD, **options):
    return DPStabs(workload, **{"k": 2, "select_share": "1/2", "iterations": 5} | options)


def one_loss(plan, codes, record, at, side, seed):
    """Of one random transcript, between a stream and its neighbour at step ``at``.

    The neighbour has ``record`` more (add/remove), or in place of its first one (replace), among the inserts
    (side 0) or the deletes (side 1).
    """
    changed = [list(pair) for pair in codes]
    kept = changed[at][side][1:] if plan.unit.relation == "replace" else changed[at][side]
    changed[at][side] = np.vstack([kept, record])
    # Transcripts are typical ones of fixed words; the bound holds for every one of them.
    runs = [
        stream_run(
            plan,
            [EncodedBatch(DOMAIN, came, left if plan.recipe.deletions else None) for came, left in pairs],
        )
        for pairs in (codes, changed)
    ]
    loss = run_loss(*runs, Randomness.seeded(seed), pure=isinstance(plan.budget, PureDP))
    return loss.chosen, loss.measured


def losses(plan, repeats):
    generator = np.random.default_rng(11)
    found = []
    for seed in range(repeats):
        codes = [(drawn_codes(DOMAIN, 4, generator), drawn_codes(DOMAIN, 2, generator)) for _ in range(STEPS)]
        side = int(generator.integers(0, len(plan.recipe.sides)))
        record, at = drawn_codes(DOMAIN, 1, generator)[0], int(generator.integers(0, STEPS))
        found.append(one_loss(plan, codes, record, at, side, seed))
    return np.array(found)


@pytest.mark.parametrize("unit", [Event(), Event("replace")], ids=["add-remove", "replace"])
@pytest.mark.parametrize("deletions", [False, True], ids=["inserts", "deletions"])
@pytest.mark.parametrize(
    ("past", "score"), [("literal", "mean-cells"), ("predicted", "sum-cells"), ("predicted", "sum-noise")]
)
def test_no_transcript_costs_more_than_the_budget(past, score, deletions, unit):
    plan = recipe_of(past=past, score=score, deletions=deletions).calibrate(epsilon="1", unit=unit)
    found = losses(plan, 60)
    assert np.abs(found.sum(axis=1)).max() <= 1.0 + 1e-9
    # Each half keeps to its own share, and the counters' half is reached (for replace: both cells must agree in
    # sign for that, which is rarer): nothing is wasted.
    assert np.abs(found[:, 0]).max() <= 0.5 + 1e-9
    assert np.abs(found[:, 1]).max() <= 0.5 + 1e-9
    assert np.abs(found[:, 1]).max() > (0.5 - 1e-9 if unit == Event() else 0.3)


@pytest.mark.parametrize("counter", ["tree", "unbounded-block", "hybrid", "block"])
def test_counters_that_count_a_record_several_times(counter):
    """A record is in several noisy sums; all of them together keep to the counters' share."""
    plan = recipe_of(counter=counter, k=3).calibrate(epsilon="1", horizon=STEPS)
    found = losses(plan, 40)
    assert np.abs(found[:, 1]).max() <= (1.0 if plan.selector is None else 0.5) + 1e-9
    assert np.abs(found[:, 1]).max() > 0.3


def test_two_thirds_of_the_noise_is_caught():
    """Negative control: counters calibrated for 3/2 of their share."""
    plan = recipe_of().calibrate(epsilon="1")
    weak = SimpleCounter().calibrate(PureDP(Fraction(1, 4) * Fraction(3, 2)), Event())
    found = losses(replace(plan, counter=weak), 60)
    assert np.abs(found[:, 1]).max() > 0.5 + 0.1


@pytest.mark.parametrize("leak", ["total", "total's error", "published", "measured", "more measured"])
def test_what_a_release_says_of_its_errors_is_looked_at(leak):
    """Negative controls: selections and counters are sound, and what a release says beside them is not."""

    class Leaking(DPStabsPlan):
        def step(self, state, batch, randomness):
            exact = batch.count(self.cells.cliques)
            released = super().step(state, batch, randomness)
            if leak == "total":
                return ModelSynthesis(released.models, float(exact[0].sum()), released.errors)
            if leak == "total's error":
                return replace(released, total_error=float(exact[0].sum()))
            if leak == "published":
                counts = released.noisy_counts
                told = replace(counts[0], draw="leak", values=exact[0])
                return replace(released, noisy_counts=(*counts, told))
            clique = self.cells.cliques[0]
            if leak == "more measured" and exact[0].sum() == 4:
                return replace(released, errors={}, counts={})
            counts = exact[0] if leak == "measured" else np.zeros_like(exact[0])
            return replace(released, errors={clique: 1.0}, counts={clique: counts})

    plan = recipe_of().calibrate(epsilon="1")
    leaking = Leaking(plan.recipe, plan.budget, plan.unit, plan.horizon, plan.counter, plan.selector)
    assert np.isinf(losses(leaking, 2)[:, 1]).all()


@pytest.mark.parametrize("counter", ["simple", "toeplitz"])
def test_no_transcript_costs_more_rho_than_the_budget(counter):
    """Outputs of a counter in two halves are decoded from what passed the door."""
    plan = recipe_of(counter=counter).calibrate(rho="0.5", horizon=STEPS)
    assert 0.2 < losses(plan, 40).sum(axis=1).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("share", [1, Fraction(3, 2)], ids=["as calibrated", "control"])
def test_noise_that_is_drawn_ahead_is_measured_when_its_sum_ends(share):
    """Least-squares trees draw noise before its sum is there; the door sees both, and all of it costs the budget."""
    plan = recipe_of(counter="optimal-tree", k=3).calibrate(epsilon="1", horizon=STEPS)
    weak = plan.counter.recipe.calibrate(PureDP(plan.counter.budget.epsilon * share), Event())
    found = losses(replace(plan, counter=weak), 40)[:, 1]
    assert (found.max() <= 1 + 1e-9) == (share == 1)
    assert found.max() == pytest.approx(float(share))


# What one user loses: all of a user's events, in one step and in several. A plan for the unit ``user`` keeps every
# transcript's ratio within its budget when a whole user is added; a plan for single events does not.


def bounded(others, mine, at, plan, bound):
    """Encoded batches of a stream with one user's events ``mine`` at the steps ``at``, bounded as a stream does it."""
    used, batches = {}, []
    for step, (came, went) in enumerate(others):
        rows = [record for record, place in zip(mine, at, strict=True) if place == step]
        inserts = np.vstack([came, *rows])
        names = [f"o{step}-{i}" for i in range(len(came))] + ["me"] * len(rows)
        users = (pa.chunked_array([pa.array(names)]), pa.chunked_array([pa.array([f"d{step}"] * len(went))]))
        owners = read_owners(users, (len(inserts), len(went)), key=bytes(32), where="test")
        before = np.array([used.get(user, 0) for user in owners.ids], np.int64)
        found = admit(inserts, went, owners, before, bound, bytes(32))
        used.update(zip(owners.ids, found.counts.tolist(), strict=True))
        deletes = went if plan.recipe.deletions else None
        whole = EncodedBatch(DOMAIN, inserts, deletes)
        batches.append(found.bounded(whole, inserts, went))
    return batches


def user_loss(plan, *, bound=BOUND, events=BOUND, equal=True, repeats=30):
    """Of random transcripts with a whole user more; every third time all events come in one step."""
    generator = np.random.default_rng(5)
    found = []
    for seed in range(repeats):
        others = [
            (drawn_codes(DOMAIN, 4, generator), drawn_codes(DOMAIN, 2, generator)) for _ in range(STEPS)
        ]
        one = drawn_codes(DOMAIN, 1, generator)[0]
        mine = [one if equal else drawn_codes(DOMAIN, 1, generator)[0] for _ in range(events)]
        at = [0] * events if seed % 3 == 0 else generator.integers(0, STEPS, events).tolist()
        base, more = (bounded(others, *part, plan, bound) for part in (([], []), (mine, at)))
        # Transcripts are typical ones of fixed words; the bound holds for every one of them.
        found.append(stream_loss(plan, base, more, Randomness.seeded(seed)))
    return np.abs(found).max()


@pytest.mark.parametrize(
    "options",
    [{"past": "literal"}, {"deletions": True}, {"counter": "tree", "k": 3}],
    ids=["literal", "deletions", "tree"],
)
@pytest.mark.parametrize("equal", [True, False], ids=["equal records", "different records"])
def test_a_whole_user_loses_the_budget_at_most(options, equal):
    plan = recipe_of(**options).calibrate(epsilon="1", unit=User(BOUND), horizon=STEPS)
    assert user_loss(plan, equal=equal) <= 1.0 + 1e-9


def test_equal_records_reach_the_counters_share():
    """Nothing is wasted: three equal records in one step are the worst case, and a measure-only plan meets it."""
    plan = recipe_of(k=3, counter="simple").calibrate(epsilon="1", unit=User(BOUND, cut_share=0))
    assert plan.selector is None
    assert user_loss(plan, repeats=30) == pytest.approx(1.0)


def test_events_beyond_the_bound_cost_nothing():
    plan = recipe_of(k=3, counter="simple").calibrate(epsilon="1", unit=User(BOUND))
    assert user_loss(plan, events=8, repeats=30) <= 1.0 + 1e-9
    # Negative control: the same plan on a stream that is not bounded.
    assert user_loss(plan, bound=8, events=8, repeats=30) > 2.0


def test_a_plan_for_single_events_is_caught():
    """Negative control: a budget for one event, and a user of three."""
    plan = recipe_of().calibrate(epsilon="1", unit=Event())
    assert user_loss(plan, repeats=30) > 1.5


@pytest.mark.parametrize("budget", [{"epsilon": "1"}, {"rho": "1/2"}], ids=["pure", "zCDP"])
@pytest.mark.parametrize("recipe", [recipe_of(), Baseline(WORKLOAD)], ids=["dpstabs", "baseline"])
def test_amounts_are_exact(recipe, budget):
    """The parts of all events add up to the budget of a user: linear for pure DP, quadratic for zCDP."""
    plan = recipe.calibrate(**budget, unit=User(BOUND))
    single = recipe.calibrate(**budget, unit=Event())
    factor = BOUND if "epsilon" in budget else BOUND**2
    assert plan.budget == single.budget
    assert spent_per_step(plan) == plan.budget.amount
    share = 1 - CUT_SHARE
    for part, one in zip(plan.parts(), single.parts(), strict=True):
        assert part.budget.amount == one.budget.amount * share / factor
        assert part.times == one.times * factor
    # The noise follows: three times the scale for pure DP, nine times the variance for zCDP, and
    # what the number of cut users costs.
    if isinstance(recipe, DPStabs):
        ours, theirs = plan.counter.materialize(4), single.counter.materialize(4)
        assert ours.loss(Event()) == theirs.loss(Event()) * share / factor
        assert plan.selector.budget.amount == single.selector.budget.amount * share / factor


# Two streams, one after the other. An event is in one of the two. Whichever it is in, one and the same transcript of
# *both* is at most ``exp`` of the larger budget likelier with it than without: parallel composition over a public
# border. Where an event may be in both, the losses add up. The controls begin with the first stream's private counts,
# or count the old records again.

OLD, NEW = Domain(("a", "b"), (2, 3)), Domain(("a", "b", "c"), (3, 2, 2))
#: Value 0 of a is split, values 1 and 2 of b are merged, c is new.
SHARES = (
    np.array([[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]]),
    np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
    np.array([[0.5, 0.5]]),
)
FIRST, SECOND = "1", "2"


def plans(**options):
    recipe = {"counter": "simple"} | options
    old = recipe_of(Workload.all_k_way(OLD, 1), **recipe).calibrate(epsilon=FIRST)
    return old, recipe_of(Workload.all_k_way(NEW, 2), **recipe).calibrate(epsilon=SECOND)


def base_of(codes, total):
    """The table in the new columns."""
    columns = (codes[:, 0], codes[:, 1], np.zeros(len(codes), np.int32))
    return MappedTable(
        NEW, tuple(ColumnSource(c, s) for c, s in zip(columns, SHARES, strict=True)), float(total), None, 1
    )


def released(plan, batches, door):
    """What a reader of the first stream has in the end: the table of the transcript that is judged."""
    state = plan.start()
    for batch in batches:
        synthesis = plan.step(state, batch, door)
    rows = max(0, round(synthesis.total))
    return base_of(synthesis.sample(rows, 3), rows)


def exact(batches):
    """BROKEN, a control: the table that the first stream was given."""
    codes = np.concatenate([batch._came.whole() for batch in batches])
    return base_of(codes, len(codes))


def batches_of(domain, codes, deletes):
    return [
        EncodedBatch(domain, rows, np.empty((0, len(domain)), np.int32) if deletes else None)
        for rows in codes
    ]


def losses_of_both(where, seed, base=None, **options):
    """(first, second) losses of one random transcript of both streams, with one event more in ``where``."""
    generator = np.random.default_rng(seed)
    first, second = plans(**options)
    deletes = first.recipe.deletions
    old = [drawn_codes(OLD, 4, generator) for _ in range(2)]
    new = [drawn_codes(NEW, 4, generator) for _ in range(2)]
    more_old, more_new = [rows.copy() for rows in old], [rows.copy() for rows in new]
    at = int(generator.integers(0, 2))
    if "old" in where:
        more_old[at] = np.vstack([old[at], drawn_codes(OLD, 1, generator)])
    if "new" in where:
        more_new[at] = np.vstack([new[at], drawn_codes(NEW, 1, generator)])
    olds = [batches_of(OLD, codes, deletes) for codes in (old, more_old)]
    news = [batches_of(NEW, codes, deletes) for codes in (new, more_new)]
    transcript, one = loss_of([stream_run(first, codes) for codes in olds], seed)
    if base is None:
        # The transcript of the first stream is the same in both worlds, so its table is.
        start = released(first, olds[0], Door(transcript.seed, transcript.door))
        starts = (start, start)
    else:
        starts = (base(olds[0]), base(olds[1]))
    runs = [stream_run(second, codes, start) for codes, start in zip(news, starts, strict=True)]
    return one, loss_of(runs, seed + 1)[1]


def loss_of(runs, seed):
    first = record(runs[0], Randomness.seeded(seed))
    second, differs = replay(runs[1], first)
    return first, np.inf if differs else transcript_loss(first, second, pure=True).total


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"past": "literal"},
        {"deletions": True},
        {"k": 1, "score": "mean-cells"},
        {"counter": "unbounded-block"},
    ],
    ids=str,
)
def test_an_event_in_one_of_the_two_costs_the_larger_budget(options):
    for where, budget in (("old", float(FIRST)), ("new", float(SECOND))):
        found = np.array([losses_of_both(where, seed, **options) for seed in range(12)])
        assert np.isfinite(found).all()
        total = np.abs(found.sum(axis=1)).max()
        assert budget / 4 < total <= budget + 1e-9
        # The other stream says nothing at all about it.
        assert (found[:, 1 if where == "old" else 0] == 0.0).all()


def test_an_event_in_both_costs_the_sum():
    """Control: without a border the larger budget does not hold; the sum does."""
    found = np.abs([sum(losses_of_both("old new", seed, k=1)) for seed in range(40)])
    assert float(SECOND) < found.max() <= float(FIRST) + float(SECOND) + 1e-9


def test_a_base_from_the_private_state_is_an_infinite_loss():
    """Control: what the first stream counted, instead of what it released."""
    assert np.isinf([sum(losses_of_both("old", seed, exact)) for seed in range(3)]).all()


def test_a_promise_for_a_period_is_less_for_somebody_who_comes_back():
    """One period loses at most epsilon, two and three at most twice and three times; two lose more than one may."""
    held, caught = [], []
    for subject in period_subjects():
        found = audit_subject(subject, 2, Randomness.seeded(3))
        (caught if subject.control else held).append(found)
    for periods, found in enumerate(held, start=1):
        assert max(0.5, 0.9 * (periods - 1)) < found.found <= periods * (1 + 1e-9), found.subject
    assert len(caught) == 3
    assert all(found.found > 1.3 for found in caught), [(found.subject, found.found) for found in caught]


@pytest.mark.parametrize(
    ("subjects", "honest", "control"),
    [
        (pooled_subjects, "pooled, deletions", "pooled with counts that outlive their epoch"),
        (pooled_subjects, "pooled, few marginals", "pooled with joint histograms drawn apart"),
        (
            aim_subjects,
            "AIM, epsilon = 1 (pure), event, pairs",
            "AIM with a quarter of the sensitivity of its scores, epsilon = 1 (pure)",
        ),
        (
            turnover_subjects,
            "equal rows that cancel, pooled, user",
            "equal rows that cancel marginal by marginal",
        ),
    ],
)
def test_a_subject_holds_and_a_control_is_caught(subjects, honest, control):
    """Of each exact audit of tables; `dpstream lab audit` looks at all of them."""
    named = {subject.name: subject for subject in subjects()}
    held, caught = (audit_subject(named[name], 2, Randomness.seeded(3)) for name in (honest, control))
    assert 0.5 * held.claimed < held.found <= held.claimed * (1 + 1e-9)
    assert caught.control
    assert caught.found > 1.3 * caught.claimed
