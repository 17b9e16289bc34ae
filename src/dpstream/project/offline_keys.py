"""Keys of the baseline's offline mechanism; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.families.tabular import AIM
from dpstream.project.output_keys import Key

__all__ = ["OFFLINE", "OFFLINE_KEYS", "OF_OFFLINE"]

#: Mechanisms for one table; the first is the default.
OFFLINE = ("mwem-pgm", "aim")
#: Options that only one of them has.
OF_OFFLINE = {
    "mwem-pgm": ("k", "score"),
    "aim": ("rounds", "columns_share", "unions", "final_iterations"),
}

_BASELINE = ("baseline",)

OFFLINE_KEYS: tuple[Key, ...] = (
    Key(
        "mechanism",
        "offline",
        ", ".join(OFFLINE),
        OFFLINE[0],
        "batches are small, and it is as published",
        "What the baseline runs on every batch: MWEM+PGM, or AIM, which measures the columns first and then as many "
        "marginals as the noise allows, and takes 0.1 to 0.5 s.",
        _BASELINE,
    ),
    Key(
        "mechanism",
        "columns_share",
        "an exact number between 0 and 1, with offline = aim",
        str(AIM.columns_share),
        "columns are in every marginal",
        "Part of a run's budget for single columns, at least.",
        _BASELINE,
    ),
    Key(
        "mechanism",
        "unions",
        "true, false, with offline = aim",
        str(AIM.unions).lower(),
        "one measurement then tells of three pairs; with rho it never does",
        "Whether unions of three columns may be measured for the pairs in them.",
        _BASELINE,
    ),
    Key(
        "mechanism",
        "final_iterations",
        "1 or more, with offline = aim",
        str(AIM.final_iterations),
        "the last fit of a run is the one that is released",
        "Iterations of the fit after the columns and after the last round.",
        _BASELINE,
    ),
)
