"""Private discovery: the threshold's exact law, every transcript of small streams, gaps against full enumeration."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from decimal import Decimal, getcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from chi_square import P_CERTAIN, P_LOW, categorical

from dpstream.core.errors import BudgetError, ConfigError, SchemaError
from dpstream.core.privacy import ZCDP, DiscreteLaplace, Event, PureDP, Randomness, User, waiting
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.privacy.entries import Entry, delta_of_periods
from dpstream.core.schema.pattern import Pattern, may_enter
from dpstream.mechanisms.discovery import Rule
from dpstream_lab.audits.discovery_audit import audit_discovery, law_of

getcontext().prec = 60


@cache
def tail(threshold: Threshold, limit: int) -> Decimal:
    """``Pr[Z > limit]``, summed up with 60 digits."""
    if limit < 0:
        return 1 - tail(threshold, -limit - 1)
    noise = threshold.noise
    if isinstance(noise, DiscreteLaplace):
        q = (Decimal(-1) * noise.scale.denominator / noise.scale.numerator).exp()
        return q ** (limit + 1) / (1 + q)
    twice = 2 * noise.sigma_squared
    weights = [(-Decimal(k * k * twice.denominator) / twice.numerator).exp() for k in range(40 * 12)]
    return sum(weights[limit + 1 :], Decimal(0)) / (2 * sum(weights) - 1)


def alone(threshold: Threshold, tau: int, most: int) -> Decimal:
    """The largest probability that one of the values passes that a unit alone holds, over all ways to hold them."""

    def ways(left: int, largest: int):
        yield ()
        for count in range(min(left, largest), 0, -1):
            for rest in ways(left - count, count):
                yield (count, *rest)

    worst = Decimal(0)
    for counts in ways(most, most):
        none = Decimal(1)
        for count in counts:
            none *= 1 - tail(threshold, tau - count)
        worst = max(worst, 1 - none)
    return worst


@pytest.mark.parametrize("budget", [PureDP("1/4"), PureDP(10), ZCDP("1/32"), ZCDP(2)])
@pytest.mark.parametrize(
    "unit", [Event(), Event("replace"), User(2, cut_share=Fraction(0)), User(8, cut_share=Fraction(0))]
)
@pytest.mark.parametrize("delta", [Fraction(1, 10**9), Fraction(1, 50)])
def test_what_a_unit_alone_holds_passes_with_at_most_delta(budget, unit, delta) -> None:
    """However it holds its values; one less would break it where all its values are equal, or all different."""
    threshold = Threshold(budget, unit, delta)
    most, exact = threshold.most, Decimal(delta.numerator) / delta.denominator
    assert alone(threshold, threshold.tau, most) <= exact
    sums = [Decimal(most) / c * tail(threshold, threshold.tau - 1 - c) for c in range(1, most + 1)]
    assert max(sums) > exact
    # Less by the noise of a factor of two, as if one record were half of what it is.
    if isinstance(threshold.noise, DiscreteLaplace):
        fault = threshold.tau - math.ceil(float(threshold.noise.scale) * math.log(2))
        assert alone(threshold, fault, most) > exact * Decimal("1.5")
    several = delta_of_periods(threshold, 3)
    if most < 3:
        assert alone(threshold, threshold.tau, 3 * most) <= Decimal(several.numerator) / several.denominator


def test_numbers_of_the_design() -> None:
    assert Threshold(ZCDP("1/32"), Event(), Fraction(1, 10**9)).tau == 25
    for universe, tau in ((10**5, 62), (36**5, 87), (26**8, 120)):
        assert Threshold(PureDP("1/4"), Event(), universe=universe).tau == tau
    # All values once each are not the worst case.
    many = Threshold(PureDP(10), User(8, cut_share=Fraction(0)), Fraction(1, 10**9))
    once = next(tau for tau in range(99) if 8 * tail(many, tau - 1) <= Decimal("1e-9"))
    assert 230 < tail(many, once - 8) * 10**9 < 245
    # Ten periods of somebody with eight values in each.
    shares = [
        float(delta_of_periods(Threshold(PureDP(e), User(8, cut_share=Fraction(0)), Fraction(1, 10**9)), 10))
        for e in ("1/4", 1)
    ]
    assert [round(share * 10**9) for share in shares] == [10, 2243]


VALUES = Pattern(("[abc]",))


@pytest.mark.parametrize(
    ("unit", "form"),
    [
        *itertools.product(
            (Event(), Event("replace"), User(2, cut_share=Fraction(0))),
            ({"delta": Fraction(1, 10)}, {"universe": 3}),
        ),
    ],
)
def test_every_transcript_of_two_epochs(unit, form) -> None:
    """All streams of four events of three values, two in each epoch, and all their neighbours."""
    threshold = Threshold(
        PureDP(1), unit, **form, **({"invented": Fraction(1, 4)} if "universe" in form else {})
    )
    contents = [
        tuple(sorted(filter(None, two))) for two in itertools.combinations_with_replacement("_abc", 2)
    ]
    contents = sorted({tuple(v for v in two if v != "_") for two in contents})
    laws: dict = {}

    def law(content, known):
        key = content, known
        if key not in laws:
            pattern = VALUES if threshold.universe else None
            laws[key] = law_of(Rule(threshold, known, pattern), Counter(content))
            assert sum(laws[key].values()) == pytest.approx(1)
        return laws[key]

    def transcripts(stream):
        whole = defaultdict(float)
        for first, chance in law(stream[0], frozenset()).items():
            for second, other in law(stream[1], frozenset(value for value, _ in first)).items():
                whole[first, second] += chance * other
        return whole

    def neighbours(stream):
        for place in (0, 1):
            content = stream[place]
            for gone in range(len(content)):
                rest = content[:gone] + content[gone + 1 :]
                others = [(*rest, new) for new in "abc"] if unit.relation == "replace" else [rest]
                for other in others:
                    changed = (
                        (tuple(sorted(other)), stream[1]) if place == 0 else (stream[0], tuple(sorted(other)))
                    )
                    yield changed
                    if unit == User(2, cut_share=Fraction(0)):
                        yield from neighbours_of_one(changed)

    def neighbours_of_one(stream):
        for place in (0, 1):
            for gone in range(len(stream[place])):
                rest = stream[place][:gone] + stream[place][gone + 1 :]
                yield (rest, stream[1]) if place == 0 else (stream[0], rest)

    worst, loss, factor = 0.0, 0.0, math.e
    for stream in itertools.product(contents, repeat=2):
        here = transcripts(stream)
        for other in set(neighbours(stream)):
            there = transcripts(other)
            for one, two in ((here, there), (there, here)):
                worst = max(worst, sum(max(0.0, p - factor * two.get(t, 0.0)) for t, p in one.items()))
                if threshold.universe:
                    loss = max(loss, *(math.log(p / two[t]) for t, p in one.items()))
    if threshold.universe:
        assert 0.45 < loss < 1 + 1e-9
    else:
        # The delta is needed, and it is not passed.
        assert 0.02 < worst <= 0.1


def test_the_audit_accuses_broken_rules_and_no_other() -> None:
    found = list(audit_discovery("short", Randomness.seeded(1), lambda subject: None))
    assert [one.subject for one in found if not one.passed] == []
    assert sum(one.control for one in found) == 6
    assert min(one.ratio for one in found if not one.control) > 0.6


def test_a_planted_value_passes_as_often_as_its_law_says() -> None:
    """With the real noise, among other values; a count larger by 1 is told apart."""
    threshold, runs = Threshold(PureDP(1), Event(), Fraction(1, 20)), 6000
    source = Randomness.seeded(5)
    counts = {"other": 9, "planted": 1, "gone": 0, "x" * 201: 99, "tab\t": 99, "known": 99}
    seen = [dict(Rule(threshold, frozenset({"known"})).publish(counts.items(), source)) for _ in range(runs)]
    assert {value for run in seen for value in run} <= {"other", "planted"}
    passed = np.array([int("planted" in run) for run in seen])
    laws = [np.array([1 - p, p]) for p in map(Entry(threshold).passes, (1, 2))]
    assert laws[0][1] <= 0.05
    assert categorical(passed, laws[0]) > P_LOW
    assert categorical(passed, laws[1]) < P_CERTAIN


def test_order_of_arrival_does_not_show() -> None:
    threshold = Threshold(PureDP(8), Event(), Fraction(1, 10**6))
    values = [f"v{n:02}" for n in range(40)]
    for seed in range(3):
        mixed = np.random.default_rng(seed).permutation(values).tolist()
        entered = Rule(threshold).publish(((v, 100 + int(v[1:])) for v in mixed), Randomness.seeded(seed))
        assert [value for value, _ in entered] == values
    largest = Rule(threshold, most=3).publish(((v, 100 * int(v[1:])) for v in mixed), Randomness.seeded(1))
    assert [value for value, _ in largest] == values[-3:]


@pytest.mark.parametrize("size", [3, 40, 2000])
def test_gaps_follow_the_law_of_full_enumeration(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, places and noise, from gaps and from all draws; also where few tests are looked at together."""
    noise, above = DiscreteLaplace(Fraction(1, 2)), {3: 0, 40: 1, 2000: 3}[size]
    source = Randomness.seeded(size)
    p = Entry(Threshold(PureDP(2), Event(), universe=size)).passes
    chance = math.exp(-2 * (above + 1)) / (1 + math.exp(-2))
    assert p(Threshold(PureDP(2), Event(), universe=size).tau - above) == pytest.approx(chance)
    from scipy import stats

    many = np.arange(size + 1)
    law = stats.binom.pmf(many, size, chance)
    for most in (1 << 60, 7):
        monkeypatch.setattr(waiting, "_MOST", most)
        runs = 2000 if most > 7 else 200
        found = [source.exceeding(noise, above, size) for _ in range(runs)]
        drawn = [np.flatnonzero(source.draw(noise, size) > above) for _ in range(runs)]
        assert categorical(np.array([len(one) for one in found]), law) > P_LOW
        assert categorical(np.array([len(one) for one in drawn]), law) > P_LOW
        flat = [pair for one in found for pair in one]
        places = np.array([4 * place // (size + 1) for place, _ in flat])
        shares = np.bincount([4 * place // (size + 1) for place in range(size)], minlength=4) / size
        assert categorical(places, shares) > P_LOW
        beyond = np.minimum([value - above - 1 for _, value in flat], 6)
        q = math.exp(-2)
        assert categorical(beyond, np.array([(1 - q) * q**k for k in range(6)] + [q**6])) > P_LOW
        assert all(place < later for one in found for (place, _), (later, _) in itertools.pairwise(one))
        wrong = stats.binom.pmf(many, size, chance / math.e)
        assert runs == 200 or categorical(np.array([len(one) for one in found]), wrong) < P_CERTAIN


def test_a_large_universe_is_not_enumerated() -> None:
    """26^8 values: known and occurring ones are in it once, and what does not match is never counted."""
    pattern = Pattern(("[A-Z]{8}",))
    threshold = Threshold(PureDP("1/4"), Event(), universe=pattern.size, invented=Fraction(20))
    counts = {"ABCDEFGH": 500, "KNOWNKNO": 500, "lower": 500}
    rule = Rule(threshold, frozenset({"KNOWNKNO"}), pattern)
    entered = rule.publish(counts.items(), Randomness.seeded(3))
    names = [value for value, _ in entered]
    assert "ABCDEFGH" in names
    assert not {"KNOWNKNO", "lower"} & set(names)
    assert (
        5 < len(names) < 60
    )  # about 20 invented ones at most on average, a thousand times less likely beyond
    assert all(pattern.rank(value) is not None and noisy > threshold.tau for value, noisy in entered)


@pytest.mark.parametrize("threshold", [
    Threshold(PureDP("1/4"), Event(), Fraction(1, 10**6)),
    Threshold(ZCDP("1/32"), Event(), Fraction(1, 10**6)),
    Threshold(PureDP("1/2"), Event(), universe=1000),
])  # fmt: skip
def test_counts_at_entry_hold_given_that_the_value_entered(threshold: Threshold) -> None:
    """Exactly, for every count; the noisy count with an interval of the same noise is wrong below the threshold."""
    entry, tau = Entry(threshold), threshold.tau
    reach = tau + 60
    answers = {noisy: entry.count(noisy, 0.9) for noisy in range(tau + 1, tau + 2 * reach)}
    naive = next(w for w in range(99) if 2 * entry.passes(tau - w) <= 0.1)
    for count in (*range(1, tau + 40, 3), tau + 60):
        whole, held, over, under, plain = entry.passes(count), 0.0, 0.0, 0.0, 0.0
        for noisy, (middle, low, high) in answers.items():
            shift = tau - noisy + count
            chance = (entry.passes(shift + 1) - entry.passes(shift)) / whole
            held += chance * (low <= count <= high)
            plain += chance * (abs(noisy - count) <= naive)
            over, under = over + chance * (middle > count), under + chance * (middle < count)
        assert held > 0.9 - 1e-6
        assert over <= 0.5 + 1e-9
        assert under <= 0.5 + 0.25
        if count < tau - 2 * naive:
            assert plain < 0.5
    assert entry.passes(entry.needed(0.99)) >= 0.99 > entry.passes(entry.needed(0.99) - 1)


def test_patterns_number_their_texts() -> None:
    """As a regular expression matches them."""
    rows = ("[ab]{2}[0-9]", "c[x-z]", r"d\.", "[-e]")
    pattern, matcher = Pattern(rows), re.compile("|".join(f"(?:{row})" for row in rows))
    texts = ["".join(text) for n in range(4) for text in itertools.product("ab0123456789cxyzd.e-", repeat=n)]
    matching = [text for text in texts if matcher.fullmatch(text)]
    assert sorted(pattern.value(rank) for rank in range(pattern.size)) == sorted(matching)
    assert [pattern.rank(pattern.value(rank)) for rank in range(pattern.size)] == list(range(pattern.size))
    assert all((pattern.rank(text) is not None) == bool(matcher.fullmatch(text)) for text in texts)


@pytest.mark.parametrize("rows", [
    (), ("",), ("[0-9]*",), ("a.c",), ("(a|b)",), ("[^a]",), ("[z-a]",), ("[0-9]{0}",), ("a\t",), ("a{201}",),
    ("[0-9]{2}", "[5-7]x", "[a-z0]{2}"), ("[A-Z]{13}",),
])  # fmt: skip
def test_bad_patterns_are_refused(rows: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError, match="pattern"):
        Pattern(rows)


def test_bad_thresholds_are_refused() -> None:
    for delta in (Fraction(0), Fraction(1, 2), Fraction(1, 10**301)):
        with pytest.raises(BudgetError, match="delta"):
            Threshold(PureDP(1), Event(), delta)
    with pytest.raises(ConfigError, match="pattern"):
        Threshold(PureDP(1), Event())
    with pytest.raises(ConfigError, match="other values"):
        Rule(Threshold(PureDP(1), Event(), universe=3))
    assert not may_enter("\ud800")
    assert not may_enter("é" * 101)
