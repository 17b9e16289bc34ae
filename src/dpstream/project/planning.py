"""Planning by error: what ``[expect]`` lets a plan predict, and the smallest budget that reaches a wanted error.

Reads no data. All numbers are one standard error, of measured sums, from the law of their noise.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import ExpectedErrors, ExpectedTable, StreamPlan
from dpstream.core.errors import BudgetError, ConfigError, LimitError
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    Event,
    PureDP,
    User,
    amount_words,
    approximate_to_zcdp,
    decimal_text,
    definition_words,
    zcdp_to_epsilon,
)
from dpstream.core.privacy.convert import best_guess, group
from dpstream.core.privacy.law import NoiseSum
from dpstream.project.sections import round_down
from dpstream.stream.cut_users import CONFIDENCE
from dpstream.stream.declared import bound_of, counted_records, declared_public, told_records, visible_stops
from dpstream.stream.identity import exceptions_of
from dpstream.stream.predecessor_cost import base_words, broken_words, covered
from dpstream.stream.release.verdicts import (
    NOT_KNOWN,
    PREDICTED,
    THRESHOLDS,
    Verdict,
    only_good_news,
    verdicts_from,
    word_of,
)
from dpstream.stream.templates import Words, about_plan, paragraphs, said, words

if TYPE_CHECKING:
    from dpstream.project.config import Config


#: Steps whose errors are predicted, up to the horizon, or up to the last of them.
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
#: Steps of a year, where nothing says when the stream ends; of steps without a calendar so many.
_YEAR = {"day": 365, "week": 52, "month": 12}
_WITHOUT_END = 100
#: With a larger standard error of one count of all records, which has the whole budget, nothing is useful.
_HOPELESS = THRESHOLDS["usable"]
#: So many marginals have a column of their own in the printed table.
_SHOWN = 6
#: Of more columns in one sentence the first two and the last are named.
_MOST_NAMES = 10
#: What the number of records is called in wishes.
TOTAL = "total"
#: Budgets that are tried have two digits: from 0.0010 up to this. Beyond, a guarantee protects hardly anything.
_LARGEST = 30
_WISH = re.compile(r"\s*(?P<what>.+?)\s+within\s+(?P<share>[0-9]{1,6}([.][0-9]{1,6})?)\s*%\s*")
_WORDS = Words(Path(__file__).with_name("words.j2"))


@dataclass(frozen=True)
class Wish:
    """A wanted error.

    Attributes:
        columns: of the marginal; empty for the number of records.
        share: one standard error as a share of a typical count (or of the number of records), at most.
        words: as it was written.
    """

    columns: tuple[str, ...]
    share: Fraction
    words: str


def parse_wish(text: str, names: Sequence[str]) -> Wish:
    """``total within 2 %``, ``zip within 5 %``, ``zip, cause within 10 %``.

    Args:
        names: what there is to wish for.

    Errors:
        ConfigError: another form, an unknown name, or no number above 0.
    """
    found = _WISH.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"the wish {text!r} cannot be read", where="--want", allowed='words such as "zip within 5 %"'
        )
    share = Fraction(found["share"]) / 100
    if not share:
        raise ConfigError(
            f"the wish {text!r} leaves no room for noise", where="--want", allowed="a number above 0"
        )
    columns = tuple(part.strip() for part in found["what"].split(","))
    if columns == (TOTAL,):
        return Wish((), share, text.strip())
    for name in columns:
        if name not in names:
            known = ", ".join([TOTAL, *names])
            raise ConfigError(f"unknown column {name!r}", where="--want", allowed=f"some of {known}")
    if len(set(columns)) < len(columns):
        raise ConfigError(f"the wish {text!r} names a column twice", where="--want", allowed="each once")
    return Wish(columns, share, text.strip())


def expected_facts(config: Config, plan: StreamPlan, at: int | None = None) -> dict[str, Any] | None:
    """What is predicted at some steps, JSON-able, and the verdicts for the last of them; None without ``[expect]``.

    Args:
        at: the last of the steps; None: the stream's last one, or where nothing says when it ends, a year's.

    Errors:
        ConfigError: a step beyond the horizon.
    """
    if at is not None and config.expected is None:
        raise _no_guess("--at")
    last, because = (_step(config, plan, at), "--at") if at is not None else last_step(config, plan)
    predicted = _predicted(config, plan, sorted({*(step for step in _STEPS if step <= last), last}))
    if predicted is None or config.expected is None:
        return None
    records, _ = counted_records(plan.unit, config.schema())
    return {
        "words": _WORDS.text(
            "expected",
            varies=f"{config.expected.varies:.0%}",
            begins=config.base_options is not None,
            at_most=predicted[-1].at_most,
        ),
        "steps": [_as_dict(one) for one in predicted],
        "verdict_step": {"step": last, "because": because},
        "hopeless": _hopeless(config, plan, predicted[-1].size),
        "verdicts": [one.as_dict() for one in _verdicts(predicted[-1], records)],
    }


@dataclass(frozen=True)
class ErrorsTable:
    """Predicted errors for readers: headings and texts by the rows' keys."""

    headings: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]


def expected_table(facts: Mapping[str, Any]) -> ErrorsTable:
    """The same for readers: few marginals one by one, else the medians of columns and of pairs."""
    steps = facts["steps"]
    names = list(dict.fromkeys(m["name"] for one in steps for m in one["marginals"]))
    few = len(names) <= _SHOWN
    cells = {"1": "a cell of a column (median)", "2": "a cell of a pair (median)"}
    if few:
        cells = {f"of {name}": f"a cell of {name}" for name in names}
    headings = {"step": "step", "size": "records", "total": "number of records", **cells}
    rows = []
    for one in steps:
        total = _text(one["total"], one["total_share"])
        row = {"step": one["step"], "size": round(one["size"]), "total": total}
        for key in cells:
            of_key = [f"of {m['name']}" if few else str(len(m["columns"])) for m in one["marginals"]]
            mine = [m for m, other in zip(one["marginals"], of_key, strict=True) if other == key]
            shares = [m["share"] for m in mine if m["share"] is not None]
            error = median(m["standard_error"] for m in mine) if mine else None
            row[key] = _text(error, median(shares) if shares else None)
        rows.append(row)
    if all(row.get("2") == "not predicted" for row in rows):
        headings.pop("2", None)
    return ErrorsTable(headings, rows)


@dataclass(frozen=True)
class AnswerRow:
    """A line of a plan's first screen: what is asked of a table, the standard error in records and as a share, and the
    word for it."""

    what: str
    error: str
    share: str
    word: str


def answer_rows(
    size: float, total: float | None, marginals: Sequence[Mapping[str, Any]], records: str = "records"
) -> list[AnswerRow]:
    """The number of records, a typical count in half of the columns and in the worst one, and in half of the pairs.

    Args:
        marginals: each with columns, cells, standard_error and share, as the facts of predictions have them.
        records: what they are called.
    """
    rows = [] if total is None else [_row(f"number of {records}", total, total / size if size > 0 else None)]
    known = [one for one in marginals if one["share"] is not None]
    for width, noun in ((1, "column"), (2, "pair of columns")):
        of_width = sorted(
            (one for one in known if len(one["columns"]) == width), key=lambda one: one["share"]
        )
        if not of_width:
            continue
        half = of_width[(len(of_width) - 1) // 2]
        many = f"a typical {noun}" if len(of_width) > 1 else f"the {noun} {', '.join(half['columns'])}"
        rows.append(_row(f"a count of {many}", half["standard_error"], half["share"]))
        if width == 1 and len(of_width) > 1:
            worst = of_width[-1]
            name = f"a count of column {worst['columns'][0]}, the worst of {len(of_width)}"
            rows.append(_row(name, worst["standard_error"], worst["share"]))
    return rows


def _row(what: str, error: float, share: float | None) -> AnswerRow:
    if error == 0:
        return AnswerRow(what, "0", "0 %", "public")
    records = f"{error:,.3g}" if error < 1000 else f"{error:,.0f}"
    if share is None:
        return AnswerRow(what, records, "", "")
    return AnswerRow(what, records, "over 999 %" if share > 9.99 else f"{100 * share:.3g} %", word_of(share))


def smallest_budget(config: Config, wishes: Sequence[str], at: int | None) -> dict[str, Any]:
    """The smallest budget on a grid of two digits that fulfils all wishes at a step; JSON-able.

    Errors:
        ConfigError: a wish that cannot be read or predicted, no ``[expect]``, or no such step.
    """
    plan = config.plan()
    step = _step(config, plan, at)
    one = _at(config, plan, step)
    names = [*plan.domain.names, *(m.columns[0] for m in one.marginals if len(m.columns) == 1)]
    asked = [parse_wish(text, list(dict.fromkeys(names))) for text in wishes]
    for wish in asked:
        _require(plan, one, wish)
    (name, make), amounts = budgets_of(config), _amounts()
    # Errors are taken to fall with the budget.
    place = bisect_left(amounts, True, key=lambda text: _fulfils(config, make(text), step, asked))
    smallest = amounts[place] if place < len(amounts) else None
    found = None if smallest is None else _shares(config, make(smallest), step, asked)
    return {
        "step": step,
        "amount": name,
        "smallest": None if smallest is None else f"{float(Fraction(smallest)):g}",
        "largest_tried": f"{float(Fraction(amounts[-1])):g}",
        "lives": "" if smallest is None else lives_words(config, make(smallest)),
        "wishes": [
            {
                "words": wish.words,
                "with_the_file": _share(one, wish),
                "with_the_smallest": None if found is None else found[i],
            }
            for i, wish in enumerate(asked)
        ],
    }


def _predicted(config: Config, plan: StreamPlan, steps: Sequence[int]) -> tuple[ExpectedErrors, ...] | None:
    found = None if config.expected is None else plan.expected_errors(steps, config.expected)
    base = config.base() if found is not None else None
    if found is None or base is None:
        return found
    # The earlier table stays in this one's for ever, with its errors; of its counts nobody knows them.
    error = base.facts["total_standard_error"]
    totals = (None if None in (error, one.total) else math.hypot(error, one.total or 0.0) for one in found)
    return tuple(replace(one, total=total, marginals=()) for one, total in zip(found, totals, strict=True))


def last_step(config: Config, plan: StreamPlan) -> tuple[int, str]:
    """The step whose verdicts are told, and why it is that one."""
    options = config.source_options
    if plan.horizon is not None:
        return plan.horizon, "the horizon"
    final = options.final_step()
    if final is not None:
        return final, f"end = {options.end}"
    whole = _YEAR.get(options.every or "")
    if whole is not None:
        return whole, "a year; --at chooses another step"
    return _WITHOUT_END, "no end; --at chooses another step"


def _hopeless(config: Config, plan: StreamPlan, size: float) -> str | None:
    """A warning where no mechanism could help: one count of all records, on which the whole budget is spent once."""
    budget = plan.budget
    if isinstance(plan.unit, User):
        budget = plan.unit.per_event(budget)
    amount = float(budget.amount)
    error = math.sqrt(1 / (2 * amount)) if isinstance(budget, ZCDP) else math.sqrt(2) / amount
    if size <= 0 or error <= _HOPELESS * size:
        return None
    name = "rho" if isinstance(budget, ZCDP) else "epsilon"
    return _WORDS.text("hopeless", size=size, amount=name, error=error, share=error / size)


def _step(config: Config, plan: StreamPlan, at: int | None) -> int:
    if at is None:
        last = config.source_options.final_step() if plan.horizon is None else plan.horizon
        if last is None:
            raise ConfigError(
                "nothing says when the wish is to hold",
                where="--want",
                allowed="--at STEP, a day or a number as [source] end, or [budget] horizon",
            )
        return last
    if plan.horizon is not None and at > plan.horizon:
        raise ConfigError(
            f"step {at} lies beyond the horizon", where="--at", allowed=f"a step up to {plan.horizon}"
        )
    return at


def _at(config: Config, plan: StreamPlan, step: int) -> ExpectedErrors:
    if config.expected is None:
        raise _no_guess("--want")
    predicted = _predicted(config, plan, [step])
    if predicted is None:
        raise ConfigError(
            f"the mechanism {plan.name!r} predicts no errors",
            where="--want",
            allowed="dpstream errors, after a release",
        )
    return predicted[0]


def _no_guess(where: str) -> ConfigError:
    return ConfigError(
        "nothing says how large the table will be",
        where=where,
        allowed="[expect] with size or records_per_step",
    )


def _require(plan: StreamPlan, one: ExpectedErrors, wish: Wish) -> None:
    if _share(one, wish) is not None:
        return
    known = [*([TOTAL] if one.total is not None else []), *(", ".join(m.columns) for m in one.marginals)]
    what = ", ".join(wish.columns) or TOTAL
    raise ConfigError(
        f"{plan.name!r} predicts no error of {what} at step {one.step}: the data decide",
        where="--want",
        allowed=f"what is predicted: {'; '.join(known) or 'nothing'}",
    )


def _share(one: ExpectedErrors, wish: Wish) -> float | None:
    if not wish.columns:
        return None if one.total is None or one.size <= 0 else one.total / one.size
    found = one.of(wish.columns)
    return None if found is None or one.size <= 0 else found.error * found.cells / one.size


def budgets_of(config: Config) -> tuple[str, Callable[[str], Budget]]:
    """The name of an amount of the file's definition, and what makes a budget of one: epsilon (with the file's delta,
    where it has one), or rho."""
    if not isinstance(config.budget.budget, ZCDP):
        return "epsilon", PureDP.of
    if config.budget.stated is None:
        return "rho", ZCDP.of
    delta = config.budget.stated[1]
    return f"epsilon (delta = {float(delta):g})", lambda text: round_down(approximate_to_zcdp(text, delta))


def _amounts() -> list[str]:
    """Amounts of two digits, in order."""
    small = [f"{Fraction(m, 10**e)}" for e in (4, 3, 2, 1) for m in range(10, 100)]
    return small + [str(m) for m in range(10, _LARGEST + 1)]


def _shares(config: Config, budget: Budget, step: int, wishes: Sequence[Wish]) -> list[float | None]:
    predicted = _at(config, config.plan(budget), step)
    return [_share(predicted, wish) for wish in wishes]


def _fulfils(config: Config, budget: Budget, step: int, wishes: Sequence[Wish]) -> bool:
    try:
        shares = _shares(config, budget, step, wishes)
    except (BudgetError, LimitError):
        return False  # so small that its noise does not fit
    return all(share is not None and share <= wish.share for share, wish in zip(shares, wishes, strict=True))


def _verdicts(one: ExpectedErrors, records: str) -> tuple[Verdict, ...]:
    found = verdicts_from(one.size, one.total, one.marginals, PREDICTED, records=records)
    # What came since adds no bound: the number of records has an error of its own.
    verdicts = (found[0], *only_good_news(found[1:])) if one.at_most else found
    # Before there are releases there is nothing whose errors could be simulated.
    return tuple(
        now if now.word != NOT_KNOWN else replace(now, why=_WORDS.text("not_yet", share=bound.share))
        for now, bound in zip(verdicts, found, strict=True)
    )


def _as_dict(one: ExpectedErrors) -> dict[str, Any]:
    return {
        "step": one.step,
        "size": one.size,
        "total": one.total,
        "total_share": None if one.total is None or one.size <= 0 else one.total / one.size,
        "marginals": [
            {
                "name": ", ".join(own.columns),
                "columns": list(own.columns),
                "cells": own.cells,
                "standard_error": own.error,
                "share": own.error * own.cells / one.size if one.size > 0 else None,
            }
            for own in one.marginals
        ],
    }


def _text(error: float | None, share: float | None) -> str:
    if error is None:
        return "not predicted"
    if share is None:
        return f"{error:.4g}"
    return f"{error:.4g} (over 1000 %)" if share > 10 else f"{error:.4g} ({100 * share:.3g} %)"


#: The delta at which a rho is told as (epsilon, delta) where the file names none.
_USUAL_DELTA = "1e-9"
_HARDLY_A_BOUND = 30


def told_base(config: Config, plan: StreamPlan) -> dict[str, Any] | None:
    """The facts about the earlier stream as they are now; None where there is none."""
    base = config.base()
    return None if base is None else base.told(plan.budget)


def guarantee(config: Config, plan: StreamPlan) -> str:
    """The promise in words, for all records whose marks are in the tables: also those of an earlier stream."""
    base = told_base(config, plan)
    broken = "" if base is None else broken_words(base.get("broken", ()))
    return broken + _WORDS.text("guarantee", **promised(config, plan))


def odds_told(config: Config, plan: StreamPlan) -> tuple[str, ...]:
    """What the loss means for somebody who guesses."""
    return tuple(said(_WORDS.paragraphs("odds", **promised(config, plan))))


def promised(config: Config, plan: StreamPlan) -> dict[str, Any]:
    """The facts of the guarantee, for templates."""
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    stated = config.budget.stated if budget == config.budget.budget else None
    implied = None
    if isinstance(budget, ZCDP) and stated is None:
        # Rounded up, exactly.
        epsilon = Fraction(zcdp_to_epsilon(budget, _USUAL_DELTA))
        delta = decimal_text(Fraction(_USUAL_DELTA) + plan.delta)
        implied = decimal_text(Fraction(math.ceil(epsilon * 10**4), 10**4)), delta
    return {
        "stream": config.name,
        "plan": about_plan(plan),
        "pure": isinstance(budget, PureDP),
        "definition": definition_words(budget, plan.delta),
        "loss": loss_facts(config, budget),
        "lives": _lives(config, budget),
        "parallel": base is not None and base["composition"]["rule"] == "parallel",
        "stated": stated and (decimal_text(stated[0]), decimal_text(stated[1] + plan.delta)),
        "implied": implied,
        "discovers": bool(plan.delta),
        "twice": config.source_options.deletions and isinstance(plan.unit, Event),
        "declared_public": config.facts()["declared_public"],
    }


def lives_words(config: Config, budget: Budget) -> str:
    """What a budget for a period means for somebody with records in several; empty where a life is protected."""
    return _WORDS.text("lives", lives=_lives(config, budget))


def _lives(config: Config, budget: Budget) -> list[dict[str, Any]]:
    """What a user with records in several periods loses; empty where the whole life is protected."""
    per = config.unit.per if isinstance(config.unit, User) else None
    if per is None:
        return []
    in_year = {"month": 12, "quarter": 4, "year": 1}.get(per.length)
    same = {
        "promised": per.length if in_year is None else f"a {per.length}",
        "noun": "periods" if in_year is None else "years",
        "amount": "epsilon" if isinstance(budget, PureDP) else "rho",
        "discovers": bool(config.plan().delta),
    }
    found = []
    for many in (1, 5, 10):
        times = many * (in_year or 1)
        several, added = group(budget, times), config.plan().delta_of(times)
        loss = f"{float(several.amount):.4g}"
        found.append({**same, "many": many, "loss": loss, **loss_facts(config, several, added)})
    return found


def loss_facts(config: Config, budget: Budget, added: Fraction | None = None) -> dict[str, Any]:
    """A budget in words, and what it means for somebody who guesses.

    Args:
        added: see ``loss_of``.

    Returns:
        ``unbounded``: no bound, as delta would be 1; ``hardly``: hardly a bound.
    """
    added = config.plan().delta if added is None else added
    epsilon, delta = loss_of(config, budget, added)
    unbounded = bool(delta) and Fraction(delta.split(" ")[0]) >= 1
    hardly = epsilon > _HARDLY_A_BOUND
    return {
        "words": "no bound" if unbounded else amount_words(budget, added),
        "unbounded": unbounded,
        "epsilon": epsilon,
        "delta": delta,
        "hardly": hardly,
        "factor": None if hardly else math.ceil(math.exp(epsilon) * (1 + 1e-12) * 100) / 100,
        "percent": percent(epsilon, delta),
    }


def loss_of(config: Config, budget: Budget, added: Fraction | None = None) -> tuple[float, str]:
    """(epsilon, delta as text) of a budget.

    Args:
        added: what discovery adds to delta, which is empty for pure DP without it; None: what it adds for one unit.
    """
    stated, added = config.budget.stated, config.plan().delta if added is None else added
    if isinstance(budget, PureDP):
        return float(budget.epsilon), decimal_text(added) if added else ""
    delta = Fraction(_USUAL_DELTA) if stated is None else stated[1]
    if stated is not None and budget == config.budget.budget:
        return float(stated[0]), decimal_text(delta + added)
    return zcdp_to_epsilon(budget, delta), decimal_text(delta + added)


def percent(epsilon: float, delta: str) -> str:
    """The chance of the best guess as a percentage, rounded up to a tenth; below 100 where the bound is."""
    rate = best_guess(epsilon, float(Fraction(delta.split(" ")[0])) if delta else 0.0)
    return f"{min(100.0, math.ceil(rate * 1000) / 10):g}"


def describe(config: Config, at: int | None = None, runs_until: int | None = None) -> dict[str, Any]:
    """Everything that ``dpstream plan`` prints, JSON-able. Public: no data are read.

    Args:
        at: the step whose verdicts are told; None: the last one, or a year's.
        runs_until: a size of the database, up to which the runs are listed.

    Errors:
        ConfigError: no runs to be listed, or a step beyond the horizon.
    """
    plan = config.plan()
    known = plan.facts() if runs_until is None else plan.facts_until(runs_until)
    if known is None:
        raise ConfigError(
            f"the mechanism {plan.name!r} has no runs to be listed",
            where="--runs-until",
            allowed="a mechanism with runs by number of records",
        )
    facts = config.facts()
    base = told_base(config, plan)
    return {
        "format": 1,
        "stream": config.name,
        "mechanism": plan.name,
        "guarantee": guarantee(config, plan),
        "unit": plan.unit.name,
        "budget": {
            **plan.budget.as_dict(),
            **exceptions_of(plan),
            "text": amount_words(plan.budget, plan.delta),
        },
        **_contribution(plan),
        **told_records(config.unit, config.schema()),
        **cut_facts(plan, at or last_step(config, plan)[0]),
        "horizon": plan.horizon,
        "parts": [
            {
                "name": part.name,
                "times": part.times,
                "each": str(part.budget.amount),
                "total": str(part.total),
                "detail": part.detail,
            }
            for part in plan.all_parts()
        ],
        "sum": str(sum(part.total for part in plan.all_parts())),
        "noise": {"one_measurement": None},
        "expect": config.expected is not None,
        "expected_errors": expected_facts(config, plan, at),
        "advice": advice(config, plan),
        **known,
        "headlines": headline_lines(known.get("periods", ()), config.expected),
        "words": {
            "warning": words(plan, "warning"),
            "protects": words(plan, "protects"),
            "lives": lives_words(config, covered(plan.budget, base)),
            "stops": visible_stops(plan, config.schema(), config.source_options.pinned()),
            "not_protected": declared_public(
                plan,
                config.schema(),
                config.declared_public(),
                config.source_options.pinned(),
                begins=base is not None,
                most=_MOST_NAMES,
            ),
            **{block: paragraphs(plan, block, **known) for block in ("says", "further")},
            **{block: words(plan, block) for block in ("compared",)},
        },
        "size": {
            "columns": len(plan.domain),
            **known.get("size", {}),
            "state_bytes_at_start": sum(a.nbytes for a in plan.pack_state(plan.start()).arrays.values()),
            "state_grows": words(plan, "growth", **known),
        },
        "declared_public": facts["declared_public"],
        "base": None if base is None else {**base, "words": base_words(base)},
        "draft": not config.schema().confirmed,
        "undecided": list(config.undecided),
        "options": plan.options(),
        "values": [
            {"section": used.section, "key": used.key, "value": used.value, "default_because": used.reason}
            for used in config.used
        ],
    }


def headline_lines(periods: Sequence[Mapping[str, Any]], expected: ExpectedTable | None) -> list[str]:
    """What one period's flow of each headline is worth, a line each: the half width of its 95 % interval, beside the
    number that ``[expect]`` lets expect."""
    lines = []
    for clock in sorted(periods, key=lambda clock: bool(clock["headlines"])):
        length = str(clock["length"]).split(",")[0].removeprefix("1 ")
        number = f"the number in {length}" if length[0].isdigit() else f"a {length}'s number"
        names = [f" per {name}" for name in clock["headlines"]] or [" of records"]
        for name, cells, width in zip(names, clock["cells"], clock["half_widths"], strict=True):
            about = ""
            if expected is not None and expected.change != "steady":
                mean = expected.records_per_step * clock["steps"] / cells
                about = f" of about {mean:,.0f}" if mean >= 1.0 else " of less than 1"
            lines.append(f"{number}{name}: ± {width:,.0f}{about}")
    return lines


def cut_facts(plan: StreamPlan, step: int) -> dict[str, Any]:
    """What the number of users whom the bound cuts costs, and the half width of its 95 % interval after a step; nothing
    where it is not counted."""
    noise, begun, draws = plan.cut_noise, 0, 0
    if noise is None or not isinstance(plan.unit, User):
        return {}
    for number in range(1, step + 1):
        if plan.ends_cut_period(number, begun):
            begun, draws = number, draws + 1
    width = NoiseSum(((noise, draws),)).half_width(CONFIDENCE) if draws else None
    bound = {"max_events": plan.unit.max_events, "share": str(plan.unit.cut_share)}
    return {"cut_users": {**bound, "step": begun, "half_width": width}}


def advice(config: Config, plan: StreamPlan) -> list[str]:
    """What the owner has to look at: what was read off private records, and what guesses say for other options."""
    sentences = config.read_off
    if config.family.advice is None or config.expected is None:
        return sentences
    return [*sentences, *config.family.advice(config.recipe, plan, config.expected)]


def compare_budgets(config: Config, budgets: list[Budget]) -> list[dict[str, Any]]:
    """The noise of one measurement under other budgets, or what the plan compares in its place."""
    rows = []
    for budget in budgets:
        facts = config.plan(budget).facts()
        deviation = facts.get("noise", {}).get("one_measurement")
        other = facts.get("compares", {})
        rows.append({"budget": budget.as_dict(), "text": str(budget), "deviation": deviation, **other})
    return rows


def _contribution(plan: StreamPlan) -> dict[str, Any]:
    """What a user and what each of the user's events may lose; nothing for other units."""
    if not isinstance(plan.unit, User) or bound_of(plan.unit) is None:
        return {}
    return {
        "contribution": {
            "max_events": plan.unit.max_events,
            "each_event": plan.unit.per_event(plan.budget).as_dict(),
            "user": plan.budget.as_dict(),
            "events_in_times": plan.unit.factor(plan.budget),
        }
    }
