"""Ctrl-C between steps stops at once; inside a step it waits for the step's end; twice, it does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Self


@contextmanager
def signalled(handle: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Another handler of SIGINT and SIGTERM. They belong to the main thread; elsewhere Python's own stay in place."""
    main = threading.current_thread() is threading.main_thread()
    numbers = [signal.SIGINT, signal.SIGTERM] if main else []
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Guard:
    """Holds SIGINT and SIGTERM while a step is under way.

    A second signal aborts the step: it is not committed then, and the state is clean as well (the store
    commits a step whole or not at all).
    """

    def __init__(self) -> None:
        self.stop = False
        self._holding = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(signalled(self._handle))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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
