# mypy: allow-untyped-defs, allow-untyped-calls
"""For functions that only compiled functions call: no wrapper for Python, which halves their compile time.

Numba compiles a function anew for each constant that it is called with: a constant argument is written ``np.int64(0)``.
"""

from __future__ import annotations

from functools import partial

from dpstream.core.compiling import njit

inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@inner()
def copy(source, target):
    """``target[: len(source)] = source`` (Numba's own slice assignment compiles string formatting)."""
    for j in range(len(source)):
        target[j] = source[j]
