"""Numba's compiler, which also works where nothing can be written.

Numba keeps compiled code in files: in ``NUMBA_CACHE_DIR``, beside the package, or in the user's cache folder. Where
none of them can be written it raises an error at import. Here it then compiles in every process anew, and says so
once. The results are the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["UncachedWarning", "njit"]

_told = False


class UncachedWarning(UserWarning):
    """Compiled code cannot be kept: every process compiles anew."""


def njit(*given: Any, cache: bool = False, **options: Any) -> Any:
    """``numba.njit``; ``cache`` where there is a place for it."""
    import numba

    if not cache:
        return numba.njit(*given, **options)
    if len(given) == 1 and callable(given[0]):
        return _kept(given[0], (), options)
    return lambda function: _kept(function, given, options)


def _kept(function: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    import numba

    if _has_place(function, numba.config.CACHE_DIR):
        try:
            return numba.njit(*given, cache=True, **options)(function)
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
            "compiled code cannot be kept, so every process compiles anew, which takes some seconds; name a "
            "folder that only this user can write: NUMBA_CACHE_DIR",
            UncachedWarning,
            stacklevel=4,
        )
