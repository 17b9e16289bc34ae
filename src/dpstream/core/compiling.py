"""Numba's compiler, which also works where nothing can be written.

Numba keeps compiled code in files: in ``NUMBA_CACHE_DIR``, beside the package, or in the user's cache folder. Where
none of them can be written it raises an error at import. Here it then compiles in every process anew, and says so
once. The results are the same.

What is compiled in this process, because no kept code was found, is told before it is compiled (``telling``).
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

_told = False
_say: Callable[[str], None] | None = None
_said: set[str] = set()
_kept_functions: list[Any] = []

#: What the loops of a part do; other parts are called by their names.
_PARTS = {
    "core.tables": "counting and hashing",
    "core.graphical": "fitting and sampling",
    "io.sources": "reading of csv files",
}


class UncachedWarning(UserWarning):
    """Compiled code cannot be kept: every process compiles anew."""


def njit(*given: Any, cache: bool = False, **options: Any) -> Any:
    """``numba.njit``; ``cache`` where there is a place for it."""
    import numba

    _listen()
    # Nothing here is called from C: without that entry there is less to compile.
    options.setdefault("no_cfunc_wrapper", True)
    if not cache:
        return numba.njit(*given, **options)
    if len(given) == 1 and callable(given[0]):
        return _kept(given[0], (), options)
    return lambda function: _kept(function, given, options)


def _kept(function: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    import numba

    if _has_place(function, numba.config.CACHE_DIR):
        try:
            made = numba.njit(*given, cache=True, **options)(function)
            _kept_functions.append(made)
            return made
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
    _tell()
    return numba.njit(*given, **options)(function)


def _has_place(function: Callable[..., Any], named: str) -> bool:
    """Whether Numba may be asked. Without a home it would make a folder called ``~`` wherever it is run."""
    if named or not os.path.expanduser("~").startswith("~"):
        return True
    folder = Path(function.__code__.co_filename).parent
    beside = folder / "__pycache__"
    return os.access(beside if beside.exists() else folder, os.W_OK)


def _tell() -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            "compiled code cannot be kept, so each process compiles for seconds; set NUMBA_CACHE_DIR to a "
            "folder that only this user can write",
            UncachedWarning,
            stacklevel=4,
        )


@contextlib.contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Within it ``say`` gets one sentence for each part of the program whose loops have to be compiled, before they
    are."""
    global _say
    before, _say = _say, say
    try:
        yield
    finally:
        _say = before


def kept_in() -> str | None:
    """The folder of kept code, as far as functions are loaded; None where none can be kept."""
    if _told or not _kept_functions:
        return None
    return os.path.commonpath([str(function.stats.cache_path) for function in _kept_functions])


@cache
def _listen() -> None:
    """Hear from Numba what it compiles; what it finds in files is not compiled."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            _compiles(event.data["dispatcher"].py_func.__module__)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Listener())


def _compiles(module: str) -> None:
    first, _, rest = module.partition(".")
    part = ".".join(rest.split(".")[:2])
    if _say is None or first != "dpstream" or part in _said:
        return
    _said.add(part)
    ahead = "" if _told else ", once per machine (`dpstream warm` does so ahead)"
    _say(f"compiling loops for {_PARTS.get(part, part)}{ahead}")
