"""The last net: what a verb does not catch, as one sentence and an exit code, or as a bug with its traceback.

Verbs refuse what they know of in their own words. An error of the system that comes of a person's input is explained;
one that tells of a mistake in the program (a closed descriptor, a missing file of the installation) stays a bug: it
keeps its traceback and exit code 1, but not the text of an exception that is not ours.

The text of a foreign exception may quote a private value, and what stands on standard error is kept in logs. So of
every exception in the chain the type and the frames are shown, and the text only where the exception is ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from dpstream.core.errors import DpstreamError
from dpstream.core.paths import WRONG_PATH, shown_path
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
        threading.excepthook = lambda failure: _show(failure.exc_type, failure.exc_value)
        sys.unraisablehook = lambda failure: _show(failure.exc_type, failure.exc_value)
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
            "error: a bug in dpstream or a library; texts of exceptions may hold private values, and are left out.",
            f"To see them, set {ASKED}=full on a private terminal.",
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


_INPUT, _STORE = 2, 4
_KEPT = "what is committed is kept: repeat the command"
#: The path is at fault, and it is one that a person gave: the program's own files are looked up below.
_PATHS = frozenset(
    {
        *WRONG_PATH,
        *(errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENXIO, errno.ENODEV),
        *(errno.ENOTBLK, errno.EXDEV, errno.EOPNOTSUPP, errno.ESPIPE),
    }
)
#: Calls on a wrong descriptor, address or process: nobody's input leads there.
_BUGS = (errno.EBADF, errno.EFAULT, errno.ECHILD, errno.ESRCH, errno.EDOM, errno.ERANGE, errno.ENOSYS)
_OWN = Path(__file__).resolve().parents[1]


def explain(error: BaseException) -> tuple[str, int] | None:
    """The sentence and the exit code; None for what is a bug (and for all exceptions of other kinds).

    No text of the exception is repeated but the path: other libraries quote what they read.
    """
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, MemoryError):
        return f"not enough memory; {_KEPT}", _STORE
    if isinstance(error, RecursionError):
        return f"the input is nested too deep (found by {_place(error)})", _INPUT
    if isinstance(error, OverflowError):
        return f"a number is too large (found by {_place(error)})", _INPUT
    if isinstance(error, UnicodeEncodeError) and error.encoding.lower().replace("-", "") == "utf8":
        return "a text holds an unwritable character", _INPUT
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return "a path holds a NUL character", _INPUT
    return None


def _of_the_system(error: OSError) -> tuple[str, int] | None:
    if error.errno is None or error.errno in _BUGS:
        return None
    name = None if not isinstance(error.filename, (str, bytes, os.PathLike)) else os.fsdecode(error.filename)
    if name is not None and Path(name).absolute().is_relative_to(_OWN):
        return None
    reason = WRONG_PATH.get(error.errno) or os.strerror(error.errno)
    if error.errno in _PATHS:
        # Without a path it was not a person's path that was wrong.
        return None if name is None else (f"{shown_path(name)}: {reason}", _INPUT)
    place = "" if name is None else f"{shown_path(name)}: "
    return f"{place}{reason}; {_KEPT}", _STORE


def _place(error: BaseException) -> str:
    """The line of this program where the error came up: public, and enough to find a bug in the program."""
    place, trace = "dpstream", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("dpstream."):
            place = f"{module}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place
