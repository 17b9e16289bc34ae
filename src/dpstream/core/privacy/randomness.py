"""The one door through which randomness enters anything that a guarantee rests on.

Trusted base: kernel (the door to noise).
"""

from __future__ import annotations

from typing import NewType, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy.entropy import Entropy
from dpstream.core.privacy.joint import AnyNoise, HistogramsNoise, sample
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.select import Integers, Selection
from dpstream.core.privacy.waiting import exceeding, reaches, waiting_times

#: Whole numbers that were counted of private records.
Exact = NewType("Exact", NDArray[np.int64])
#: Whole numbers that came out of the door, and what is made of them without any other private number. Releases and
#: measurements take nothing else; a test knows every place that makes one.
Noisy = NewType("Noisy", NDArray[np.int64])


class Randomness(Entropy):
    """The door: what is private becomes public through its functions only.

    * ``measure``: private whole numbers with fresh noise, or with noise of ``draw``, which was drawn before its counts
      were there and stays secret until then.
    * ``select``: the outcome of an exact selection by private scores.
    * ``test``: whether a private number with fresh noise reaches a limit, to which noise of ``draw`` was added: the
      limit stays secret. ``waiting_times`` and ``reaches`` are the same for many tests at once.
    * ``exceeding``: those of many draws that pass a limit, as if all were drawn and added to counts of 0.
    * ``coins``: public coins.

    All rest on independent uniform 64-bit words (``words``) and on noise made from them (``draw``). A test or an audit
    overrides ``draw``, to put a tape in place of noise, or all of these, to see exact values and laws (``Relay``).

    Guarantee: that of ``Entropy``, whose words it uses, each once.
    """

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        """Exact samples: ``size`` independent ones, or one of a whole vector of that size. They stay secret."""
        return sample(law, size, self.words)

    def measure(
        self, exact: NDArray[np.int64], law: AnyNoise, drawn: NDArray[np.int64] | None = None
    ) -> Noisy:
        """Private whole numbers with noise.

        Args:
            drawn: noise of this law that was drawn before, and is in use for the first time; None: fresh noise.

        Errors:
            ConfigError: several histograms with different sums, for which joint noise has no guarantee; noise for
            another number of counts.
        """
        if isinstance(law, HistogramsNoise):
            law.check(exact)
        noise = self.draw(law, len(exact)) if drawn is None else drawn
        if noise.shape != exact.shape:  # one noise must not serve several numbers
            raise ConfigError("the noise is for other numbers", where="randomness")
        return Noisy(exact + noise)

    def select(self, numerators: Integers, denominators: Integers | int, law: Selection) -> int:
        """The index of a candidate that has about the highest of the private scores ``numerators / denominators``.

        Errors: ConfigError without candidates, for unequal lengths, or for a denominator below 1.
        """
        return law.choose(numerators, denominators, self.words)

    def test(self, exact: int, limit: int, law: DiscreteLaplace) -> bool:
        """Whether a private number with fresh noise is at least a secret limit."""
        return exact + int(self.draw(law, 1)[0]) >= limit

    def waiting_times(self, gaps: NDArray[np.int64], law: DiscreteLaplace, most: int) -> NDArray[np.int64]:
        """For each gap between a limit and a private number, the number of the first of ``most`` tests that says yes;
        0 where none does (``waiting``)."""
        return waiting_times(law, gaps, most, self.words)

    def reaches(self, known: int, gap: int, law: DiscreteLaplace) -> bool:
        """Whether the noise of a test that is at least ``known`` is at least ``gap`` (``waiting``)."""
        return reaches(law, known, gap, self.words)

    def exceeding(self, law: DiscreteLaplace, above: int, size: int) -> list[tuple[int, int]]:
        """Numbers and values of those of ``size`` draws that are above a public limit (``waiting``)."""
        return exceeding(law, above, size, self.words)

    def coins(self, reason: str, n: int = 1) -> NDArray[np.uint64]:
        """``n`` uniform words that may become public.

        Args:
            reason: what they are for; only for whoever reads or watches the call.
        """
        return self.words(n)


class Relay(Randomness):
    """Hands every request on to ``inner``; subclasses change some."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(_no_source, secure=inner.secure)
        self._inner = inner

    def words(self, n: int) -> NDArray[np.uint64]:
        """Words of ``inner``."""
        return self._inner.words(n)

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        """Noise of ``inner``."""
        return self._inner.draw(law, size)

    def measure(
        self, exact: NDArray[np.int64], law: AnyNoise, drawn: NDArray[np.int64] | None = None
    ) -> Noisy:
        """The measurement of ``inner``."""
        return self._inner.measure(exact, law, drawn)

    def select(self, numerators: Integers, denominators: Integers | int, law: Selection) -> int:
        """The selection of ``inner``."""
        return self._inner.select(numerators, denominators, law)

    def test(self, exact: int, limit: int, law: DiscreteLaplace) -> bool:
        """The test of ``inner``."""
        return self._inner.test(exact, limit, law)

    def waiting_times(self, gaps: NDArray[np.int64], law: DiscreteLaplace, most: int) -> NDArray[np.int64]:
        """Waiting times of ``inner``."""
        return self._inner.waiting_times(gaps, law, most)

    def reaches(self, known: int, gap: int, law: DiscreteLaplace) -> bool:
        """As ``inner`` says."""
        return self._inner.reaches(known, gap, law)

    def exceeding(self, law: DiscreteLaplace, above: int, size: int) -> list[tuple[int, int]]:
        """Draws of ``inner``."""
        return self._inner.exceeding(law, above, size)

    def coins(self, reason: str, n: int = 1) -> NDArray[np.uint64]:
        """Coins of ``inner``."""
        return self._inner.coins(reason, n)


def _no_source(_n: int) -> NoReturn:
    raise RuntimeError("the randomness lacks words")
