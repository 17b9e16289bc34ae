"""Which counter a DP-STabS stream takes. Public: from the plan alone."""

from __future__ import annotations

from dpstream.core.counters import Choice, Counter, SimpleCounter, best, counter_by_name
from dpstream.core.counters.choose import EXPECTED_TICKS
from dpstream.core.errors import HorizonError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.unit import Event
from dpstream.core.tables import Workload

#: The name that leaves the choice to the predicted error.
BEST = "best"


def expected_ticks(steps: int | None, rounds: int, marginals: int) -> int:
    """How often a marginal is measured if they take turns; 250 steps are expected where there is no horizon.

    >>> expected_ticks(1000, 4, 78), expected_ticks(52, 3, 3), expected_ticks(None, 1, 2), expected_ticks(1, 1, 9)
    (52, 52, 125, 1)
    """
    return -(-(steps or EXPECTED_TICKS) * rounds // marginals)


def counter_for(
    wanted: Counter | str,
    workload: Workload,
    rounds: int,
    budget: Budget,
    unit: Event,
    steps: int | None,
    *,
    all_measured: bool,
) -> tuple[Counter, Choice | None]:
    """The counter of each marginal, and how it was chosen where it was.

    Args:
        wanted: a recipe, a name, or ``BEST``: that with the smallest predicted error for as many ticks as a marginal
            is expected to get. Counters that need a horizon are built for all steps, since a selection may pick one
            marginal at every step.
        all_measured: the released table is then fitted to running sums, and their errors are compared. Where
            marginals take turns, what the other steps brought comes from a model that learns from single gains, and
            the simple counter has the smallest error of a gain: it is ``BEST``, and nothing is compared.
        budget: of one counter.
        steps: the stream's horizon.

    Errors:
        ConfigError: an unknown name. HorizonError: a counter that may end before the stream.
    """
    marginals = workload.cliques
    ticks = expected_ticks(steps, rounds, len(marginals))
    if wanted == BEST and not all_measured:
        return SimpleCounter(), None
    if wanted == BEST:
        cells = sum(workload.domain.cells(clique) for clique in marginals)
        choice = best(budget, unit, horizon=steps, expected_ticks=ticks, width=cells)
        return choice.recipe, choice
    # The constants of "blt" are those that ``best`` would take: a stream can go on with the name of what was chosen.
    hint = ticks if steps is None and wanted == "blt" else steps
    recipe = counter_by_name(wanted, horizon=hint) if isinstance(wanted, str) else wanted
    # A counter that ends before the stream would fail at the step at which a private selection picks it.
    ends = recipe.tick_limit
    if ends is not None and (steps is None or ends < steps):
        raise HorizonError(
            f"the counter {recipe.name!r} is built for {ends} ticks, the stream for "
            + ("an unknown number of steps" if steps is None else f"{steps} steps"),
            where="mechanism",
            allowed="a counter for at least as many ticks as the horizon has steps",
        )
    return recipe, None
