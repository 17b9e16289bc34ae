"""The planning board: what a budget and guesses of a table's size do to errors and to the odds of a guess.

It takes the content of a stream's configuration, puts other numbers into it, and plans with that. Reads no data, opens
no state, starts nothing: what it gives is the numbers, and never the file, which names places of the machine.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import decimal_text
from dpstream.project import Config
from dpstream.project.planning import (
    ErrorsTable,
    advice,
    expected_facts,
    expected_table,
    loss_of,
    odds_told,
    percent,
    smallest_budget,
    told_base,
)
from dpstream.project.schema_file import load_toml, toml_value
from dpstream.stream.predecessor_cost import covered

if TYPE_CHECKING:
    from pathlib import Path


_HEAD = """\
# A draft of the planning board: {what}.
# For a new stream: a copy of the configuration with these numbers, a new name and new folders.
"""
#: Amounts beside the chosen one, as factors.
_BESIDE = ((Fraction(1, 2), "half"), (Fraction(1), ""), (Fraction(2), "twice"))
#: Small enough to be calculated with.
_AMOUNT = re.compile(r"[0-9]{1,9}([.][0-9]{1,9}|/[1-9][0-9]{0,8})?")
#: A plan of many columns takes a while: one at a time.
_TURN = threading.Lock()


@dataclass(frozen=True)
class WantedPlan:
    """What was typed; empty: as the file has it.

    Attributes:
        amount: epsilon, or rho where the file has one.
        size, records_per_step: of ``[expect]``.
        wish: an error to be reached, such as "zip within 5 %".
    """

    amount: str = ""
    size: str = ""
    records_per_step: str = ""
    wish: str = ""


@dataclass(frozen=True)
class Row:
    """One amount and what it does.

    Attributes:
        name: what it is: the file's, chosen, half or twice of that.
        odds: the best guess is right in at most so many of 100 cases.
        total, column, pair: standard errors at the last step, as shares of a typical number; None where not predicted.
        verdicts: use and word.
        why_not: why the plan is impossible; empty for a plan.
    """

    name: str
    amount: str
    odds: str = ""
    total: float | None = None
    column: float | None = None
    pair: float | None = None
    verdicts: tuple[tuple[str, str], ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class Board:
    """Everything that the board shows.

    Attributes:
        key: the amount's name, ``epsilon`` or ``rho``.
        has: the numbers that are shown in the form.
        told: sentences on the odds, for the chosen amount. advice: sentences on the plan.
        errors: by step; None without guesses of the size. verdicts: in words, for ``at``.
        smallest: the answer to the wish.
    """

    key: str
    has: WantedPlan
    rows: tuple[Row, ...]
    told: tuple[str, ...]
    advice: tuple[str, ...]
    errors: ErrorsTable | None
    verdicts: tuple[Mapping[str, Any], ...]
    at: int | None
    smallest: Mapping[str, Any] | None


def draft(path: Path, wanted: WantedPlan) -> str:
    """The sections of a configuration with the wanted numbers, checked with the rest of it.

    The rest is left out: it names places of the machine, and whoever runs the stream has it.

    Errors:
        ConfigError: a file whose schema is not confirmed, or numbers that cannot be used; and as of ``Config.load``.
    """
    written = _read(path)
    changes = _changes(written, wanted)
    document = _with(written, changes)
    Config.load(path, document=document).plan()
    what = ", ".join(f"{key} = {value}" for values in changes.values() for key, value in values.items())
    lines = _HEAD.format(what=what or "nothing is changed")
    for section, keys in (("budget", (_key(document),)), ("expect", ("size", "records_per_step"))):
        has = document.get(section, {})
        numbers = [f"{key} = {toml_value(has[key])}\n" for key in keys if key in has]
        lines += "".join([f"\n[{section}]\n", *numbers]) if numbers else ""
    return lines


def plan_board(path: Path, wanted: WantedPlan) -> Board:
    """What the wanted numbers do.

    Errors:
        ConfigError: and others, as of ``draft`` and ``smallest_budget``.
    """
    with _TURN:
        return _board(path, wanted)


def _board(path: Path, wanted: WantedPlan) -> Board:
    written = _read(path)
    changes = _changes(written, wanted)
    document = _with(written, changes)
    chosen, key = Config.load(path, document=document), _key(document)
    amount, expects = str(document["budget"][key]), document.get("expect", {})
    rows = [_row(path, written, "the file's", str(written["budget"][key]))] if changes else []
    first = "chosen" if rows else "the file's"
    for factor, name in _BESIDE:
        other = decimal_text(Fraction(amount) * factor) if name else amount
        rows.append(_row(path, _with(document, {"budget": {key: other}}), name or first, other))
    plan = chosen.plan()
    facts = expected_facts(chosen, plan)
    at = None if facts is None else int(facts["verdict_step"]["step"])
    return Board(
        key,
        WantedPlan(
            amount, str(expects.get("size", "")), str(expects.get("records_per_step", "")), wanted.wish
        ),
        tuple(rows),
        (f"Protected is {plan.unit.describe()}.", *odds_told(chosen, plan)),
        (*([facts["hopeless"]] if facts and facts["hopeless"] else []), *advice(chosen, plan)),
        None if facts is None else expected_table(facts),
        () if facts is None else tuple(facts["verdicts"]),
        at,
        smallest_budget(chosen, [wanted.wish], at) if wanted.wish else None,
    )


def _row(path: Path, document: Mapping[str, Any], name: str, amount: str) -> Row:
    try:
        config = Config.load(path, document=document)
        plan = config.plan()
        facts = expected_facts(config, plan)
    except DpstreamError as error:
        return Row(name, amount, why_not=f"{error.what}")
    shown = percent(*loss_of(config, covered(plan.budget, told_base(config, plan))))
    if facts is None:
        return Row(name, amount, shown)
    last = facts["steps"][-1]

    def share(columns: int) -> float | None:
        own = [
            m["share"] for m in last["marginals"] if len(m["columns"]) == columns and m["share"] is not None
        ]
        return median(own) if own else None

    verdicts = tuple((one["use"], one["word"]) for one in facts["verdicts"])
    return Row(name, amount, shown, last["total_share"], share(1), share(2), verdicts)


def _read(path: Path) -> dict[str, Any]:
    """The content of a configuration that may be shown.

    Errors:
        ConfigError: it cannot be read, or is still a draft: that was made from private data.
    """
    document = load_toml(path, path.name)
    if not Config.load(path, document=document).schema().confirmed:
        raise ConfigError(
            "the configuration is an unconfirmed draft",
            where=path.name,
            allowed="confirmed = true in [schema]",
        )
    return document


def _key(document: Mapping[str, Any]) -> str:
    return "rho" if "rho" in document["budget"] else "epsilon"


def _changes(document: Mapping[str, Any], wanted: WantedPlan) -> dict[str, dict[str, Any]]:
    """What of a file becomes another value, by section and key."""
    changes: dict[str, dict[str, Any]] = {}
    if wanted.amount:
        if not _AMOUNT.fullmatch(wanted.amount):
            raise ConfigError("the amount must be a number", where="board", allowed="such as 1, 0.5 or 1/4")
        key, amount = _key(document), Fraction(wanted.amount)
        if Fraction(str(document["budget"][key])) != amount:
            changes["budget"] = {key: decimal_text(amount)}
    for key in ("size", "records_per_step"):
        value = getattr(wanted, key)
        if value and not re.fullmatch("[1-9][0-9]{0,11}", value):
            raise ConfigError(f"{key} must count records", where="board", allowed="a whole number from 1")
        if value and document.get("expect", {}).get(key) != int(value):
            changes.setdefault("expect", {})[key] = int(value)
    return changes


def _with(document: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **document,
        **{section: {**document.get(section, {}), **values} for section, values in changes.items()},
    }
