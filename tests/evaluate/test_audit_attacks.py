"""Attacks on the releases of a configuration: what is planted, what guesses prove, and that leaks are caught."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cli_stream import dpstream, make
from scipy.stats import beta

from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, CubeNoise, DiscreteGaussian, DiscreteLaplace, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import count_marginals
from dpstream.project import Config
from dpstream.tools.audit import attacks, configured
from dpstream.tools.audit.attack_families import (
    attacked_stream,
    check_attackable,
    counts_of,
    log_likelihood_ratio,
)
from dpstream.tools.audit.attacks import (
    ERROR,
    Guesses,
    Runner,
    attack,
    attacks_of,
    claimed_loss,
    guess_members,
    guess_values,
    needed_guesses,
    region,
)
from dpstream.tools.audit.audit_page import AuditReport, audit_body, audit_html
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.simulate import simulate


def silent(text):
    pass


@pytest.fixture
def config(tmp_path):
    columns = "".join(
        f'[schema.columns.{name}]\ntype = "categorical"\nvalues = ["1", "2", "3", "4", "5"]\n'
        for name in "abcde"
    )
    return make(tmp_path / "stream", mechanism='name = "pooled"\nworkload = "all-2-way"', columns=columns)


# What guesses prove.


def tossed(epsilon, runs, values, seed):
    """Scores that say the truth with the odds that epsilon allows: randomised response, the worst mechanism."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(values, size=(runs, 4))
    right = generator.random(truth.shape) < 1 / (1 + (values - 1) * math.exp(-epsilon))
    said = np.where(right, truth, (truth + generator.integers(1, values, size=truth.shape)) % values)
    return truth, said


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_worst_mechanism_is_nearly_seen_and_never_accused(epsilon):
    """A false alarm has probability 1e-7. Negative control: half as much again is seen."""
    for factor in (1.0, 1.5):
        truth, said = tossed(factor * epsilon, 8_000, 2, 5)
        half = len(truth) // 2
        found = guess_members(
            said[:half].astype(float), truth[:half] == 1, said[half:].astype(float), truth[half:] == 1
        )
        proved = found.proved(ERROR)
        assert (proved <= epsilon) == (factor == 1.0)
        assert 0.75 * factor * epsilon < proved <= factor * epsilon


def test_values_of_a_known_record():
    truth, said = tossed(2.0, 6_000, 5, 6)
    scores = (said[:, :, None] == np.arange(5)).astype(float)
    found = guess_values(scores[:3000], truth[:3000], scores[3000:], truth[3000:])
    assert found.values == 5
    assert 1.6 < found.proved(ERROR) <= 2.0
    nothing = guess_values(np.zeros((50, 4, 5)), truth[:50], np.zeros((50, 4, 5)), truth[50:100])
    assert nothing.proved(ERROR) == 0.0


def test_limits_are_those_of_clopper_and_pearson():
    """Oracle: quantiles of the beta distribution."""
    guesses = Guesses(right=180, made=200, asked=400)
    low = beta.ppf(1e-7, 180, 21)
    assert guesses.lower(1e-7) == pytest.approx(low)
    assert guesses.proved(1e-7) == pytest.approx(math.log(low / (1 - low)))
    assert Guesses(0, 0, 10).proved(1e-7) == 0.0
    assert Guesses(0, 0, 10).share == 0.5
    for epsilon in (0.1, 1.0, 5.0):
        enough = needed_guesses(epsilon, ERROR)
        assert Guesses(enough, enough, enough).proved(ERROR) >= epsilon
        assert Guesses(enough - 1, enough - 1, enough).proved(ERROR) < epsilon


def test_what_a_claim_allows():
    assert claimed_loss(PureDP.of(1), 1000, two=True) == (2.0, ERROR)
    loss, error = claimed_loss(ZCDP.of("0.1"), 1000, two=False)
    assert error == ERROR / 2
    assert 2.0 < loss < 5.0
    pure = region(PureDP.of(1), [0.0, 0.1, 0.5, 1.0])
    assert pure == pytest.approx([0.0, 0.1 * math.e, 1 - 0.5 / math.e, 1.0])
    # rho-zCDP is at least as private as its Gaussian: no curve of it may lie outside.
    from scipy.stats import norm

    rates = [0.001, 0.01, 0.1, 0.3, 0.7]
    gaussian = norm.cdf(norm.ppf(rates) + math.sqrt(2 * 0.1))
    allowed = region(ZCDP.of("0.1"), rates)
    assert all(own <= most <= 1 for own, most in zip(gaussian, allowed, strict=True))
    assert allowed == sorted(allowed)


# What published counts say.


def test_ratios_are_those_of_the_noise():
    values, added = np.array([3, -1, 4]), np.array([0, 1, 0])

    def ratio(noise):
        return log_likelihood_ratio(
            NoisyCounts("draw", "inserts", 1, 1, marginal_query(["a"]), values, noise), values, added
        )

    # Without the record the second cell's noise was -1, with it -2.
    assert ratio(DiscreteLaplace(2)) == pytest.approx(-1 / 2)
    assert ratio(DiscreteGaussian(2)) == pytest.approx((1 - 4) / (2 * 2))
    assert ratio(CubeNoise(2, 3)) == 0.0  # the largest value decides, and it is the third


@pytest.mark.parametrize("kind", ["marginal", "marginals", "signs"])
def test_queries_are_answered_as_they_are_measured(kind):
    domain = Domain(("a", "b", "c"), (3, 2, 2))
    codes = np.random.default_rng(1).integers((3, 2, 2), size=(40, 3)).astype(np.int32)
    codes = np.asfortranarray(codes)
    pairs = count_marginals(codes, domain, [(0, 1), (1, 2)])
    signs = [((-1) ** (codes[:, 1] + codes[:, 2])).sum(), len(codes)]
    query, truth = {
        "marginal": (marginal_query(["b", "c"]), pairs[1]),
        "marginals": ({"columns": [["a", "b"], ["b", "c"]]}, np.concatenate(pairs)),
        "signs": ({"terms": [["b", "c"], []]}, np.array(signs)),
    }[kind]
    np.testing.assert_array_equal(counts_of({**query, "kind": kind}, codes, domain), truth)
    assert counts_of({"kind": "unheard of"}, codes, domain) is None


# What is planted.


def streams(tmp_path, name, **changes):
    tmp_path.mkdir(exist_ok=True)
    made = simulate(name, 6, tmp_path / name, rows_per_step=None if name == "stock" else 20)
    text = made.read_text(encoding="utf-8")
    for old, new in changes.get("rewrite", ()):
        assert old in text
        text = text.replace(old, new)
    made.write_text(text, encoding="utf-8")
    return attacked_stream(Config.load(made), 0)


@pytest.mark.parametrize("name", ["census", "evictions", "stock", "points", "panel"])
def test_streams_with_and_without_targets_are_neighbours(tmp_path, name):
    """All private counts of all steps: they differ by the planted rows and by nothing else."""
    stream = streams(tmp_path, name)
    targets = stream.targets
    assert len(targets.members) >= 3
    assert len(targets.known) >= 1
    assert (np.ptp(targets.known, axis=1) > 0).any(axis=1).all()
    values = [0] * len(targets.known)
    one, none = [True] + [False] * (len(targets.members) - 1), [False] * len(targets.members)
    pairs = zip(
        stream.batches(targets.rows(one, values)), stream.batches(targets.rows(none, values)), strict=True
    )
    differences = []
    for more, less in pairs:
        if name == "stock":
            counted = [
                [int(batch.present.count([()], 0)[0][0]) for batch in (more, less)],
                [len(batch.present.departed) for batch in (more, less)],
            ]
            assert counted[1][0] == counted[1][1]
            moved = counted[0][0] - counted[0][1]
            cells = [np.concatenate(batch.present.count([(0, 1), (2,)], 0)) for batch in (more, less)]
        else:
            moved = int(more.count([()])[0][0] - less.count([()])[0][0])
            cliques = [(i,) for i in range(len(more.domain)) if more.domain.sizes[i] < 1000]
            cells = [np.concatenate(batch.count(cliques)) for batch in (more, less)]
        differences.append((moved, int(np.abs(cells[0] - cells[1]).max())))
    at = targets.at
    if name == "points":  # numbers of points are public: one is another one
        assert all(moved == 0 for moved, _ in differences)
        assert all(most == 0 for step, (_, most) in enumerate(differences, start=1) if step != at)
        return
    ends = range(at, len(differences) + 1) if name in ("stock", "panel") else [at]
    for step, (moved, most) in enumerate(differences, start=1):
        assert (moved, most) == ((1, 1) if step in ends else (0, 0))


def test_known_counts_are_what_the_mechanism_measured(tmp_path):
    """Without noise every published count is the attackers' expectation and what was planted."""
    dpstabs = [('name = "pooled"', 'name = "dpstabs"')]
    replaced = [('unit = "event"', 'unit = "event-replace"\ntotal = "public"')]
    cases = [("census", ()), ("census", replaced), ("evictions", dpstabs), ("stock", ()), ("panel", ())]
    for number, (name, rewrite) in enumerate(cases):
        stream = streams(tmp_path / str(number), name, rewrite=rewrite)
        targets = stream.targets
        there = [True] * len(targets.members)
        planted = targets.rows(there, [0] * len(targets.known))
        plan, seen = stream.config.plan(), 0
        state, randomness = plan.start(), attacks.Silence(Randomness.seeded(3))
        for batch in stream.batches(planted):
            for noisy in plan.step(state, batch, randomness).noisy_counts:
                base = stream.expected(noisy)
                if base is not None:
                    seen += 1
                    added = sum(stream.added(noisy, row) for row in planted)
                    np.testing.assert_array_equal(noisy.values, base + added)
        assert seen >= (1 if rewrite == dpstabs else 3), name


def test_what_cannot_be_attacked_is_refused(config, tmp_path, monkeypatch):
    loaded = Config.load(config)
    with pytest.raises(ConfigError, match="a number above 0"):
        attacks_of(loaded, 0)
    text = config.read_text(encoding="utf-8")
    large = tmp_path / "stream" / "large.toml"
    large.write_text(text.replace('epsilon = "1"', 'epsilon = "30"'), encoding="utf-8")
    assert "so large a claim is hardly one" in dpstream("audit", large, "--only", "attacks", code=2).stderr
    short = dpstream("audit", config, "--only", "attacks", "--minutes", "0.00001", code=2).stderr
    assert "minutes of CPU do not do to catch a program without noise" in short
    # Without --only the other parts go on, and everything says what was left out.
    monkeypatch.setattr(configured, "_SECONDS", {"short": 0.5})
    rest = dpstream("audit", large, "--processes", 1, "--out", tmp_path)
    assert "not audited: audit: 2 minutes of CPU do not do" in rest.stderr
    assert "configured pooled, neighbours" in rest.stdout
    assert "attack: " not in rest.stdout
    for name in ("audit.html", "audit.json"):
        assert "2 minutes of CPU do not do" in (tmp_path / name).read_text(encoding="utf-8")
    check_attackable(loaded)


# Whole attacks.


def test_a_leak_is_caught_and_the_program_is_not(config):
    """As configured: no attack may find more than the claim (a false alarm has probability 1e-7 each; the runs have one
    seed). Without noise, and with a tenth of it, something must."""
    stream = attacked_stream(Config.load(config), 0)
    found = list(attack(Runner(stream, Randomness.seeded(2)), 40, 40, silent))
    assert [one.subject for one in found][-2:] == [
        "attack: a known person's row",
        "attack: the same without noise",
    ]
    assert all(one.passed for one in found)
    names = {one.subject.removeprefix("attack: "): one for one in found}
    counts = names["noisy counts"].attack
    assert counts.share > 0.55  # it sees something
    assert counts.share <= counts.allowed + 0.05
    report = AuditReport(tuple(found), "short", "dpstream audit x.toml", "<b>x</b>", 1.0)
    page = audit_html(report)
    for absent in ("<script", "http:", "https:", "<b>x</b>"):
        assert absent not in page
    assert "likelihood ratio (LiRA)" in page
    assert len(page) < 100_000
    assert not any(not line.strip() for line in audit_body(report).splitlines())
    facts = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert facts["findings"][0]["attack"]["values"] == 2
    curve = counts.curve
    assert all(0 <= rate <= 1 for point in curve for rate in point)
    assert all(one >= two for one, two in pairwise(true for _, true in curve))


class Tenth(QuietNoise):
    """BROKEN: a tenth of the noise."""

    measure = Randomness.measure

    def draw(self, law, size):
        return super().draw(law, size) // 7


def test_a_tenth_of_the_noise_is_caught(config, monkeypatch):
    monkeypatch.setattr(attacks, "Silence", Tenth)
    stream = attacked_stream(Config.load(config), 0)
    found = list(attack(Runner(stream, Randomness.seeded(2)), 4, 40, silent))
    assert found[-1].control
    assert found[-1].caught


def test_runs_that_count_no_target_are_judged_with_the_others(config):
    """A step may measure marginals that say nothing of the targets; in some runs that is all that attackers get."""
    runner = Runner(attacked_stream(Config.load(config), 0), Randomness.seeded(4))
    runs = [runner.run(silent=True) for _ in range(8)]
    blind = [replace(run, counted=False, counts=np.zeros_like(run.counts)) for run in runs]
    assert all(run.counted for run in runs)
    some = attacks._judged("noisy counts", attacks._Half([blind[0], *runs[1:4]], runs[4:]), runner.stream)
    assert some is not None
    assert some.asked == 4 * len(runner.stream.targets.members)
    assert attacks._judged("noisy counts", attacks._Half(blind[:4], blind[4:]), runner.stream) is None
