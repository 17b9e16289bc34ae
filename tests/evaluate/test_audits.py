"""The program's own audits: known losses are found, honest mechanisms hold, planted bugs do not."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from door_runs import stream_loss
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpstream
from dpstream.core.contracts import PrivateBatch
from dpstream.core.counters import (
    COUNTER_NAMES,
    CalibratedCounter,
    SimpleCounter,
    TreeCounter,
    counter_by_name,
)
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import ZCDP, Budget, DiscreteLaplace, Event, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import (
    BBScheduler,
    Counts,
    Database,
    GrowingPlan,
    MWEMPGMBox,
    OwnMechanism,
    SmallDB,
)
from dpstream.families.growing.growing_facts import GrowingSynthesis
from dpstream.families.tabular import DPStabs
from dpstream.mechanisms.engine import Selector
from dpstream.tools.audit import AuditFinding
from dpstream.tools.audit.attack import clopper_pearson
from dpstream.tools.audit.configured import exact_counter
from dpstream.tools.audit.controls import QuietNoise, quiet_counter
from dpstream.tools.audit.door import as_it_is
from dpstream.tools.audit.transcripts import Subject, audit_subject
from dpstream_lab.audits import controls
from dpstream_lab.audits.counters_audit import (
    COUNTERS_CONFIDENCE,
    audit_counter,
    border_steps,
    calibrated_by_name,
)
from dpstream_lab.audits.exact import dpstabs_subjects, exact_selector
from dpstream_lab.audits.growing_audit import BrokenHalfScores, arrivals, exact_smalldb, growing_subjects
from dpstream_lab.audits.loss_bounds import audit_outcomes, divergence_rate, lower_bound
from dpstream_lab.audits.points_audit import (
    _places,
    _sampled_cells,
    audited_plan,
    points_subject,
    points_subjects,
)
from dpstream_lab.audits.published_audit import BlindPlan, LeakyPlan, audit_published, published_bytes
from dpstream_lab.audits.subjects import rebuilt

ONE, HALF = PureDP.of(1), ZCDP.of("0.5")
SOURCE = Path(dpstream.__file__).parent


def finding(found, *, claimed=1.0, control=False):
    return AuditFinding("x", "exact", claimed, found, None, None, control, "", 0.0)


def test_a_finding_is_caught_only_above_its_claim():
    assert not finding(1.0).caught
    assert not finding(1.0 + 1e-10).caught  # float arithmetic of the audit itself
    assert finding(1.0 + 1e-8).caught
    assert finding(math.inf).caught
    assert finding(math.nan).caught  # what cannot be computed is no proof of anything
    assert finding(1.5, control=True).passed
    assert not finding(0.9, control=True).passed
    facts = finding(math.inf, control=True).as_json()
    assert json.loads(json.dumps(facts, allow_nan=False))["found"] == "infinite"
    assert facts["passed"] is True


@pytest.mark.parametrize("budget", [ONE, HALF], ids=["pure", "zCDP"])
@pytest.mark.parametrize("unit", [Event(), Event("replace")], ids=lambda u: u.relation)
def test_counters_and_their_controls(budget, unit):
    claim = float(budget.amount)
    honest = [calibrated_by_name(name, 8, budget, unit) for name in COUNTER_NAMES]
    proof = exact_counter([(counter, 8) for counter in honest if counter is not None], "all")
    assert proof.passed
    assert proof.found == pytest.approx(claim)  # and nothing is wasted
    assert proof.unit == ("epsilon" if budget is ONE else "rho")
    for counter in filter(None, honest):
        proof = exact_counter([(counter, 8)], "honest")
        caught = exact_counter([(quiet_counter(counter), 8)], "quiet", control=True)
        assert caught.found == pytest.approx(proof.found * (1.5 if budget is ONE else 2.25))
        assert caught.claimed == claim
        assert caught.passed
    short = exact_counter([(controls.BrokenShortTree(8).calibrate(budget, unit), 8)], "short", control=True)
    assert short.found == pytest.approx(claim * 4 / 3)
    assert short.passed


def test_a_counter_of_somebody_elses_has_no_noise_to_take_away():
    class Other(CalibratedCounter):
        horizon = None
        name = "other"
        describe = init = step = variance = materialize = check_state = None

    with pytest.raises(ConfigError, match="unknown kind of counter"):
        quiet_counter(Other())


@pytest.mark.parametrize("sensitivity", [1, Fraction(2, 3)])
def test_selectors_reach_their_claim_and_no_more(sensitivity):
    for budget in (PureDP.of("0.25"), PureDP.of(3)):
        found = exact_selector(Selector(budget), budget, "x", sensitivity=sensitivity)
        assert found.passed
        assert found.found == pytest.approx(float(budget.epsilon))
        quiet = controls.broken_quiet_selector(Selector(budget))
        caught = exact_selector(quiet, budget, "x", sensitivity=sensitivity, control=True)
        assert caught.passed
        assert caught.found == pytest.approx(1.5 * float(budget.epsilon))
    small = ZCDP.of("0.01")
    found = exact_selector(Selector(small), small, "x")
    assert found.passed
    assert found.found > 0.0098  # the bound of the range is all but reached where epsilon is small
    quiet = controls.broken_quiet_selector(Selector(small))
    assert exact_selector(quiet, small, "x", control=True).found > 0.02


def test_divergences_of_two_points():
    """Against the formula, at an order by hand: the supremum is at least that, and zCDP's own law stays below."""
    p, q = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    at_two = math.log(0.49 / 0.4 + 0.09 / 0.6) / 2
    assert divergence_rate(p, q) >= at_two - 1e-3
    assert divergence_rate(p, p) == pytest.approx(0.0, abs=1e-12)
    # Randomised response with log-odds +-1/2 is 1/2-DP, and pure epsilon-DP has rho epsilon^2 / 2 at most.
    odds = 1 / (1 + math.exp(-0.5))
    assert divergence_rate(np.array([odds, 1 - odds]), np.array([1 - odds, odds])) <= 0.125


def test_transcripts_reach_the_claim_and_catch_missing_noise():
    for subject in dpstabs_subjects():  # ``make audit`` looks at all
        if not (subject.control or "all measured" in subject.name or "zCDP" in subject.name):
            continue
        found = audit_subject(subject, 1, Randomness.seeded(3))
        assert found.passed, found
        if "all measured" in subject.name:
            # Every level of a tree is paid for, and all of it spent; the first epoch's root, a third, ends later.
            assert found.found == pytest.approx(2 / 3 if "epochs" in subject.name else 1.0)


def test_controls_cannot_be_reached_from_a_configuration():
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(
            r"audit(\.| import )controls\b|\bquiet_counter|\bbroken_quiet|\bBroken(Quiet|Fresh|Short)",
            path.read_text("utf-8"),
        )
    }
    assert users
    assert all(user.startswith("tools/audit/") for user in users)
    for name in ("short-tree", "broken", "quiet", "BrokenShortTree"):
        with pytest.raises(ConfigError, match="unknown counter"):
            counter_by_name(name, horizon=8)


# Empirical audits of counters and of few outcomes: near the truth, never above it, and blind to no control


@given(st.integers(1, 200))
def test_the_changed_steps_cover_borders(ticks):
    steps = border_steps(ticks)
    assert steps == sorted(set(steps))
    assert steps[0] == 1
    assert steps[-1] == ticks
    assert all(1 <= step <= ticks for step in steps)
    assert all(2**i in steps for i in range(8) if 2**i <= ticks)
    # Last and first ticks of the partitions of the unbounded block counter.
    assert all(step in steps for step in (4, 5, 13, 14, 29, 30) if step <= ticks)


@pytest.mark.parametrize(
    ("counter", "least"),
    [
        (SimpleCounter().calibrate(ONE, Event()), 0.8),
        (TreeCounter(4).calibrate(ONE, Event()), 0.7),
        (TreeCounter(2).calibrate(ONE, Event("replace")), 0.5),
        (TreeCounter(2).calibrate(HALF, Event()), 0.2),
    ],
    ids=["simple", "tree", "replace", "zCDP"],
)
def test_honest_counters_hold_and_much_of_their_loss_is_seen(counter, least):
    found = audit_counter(counter, 4 if counter.horizon != 2 else 2, 40_000, Randomness.seeded(1), "x")
    assert found.passed
    assert least < found.found <= found.claimed
    assert (found.confidence, found.runs) == (COUNTERS_CONFIDENCE, 40_000)


@pytest.mark.parametrize(
    "counter",
    [
        quiet_counter(SimpleCounter().calibrate(ONE, Event())),
        quiet_counter(TreeCounter(4).calibrate(ONE, Event())),
        quiet_counter(TreeCounter(4).calibrate(HALF, Event())),
        controls.BrokenShortTree(4).calibrate(ONE, Event()),
    ],
    ids=["simple", "tree", "zCDP", "short tree"],
)
def test_broken_counters_are_caught(counter):
    found = audit_counter(counter, 4, 60_000, Randomness.seeded(2), "x", control=True)
    assert found.passed
    assert found.found > found.claimed


@dataclass(frozen=True)
class _OnceQuiet(SimpleCounter):
    """Half of the noise at one tick only."""

    at: int = 5

    def calibrate(self, budget, unit):
        return _OnceQuietCalibrated(self, budget, unit)


class _OnceQuietCalibrated(CalibratedIntervalCounter):
    def step(self, state, increment, randomness):
        quiet = int(state["t"][0]) + 1 == self.recipe.at
        twin = CalibratedIntervalCounter(SimpleCounter(), self.budget.scaled(2 if quiet else 1), self.unit)
        return twin.step(state, increment, randomness)


def test_a_slip_at_one_tick_is_seen_by_the_sweep_only():
    counter = _OnceQuiet().calibrate(ONE, Event())
    assert 5 in border_steps(8)
    swept = audit_counter(counter, 8, 25_000, Randomness.seeded(3), "x", control=True)
    assert swept.passed
    assert "at tick 5" in swept.detail
    first = audit_counter(counter, 8, 25_000, Randomness.seeded(3), "x", steps=[1])
    assert first.passed


def rho(a, b, **more):
    return lower_bound(a, b, pure=False, **more)


def test_bounds_on_rho_are_right_as_often_as_they_say():
    """Two-point and Gaussian laws whose rho is known; wrong bounds against a binomial quantile at 1e-6."""
    from scipy.stats import binom, norm

    generator = np.random.default_rng(6)
    truth = divergence_rate(np.array([0.6, 0.4]), np.array([0.4, 0.6]))
    wrong = 0
    for _ in range(120):
        a, b = generator.random(400) < 0.6, generator.random(400) < 0.4
        wrong += lower_bound(a.astype(float), b.astype(float), confidence=0.8, pure=False) > truth
    assert wrong <= binom.ppf(1 - 1e-6, 120, 0.2)
    # N(1, 1) against N(0, 1) has rho 1/2; many runs see half of it, and 2/3 of the noise shows.
    a, b = norm.rvs(loc=1, size=(2, 40_000), random_state=generator) - [[0], [1]]
    assert 0.2 < rho(a, b, confidence=COUNTERS_CONFIDENCE) <= 0.5
    assert rho(1.5 * a, 1.5 * b, confidence=COUNTERS_CONFIDENCE) <= 0.5  # scaling tells nothing
    quieter = norm.rvs(size=40_000, random_state=generator) * 2 / 3 + 1
    assert rho(quieter, quieter - 1, confidence=COUNTERS_CONFIDENCE) > 0.5
    assert rho(b, b, confidence=COUNTERS_CONFIDENCE) == 0.0


def test_the_error_is_shared_out_among_pairs():
    """The same runs prove less when more pairs could have been chosen."""
    generator = np.random.default_rng(9)

    def outcomes(values):
        return (generator.random(4_000) < values[0] / 10).astype(np.int64)

    one = audit_outcomes(outcomes, [((2,), (8,), "a")], ONE, "x", COUNTERS_CONFIDENCE)
    generator = np.random.default_rng(9)
    many = audit_outcomes(
        outcomes, [((2,), (8,), "a")] + [((5,), (5,), "b")] * 4, ONE, "x", COUNTERS_CONFIDENCE
    )
    assert 0.5 < many.found < one.found
    assert many.detail == "most with a"


# Lower bounds from runs


@given(st.integers(1, 400), st.data(), st.sampled_from([0.3, 0.05, 1e-7]))
@settings(max_examples=60, deadline=None)
def test_clopper_pearson_is_the_exact_interval(trials, data, alpha):
    from scipy.stats import beta, binom

    successes = data.draw(st.integers(0, trials))
    low, high = (float(limit) for limit in clopper_pearson(successes, trials, alpha))
    assert low <= successes / trials <= high
    if successes:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(alpha, rel=1e-6)
        assert low == pytest.approx(beta.ppf(alpha, successes, trials - successes + 1), rel=1e-9)
    else:
        assert low == 0.0
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(alpha, rel=1e-6)
    else:
        assert high == 1.0


class Pairs:
    """Samplers of two neighbouring laws whose loss is known."""

    def __init__(self, seed):
        self.words = Randomness.seeded(seed)
        self.generator = np.random.default_rng(seed)

    def laplace(self, runs, epsilon):
        law = DiscreteLaplace(1 / Fraction(epsilon))
        return self.words.draw(law, runs), 1 + self.words.draw(law, runs)

    def response(self, runs, epsilon):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        return self.generator.random(runs) < truth, self.generator.random(runs) < 1 - truth


@pytest.mark.parametrize("kind", ["laplace", "response"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_bound_is_rarely_above_the_truth(kind, epsilon):
    from scipy.stats import binom

    pairs, repeats = Pairs(17), 250
    found = [lower_bound(*getattr(pairs, kind)(400, epsilon), confidence=0.8) for _ in range(repeats)]
    assert sum(bound > epsilon for bound in found) <= binom.isf(1e-6, repeats, 0.2)
    # A check that can fail: taken at its word, the same frequencies are above the truth about half of the time.
    sampled = [getattr(pairs, kind)(400, epsilon) for _ in range(repeats)]
    plain = [np.log(np.mean(a <= 0) / np.mean(b <= 0)) for a, b in sampled]
    if kind == "laplace":
        assert sum(value > epsilon for value in plain) > binom.isf(1e-6, repeats, 0.2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda fine: lower_bound(fine, fine, confidence=1), "confidence = 1"),
        (lambda fine: lower_bound(fine, fine, confidence=0.9, train=0), "train = 0"),
        (lambda fine: lower_bound(fine[:3], fine, confidence=0.9), "too few runs"),
        (lambda fine: lower_bound(fine * np.nan, fine, confidence=0.9), "finite"),
        (lambda fine: clopper_pearson(3, 2, 0.1), "not between 0 and trials"),
    ],
)
def test_wrong_arguments(call, words):
    with pytest.raises((ConfigError, DataError), match=words):
        call(np.zeros(10))


# Audits of growing databases, points and published files, exact: honest mechanisms hold, planted bugs do not


#: Honest plans and controls. They are calibrated by the first test that needs them: that would slow down collection.
subjects = cache(lambda: list(growing_subjects()))
MANY = 17


def test_all_subjects_are_looked_at() -> None:
    assert len(subjects()) == MANY


@pytest.mark.parametrize("budget", [PureDP.of(1), ZCDP.of("1/2")], ids=["pure", "zcdp"])
def test_smalldb_has_exactly_the_loss_it_may_have(budget: Budget) -> None:
    workload = Workload.all_k_way(Domain(("a",), (3,)), 1)
    honest, broken = (
        exact_smalldb(SmallDB(workload), budget),
        exact_smalldb(BrokenHalfScores(workload), budget),
    )
    assert 0.75 * honest.claimed < honest.found <= honest.claimed * (1 + 1e-9)
    assert broken.found > broken.claimed


@pytest.mark.parametrize("number", range(MANY))
def test_every_plan_is_as_it_must_be(number: int) -> None:
    subject = subjects()[number]
    finding = audit_subject(subject, 2, Randomness.seeded(5))
    assert finding.passed, finding
    assert finding.control == subject.control
    if "one marginal" in subject.name:
        # Everything that is charged is found, up to what later runs would spend.
        assert finding.found > 0.95 * finding.claimed


@dataclass(frozen=True)
class _TellsCounts(GrowingPlan):
    """BROKEN: between runs, the released number of records is not the public one but that of one cell."""

    def step(self, state: Any, batch: PrivateBatch, randomness: Randomness) -> GrowingSynthesis:
        synthesis = super().step(state, batch, randomness)
        return replace(synthesis, t=int(state.counts[0][0]))


def test_what_slips_past_the_noise_is_an_infinite_loss() -> None:
    domain = Domain(("a",), (3,))
    workload = Workload.all_k_way(domain, 1)
    plan = BBScheduler(MWEMPGMBox(workload), 8, gamma="1/2").calibrate(epsilon=1)
    broken = _TellsCounts(plan.budget, plan.unit, plan.horizon, plan.box, plan.schedule, plan.word)
    base = [EncodedBatch(domain, codes) for codes in arrivals(domain, [10, 20])]
    first = arrivals(domain, [10])[0]
    first[0] = 1
    other = [EncodedBatch(domain, first), base[1]]
    assert stream_loss(broken, base, other, Randomness.seeded(1)) == math.inf
    assert 0 < stream_loss(plan, base, other, Randomness.seeded(1)) <= 1


def test_noise_beside_the_door_is_an_infinite_loss() -> None:
    """What a function of the user's publishes with noise of its own differs between neighbours."""
    domain = Domain(("a",), (3,))

    def function(budget: Any, data: Database, randomness: Randomness) -> Any:
        return np.maximum(data.counts[0] + randomness.draw(DiscreteLaplace(Fraction(1)), 3), 0) + 1e-6

    box = OwnMechanism(function, Counts(domain, ((0,),)), "ones 1")
    plan = BBScheduler(box, 8, gamma="1/2").calibrate(epsilon=1)
    batches = [EncodedBatch(domain, codes) for codes in arrivals(domain, [9])]
    changed = [
        EncodedBatch(domain, (codes + (np.arange(len(codes)) == 0)[:, None]) % 3)
        for codes in arrivals(domain, [9])
    ]
    assert stream_loss(plan, batches, batches, Randomness.seeded(1)) == 0
    assert stream_loss(plan, batches, changed, Randomness.seeded(1)) == math.inf


# Points


SUBJECTS = list(points_subjects(1))


def test_what_is_audited() -> None:
    """Both variants in one, two and eight dimensions; early, middle and late points; every control is caught."""
    names = [subject.name for subject in SUBJECTS]
    assert len(set(names)) == len(names)
    honest = {
        name.rsplit(", epsilon", 1)[0] for name, s in zip(names, SUBJECTS, strict=True) if not s.control
    }
    assert honest == {f"points, {variant}, d = {d}" for variant in ("paper", "default") for d in (1, 2, 8)}
    for dimension in (1, 8):
        places = _places(audited_plan("default", dimension, 8), 4, np.random.default_rng(1))
        assert {0, 150, 299} <= set(places)
    assert [control for *_, control in _sampled_cells()] == [False, True, True]


@pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if s.control or "epsilon 8" in s.name], ids=lambda subject: subject.name
)
def test_exact_audits_tell_honest_from_broken(subject: Subject) -> None:
    finding = audit_subject(subject, 1, Randomness.seeded(2))
    assert finding.passed
    if not subject.control:
        # The attack is not blind: what is found is not far below the claim.
        assert finding.found > (0.25 if "paper, d = 1" in subject.name else 0.6) * finding.claimed


def test_less_noise_costs_in_proportion() -> None:
    plan = audited_plan("paper", 1, 8)
    tried = [points_subject(1, plan, "", wrap=wrap) for wrap in (as_it_is, QuietNoise)]
    found = [audit_subject(subject, 1, Randomness.seeded(3)).found for subject in tried]
    assert found[0] < found[1] <= 1.5 * found[0] * (1 + 1e-9)


# Published files


codes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30)


@given(st.lists(codes, min_size=2, max_size=2), st.lists(codes, min_size=2, max_size=2))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_published_byte_depends_on_a_record(left, right):
    plan = DPStabs(Workload.all_k_way(Domain(("place", "paid"), (3, 2)), 2)).calibrate(epsilon=1)
    streams = [[np.array(step, np.int32).reshape(-1, 2) for step in stream] for stream in (left, right)]
    first, second = (published_bytes(rebuilt(BlindPlan, plan), stream) for stream in streams)
    assert first == second
    assert {"catalogue.json", "codebook.json", "step-000002/manifest.json"} <= first.keys()
    if [bool(len(step)) for step in streams[0]] != [bool(len(step)) for step in streams[1]]:
        leaking = [published_bytes(rebuilt(LeakyPlan, plan), stream) for stream in streams]
        assert leaking[0] != leaking[1]


def test_published_files_as_findings():
    honest, control = audit_published("short", Randomness.seeded(1), lambda text: None)
    assert (honest.found, honest.claimed, honest.passed) == (0.0, 0.0, True)
    assert (control.found, control.caught, control.passed) == (math.inf, True, True)
