"""The entropy door: never the same word twice, not across threads and not across processes."""

from __future__ import annotations

import os
import threading
from fractions import Fraction

import numpy as np
import pytest
from chi_square import P_LOW, categorical
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import AnyNoise, DiscreteGaussian, DiscreteLaplace, HistogramsNoise, Randomness
from dpstream.core.privacy._samplers import uniform_below

pytestmark = pytest.mark.entropy(
    "false alarms below 1e-7: the fairness of 64 bits and of 6 bounds, repeated words, equal noise of two cells"
)


def _in_child(source: Randomness, n: int) -> NDArray[np.uint64]:
    """What a forked child gets from the parent's object."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, source.words(n).tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        words = np.frombuffer(pipe.read(), dtype=np.uint64)
    os.waitpid(child, 0)
    return words


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_shares_no_words() -> None:
    source = Randomness.system()
    source.words(3)  # the buffer is full now: without care the child would continue in it
    child = _in_child(source, 64)
    parent = source.words(64)
    assert len(child) == 64
    assert not set(child.tolist()) & set(parent.tolist())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_fork_check_would_notice_a_shared_buffer() -> None:
    # Negative control: the seeded stream is continued on both sides, so the same check finds the overlap.
    source = Randomness.seeded(5)
    source.words(3)
    child = _in_child(source, 64)
    assert (child == source.words(64)).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_is_not_stopped_by_the_parents_lock() -> None:
    source = Randomness.system()
    with source._lock:  # another thread of the parent is inside words() at the fork
        assert len(_in_child(source, 8)) == 8


def test_words_are_given_once_and_wiped() -> None:
    source = Randomness.system()
    seen = np.concatenate([source.words(n) for n in [1, 7, 4000, 96, 5000, 0, 4096, 2] * 3])
    assert len(np.unique(seen)) == len(seen)  # a repeat has probability 1e-10
    given_out = source._buffer[: source._used]
    assert not given_out.any()
    assert source._buffer[source._used :].all()


def test_threads_share_no_words() -> None:
    source = Randomness.system()
    found: list[NDArray[np.uint64]] = []

    def work() -> None:
        found.extend(source.words(50) for _ in range(400))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = np.concatenate(found)
    assert len(words) == 80_000
    assert len(np.unique(words)) == len(words)


def test_every_bit_is_used_and_fair() -> None:
    words = Randomness.system().words(20_000)
    for bit in range(64):
        ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
        assert abs(ones - 10_000) < 6.5 * 70.8  # 1e-10 each


@pytest.mark.parametrize(
    "noise",
    [
        DiscreteLaplace(Fraction(10**12)),
        DiscreteGaussian(Fraction(10**24)),
        HistogramsNoise(Fraction(10**12), (3, 3)),
    ],
    ids=["laplace", "gaussian", "joint"],
)
def test_no_two_cells_share_a_draw(noise: AnyNoise) -> None:
    """Wide laws give equal or opposite values to two of eighteen cells with a probability below 1e-9."""
    source = Randomness.system()
    drawn = [source.measure(np.zeros(6, np.int64), noise) for _ in range(3)]
    assert len(np.unique(np.abs(np.concatenate(drawn)))) == 18


def test_one_drawn_noise_does_not_serve_several_numbers() -> None:
    law, source = DiscreteLaplace(Fraction(3)), Randomness.seeded(1)
    counts = np.array([5, 6, 7])
    drawn = source.draw(law, 3)
    assert np.array_equal(source.measure(counts, law, drawn), counts + drawn)
    for wrong in (drawn[:1], np.int64(2), drawn[None]):
        with pytest.raises(ConfigError, match="other numbers"):
            source.measure(counts, law, np.asarray(wrong))
    with pytest.raises(ConfigError, match="other numbers"):
        source.measure(np.zeros((3, 3), np.int64), law)


def test_seeded_streams_repeat_and_say_so() -> None:
    for seed in (0, -3, 7, "7", b"7", 10**40):
        a, b = Randomness.seeded(seed), Randomness.seeded(seed)
        assert (a.words(9000) == b.words(9000)).all()
        assert (a.draw(DiscreteLaplace(Fraction(3)), 50) == b.draw(DiscreteLaplace(Fraction(3)), 50)).all()
        assert not a.secure
    assert Randomness.system().secure
    first = {int(Randomness.seeded(seed).words(1)[0]) for seed in (7, "7", b"7", 8)}
    assert len(first) == 4
    for bad in (1.5, None, True):
        with pytest.raises(ConfigError):
            Randomness.seeded(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 64, 1000])
def test_below_is_uniform(bound: int) -> None:
    source = Randomness.system()
    found = np.array([uniform_below(bound, source.words) for _ in range(25 * max(bound, 40))])
    assert found.min() >= 0
    assert found.max() < bound
    assert categorical(found, np.full(bound, 1 / bound)) > P_LOW


def test_below_beyond_one_word() -> None:
    source = Randomness.system()
    values = [uniform_below(3 * 2**70, source.words) for _ in range(200)]
    assert all(0 <= value < 3 * 2**70 for value in values)
    assert max(values) > 2**70  # fails with probability 3^-200
    with pytest.raises(ConfigError):
        source.words(-1)
