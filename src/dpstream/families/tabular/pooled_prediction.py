"""Standard errors of pooled streams before any data are read: from borders, designs and noise, which are public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpstream.core.contracts import ExpectedErrors, ExpectedTable, MarginalError
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.families.tabular.pooled_division import Design
from dpstream.families.tabular.pooled_epochs import Epochs
from dpstream.families.tabular.pooled_run import Runner

#: Expected numbers of events are rounded down to so many significant binary digits: designs change with them slowly.
_DIGITS = 4


@dataclass(frozen=True)
class EpochNoise:
    """Variances of the noise of one epoch's run: in a cell of each column and then of each wider headline marginal, and
    in the number of events."""

    marginals: tuple[float, ...]
    total: float

    def __add__(self, other: EpochNoise) -> EpochNoise:
        marginals = tuple(a + b for a, b in zip(self.marginals, other.marginals, strict=True))
        return EpochNoise(marginals, self.total + other.total)


@dataclass
class Prediction:
    """What a stream's epochs will measure of an expected table, as far as it is known before they begin.

    Every epoch is taken to measure all columns, as it does until columns are found not to drift; after that it measures
    fewer, and the released counts rest on all epochs. Headline marginals are measured in every epoch. Which other wide
    marginals are measured follows from the data: of them nothing is predicted.

    Attributes:
        sides: how many kinds of events are followed apart.
        tests: whether runs that choose nothing may measure one marginal more, to judge a prior: then all are taken to.
        first: how many events the first step lets expect, before anything is released.
        holds: whether the number of records stays, between borders, as it was measured.
        known: the noise of epochs that were asked for before, by their expected number of events.
    """

    runner: Runner
    epochs: Epochs
    sides: int
    tests: bool = False
    first: float = 0.0
    holds: bool = False
    known: dict[float, EpochNoise] = field(default_factory=dict)

    def errors(
        self, steps: Sequence[int], horizon: int | None, expected: ExpectedTable
    ) -> tuple[ExpectedErrors, ...]:
        """Of marginals as of the last border up to each step; of the number of records at the step itself.

        Errors:
            HorizonError: a step beyond the horizon. ConfigError: no number of a step.
        """
        asked = check_steps(steps, horizon)
        own = self.runner.followed
        followed = _followed(self.runner)
        sums = EpochNoise((0.0,) * len(followed), 0.0)
        found, last, public = dict[int, tuple[EpochNoise, float]](), 0, self.runner.division.public_total
        length, newest = 1, 0.0
        rates = [self.first, *[0.0] * (self.sides - 1)]
        for step in sorted(set(asked)):
            while (border := self.epochs.after(last)) <= step and last != horizon:
                before = sums.total
                for side, upto in enumerate([expected.came, expected.left][: self.sides]):
                    came = upto(border) - upto(last)
                    # As in ``PooledPlan``: the epoch before lets expect, unless numbers of events are public.
                    guess = came if public else rates[side] * (border - last)
                    rates[side] = came / (border - last)
                    sums = sums + self._epoch(guess)
                length, newest, last = border - last, sums.total - before, border
            added = 0.0 if public else self._unmeasured(last, step, length, newest, expected)
            found[step] = sums, sums.total + added
        names = [tuple(own.workload.domain.names[i] for i in own.cells.cliques[at]) for at in followed]
        cells = [int(own.cells.sizes[at]) for at in followed]
        return tuple(
            ExpectedErrors(
                step,
                expected.size_at(step),
                math.sqrt(found[step][1]),
                tuple(
                    MarginalError(columns, size, math.sqrt(variance))
                    for columns, size, variance in zip(names, cells, found[step][0].marginals, strict=True)
                ),
            )
            for step in asked
        )

    def _unmeasured(self, last: int, step: int, length: int, newest: float, expected: ExpectedTable) -> float:
        """The variance that the steps after the last border add to the number of records.

        The number of events in each of them differs from that in the newest epoch's steps by ``expected.varies`` of it,
        independently; a table that goes on as that epoch went repeats its mean and its noise.

        Args:
            length, newest: steps of the newest epoch, and the variance of the noise in its number of events.
        """
        since = step - last
        if not since:
            return 0.0
        events = [upto(step) - upto(last) for upto in (expected.came, expected.left)[: self.sides]]
        varied = sum((expected.varies * many / since) ** 2 for many in events)
        if self.holds:
            return (expected.size_at(step) - expected.size_at(last)) ** 2 + since * varied
        return (since + since**2 / length) * varied + ((1 + since / length) ** 2 - 1) * newest

    def _epoch(self, events: float) -> EpochNoise:
        rounded = _rounded(events)
        if rounded not in self.known:
            design = self.runner.design(rounded, drifts=True)
            if self.tests and rounded and not design.k and self.runner.followed.choosable:
                design = self.runner.with_tests(design, (self.runner.followed.columns,))
            self.known[rounded] = _noise(self.runner, design)
        return self.known[rounded]


def _rounded(events: float) -> float:
    """
    >>> [_rounded(n) for n in (0.0, 1.0, 100.0, 1000.0)]
    [0.0, 1.0, 96.0, 960.0]
    """
    if events <= 0.0:
        return 0.0
    mantissa, exponent = math.frexp(events)
    return math.ldexp(math.floor(mantissa * 2**_DIGITS), exponent - _DIGITS)


def _followed(runner: Runner) -> list[int]:
    """The marginals whose errors are predicted: all columns, and the wider headlines."""
    return [*range(runner.followed.columns), *runner.followed.wide_headlines]


def _noise(runner: Runner, design: Design) -> EpochNoise:
    """The noise of a run that measures all columns."""
    division, cells = runner.division, runner.followed.cells
    joint = runner.signs.singles if division.joint(design) else ()
    single = runner.noise(design).variance if division.histograms(design) else math.inf
    own, headline, sums = dict[int, float](), dict[int, float](), list[float]()
    for found, draws in ((own, runner.column_draws(design)), (headline, runner.headline_noises)):
        for group, noise in draws:
            if isinstance(noise, HistogramsNoise):
                found |= dict(zip(group, noise.variances, strict=True))
                sums += [] if division.public_total else [1.0 / noise.sum_variance]
            else:
                found[group[0]] = noise.variance
                sums.append(1.0 / (noise.variance * int(cells.sizes[group[0]])))
    signs = 0.0
    if joint:
        signs = runner.joint_draws(design)[0][0].variance
        sums.append(1.0 / signs)
    public = division.public_total
    # The number of events when the columns of two values are made from it; later choices tell a little more of it.
    first = 0.0 if public else 1.0 / sum(sums)
    chosen = design.k - division.products(design)
    if chosen > 0:
        wide = cells.sizes[runner.followed.columns :]
        sums.append(chosen * float((1.0 / wide).mean()) / single)
    columns = [(first + signs) / 4.0 if i in joint else own[i] for i in range(runner.followed.columns)]
    for at in set(runner.followed.headlines) - set(runner.followed.wide_headlines):
        columns[at] = 1.0 / (1.0 / columns[at] + 1.0 / headline[at])
    columns += [headline[at] for at in runner.followed.wide_headlines]
    return EpochNoise(tuple(columns), 0.0 if public else 1.0 / sum(sums))
