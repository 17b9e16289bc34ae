"""What the desk hands out, as frozen values: public facts and results of mechanisms, and no row of a state.

Times are texts in UTC (ISO 8601, seconds); amounts of privacy loss are exact texts, as in the ledger.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def now() -> str:
    """The present second, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def rounded_up(amount: str) -> str:
    """An exact amount as a decimal number for people, never less than it is.

    >>> rounded_up("1/4"), rounded_up("6493380201/137438953472"), rounded_up("0")
    ('0.25', '0.04725', '0')
    """
    value, places = Fraction(amount), 4
    while 0 < value * 10**places < 1000:
        places += 1
    return f"{Decimal(math.ceil(value * 10**places)).scaleb(-places).normalize():f}"


def unix_time(moment: str) -> float:
    """A time of ``now`` as Unix time."""
    return datetime.datetime.fromisoformat(moment).timestamp()


def canonical(value: Any) -> str:
    """JSON in the one form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True)
class Person:
    """Somebody who is known; for roles see ``roles.ROLES``."""

    name: str
    roles: frozenset[str]


@dataclass(frozen=True)
class Task:
    """Something that the worker is to do.

    Attributes:
        kind: ``approve``, ``reject``, ``withdraw``, ``ask`` or ``run``.
        what: ``step``, ``reason`` or ``question``.
        decision: the number of the decision that it follows from.
        state: ``waiting``, ``begun``, ``done``, ``failed`` or ``cancelled``.
        result: of one that is done; public.
        why: of one that failed, a sentence.
    """

    number: int
    stream: str
    kind: str
    what: dict[str, Any]
    person: str
    made: str
    state: str
    decision: int
    result: dict[str, Any] | None = None
    why: str | None = None
    ended: str | None = None


@dataclass(frozen=True)
class Card:
    """A stream at a glance.

    Attributes:
        name: of the stream.
        health, why: the word and the sentence of ``dpstream status --health``.
        verdicts: what the newest table is fit for, in words.
        unfit: why nobody should use it; None where nothing speaks against it.
        cut: how many users the bound cut, in words; None where nobody counts.
        last_step: the newest release that was not withdrawn; None where there is none. last_period: its period.
            released_at: when it was written. next_due: when the next step is due.
        steps, steps_left: committed steps, and those that the plan still pays for (None: any number).
        spent, planned: privacy loss, in words; ``share``: spent of planned, None where nothing is spent.
        protects: who is protected, in words.
        held: steps that wait for approval; ``needed``: how many persons must approve one.
        withdrawn: steps that were taken back.
        asks: whether the stream answers questions. asked: of one that was told of, what a question costs at most
            (``most``), ``spent`` and ``planned`` for questions, and how many hard ones are left (``hard_left``).
        told_at: when the worker last wrote this; None where it never did.
        trouble: why the worker cannot go on, in public words; None where it can.
        pending: tasks that are not done.
    """

    name: str
    health: str = "unknown"
    why: str = "the worker has not looked"
    verdicts: tuple[str, ...] = ()
    unfit: str | None = None
    cut: str | None = None
    last_step: int | None = None
    last_period: str | None = None
    released_at: str | None = None
    next_due: str | None = None
    steps: int = 0
    steps_left: int | None = None
    spent: str | None = None
    planned: str = ""
    share: float | None = None
    protects: str = ""
    held: tuple[int, ...] = ()
    needed: int = 1
    withdrawn: tuple[int, ...] = ()
    asks: bool = False
    asked: dict[str, Any] | None = None
    told_at: str | None = None
    trouble: str | None = None
    pending: tuple[Task, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A line of the decisions' log.

    Attributes:
        number: 1, 2, ...; without a gap.
        kind: ``approve``, ``reject``, ``withdraw``; ``ask`` and ``run`` for what was asked and triggered; and
            ``people`` for changes of people, roles and logins.
        stream, steps: what it is about; empty for ``people``.
        reason: what the person said; of ``people`` what was changed, of ``ask`` the question.
        manifests: the SHA-256 of the manifest of each step that was looked at, by step.
        before: the hash of the line before; empty for the first one.
    """

    number: int
    time: str
    person: str
    kind: str
    stream: str = ""
    steps: tuple[int, ...] = ()
    reason: str = ""
    manifests: dict[str, str] = field(default_factory=dict)
    before: str = ""

    def line(self) -> str:
        """The line as it is hashed and stored."""
        return canonical(asdict(self))


@dataclass(frozen=True)
class Held:
    """A step that waits for approval, and what to compare it with.

    Attributes:
        table: its table; or rows drawn of the same model, where it is large or is made only when it is published (then
            ``whole`` is False); None where the step has none.
        last, last_step: the newest released table and its step; None where there is none.
        approvals: by different persons, so far; ``needed``: how many it takes.
        errors: one standard error of a count of one value, by column, where what was measured says it.
    """

    stream: str
    step: int
    manifest: dict[str, Any]
    manifest_sha256: str
    table: pa.Table | None
    whole: bool
    last: pa.Table | None
    last_step: int | None
    approvals: tuple[Decision, ...]
    needed: int
    errors: Mapping[str, float]


@dataclass(frozen=True)
class Price:
    """What a question may cost, before it is asked.

    Attributes:
        question: as it is understood.
        most: the most that an answer costs; an easy one costs nothing.
        spent, planned: of the stream's budget.
        words: all of that in a sentence.
    """

    question: str
    most: str
    spent: str
    planned: str
    words: str
