"""Keys of growing databases; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.project.output_keys import Key

__all__ = ["BLACK_BOXES", "GROWING", "GROWING_KEYS"]

#: Mechanisms that run a black box again as the database grows.
GROWING = ("scheduler", "improver")
_SCHEDULER, _IMPROVER = GROWING[:1], GROWING[1:]

BLACK_BOXES = ("mwem-pgm", "mwem", "smalldb", "erm")

GROWING_KEYS: tuple[Key, ...] = (
    Key(
        "mechanism",
        "black_box",
        ", ".join(BLACK_BOXES),
        "mwem-pgm",
        "it measures whole marginals and needs no universe",
        "What is run on the whole database, again and again: MWEM+PGM; MWEM on the cells of all columns (up to 10^7); "
        "SmallDB, which compares all small databases (exact, for a handful of cells); or `erm`, a classifier.",
        GROWING,
    ),
    Key(
        "mechanism",
        "first_run",
        "a number of records from 1",
        None,
        "",
        "The size at which the database is looked at for the first time; releases before it are uniform. The budgets "
        "follow from it: a late start leaves more for each run.",
        GROWING,
    ),
    Key(
        "mechanism",
        "gamma",
        'an exact number from 1/1000 to below 1, such as "0.1"',
        "not set; needed unless black_box = smalldb",
        "of SmallDB the accuracy is known as a function of the budget, and gamma follows from it",
        "The black box runs again when the records have grown by the factor 1 + gamma.",
        _SCHEDULER,
    ),
    Key(
        "mechanism",
        "c",
        "an exact number from 1/1000 to below 1, at most half of first_run",
        "1/10",
        "half of the budget is left when there are 32 times the records of the first run",
        "How fast the budget is spent: at t records the part (first_run / t)^(2c) of it is left.",
        _IMPROVER,
    ),
    Key(
        "mechanism",
        "beta",
        "an exact number between 0 and 1",
        "1/20",
        "what is promised of all runs holds in 95 of 100 streams",
        "The probability that any promised accuracy fails, over all time.",
        GROWING,
    ),
    Key(
        "mechanism",
        "accounting",
        "exact, paper (with epsilon below 1 and delta below 1/e)",
        "exact",
        "the published budgets leave most of an (epsilon, delta) unspent",
        "How an (epsilon, delta) or rho is shared among the runs: scaled so that all of them together cost it, or as "
        "published (`paper`). A pure epsilon is shared as published in any case.",
        GROWING,
    ),
    Key(
        "mechanism",
        "rounds",
        "a number from 1: to the cells of the workload with black_box = mwem, to 100 with offline = aim",
        "10, or all cells if fewer; of AIM, from a noisy number of records",
        "each further one takes its share of a run's budget from the others",
        "Cells of marginals that MWEM measures in a run; marginals that a run of AIM selects.",
        (*GROWING, "baseline"),
    ),
    Key(
        "mechanism",
        "size",
        "a number from 1, with black_box = smalldb",
        "not set",
        "it follows from the accuracy that the first run promises",
        "Records of the small database. At most 200,000 databases of that size are compared.",
        GROWING,
    ),
)
