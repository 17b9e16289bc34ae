"""Whether a table is fit for its uses: one word and one sentence per use, from standard errors against its size.

The thresholds, and where they come from: docs/guide/verdicts.md. Everything here is public.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dpstream.core.contracts.expectations import MarginalError
from dpstream.core.errors import unreadable
from dpstream.stream.templates import sentence

#: Where a standard error comes from: the law of the noise, the mechanism's model, the plan, simulations on what was
#: released, or on an invented stream.
How = Literal["exact", "modelled", "predicted", "simulated", "invented"]
EXACT: How = "exact"
MODELLED: How = "modelled"
PREDICTED: How = "predicted"
SIMULATED: How = "simulated"
INVENTED: How = "invented"
Use = Literal["totals", "columns", "pairs", "small groups", "averages"]

#: The largest standard error that a word allows, as a share of the number it belongs to; above all of them: unfit.
THRESHOLDS: Mapping[str, float] = {"good": 0.05, "usable": 0.15, "poor": 0.30}
#: The word where the error is not known; never a good word.
NOT_KNOWN = "not known"
#: What each word means, for readers.
MEANING: Mapping[str, str] = {
    "good": f"one standard error is at most {100 * THRESHOLDS['good']:g} %",
    "usable": f"at most {100 * THRESHOLDS['usable']:g} %, so give the error with the number",
    "poor": f"at most {100 * THRESHOLDS['poor']:g} %, for rough comparisons only",
    "unfit": f"above {100 * THRESHOLDS['poor']:g} %, do not use it",
}
#: Of a table to which a uniform one with the same number of records comes as near.
LITTLE = "The table will not say more than its number of records."
#: A small group holds this share of the table.
SMALL_GROUP = 0.01

_OF: Mapping[Use, str] = {
    "totals": "the number of {records}",
    "columns": "a typical count of one column",
    "pairs": "a typical count of two columns together",
    "small groups": f"a count of {100 * SMALL_GROUP:g} % of the table",
}
_HOW: Mapping[str, str] = {
    "exact": "exact",
    "modelled": "by its model",
    "predicted": "predicted by the plan",
    "simulated": "by simulation, widened",
    "invented": "by simulation on an invented table",
}


@dataclass(frozen=True)
class Verdict:
    """How far a table is fit for one use.

    Attributes:
        use: which one.
        word: good, usable, poor, unfit; or not known.
        share: one standard error as a share of a typical number of this use, of columns in the worst one; None where it
            is not known, or where the word has another reason. By simulation it is half of the half width of the
            published 95 % interval.
        how: where the error comes from; None where there is none.
        why: what the word rests on, as a clause.
        half: of several columns: the share in the median one.
        as_of: the step that the error is about, where that is an earlier one than the table's.
        when: that step in words.
    """

    use: Use
    word: str
    share: float | None
    how: How | None
    why: str
    half: float | None = None
    as_of: int | None = None
    when: str | None = None

    @property
    def clause(self) -> str:
        """All of it, within a sentence."""
        if self.word == NOT_KNOWN:
            return f"{self.use}: {'' if self.use == 'averages' else 'not known: '}{self.why}"
        about = "" if self.when is None else f" as of {self.when}"
        return f"{self.use} are {self.word}{about}: {self.why}"

    @property
    def words(self) -> str:
        """All of it, as a sentence."""
        return sentence(self.clause)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "words": self.words}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Verdict:
        """The inverse of ``as_dict``.

        Errors:
            StoreDamagedError: these are not the facts of a verdict.
        """
        with unreadable("a verdict is unreadable", "accuracy", "releases of this version of dpstream"):
            return cls(**{name: value for name, value in facts.items() if name != "words"})


def verdicts_from(
    size: float,
    total: float | None,
    marginals: Iterable[MarginalError],
    how: How,
    total_how: How | None = None,
    records: str = "records",
) -> tuple[Verdict, ...]:
    """One verdict for each use.

    A typical count of a marginal is the table's size divided by the marginal's cells. The verdict on columns is about
    the worst one; that on pairs, of which there are many, about the median one. A small group is one cell that holds
    1 % of the table: of a pair where pairs are known, else of a column.

    Args:
        size: number of records, as released or expected.
        total: the error of the number of records.
        marginals: the errors of those that are known, which all come from one place; the total's may come from another.
        records: what the records that are counted are called.
    """
    known = tuple(marginals)
    columns, pairs = ([one for one in known if len(one.columns) == width] for width in (1, 2))
    small = [MarginalError((), round(1 / SMALL_GROUP), one.error) for one in (pairs or columns)]
    whole = [] if total is None else [MarginalError((), 1, total)]
    cases: Sequence[tuple[Use, Sequence[MarginalError]]] = (
        ("columns", columns),
        ("pairs", pairs),
        ("small groups", small),
    )
    first = _verdict("totals", size, whole, total_how or how, records)
    return (first, *(_verdict(use, size, errors, how, records) for use, errors in cases))


def only_good_news(found: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Of verdicts from bounds that may be many times too large: those that are good or usable; else it is not known."""
    return tuple(
        one if one.word in ("good", "usable") or one.how != PREDICTED else _verdict(one.use, 1.0, ())
        for one in found
    )


def as_of(found: Iterable[Verdict], step: int, when: str) -> tuple[Verdict, ...]:
    """The verdicts of a table whose records are measured up to an earlier step: errors are about that one.

    Args:
        when: the step in words.
    """
    return tuple(_as_of(verdict, step, when) for verdict in found)


def _as_of(verdict: Verdict, step: int, when: str) -> Verdict:
    if verdict.share is not None and not (verdict.use == "totals" and verdict.share == 0.0):
        return replace(verdict, as_of=step, when=when)
    if verdict.use != "totals" or verdict.word != NOT_KNOWN:
        return verdict
    return replace(verdict, why=f"records that came after {when} are expected, not measured", as_of=step)


def word_of(share: float) -> str:
    """The word for a standard error that is this share of the number it belongs to."""
    return next((word for word, most in THRESHOLDS.items() if share <= most), "unfit")


def is_unfit(found: Iterable[Verdict]) -> bool:
    """Whether a table is unfit as a whole: its number of records is, or half of its columns."""
    return any(
        one.word == "unfit"
        and one.use in ("totals", "columns")
        and (one.half is None or one.half > THRESHOLDS["poor"])
        for one in found
    )


def _verdict(
    use: Use, size: float, errors: Sequence[MarginalError], how: How = EXACT, records: str = "records"
) -> Verdict:
    if size <= 0:
        return Verdict(use, "unfit", None, None, "the table has no records")
    if not errors:
        return Verdict(use, NOT_KNOWN, None, None, "run dpstream errors")
    shares = [error.error * error.cells / size for error in errors]
    half = statistics.median(shares)
    share = max(shares) if use == "columns" else half
    what = _OF[use].format(records=records)
    if len(errors) > 1 and use == "columns":
        worst = ", ".join(errors[shares.index(share)].columns)
        what += f" in {worst}, the worst of {len(errors)} columns, and {_percent(half)} in half of them"
    elif len(errors) > 1 and use == "pairs":
        what += f" in half of {len(errors)} pairs"
    about = "" if use == "totals" or records == "records" else f", about {records}"
    word = word_of(share)
    # Rounded away from the better word, so that the number and the word agree.
    why = f"one standard error is {_percent(share)} of {what} ({_HOW[how]}{about})"
    return Verdict(use, word, share, how, why, half if use == "columns" and len(errors) > 1 else None)


def _percent(share: float) -> str:
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %" if share < 10 else "more than 1000 %"
