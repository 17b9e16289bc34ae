"""Ctrl-C between steps stops at once; inside a step it waits for the step's end; twice, it does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class Guard:
    """Holds SIGINT and SIGTERM while a step is under way.

    A second signal aborts the step: it is not committed then, and the state is clean as well (the store
    commits a step whole or not at all).
    """

    def __init__(self) -> None:
        self.stop = False
        self._holding = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Handlers belong to the main thread; elsewhere Python's own stay in place.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A step is under way."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self._holding or self.stop:
            raise KeyboardInterrupt
        self.stop = True
