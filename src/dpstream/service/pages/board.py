"""The planning board: what a budget and guesses of a table's size do to errors and to the odds of a guess.

It takes the configuration of a stream, writes other numbers into its text, and plans with that. Reads no data, opens no
state, starts nothing: what it gives is the numbers, and never the file, which names places of the machine.
"""

from __future__ import annotations

import copy
import math
import re
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.paths import read_text
from dpstream.core.privacy import decimal_text
from dpstream.core.privacy.convert import best_guess
from dpstream.core.schema.toml import toml_value
from dpstream.project import Config
from dpstream.project.planning import expected_facts, expected_table, smallest_budget, told_base
from dpstream.project.statement import loss_of, odds_told
from dpstream.stream.predecessor_cost import covered

if TYPE_CHECKING:
    from pathlib import Path

    from dpstream.core.contracts import PrintedTable

_HEAD = """\
# A draft of the planning board: {what}.
# Nothing runs with it. A stream that was started keeps its plan, so another budget is for a new stream: put these
# numbers into a copy of the configuration of the stream, give it a name and folders of its own, look at it with
# `dpstream plan`, and let somebody decide.
"""
#: Amounts beside the chosen one, as factors.
_BESIDE = ((Fraction(1, 2), "half of it"), (Fraction(1), ""), (Fraction(2), "twice as much"))
#: Small enough to be calculated with.
_AMOUNT = re.compile(r"[0-9]{1,9}([.][0-9]{1,9}|/[1-9][0-9]{0,8})?")
#: A plan of many columns takes a while: one at a time.
_TURN = threading.Lock()
_LINE = r'^([ \t]*{key}[ \t]*=[ \t]*)("[^"\n]*"|[^\s#"]+)([ \t]*(?:#[^\n]*)?)$'


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
        why_not: why there is no such plan; empty where there is.
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
    errors: PrintedTable | None
    verdicts: tuple[Mapping[str, Any], ...]
    at: int | None
    smallest: Mapping[str, Any] | None


def draft(path: Path, wanted: WantedPlan) -> str:
    """The sections of a configuration with the wanted numbers, checked with the rest of it.

    The rest is left out: it names places of the machine, and whoever runs the stream has it.

    Errors:
        ConfigError: a file whose schema is not confirmed, or numbers that cannot be used; and as of ``Config.load``.
    """
    old = _read(path)
    changes = _changes(old, wanted)
    text = changed_text(old, changes)
    Config.load(path, text=text).plan()
    what = ", ".join(f"{key} = {value}" for values in changes.values() for key, value in values.items())
    document = tomllib.loads(text)
    lines = _HEAD.format(what=what or "nothing is changed")
    for section, keys in (("budget", (_key(document),)), ("expect", ("size", "records_per_step"))):
        has = document.get(section, {})
        told = [f"{key} = {toml_value(has[key])}\n" for key in keys if key in has]
        lines += "".join([f"\n[{section}]\n", *told]) if told else ""
    return lines


def plan_board(path: Path, wanted: WantedPlan) -> Board:
    """What the wanted numbers do.

    Errors:
        ConfigError: and others, as of ``draft`` and ``smallest_budget``.
    """
    with _TURN:
        return _board(path, wanted)


def _board(path: Path, wanted: WantedPlan) -> Board:
    text = _read(path)
    made = changed_text(text, _changes(text, wanted))
    document = tomllib.loads(made)
    chosen, key = Config.load(path, text=made), _key(document)
    amount, expects = str(document["budget"][key]), document.get("expect", {})
    old = str(tomllib.loads(text)["budget"][key])
    rows = [_row(path, text, "as the file has it", old)] if made != text else []
    own = "chosen" if rows else "as the file has it"
    for factor, name in _BESIDE:
        other = decimal_text(Fraction(amount) * factor) if name else amount
        rows.append(_row(path, changed_text(made, {"budget": {key: other}}), name or own, other))
    plan = chosen.plan()
    facts, told = expected_facts(chosen, plan), chosen.family.advice
    advice = (
        [] if told is None or chosen.expected is None else told(chosen.recipe, plan, chosen.expected.table)
    )
    at = None if facts is None else int(facts["verdict_step"]["step"])
    return Board(
        key,
        WantedPlan(
            amount, str(expects.get("size", "")), str(expects.get("records_per_step", "")), wanted.wish
        ),
        tuple(rows),
        (f"Protected is {plan.unit.describe()}.", *odds_told(chosen, plan)),
        (*([facts["hopeless"]] if facts and facts["hopeless"] else []), *advice),
        None if facts is None else expected_table(facts),
        () if facts is None else tuple(facts["verdicts"]),
        at,
        smallest_budget(chosen, [wanted.wish], at) if wanted.wish else None,
    )


def _row(path: Path, text: str, name: str, amount: str) -> Row:
    try:
        config = Config.load(path, text=text)
        plan = config.plan()
        facts = expected_facts(config, plan)
    except DpstreamError as error:
        return Row(name, amount, why_not=f"{error.what}")
    epsilon, delta = loss_of(config, covered(plan.budget, told_base(config, plan)))
    odds = best_guess(epsilon, float(Fraction(delta.split(" ")[0])) if delta else 0.0)
    shown = f"{min(100.0, math.ceil(odds * 1000) / 10):g}"
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


def _read(path: Path) -> str:
    """The text of a configuration that may be shown.

    Errors:
        ConfigError: it cannot be read, or is still a draft: that was made from private data.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=path.name) from None
    if not Config.load(path, text=text).schema().confirmed:
        raise ConfigError(
            "this configuration is a draft that nobody has confirmed, and as private as the data",
            where=path.name,
            allowed="confirmed = true in [schema], once its owner has looked at it",
        )
    return text


def _key(document: Mapping[str, Any]) -> str:
    return "rho" if "rho" in document["budget"] else "epsilon"


def _changes(text: str, wanted: WantedPlan) -> dict[str, dict[str, Any]]:
    """What of a file becomes another value."""
    changes: dict[str, dict[str, Any]] = {}
    if wanted.amount:
        if not _AMOUNT.fullmatch(wanted.amount):
            raise ConfigError("the amount is no number", where="board", allowed="such as 1, 0.5 or 1/4")
        document, amount = tomllib.loads(text), Fraction(wanted.amount)
        if Fraction(str(document["budget"][_key(document)])) != amount:
            changes["budget"] = {_key(document): decimal_text(amount)}
    for key in ("size", "records_per_step"):
        value = getattr(wanted, key)
        if value and not re.fullmatch("[1-9][0-9]{0,11}", value):
            raise ConfigError(
                f"{key} is no number of records", where="board", allowed="a whole number from 1"
            )
        if value and tomllib.loads(text).get("expect", {}).get(key) != int(value):
            changes.setdefault("expect", {})[key] = int(value)
    return changes


def changed_text(text: str, changes: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a TOML file with other values of some keys; all else stays as it was written.

    Args:
        changes: by section and key: a text or a whole number.

    Errors:
        ConfigError: the file is written so that this cannot be done (which parsing it again shows).

    >>> changes = {"budget": {"epsilon": "2"}, "expect": {"size": 9}}
    >>> print(changed_text('[budget]\\nepsilon = "1"  # decided\\n', changes))
    [budget]
    epsilon = "2"  # decided
    <BLANKLINE>
    [expect]
    size = 9
    <BLANKLINE>
    """
    wanted = copy.deepcopy(tomllib.loads(text))
    for section, values in changes.items():
        wanted.setdefault(section, {}).update(values)
        for key, value in values.items():
            text = _with(text, section, key, f'"{value}"' if isinstance(value, str) else str(value))
    try:
        same = tomllib.loads(text) == wanted
    except ValueError:
        same = False
    if not same:
        raise ConfigError(
            "the file is written in a way that the board does not know how to change",
            where="board",
            allowed="one line for each key, under the head of its section; or a change by hand",
        )
    return text


def _with(text: str, section: str, key: str, value: str) -> str:
    head = re.search(rf"^[ \t]*\[{section}\][^\n]*\n?", text, re.MULTILINE)
    if head is None:
        return f"{text.rstrip()}\n\n[{section}]\n{key} = {value}\n"
    after = re.search(r"^[ \t]*\[", text[head.end() :], re.MULTILINE)
    end = len(text) if after is None else head.end() + after.start()
    body = text[head.end() : end]
    own = re.search(_LINE.format(key=key), body, re.MULTILINE)
    if own is None:
        start = text[: head.end()]
        return f"{start}{'' if start.endswith(chr(10)) else chr(10)}{key} = {value}\n{text[head.end() :]}"
    return text[: head.end()] + body[: own.start(2)] + value + body[own.end(2) :] + text[end:]
