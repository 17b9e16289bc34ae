"""The options of growing databases and of their black boxes, in the order in which they are shown."""

from __future__ import annotations

from dpstream.core.contracts import Option
from dpstream.families.tabular import options

#: ``scheduler.py`` names the recipes that it may be.
BLACK_BOX = Option(
    meaning="What is run on the whole database, again and again: MWEM+PGM; MWEM on the cells of all columns (up to "
    "10^7); SmallDB, which compares all small databases (exact, for a handful of cells); or `erm`, a classifier.",
    reason="it measures whole marginals and needs no universe",
    key="black_box",
    placed=True,
)
FIRST_RUN = Option(
    "a number of records from 1",
    "The size at which the database is looked at for the first time; releases before it are uniform. The budgets "
    "follow from it: a late start leaves more for each run.",
    key="first_run",
)
GAMMA = Option(
    'an exact number from 1/1000 to below 1, such as "0.1"',
    "The black box runs again when the records have grown by the factor 1 + gamma.",
    "of SmallDB the accuracy is known as a function of the budget, and gamma follows from it",
    "not set; needed unless black_box = smalldb",
)
C = Option(
    "an exact number from 1/1000 to below 1, at most half of first_run",
    "How fast the budget is spent: at t records the part (first_run / t)^(2c) of it is left.",
    "half of the budget is left when there are 32 times the records of the first run",
)
BETA = Option(
    "an exact number between 0 and 1",
    "The probability that any promised accuracy fails, over all time.",
    "what is promised of all runs holds in 95 of 100 streams",
)
ACCOUNTING = Option(
    "exact, paper (with epsilon below 1 and delta below 1/e)",
    "How an (epsilon, delta) or rho is shared among the runs: scaled so that all of them together cost it, or as "
    "published (`paper`). A pure epsilon is shared as published in any case.",
    "the published budgets leave most of an (epsilon, delta) unspent",
)
ROUNDS = options.ROUNDS.but()
SIZE = Option(
    "a number from 1, with black_box = smalldb",
    "Records of the small database. At most 200,000 databases of that size are compared.",
    "it follows from the accuracy that the first run promises",
    "not set",
)
