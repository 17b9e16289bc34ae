"""Uniform random words: of the operating system, each handed out once, or repeatable ones for tests.

Trusted base: kernel (the words that noise is made of).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError

# Words fetched at a time: a stream step needs hundreds; large draws bypass the buffer.
_BUFFER_WORDS = 4096
_fork_count = 0


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


class Entropy:
    """Independent uniform 64-bit words.

    Guarantee: ``system()`` reads the operating system's generator (``os.urandom``). A word is handed out once: buffers
    are overwritten after use, guarded by a lock, and dropped in a forked child, so that parent and child never share
    noise.
    """

    #: False where the words can be predicted; such output is marked ``made_with_test_seed``.
    secure: bool = False

    def __init__(self, source: Callable[[int], bytes], *, secure: bool = False) -> None:
        """``source(n)`` gives n uniform bytes. Use ``system`` or ``seeded``."""
        self.secure = secure
        self._source = source
        self._buffer = np.empty(0, dtype=np.uint64)
        self._used = 0
        self._process = (os.getpid(), _fork_count)
        self._lock = threading.Lock()

    @classmethod
    def system(cls) -> Self:
        """Entropy of the operating system."""
        return cls(os.urandom, secure=True)

    @classmethod
    def seeded(cls, seed: int | str | bytes) -> Self:
        """A repeatable stream (SHAKE-256 in counter mode). Tests and simulations only: no privacy.

        >>> a, b = Entropy.seeded(7), Entropy.seeded(7)
        >>> bool((a.words(5) == b.words(5)).all()), a.secure
        (True, False)
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, str, bytes)):
            raise ConfigError("expected a seed: integer, text or bytes", where="seed")
        return cls(_SeededSource(repr(seed).encode()), secure=False)

    def words(self, n: int) -> NDArray[np.uint64]:
        """``n`` independent uniform 64-bit words, never handed out before."""
        if n < 0:
            raise ConfigError("negative number of words", where="randomness")
        if self._process != (os.getpid(), _fork_count):
            self._after_fork()
        with self._lock:
            if n > _BUFFER_WORDS:
                return self._fetch(n)
            if self._used + n > len(self._buffer):
                # The unused rest is dropped: simpler than joining, and entropy is cheap.
                self._buffer, self._used = self._fetch(_BUFFER_WORDS), 0
            taken = self._buffer[self._used : self._used + n]
            given = taken.copy()
            taken.fill(0)
            self._used += n
            return given

    def _fetch(self, n: int) -> NDArray[np.uint64]:
        return np.frombuffer(bytearray(self._source(8 * n)), dtype="<u8").astype(np.uint64, copy=False)

    def _after_fork(self) -> None:
        # The parent goes on with the same buffer, and its lock may have been held by another thread.
        self._lock = threading.Lock()
        self._process = (os.getpid(), _fork_count)
        if self.secure:
            self._buffer, self._used = np.empty(0, dtype=np.uint64), 0


class _SeededSource:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self._block = 0

    def __call__(self, n: int) -> bytes:
        self._block += 1
        message = self._key + b"/" + str(self._block).encode()
        return hashlib.shake_256(message).digest(n)
