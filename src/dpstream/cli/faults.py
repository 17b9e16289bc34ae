"""What the system, numbers and nested files raise, as one sentence and the documented exit code: in one place.

Verbs refuse what they know of in their own words, and before they open it; this is for the rest. An error that tells
of a mistake in the program (a closed descriptor, a missing file of the installation) is not explained: it stays a bug.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dpstream.core.paths import WRONG_PATH, shown_path

_INPUT, _STORE = 2, 4
#: The path is at fault, and it is one that a person gave: the program's own files are looked up below.
_PATHS = {
    **WRONG_PATH,
    errno.ENOENT: "there is no such file or folder",
    errno.EISDIR: "this is a folder, and a file is needed",
    errno.EEXIST: "there is something of this name already",
    errno.ENOTEMPTY: "the folder is not empty",
    errno.ENXIO: "this is a device or a named pipe that nobody reads",
    errno.ENODEV: "this is a device that cannot be used",
    errno.ENOTBLK: "this is not a file",
    errno.EXDEV: "the file cannot be moved to another disk",
    errno.EOPNOTSUPP: "this is not a file",
    errno.ESPIPE: "this is a pipe, and a file is needed",
}
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
        return "there is not enough memory; what is committed is kept, and the same command can go on", _STORE
    if isinstance(error, RecursionError):
        return f"something that was read is nested too deep (found by {_place(error)})", _INPUT
    if isinstance(error, OverflowError):
        return f"a number is too large to be computed with (found by {_place(error)})", _INPUT
    if isinstance(error, UnicodeEncodeError) and error.encoding.lower().replace("-", "") == "utf8":
        return "a name or text holds a character that cannot be written", _INPUT
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return "a path holds a NUL character, which no name can hold", _INPUT
    return None


def _of_the_system(error: OSError) -> tuple[str, int] | None:
    if error.errno is None or error.errno in _BUGS:
        return None
    name = None if not isinstance(error.filename, (str, bytes, os.PathLike)) else os.fsdecode(error.filename)
    if name is not None and Path(name).absolute().is_relative_to(_OWN):
        return None
    if error.errno in _PATHS:
        # Without a path it was not a person's path that was wrong.
        return None if name is None else (f"{shown_path(name)}: {_PATHS[error.errno]}", _INPUT)
    place = "" if name is None else f"{shown_path(name)}: "
    reason = os.strerror(error.errno)
    return f"{place}{reason}; what is committed is kept, and the same command can go on", _STORE


def _place(error: BaseException) -> str:
    """The line of this program where the error came up: public, and enough to find a bug in the program."""
    place, trace = "dpstream", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("dpstream."):
            place = f"{module}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place
