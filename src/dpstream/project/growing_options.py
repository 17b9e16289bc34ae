"""Growing databases in a configuration file: the options, and what does not go with them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, cast, get_args

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import Unit
from dpstream.core.privacy.unit import Event
from dpstream.core.schema import Schema
from dpstream.core.tables import Workload
from dpstream.families.growing import MWEM, BBImprover, BBScheduler, BlackBox, MWEMPGMBox, SmallDB
from dpstream.families.growing.distributions import AnyTable
from dpstream.families.growing.erm_stream import ClassifierPlan
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.growing.run_schedule import MAX_RECORDS, Accounting, Improvement, Run
from dpstream.project.classifier_keys import CLASSIFIER_WORDS
from dpstream.project.classifier_options import ClassifierRecipe, read_erm
from dpstream.project.growing_keys import BLACK_BOXES, GROWING
from dpstream.project.reader import Section
from dpstream.project.sections import BudgetOptions, located, mechanism_name, names_one_of, other_choice
from dpstream.project.table_options import read_offline, read_workload

__all__ = [
    "GrowingRecipe",
    "check_growing_unit",
    "coming_runs",
    "describe_growing",
    "is_growing",
    "read_growing",
]

_OF_BOX = {
    "mwem-pgm": ("k", "measure_share", "score", "iterations", "max_cells"),
    "mwem": ("rounds",),
    "smalldb": ("size",),
    "erm": CLASSIFIER_WORDS,
}
#: Runs that a plan shows where nobody asks for more.
_SHOWN = 8
#: A request for the runs up to some size is answered with so many at most.
_MOST_SHOWN = 100_000


@dataclass(frozen=True)
class GrowingRecipe:
    """The recipe of a scheduler or an improver, and the workload that its black box preserves."""

    workload: Workload
    rerun: BBScheduler | BBImprover

    def calibrate(self, **amounts: Any) -> GrowingPlan:
        """See ``BBScheduler.calibrate``."""
        return self.rerun.calibrate(**amounts)


def is_growing(section: Section) -> bool:
    """Whether ``[mechanism]`` names a scheduler or an improver; ConfigError where it names no mechanism."""
    return names_one_of(section, GROWING)


def check_growing_unit(section: Section, unit: Unit) -> None:
    """Runs are scheduled by the number of records; said here, where the remedy can be.

    Errors:
        ConfigError: another unit than event-replace.
    """
    if unit != Event("replace"):
        raise section.wrong(
            "unit" if section.has("unit") else "total",
            f"a growing database cannot protect the unit {unit.name!r}: runs are scheduled by the number of records, "
            "so it is public",
            'total = "public" (the unit becomes event-replace)',
        )


def read_growing(section: Section, schema: Schema, budget: BudgetOptions) -> GrowingRecipe | ClassifierRecipe:
    """The recipe.

    Errors:
        ConfigError: an option that is unknown, unusable, or of another mechanism or black box.
        LimitError: a black box that is too large.
    """
    name = mechanism_name(section)
    word = _box_word(section)
    workload, box = None, None
    if word != "erm":
        workload = read_workload(section, schema.domain)
        box = _box(section, word, workload)
    section.required("first_run")
    n = section.count("first_run")
    assert n is not None  # required
    beta = section.share("beta", Fraction(1, 20))
    accounting = cast(Accounting, section.choice("accounting", get_args(Accounting), "exact"))
    stated = budget.stated if accounting == "paper" else None
    rerun: BBScheduler | BBImprover
    chosen = read_erm(section, schema) if box is None else box
    with located(section.place()):
        if name == "improver":
            c = section.share("c", Fraction(1, 10))
            rerun = BBImprover(chosen, n, beta, accounting, stated, c)
        else:
            gamma = section.share("gamma", Fraction(1, 10)) if section.has("gamma") else None
            rerun = BBScheduler(chosen, n, beta, accounting, stated, gamma)
    return ClassifierRecipe(rerun) if workload is None else GrowingRecipe(workload, rerun)


def _box_word(section: Section) -> str:
    """Which black box; ConfigError for an option of another one."""
    word = section.choice("black_box", BLACK_BOXES, BLACK_BOXES[0])
    if foreign := other_choice(section, word, _OF_BOX):
        key, other = foreign
        raise section.wrong(key, f"black_box = {word!r} has no option {key!r}", f"with black_box = {other!r}")
    return word


def _box(section: Section, word: str, workload: Workload) -> BlackBox[AnyTable]:
    with located(section.place("black_box")):
        if word == "mwem-pgm":
            return MWEMPGMBox(workload, read_offline(section, workload, prior=False))
        if word == "mwem":
            box = MWEM(workload, section.count("rounds"))
            if box.rounds is None:
                section.note("rounds", str(box.measured), default=True)
            return box
        return SmallDB(workload, section.count("size"))


# What a plan tells.


def describe_growing(plan: StreamPlan) -> dict[str, Any] | None:
    """The coming runs; None for other mechanisms."""
    if not isinstance(plan, GrowingPlan):
        return None
    runs = _first(plan)
    return {
        "words": plan.describe(),
        "runs": [_run(plan, run) for run in runs],
        "if_steps": isinstance(plan.schedule, Improvement),
        "crossed": "the budget of the last one, and the others' is not spent"
        if plan.schedule.paper is not None
        else "their budgets together",
        "promised": "bound on the excess risk"
        if isinstance(plan, ClassifierPlan)
        else "promised of a share, until the next",
        "promise": _promise(plan, runs[0]),
    }


def _first(plan: GrowingPlan) -> list[Run]:
    """The first runs; of an improver, which runs at every step, those of steps that double the database."""
    if not isinstance(plan.schedule, Improvement):
        return list(islice(plan.runs(), _SHOWN))
    runs, done = list[Run](), -1
    for doubling in range(_SHOWN):
        run = plan.schedule.due(done, plan.schedule.n << doubling)
        if run is not None and run.t <= MAX_RECORDS:
            runs.append(run)
            done = run.last
    return runs


def coming_runs(plan: StreamPlan, until: int) -> list[dict[str, Any]] | None:
    """All runs up to a number of records, at most 100,000; None for other mechanisms."""
    if not isinstance(plan, GrowingPlan):
        return None
    return [_run(plan, run) for run in islice(plan.runs(until), _MOST_SHOWN)]


def _run(plan: GrowingPlan, run: Run) -> dict[str, Any]:
    return {
        "records": run.t,
        "cost": str(run.cost),
        "left": float(plan.schedule.left(run.last)),
        "given": run.budget.as_dict(),
        "beta": float(run.beta),
        "alpha": run.alpha,
        "promise": plan.promise(run),
    }


def _promise(plan: GrowingPlan, run: Run) -> str:
    """What theory says of the accuracy, in words."""
    if isinstance(plan, ClassifierPlan):
        return (
            "The bound is on the mean over the noise, for the records that a run reads, against the best classifier of "
            "the assumed norm; nothing is bounded about new records, or about records that come before the next run."
        )
    if run.alpha is None:
        return (
            "Theory promises nothing about the accuracy of this black box: measure it on invented or public records of "
            "the same columns. A choice made by looking at the private table is outside the guarantee."
        )
    bound = plan.promise(run)
    if bound is None:
        return (
            f"Theory promises nothing here: its bound on the error of a share is {run.alpha:.3g}, and no share is "
            "wrong by more than 1."
        )
    return (
        f"Theory promises that every cell of the workload is within {bound:.3g} of its share of the records, until the "
        f"next run, but for a probability of {float(plan.schedule.beta):.3g} over all time."
    )
