"""The attack on the releases of a configuration: what is planted, what guesses prove, and that leaks are caught."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
from cli_stream import dpstream, make, silent
from scipy.stats import beta
from small_configs import rewrite

from dpstream.core.contracts import marginal_query
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, PureDP, Randomness
from dpstream.core.schema import Domain
from dpstream.core.tables import count_marginals
from dpstream.project import Config
from dpstream.tools.audit import attack, configured, samplers_audit
from dpstream.tools.audit.attack import (
    ERROR,
    AttackedStream,
    Guesses,
    Silence,
    _without,
    attack_of,
    claimed_loss,
    counts_of,
    guess,
    needed_guesses,
)
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.invented import InventedStream
from dpstream.tools.simulate import simulate


@pytest.fixture
def config(tmp_path):
    columns = "".join(
        f'[schema.columns.{name}]\ntype = "categorical"\nvalues = ["1", "2", "3", "4", "5"]\n'
        for name in "abcde"
    )
    return make(tmp_path / "stream", mechanism='name = "pooled"\nworkload = "all-2-way"', columns=columns)


# What guesses prove.


def tossed(epsilon, runs, seed):
    """Scores that say the truth with the odds that epsilon allows: randomised response, the worst mechanism."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(2, size=(runs, 4))
    right = generator.random(truth.shape) < 1 / (1 + math.exp(-epsilon))
    return truth, np.where(right, truth, 1 - truth)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_worst_mechanism_is_nearly_seen_and_never_accused(epsilon):
    """A false alarm has probability 1e-7. Negative control: half as much again is seen."""
    for factor in (1.0, 1.5):
        truth, said = tossed(factor * epsilon, 8_000, 5)
        half = len(truth) // 2
        proved = guess(
            said[:half].astype(float), truth[:half] == 1, said[half:].astype(float), truth[half:] == 1
        ).proved(ERROR)
        assert (proved <= epsilon) == (factor == 1.0)
        assert 0.75 * factor * epsilon < proved <= factor * epsilon


def test_limits_are_those_of_clopper_and_pearson():
    """Oracle: quantiles of the beta distribution."""
    low = beta.ppf(1e-7, 180, 21)
    assert Guesses(right=180, made=200).proved(1e-7) == pytest.approx(math.log(low / (1 - low)))
    assert Guesses(0, 0).proved(1e-7) == 0.0
    for epsilon in (0.1, 1.0, 5.0):
        enough = needed_guesses(epsilon, ERROR)
        assert Guesses(enough, enough).proved(ERROR) >= epsilon
        assert Guesses(enough - 1, enough - 1).proved(ERROR) < epsilon


def test_what_a_claim_allows():
    assert claimed_loss(PureDP.of(1), 1000) == (1.0, ERROR)
    loss, error = claimed_loss(ZCDP.of("0.1"), 1000)
    assert error == ERROR / 2
    assert 2.0 < loss < 5.0


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


# What is invented.


DPSTABS = ('name = "pooled"', 'name = "dpstabs"')
REPLACED = ('unit = "event"', 'unit = "event-replace"\ntotal = "public"')


def attacked_stream(tmp_path, name, *changes):
    made = simulate(name, 6, tmp_path / name, rows_per_step=None if name == "stock" else 20)
    return AttackedStream(Config.load(rewrite(made, *chain(*changes))), Randomness.seeded(1))


@pytest.mark.parametrize("name", ["census", "evictions", "stock", "points", "panel"])
def test_streams_with_and_without_a_target_are_neighbours(tmp_path, name):
    """All private counts of all steps: they differ by the planted row and by nothing else."""
    stream = attacked_stream(tmp_path, name)
    invented, usual, at = stream.stream, stream.usual, stream.at
    assert len(stream.targets) >= 2
    more = invented.with_rows(usual, at, stream.targets[:1], stream.copies)
    for step, (one, two) in enumerate(zip(*map(invented.admit, (more, usual)), strict=True), start=1):
        if name == "stock":
            counts = [
                [batch.present.count([(), (0, 1), (2,)], 0), len(batch.present.departed)]
                for batch in (one, two)
            ]
            assert counts[0][1] == counts[1][1]
            moved = [np.abs(a - b).sum() for a, b in zip(counts[0][0], counts[1][0], strict=True)]
        else:
            cliques = [(), *((i,) for i, size in enumerate(one.domain.sizes) if size < 1000)]
            pairs = zip(one.count(cliques), two.count(cliques), strict=True)
            moved = [np.abs(a - b).sum() for a, b in pairs]
        there = step >= at if name == "stock" else name == "panel" or step == at
        assert set(moved) == {1 if there else 0}, step


@pytest.mark.parametrize(("name", "changes"), [("points", ()), ("census", (REPLACED,))])
def test_where_numbers_are_public_a_target_takes_the_place_of_another_record(tmp_path, name, changes):
    stream = attacked_stream(tmp_path, name, *changes)
    invented, usual, at = stream.stream, stream.usual, stream.at
    assert invented.replaces
    more = _without(invented.with_rows(usual, at, stream.targets[:1]), 1, at, stream.people)
    for step, (one, two) in enumerate(zip(*map(invented.admit, (more, usual)), strict=True), start=1):
        cliques = [(), *((i,) for i, size in enumerate(one.domain.sizes) if size < 1000)]
        pairs = zip(one.count(cliques), two.count(cliques), strict=True)
        total, *moved = [int(np.abs(a - b).sum()) for a, b in pairs]
        assert total == 0
        assert set(moved) <= ({0, 2} if step == at else {0})
        assert sum(moved) > 0 or step != at


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("census", ()),
        ("census", (REPLACED,)),
        ("evictions", (DPSTABS,)),
        ("stock", ()),
        ("panel", ()),
        ("points", ()),
    ],
    ids=["pooled", "pooled, replaced", "dpstabs", "census", "panel", "points"],
)
def test_a_target_adds_to_noisy_counts_what_the_attack_expects(tmp_path, name, changes):
    """Without noise: counts of the stream with a target, less those of the stream without it."""
    stream = attacked_stream(tmp_path, name, *changes)
    target, taken = stream.targets[0], stream.usual[stream.at - 1].came[0]

    def counted(steps):
        state, silence, made = stream.stream.plan.start(), Silence(Randomness.seeded(3)), {}
        for number, batch in enumerate(stream.stream.admit(steps), start=1):
            for one in stream.stream.plan.step(state, batch, silence).noisy_counts:
                made[number, one.draw, str(one.query), one.first, one.last] = one
        return made

    steps = stream.stream.with_rows(stream.usual, stream.at, stream.targets[:1])
    if stream.stream.replaces:
        steps = _without(steps, 1, stream.at, stream.people)
    less, more = counted(stream.usual), counted(steps)
    moved, shares, added = {}, {}, {}
    for key in less.keys() & more.keys():
        one = more[key]
        # Of points a count may hold a part of a step: the parts of one depth hold all of it.
        group = str(one.query) if name == "points" else key
        moved[group] = moved.get(group, 0) + one.values - less[key].values
        shares[group] = shares.get(group, 0.0) + stream._share(one)
        added[group] = stream._added(one, target)
        if stream.stream.replaces:
            added[group] = added[group] - stream._added(one, taken)
    sure = [group for group, share in shares.items() if share == pytest.approx(1.0)]
    assert len(sure) >= 3
    assert all((moved[group] == added[group]).all() for group in sure)
    assert not any(moved[group].any() for group, share in shares.items() if share == 0)


@pytest.mark.parametrize("name", ["census", "evictions", "stock", "panel"])
def test_pairs_are_neighbours_and_cross_what_counts_are_compared_with(tmp_path, name):
    made = simulate(name, 6, tmp_path / name, rows_per_step=None if name == "stock" else 20)
    stream, kinds = InventedStream(Config.load(made)), set()
    for number, pair in enumerate(stream.pairs()):
        kinds.add(pair.kind)
        assert pair.excess == 0
        assert len(pair.base) == len(pair.other) == stream.steps
        if number == 6:
            break
    assert kinds == {"far", "near", "control"}


def test_what_cannot_be_attacked_is_refused(config, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="a number above 0"):
        attack_of(Config.load(config), 0)
    text = config.read_text(encoding="utf-8")
    large = tmp_path / "stream" / "large.toml"
    few = text.replace('name = "pooled"', 'name = "dpstabs"\nk = 1').replace("all-2-way", "all-1-way")
    large.write_text(few.replace('epsilon = "1"', 'epsilon = "30"'), encoding="utf-8")
    assert "the claim is too large" in dpstream("audit", large, "--only", "attack", code=2).stderr
    short = dpstream("audit", config, "--only", "attack", "--minutes", "0.00001", code=2).stderr
    assert "minutes cannot catch a program without noise" in short
    # Without --only the other parts go on, and everything says what was left out.
    monkeypatch.setattr(configured, "_SECONDS", {"short": 0.0})
    monkeypatch.setattr(samplers_audit, "_SECONDS", 1.0)
    rest = dpstream("audit", large, "--processes", 1, "--out", tmp_path)
    assert "not audited: audit: 0.5 minutes cannot" in rest.stderr
    assert "This configuration" in rest.stdout
    assert "Attack on the releases" not in rest.stdout
    for name in ("audit.html", "audit.json"):
        assert "0.5 minutes cannot" in (tmp_path / name).read_text(encoding="utf-8")


# The whole attack.


def test_a_leak_is_caught_and_the_program_is_not(config, monkeypatch):
    """As configured: what is proved may not exceed the claim (a false alarm has probability 1e-7; the runs have one
    seed). Without noise it must."""
    monkeypatch.setattr(attack, "_planned", lambda *given: (40, 40))
    found = list(attack_of(Config.load(config))("short", Randomness.seeded(2), silent))
    assert [one.subject for one in found] == [f"attack on the releases{s}" for s in (", without noise", "")]
    assert all(one.passed for one in found)
    assert found[1].detail.endswith("targets among 240 records")


class Tenth(QuietNoise):
    """BROKEN: a tenth of the noise."""

    measure = Randomness.measure

    def draw(self, law, size):
        return super().draw(law, size) // 7


def test_a_tenth_of_the_noise_is_caught(config, monkeypatch):
    monkeypatch.setattr(attack, "Silence", Tenth)
    monkeypatch.setattr(attack, "_planned", lambda *given: (8, 60))
    found = list(attack_of(Config.load(config))("short", Randomness.seeded(2), silent))
    assert found[0].control
    assert found[0].caught


def test_an_attack_that_finds_nothing_without_noise_is_left_out(config, monkeypatch):
    """It would be no evidence. Here noise is not taken away."""
    monkeypatch.setattr(attack, "Silence", lambda randomness: randomness)
    monkeypatch.setattr(attack, "_planned", lambda *given: (4, 8))
    with pytest.raises(ConfigError, match="minutes prove only"):
        list(attack_of(Config.load(config))("short", Randomness.seeded(2), silent))
