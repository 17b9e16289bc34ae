"""The last net: a bug keeps its traceback and exit code 1, but not the text of an exception that is not ours.

The text of a foreign exception may quote a private value, and what stands on standard error is kept in logs. So of
every exception in the chain the type and the frames are shown, and the text only where the exception is ours.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType

from dpstream.core.errors import DpstreamError
from dpstream.core.showing import shown

#: Set to ``full`` by the owner of the data, at their own terminal, to see the exceptions as they are.
ASKED = "DPSTREAM_TRACEBACK"


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Around a verb: what it does not catch, its threads and finalizers included, is printed by ``report``.

    The exception itself goes on, and ends the interpreter with code 1 as ever.
    """
    if os.environ.get(ASKED) == "full":
        yield
        return
    import threading

    if sys.unraisablehook is sys.__unraisablehook__:  # else somebody (a test) looks after them
        threading.excepthook = lambda told: _show(told.exc_type, told.exc_value)
        sys.unraisablehook = lambda told: _show(told.exc_type, told.exc_value)
    try:
        yield
    except Exception:
        # It is printed when the interpreter ends, after this.
        sys.excepthook = _show
        raise


def _show(
    _kind: type[BaseException], error: BaseException | None, _frames: TracebackType | None = None
) -> None:
    if error is not None:
        print(shown(report(error)), file=sys.stderr)


def report(error: BaseException) -> str:
    """A traceback without foreign texts and without values of variables, and how its owner can see all of it."""
    lines = _chain(error, set())
    return "\n".join(
        [
            *lines,
            "error: this is a bug in dpstream or in a library; texts of exceptions are left out, because they may hold",
            f"private values. Who may see those runs the same command with {ASKED}=full, on a terminal of their own.",
        ]
    )


def _chain(error: BaseException, seen: set[int]) -> list[str]:
    """The exceptions that led to this one, and this one, oldest first."""
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines: list[str] = []
    if before is not None and id(before) not in seen:
        lines = [*_chain(before, seen), "", "and then:", ""]
    # Of a frame, the line of our code is shown, which is public; values of variables are not.
    frames = traceback.extract_tb(error.__traceback__)
    lines.append("Traceback (most recent call last):")
    lines += [line.rstrip("\n") for line in traceback.format_list(frames)]
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    lines.append(f"{name}: {error}" if isinstance(error, DpstreamError) else name)
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            lines += [f"  {line}" for line in _chain(part, seen)]
    return lines
