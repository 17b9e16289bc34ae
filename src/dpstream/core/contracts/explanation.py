"""What a plan says about itself, for texts and programs that do not know which mechanism it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpstream.core.privacy.unit import Individual, Record, Unit

#: Follows what is said about the number of records.
COUNTS_UNKNOWN = ". How wrong its counts may be is not known"


@dataclass(frozen=True)
class PrintedTable:
    """A table for readers.

    Attributes:
        headings: of the columns, by the rows' keys.
        rows: texts, numbers and None (unknown) by key; keys without a heading are for programs only.
    """

    headings: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Explanation:
    """What a plan says before any data are read; all of it is public. ``usual`` suits any mechanism.

    Attributes:
        published: what is published, and how it is made: the sentences before and after the words that say how often.
        number_told: what each release tells of its number of records ("Published with each table: ..., and ...").
        counts_told: goes on with what it tells of its counts; empty where ``number_told`` says everything.
        costs: why further steps cost those who are in earlier ones no more, as a sentence.
        row: what a row of a released table is, for the codebook; empty where a schema says enough.
        warning: what a reader of released rows has to know before anything else; empty where there is nothing.
        says: sentences and tables about noise and accuracy, for ``dpstream plan``.
        further: more of them, below the size; an empty sentence is an empty line.
        facts: the same for programs: what ``dpstream plan --json`` has besides the keys of every mechanism.
        deviation: standard deviation of one cell of one measurement, in records or people; None where it is unknown.
        running_sum: the same of a marginal's running sum, by the number of measurements; None where there is none.
        compared: what ``--compare-epsilon`` shows in place of the deviation: key, heading and value.
        size: about the marginals of a workload: ``marginals``, ``cells`` and ``largest_marginal``; where the plan can
            tell, what a step needs for them, about: ``step_bytes`` and ``step_seconds`` (of CPU).
        growth: how the state grows, after "10 kB at the start, ".
        predicted: what the numbers of ``expected_errors`` without a table are.
        predicted_note: the same in one sentence, below their table.
    """

    published: tuple[str, str]
    number_told: str
    counts_told: str
    costs: str
    row: str = ""
    warning: str = ""
    says: tuple[str | PrintedTable, ...] = ()
    further: tuple[str | PrintedTable, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    deviation: float | None = None
    running_sum: Mapping[str, float] | None = None
    compared: tuple[str, str, float | None] | None = None
    size: Mapping[str, int] = field(default_factory=dict)
    growth: str = "whatever the number of rows"
    predicted: str = (
        "every_step: one cell of a marginal that is measured at every step. even_share: one cell of the running sum "
        "of a marginal's measurements; what the model books for the other steps is not included, so it is no error "
        "of a released count. Where the stream may delete: of inserts less deletes."
    )
    predicted_note: str = (
        "At its even share: the measurements only, without what the model expects of other steps."
    )

    @classmethod
    def usual(cls, names: Sequence[str], unit: Unit, composition: str | None) -> Explanation:
        """The explanation of a mechanism that says nothing of its own: it publishes tables with these columns."""
        if isinstance(unit, Individual):
            costs = (
                "A person is in every period, and all that the person reports is paid for together: further periods up "
                "to the planned number cost nothing more."
            )
        elif composition is not None:
            costs = sentence(composition)
        elif isinstance(unit, Record):
            costs = (
                "A record is charged once for its whole stay, in however many tables it is and however often it is "
                "updated. Further tables therefore cost nothing more."
            )
        else:
            costs = (
                "Every record is charged in the one step it belongs to. Further tables therefore cost those who are in "
                "earlier ones nothing more, and the sum over all tables stays what one step costs."
            )
        return cls(
            table_published(names),
            "that its number of records is exact"
            if unit.relation == "replace"
            else "how wrong its number of records may be",
            ", and how wrong its counts may be, where that is known",
            costs,
        )


def table_published(names: Sequence[str], made_from: str = "noisy counts", also: str = "") -> tuple[str, str]:
    """``Explanation.published`` for synthetic tables with these columns."""
    return (
        "A synthetic table is published ",
        f". It has the columns {', '.join(names)}. Its rows are invented by a program from {made_from}.{also} None is "
        "copied from a record of a person; one may look like such a record by chance.",
    )


#: How large noisy counts are.
_LINE_SIZE = "That is a line of about 200 bytes for each measurement, and 2 to 8 bytes for each number"


def with_measurements(
    own: Explanation, words: str, facts: Mapping[str, Any], size: str = _LINE_SIZE
) -> Explanation:
    """The same explanation, with how many noisy counts are published, and when.

    Args:
        words: "at every step 12 numbers", ..., after "is published beside the tables, as it is measured: ".
        facts: the same for programs.
        size: how many bytes the files take, in words.
    """
    told = (
        f"What is measured is published beside the tables, as it is measured: {words}. {size}. "
        "These files are kept when tables expire. None are published with [output] measurements = false."
    )
    return replace(
        own,
        further=(*own.further, told),
        facts={**own.facts, "noisy_counts": {**facts, "words": told}},
    )


def counts_words(measured: int, *, with_base: bool) -> str:
    """What a manifest says of counts where so many marginals were measured at every step."""
    if with_base:
        return (
            "No other released count has an error bar: part of every count comes from the table that the stream began "
            "with."
        )
    if not measured:
        return (
            "No other released count has an error bar: the plan measures no marginal at every step, so part of every "
            "count is what the model expects, and no public noise scale tells how wrong it is."
        )
    which = "The listed marginal is" if measured == 1 else f"The {measured} listed marginals are"
    return (
        f"{which} measured at every step: counts over the columns of one of them, or of some of its columns, "
        "have error bars; all other counts have none, because part of them is what the model expects."
    )


def sentence(words: str) -> str:
    """The words as a sentence: with a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def shown_bytes(count: int) -> str:
    """A size for readers.

    >>> shown_bytes(1), shown_bytes(2_340_000)
    ('1 kB', '2.3 MB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 10**6 else f"{max(1, round(count / 1e3))} kB"
