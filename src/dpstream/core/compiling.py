"""Numba's compiler, whose code is kept by what was compiled, and which also works where nothing can be written.

Numba keeps compiled code by the path and time of its source, so each install compiles anew. Here the folder is named by
the sources' content: ``NUMBA_CACHE_DIR``, the user's cache, or beside the package. Where none of them can be written,
every process compiles, and says so once. The results are the same.

What is compiled in this process, because no kept code was found, is told before it is compiled (``telling``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
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

    _place_first()
    try:
        made = numba.njit(*given, cache=True, **options)(function)
        _kept_functions.append(made)
        return made
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
    _tell()
    return numba.njit(*given, **options)(function)


@cache
def _place_first() -> None:
    """Numba asks ``_Place`` before its own rules."""
    from numba.core.caching import CacheImpl

    CacheImpl._locator_classes = [_Place, *CacheImpl._locator_classes]


class _Place:
    """Where code of a function is kept, as Numba asks it."""

    def __init__(self, folder: Path, line: int) -> None:
        self._folder, self._line = folder, line

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Place | None:
        if not function.__module__.startswith("dpstream.") or not os.path.exists(file):
            return None
        for folder in _folders(Path(file).parent):
            place = cls(folder, function.__code__.co_firstlineno)
            with contextlib.suppress(OSError):
                place.ensure_cache_path()
                return place
        raise RuntimeError("cannot cache: no folder can be written")

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self._folder).close()

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return ""  # the folder's name says it

    def get_disambiguator(self) -> str:
        return str(self._line)


@cache
def _folders(sources: Path) -> tuple[Path, ...]:
    """Folders for code compiled from ``sources``, best first. A function may call others of its folder only."""
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    name = f"{sources.name}-{digest.hexdigest()[:16]}"
    named = os.environ.get("NUMBA_CACHE_DIR")
    cached = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # A user without an entry has no home, and ``~`` stays.
    shared = [] if cached.startswith("~") else [Path(cached) / "dpstream"]
    places = [*([Path(named)] if named else []), *shared, sources / "__pycache__"]
    return tuple(place / name for place in places)


def _tell() -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            "compiled code cannot be kept, so each process compiles anew; set NUMBA_CACHE_DIR to a "
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
