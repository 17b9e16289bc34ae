"""What plans and manifests of pooled streams say in words."""

from __future__ import annotations

from fractions import Fraction


def epoch_words(
    share: Fraction,
    every: int,
    workload: int,
    season: Fraction | None,
    *,
    holds: bool,
    public: bool,
    all_columns: bool,
) -> dict[str, str]:
    """The paragraphs of a plan.

    Args:
        share: how old a release may be. every: how many first steps are epochs of their own.
        workload: the number of its marginals. season: its steps; None: there is none.
        holds: whether a release stays, between two borders, as it was measured.
        public: whether the number of records is. all_columns: whether every run measures all columns.
    """
    late = f"one part in {share.denominator}" if share.numerator == 1 else f"a share of {share}"
    until = "stays as it was measured until" if holds else "goes on as the last epoch went, until"
    words = {
        "epochs": "Steps are measured together, in epochs that end with fixed steps; the first "
        f"{'is' if every == 1 else f'{every} are'} measured one by one. Later a release {until} the next end: at "
        f"most {late} of the steps so far is not measured yet.",
        "errors": "No count of a released table has an exact error: counts join measurements of many epochs, by a "
        "rule that follows what was measured. What was measured is published, and dpstream measured adds it up. It has "
        "intervals at the ends of epochs: of "
        + ("" if public else "the number of records and of ")
        + "headlines at every one; of columns "
        + (
            "likewise"
            if all_columns
            else "at step 1, and further on as long as they are found to drift (where they do not, often for 3 to 9 "
            "steps only)"
        )
        + "; of other marginals at none. dpstream errors finds out by simulation how far tables are off. "
        + (
            "The number of records is declared public."
            if public
            else "The number of records has a standard error in the releases that end an epoch."
        ),
        "instead": f'For error bars of counts: name = "dpstabs" with k = {workload}, all '
        "marginals at every step.",
    }
    if season is not None:
        words["season"] = (
            f"The owner says that what comes repeats itself every {season} steps: tables follow "
            "that as far as noisy counts show it."
        )
    return words


def counts_words(step: int, last: int, following: int, *, holds: bool, headlines: bool) -> str:
    """Which steps are measured, and why no count has an error bar.

    Args:
        last, following: the borders before and after the step. holds: as of ``epoch_words``.
        headlines: whether there are any.
    """
    words = "All steps so far are measured."
    if step > last:
        behind = "the last step" if step == last + 1 else f"the last {step - last} steps"
        words = (
            f"The counts are those of step {last}; {behind} will be measured with step {following}."
            if holds
            else f"The counts of {behind} are expected from those before, not measured; they will be with step "
            f"{following}."
        )
    if headlines:
        words += f" Noisy counts of the headlines up to step {last} are published beside the tables."
    return (
        f"{words} No other released count has an error bar: it joins measurements of whole groups of steps and "
        "answers of models, by a rule that follows what was measured, and no public noise scale tells how wrong it "
        "is."
    )
