"""The exact audit of a configuration: a fault that is planted in the program is found, and nothing else is accused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cli_stream import dpstream, make, silent
from small_configs import rewrite

from dpstream.core.privacy import CubeNoise, DiscreteGaussian, DiscreteLaplace, HistogramsNoise, Randomness
from dpstream.core.privacy._samplers import uniform_below
from dpstream.core.privacy.discovery import Threshold
from dpstream.core.tables import contribution
from dpstream.families.tabular import pooled
from dpstream.families.tabular.pooled_run import EpochRun
from dpstream.mechanisms import engine
from dpstream.mechanisms.engine import Selector
from dpstream.project import Config
from dpstream.stream.cut_users import CutUsers
from dpstream.tools.audit import configured
from dpstream.tools.audit.configured import configured_audits, scope
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.samplers_audit import choice_fault, law_fault
from dpstream.tools.simulate import simulate

COLUMNS = "".join(
    f'[schema.columns.{name}]\ntype = "categorical"\nvalues = {list(values)}\n'.replace("'", '"')
    for name, values in {"area": "abcde", "kind": "xyz", "size": "klmn"}.items()
)


def config(tmp_path, mechanism='name = "pooled"\n', stream="", **source):
    """A stream of events with deletes, where nothing else is said."""
    source = source or {"op_column": '"op"'}
    path = make(tmp_path / "stream", steps=4, mechanism=mechanism, columns=COLUMNS, **source)
    return Config.load(rewrite(path, 'name = "test"', f'name = "test"\n{stream}'))


#: In place of events with deletes.
USERS = {"stream": 'unit = "user"\nmax_events = 3', "user_column": '"who"'}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """As few pairs of streams as there may be, however fast the machine is."""
    monkeypatch.setattr(configured, "_SECONDS", {"short": 0.0})


def findings(loaded):
    return list(configured_audits(loaded)["transcripts"]("short", Randomness.seeded(1), silent))


def accused(found):
    assert all(one.caught for one in found if one.control)
    return [one.subject for one in found if one.caught and not one.control]


@pytest.mark.parametrize("how", [{}, USERS], ids=["events", "users"])
def test_an_honest_configuration_loses_what_it_claims(tmp_path, how):
    found = findings(config(tmp_path, **how))
    assert accused(found) == []
    (near,) = [one for one in found if not one.control]
    # Nothing is charged in vain: the worst record loses all of it.
    assert near.found == pytest.approx(near.claimed)
    assert len([one for one in found if one.control]) == 2


def exact_total(monkeypatch):
    def total(self):
        exact = float(next(iter(self.counts.values())).sum())
        return exact, 1.0

    monkeypatch.setattr(EpochRun, "total", property(total))


def exact_size(monkeypatch):
    honest = pooled.PooledPlan._run

    def run(self, side, known, step, length, randomness, **more):
        side.rate = float(side.counts[self.cells.part(0)].sum())
        return honest(self, side, known, step, length, randomness, **more)

    monkeypatch.setattr(pooled.PooledPlan, "_run", run)


def exact_selection(monkeypatch):
    def choose(self, numerators, denominators, allowed, sensitivity, randomness):
        return int(allowed[np.argmax((numerators / denominators)[allowed])])

    monkeypatch.setattr(Selector, "choose", choose)


def half_the_noise(monkeypatch):
    honest = engine.noise_of

    def noise(budget, sizes, unit):
        law = honest(budget, sizes, unit)
        return replace(law, scale=law.scale / 2) if len(sizes) > 1 else law

    monkeypatch.setattr(engine, "noise_of", noise)


def less_noise_where_nobody_came(monkeypatch):
    honest = EpochRun.measure

    def measure(self, cliques, budget, kind="", *, chosen=False):
        empty = not any(self.counts[clique].any() for clique in cliques)
        return honest(self, cliques, budget.scaled(2) if empty else budget, kind, chosen=chosen)

    monkeypatch.setattr(EpochRun, "measure", measure)


def one_more_through(monkeypatch):
    honest = contribution.admit

    def admit(inserts, deletes, owners, used, max_events, *given):
        return honest(inserts, deletes, owners, used, max_events + 1, *given)

    monkeypatch.setattr("dpstream.stream.admission.admit", admit)


def cut_again_in_a_later_period(monkeypatch):
    honest = contribution.admit

    def admit(inserts, deletes, owners, used, max_events, *given):
        found = honest(inserts, deletes, owners, used, max_events, *given)
        return replace(found, counts=np.minimum(found.counts, max_events))

    monkeypatch.setattr("dpstream.stream.admission.admit", admit)


def cut_at_every_event(monkeypatch):
    honest = contribution.admit

    def admit(*given):
        found = honest(*given)
        return replace(found, cut=found.dropped)

    monkeypatch.setattr("dpstream.stream.admission.admit", admit)


def cut_users_drawn_again(monkeypatch):
    honest = CutUsers.after

    def after(self, plan, step, cut, randomness):
        honest(self, plan, step, cut, randomness)
        return honest(self, plan, step, cut, randomness)

    monkeypatch.setattr(CutUsers, "after", after)


@pytest.mark.parametrize(
    ("plant", "how"),
    [
        *((plant, {}) for plant in (exact_total, exact_size, exact_selection, half_the_noise)),
        (less_noise_where_nobody_came, USERS),
        (one_more_through, USERS),
        *(
            (plant, USERS)
            for plant in (cut_again_in_a_later_period, cut_at_every_event, cut_users_drawn_again)
        ),
    ],
)
def test_what_reads_exact_counts_is_found(tmp_path, monkeypatch, plant, how):
    """No real neighbour crosses a threshold: streams that differ in everything show what depends on counts."""
    loaded = config(tmp_path, **how)
    plant(monkeypatch)
    # Until the first one that is accused.
    found = configured_audits(loaded)["transcripts"]("short", Randomness.seeded(1), silent)
    assert any(one.caught and not one.control for one in found)


OPEN = COLUMNS.replace('values = ["a", "b", "c", "d", "e"]', 'values = "discover"\nother = "z"\n{}', 1)
DISCOVERS = {
    "pattern": OPEN.format('pattern = ["[0-9]{5}"]'),
    "delta": OPEN.format("") + '[discovery]\ndelta = "1e-9"\n',
    "beside": OPEN.format("") + '[discovery]\ndelta = "1e-9"\n[prior]\nfile = "prior.csv"\npublic = true\n',
}


@pytest.mark.parametrize("how", DISCOVERS)
def test_values_that_are_discovered_pass_the_door(tmp_path, monkeypatch, how):
    """With a pattern noise of texts that nobody holds, too; without that a text that passes shows who held it."""
    path = make(tmp_path, steps=4, mechanism='name = "pooled"\n', columns=DISCOVERS[how])
    (tmp_path / "prior.csv").write_text("paid,kind\n" + "true,x\nfalse,y\n" * 50)
    if how == "beside":  # a season and a public table of other columns move no amount
        rewrite(path, 'name = "test"', 'name = "test"\nseason = 3')
    loaded = Config.load(path)
    found = findings(loaded)
    assert accused(found) == []
    assert sum("only texts that somebody holds" in one.subject for one in found) == (how == "pattern")
    # A fault: the counts of a discovery epoch have too little noise.
    monkeypatch.setattr(Threshold, "noise", property(lambda _: DiscreteLaplace(Fraction(1))))
    monkeypatch.setattr(Threshold, "tau", 60)
    assert len(accused(findings(loaded))) == 1


LAWS = [
    (DiscreteLaplace(Fraction(3)), 12),
    (DiscreteLaplace(Fraction(5000)), 3),
    (DiscreteGaussian(Fraction(9, 2)), 70),
    (CubeNoise(Fraction(2), 5), 0),
    (HistogramsNoise(Fraction(1), (3, 5, 4)), 0),
    (HistogramsNoise(Fraction(2), (3, 4), True), 0),
    (HistogramsNoise(Fraction(3), (7,)), 0),
]


class Twice(QuietNoise):
    """BROKEN: what was drawn last is drawn again."""

    kept = None

    def draw(self, law, size):
        last = self.kept
        self.kept = self._inner.draw(law, size) if last is None else None
        return self.kept if last is None else last


@pytest.mark.parametrize(("noise", "size"), LAWS)
def test_samplers_are_compared_with_their_laws(noise, size):
    """An honest sampler is accused with a probability of 1e-8."""
    randomness = Randomness.seeded(5)
    assert law_fault(noise, size, randomness, 0.3)[1] == ""
    assert law_fault(noise, size, QuietNoise(randomness), 0.3)[1]
    if isinstance(noise, CubeNoise | HistogramsNoise):
        # How many draws there are depends on the CPU: of many, what comes twice spoils the frequencies as well.
        wrong = law_fault(noise, size, Twice(randomness), 0.3)[1]
        assert "cells of two draws" in wrong or "frequencies" in wrong


def test_a_choice_is_compared_with_its_law():
    """An honest one is accused with a probability of 1e-8."""
    randomness, law = Randomness.seeded(6), np.array([0.5, 0.25, 0.25, 0.0])

    def fair():
        return [0, 0, 1, 2][uniform_below(4, randomness.words)]

    assert choice_fault(law, fair)[1] == ""
    assert choice_fault(law, lambda: uniform_below(3, randomness.words))[1].startswith("frequencies")
    assert choice_fault(law, lambda: 3)[1] == "an impossible outcome"


def test_the_last_line_says_what_was_examined(tmp_path):
    loaded = config(tmp_path)
    result = dpstream("audit", loaded.path, "--only", "transcripts", "--processes", 1)
    assert " ".join(result.stdout.split()).endswith(scope(loaded, ["transcripts"]))
    assert scope(loaded, ["transcripts"]) == (
        "Examined: encoding, bounds, measurements and publication. Not examined: laws of "
        "noise and choices; an attack on the releases; source, store, files of releases, timing."
    )


TREES = 'name = "dpstabs"\ncounter = "{}"\nk = {}\n'


def test_what_draws_ahead_of_its_counts_has_a_certificate_only(tmp_path):
    loaded = config(tmp_path, TREES.format("optimal-epochs", 3))
    assert set(configured_audits(loaded)) == {"attack", "samplers", "exact"}


@pytest.mark.parametrize("family", ["counters", "hybrid", "points", "scheduler", "panel"])
def test_every_family_is_audited(tmp_path, family):
    growing = 'name = "scheduler"\nfirst_run = 100\ngamma = "1/10"\n'
    found = findings(
        {
            "counters": lambda: config(tmp_path, 'name = "dpstabs"\nk = 2\n'),
            "hybrid": lambda: config(tmp_path, TREES.format("hybrid", 3)),
            "scheduler": lambda: config(tmp_path, growing, 'total = "public"', op_column=None),
        }.get(family, lambda: Config.load(simulate(family, 6, tmp_path / family, rows_per_step=20)))()
    )
    assert accused(found) == []
    if family == "panel":  # by whole histories
        (near,) = [one for one in found if not one.control]
        assert near.found == pytest.approx(near.claimed)
    elif family in ("counters", "hybrid"):
        assert len([one for one in found if one.control]) == 2
