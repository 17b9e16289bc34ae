"""An account: what several streams on one private source cost together, in one small file of its own; and a stream's
membership in it.

Guarantee of accounts with ``per``: a stream costs a user's records of a period of the account ``n`` times its budget
(``n^2`` under zCDP), if these records, and what becomes of them later, can be in ``n`` of the stream's periods.
Periods of one stream do not add up. Proof: docs/theory/composition-over-streams.md.

Trusted base: kernel (what streams cost together).
"""

from __future__ import annotations

import datetime
import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from dpstream.core import durable
from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    RefusedError,
    StoreDamagedError,
    StoreFormatError,
    UnitError,
    unreadable,
)
from dpstream.core.paths import parse_json, read_bytes, sha256_hex, shown_path
from dpstream.core.privacy import Budget, amount_words, group
from dpstream.io.sources.calendar import CalendarPeriods, period_grid
from dpstream.stream.identity import canonical_json, is_same_unit, require_same_unit, whose_unit
from dpstream.stream.ledger.chained_lines import as_file, chained, read_chain
from dpstream.stream.ledger.limit import UNITS, Limit, Total, budget_from_dict, compose, in_unit
from dpstream.stream.store.lock import repair_mode
from dpstream.stream.store.sealed_history import PINNED, account_pin, utc_now
from dpstream.stream.store.sqlite import DATABASE
from dpstream.stream.store.store_database import file_errors, require_folder, require_format

#: Of the periods that an account can have, the first word.
_LENGTHS = ("month", "quarter", "year")
#: Rules for late records under which a record's own time gives its step.
_BY_TIME = ("error", "drop-and-count-nothing")


@dataclass(frozen=True)
class Span:
    """Which periods of a stream hold records of which time. Periods are numbered by the calendar.

    Attributes:
        start: the period of the first day.
        first, last: the stream's first and last period; None: no end is pinned.
        crosses: whether a step may begin in the period before its own.
        deletes: whether a record may be deleted in any later period.
    """

    start: int
    first: int
    last: int | None
    crosses: bool
    deletes: bool

    @classmethod
    def of(cls, facts: Mapping[str, Any], where: str) -> Self | None:
        """The span of a stream by its pinned facts; None where each period costs its whole budget.

        Errors:
            UnitError: a record's own time does not give its period.
        """
        if facts.get("per") is None:
            return None
        source = facts["source"] or {}
        by_time = source.get("time_column") and source.get("late") in _BY_TIME and "query" not in source
        if not by_time or not source["every"] or source.get("kind") == "stdin":
            raise UnitError(
                "a record's own time does not give its period in this stream",
                where=where,
                allowed="[source] time_column, every, and late = error or drop-and-count-nothing; no query, no stdin",
            )
        start = datetime.date.fromisoformat(source["start"])
        periods = CalendarPeriods.named(facts["per"], period_grid(source["every"], start, where))
        deletes = bool(source["op_column"]) or source.get("kind") == "postgres-changes"
        last = None if facts["horizon"] is None else periods.number(facts["horizon"])
        if deletes and last is None:
            raise UnitError(
                "with deletes, a record costs each later period, without an end",
                where=where,
                allowed="[budget] horizon, or a source without deletes",
            )
        return cls(periods.of_day(start), periods.number(1), last, periods.crossed, deletes)

    def times(self, period: int) -> int:
        """In how many of the stream's periods the records of a period can be."""
        after = self.last if self.deletes and self.last is not None else period + self.crosses
        last = after if self.last is None else min(after, self.last)
        return max(0, last - max(period, self.first) + 1) if period >= self.start or self.deletes else 0


def require_per(per: str) -> None:
    """Refuse what periods of an account are not called.

    Errors:
        ConfigError: names what is allowed.
    """
    if per.partition(",")[0] not in _LENGTHS:
        raise ConfigError(f"unknown per {per!r}", where="per", allowed=", ".join(_LENGTHS))


def totals(charges: Sequence[tuple[Budget, Span | None]]) -> list[Total]:
    """What all charges cost together, for each period that may differ from others.

    >>> from dpstream.core.privacy import PureDP
    >>> yearly = Span(2020, 2020, None, crosses=False, deletes=False)
    >>> print(*totals([(PureDP.of(1), yearly), (PureDP.of(2), None)]), sep="; ")
    epsilon = 2 (pure); as zCDP rho = 2; epsilon = 3 (pure); as zCDP rho = 2.5
    """
    spans = [span for _, span in charges if span is not None]
    begins = min((span.start for span in spans), default=1) - 1
    ends = max((span.first if span.last is None else span.last for span in spans), default=0) + 1
    several = {
        tuple(1 if span is None else span.times(period) for _, span in charges): None
        for period in range(begins, ends + 1)
    }
    return [
        compose(group(budget, times) for (budget, _), times in zip(charges, counts, strict=True) if times)
        for counts in several
    ]


def largest(several: Sequence[Total]) -> Total:
    """The largest epsilon and the largest rho; exceptions are those of all streams."""
    epsilons = [total.epsilon for total in several]
    pure = None if None in epsilons else max(epsilon for epsilon in epsilons if epsilon is not None)
    return Total(pure, max(total.rho for total in several), several[0].exceptions)


# An account: what several streams on one private source cost together, in one small file of its own.
#
# Guarantee: a stream is charged its plan's whole budget, in a durable commit, before its store exists; a charge
# that would pass the limit is refused, also where several processes start streams at the same time; nothing is
# ever given back. Each entry is a line with the SHA-256 of the line before, so that a changed or missing one
# is found, and every stream's sealed store remembers its own entry, so that an account that was rolled back or
# replaced is found by the streams in it.
#
# Neighbours, conversions and composition: ``limit.py``. Limits of what can be seen: docs/guide/ledger.md.

ACCOUNT_FORMAT = 1
_KIND = "dpstream account"


@dataclass(frozen=True)
class Pin:
    """A stream's entry in an account, as the stream's own store remembers it, and whether it was closed there."""

    account_id: str
    entry: int
    seal: str
    closed: bool = False

    def to_bytes(self) -> bytes:
        """For the store."""
        return canonical_json(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Pin:
        """The inverse of ``to_bytes``; StoreDamagedError for anything else."""
        with unreadable("the stream's charge is unreadable", where):
            stored = parse_json(data)
            closed = bool(stored["closed"])
            return cls(str(stored["account_id"]), int(stored["entry"]), str(stored["seal"]), closed)


@dataclass(frozen=True)
class Charge:
    """What one stream was charged: its plan's whole budget, once.

    ``budget`` is in the stream's ``unit``, which is about ``whose`` (``whose_unit``); ``charged`` is the same in the
    account's unit, in each of the periods that ``span`` says (None: in all); ``seal`` is the SHA-256 of the entry.
    ``exceptions``: the probability with which the budget may be passed.
    """

    entry: int
    seal: str
    stream_id: str
    stream: str
    plan_hash: str
    unit: str
    whose: dict[str, Any]
    budget: Budget
    charged: Budget
    time: str
    closed: bool = False
    span: Span | None = None
    exceptions: Fraction = Fraction(0)


@dataclass(frozen=True)
class Raise:
    """An entry that raised the limit, and to what."""

    entry: int
    limit: Limit
    time: str


@dataclass(frozen=True)
class AccountState:
    """An account as it follows from its entries; it holds no private value.

    ``per``: the public periods in one of which the limit is about a user's records; None: it is about all.
    """

    account_id: str
    unit: str
    per: str | None
    limit: Limit
    charges: tuple[Charge, ...]
    raised: tuple[Raise, ...]
    entries: int

    @property
    def total(self) -> Total:
        """What all charges cost together: with ``per``, in the dearest period."""
        return largest(self.totals())

    def totals(self, *more: tuple[Budget, Span | None], exceptions: Fraction = Fraction(0)) -> list[Total]:
        """The same for each period that differs from others, with further charges."""
        excepted = sum((charge.exceptions for charge in self.charges), exceptions)
        found = totals([*((charge.charged, charge.span) for charge in self.charges), *more])
        return [replace(total, exceptions=excepted) for total in found]

    @property
    def whom(self) -> str:
        """Whom the limit is about."""
        return f'unit "{self.unit}"' if self.per is None else f'unit "{self.unit}", per {self.per}'

    def find(self, stream_id: str) -> Charge | None:
        """The charge of a stream."""
        return next((charge for charge in self.charges if charge.stream_id == stream_id), None)

    def pin(self, charge: Charge) -> Pin:
        """What the stream has to remember."""
        return Pin(self.account_id, charge.entry, charge.seal, charge.closed)

    def knows(self, pin: Pin) -> bool:
        """Whether the charge that a stream remembers is there, and closed if it remembers that."""
        found = [self.pin(charge) for charge in self.charges if charge.entry == pin.entry]
        return found in ([pin], [replace(pin, closed=True)])


class Account:
    """The account file at ``path``: any number of processes may use it. Each change replaces the file, and then the
    witness beside it, while the folder is locked.

    Errors (all methods):
        ConfigError: the account is missing. StoreDamagedError: its entries contradict each other.
        StoreFormatError: in another format. StoreError: the disk fails.
    """

    def __init__(self, path: str | Path) -> None:
        # A link would have a head of its own beside it, which knows nothing of entries made under another name.
        self.path = Path(path).resolve()

    @classmethod
    def create(cls, path: str | Path, limit: Limit, unit: str = "event", per: str | None = None) -> Account:
        """Make an account that no stream is in yet; it is there whole, or not at all.

        Args:
            per: ``month``, ``quarter`` or ``year``: the limit is about a user's records of one such period.

        Errors:
            ConfigError: the file exists, the folder does not, or the unit is unknown.
        """
        if per is not None:
            require_per(per)
            if unit != "user":
                raise ConfigError(f"unit {unit!r} has no per", where="per", allowed="the unit user")
        if unit not in UNITS:
            raise ConfigError(f"unknown unit {unit!r}", where="unit", allowed=", ".join(UNITS))
        if Path(path).is_symlink():
            raise ConfigError("a link is there already", where=shown_path(path), allowed="another name")
        account = cls(path)
        folder = account.path.absolute().parent
        require_folder(folder)
        first = {
            "kind": _KIND,
            "format": ACCOUNT_FORMAT,
            "account_id": secrets.token_hex(16),
            "unit": unit,
            **({} if per is None else {"per": per}),
            "limit": limit.as_dict(),
            "time": utc_now(),
        }
        with file_errors("the account could not be created", account.path), _only_one(folder):
            if account.path.exists() or account._head.exists():
                raise ConfigError(
                    "the account exists",
                    where=str(account.path),
                    allowed="another file, or a higher limit",
                )
            account._write([chained(first, None)])
        return account

    def read(self) -> AccountState:
        """Check the whole file and tell what it says."""
        return self._read()[0]

    def charge(self, stream_id: str, facts: dict[str, Any], plan_hash: str, *, again: bool) -> Pin:
        """Charge a stream its plan's whole budget, durably, or refuse.

        Args:
            facts: what the stream is pinned to (``plan_facts``).
            again: whether the stream may have been charged before (its start was interrupted): then the pin of
                the charge that is there is given, and nothing is added.

        Errors:
            BudgetError: the limit would be passed, or the definition of privacy does not fit.
            UnitError: the stream's unit cannot be converted, or is about others. ConfigError: the id is charged
            already.
        """
        budget = budget_from_dict(facts["budget"])
        with self._writing() as (state, lines):
            known = state.find(stream_id)
            if known is not None:
                if again and known.plan_hash == plan_hash:
                    return state.pin(known)
                raise ConfigError(f"stream {stream_id} is charged already", where=str(self.path))
            charged = self.require_room(state, facts)
            content = {
                "kind": "charge",
                "stream_id": stream_id,
                "stream": facts["stream"],
                "plan_hash": plan_hash,
                "unit": facts["unit"],
                "whose": whose_unit(facts),
                "budget": budget.as_dict(),
                "charged": charged.as_dict(),
            }
            if "exceptions" in facts:
                content["exceptions"] = facts["exceptions"]
            span = None if state.per is None else Span.of(facts, str(self.path))
            if span is not None:
                content["span"] = asdict(span)
            if "base" in facts:
                # On record only: the sum of both is charged, whatever their border (docs/guide/evolution.md).
                content["begins_with"] = facts["base"]["stream_id"]
            self._append(lines, content)
            return Pin(state.account_id, len(lines), sha256_hex(lines[-1]))

    def require_room(self, state: AccountState, facts: dict[str, Any]) -> Budget:
        """What a stream that is pinned to ``facts`` would be charged, where the limit allows it; writes nothing.

        Errors: those of ``charge``.
        """
        exceptions, unit = Fraction(facts.get("exceptions", 0)), str(facts["unit"])
        charged = in_unit(budget_from_dict(facts["budget"]), unit, state.unit)
        if exceptions and unit != state.unit:
            raise UnitError(
                f"values are discovered for the unit {unit!r}, and the account adds up another one",
                where=str(self.path),
                allowed=f"an account for the unit {unit!r}",
            )
        per = facts.get("per")
        if per not in (None, state.per):
            raise UnitError(
                f"the stream protects a user per {per}, and the account a user "
                f"{'in all releases' if state.per is None else f'per {state.per}'}",
                where=str(self.path),
                allowed=f'dpstream ledger account create --unit user --per "{per}"',
            )
        if state.charges and not any(is_same_unit(facts, charge.whose) for charge in state.charges):
            first = state.charges[0]
            require_same_unit(facts, first.whose, first.stream, str(self.path))
        span = None if state.per is None else Span.of(facts, str(self.path))
        if exceptions and span is not None and (span.crosses or span.deletes):
            # The delta of several periods is more than their sum.
            raise UnitError(
                "values are discovered, and a record can be in several periods of the stream",
                where=str(self.path),
                allowed="steps that end where periods end, and no deletes",
            )
        self._admit(state, charged, span, exceptions)
        return charged

    def raise_limit(self, limit: Limit) -> None:
        """Raise the limit: an act of the owner's that stays on record. From then on only the raised limit is
        promised, for the earlier streams too.

        Errors:
            ConfigError: another kind of limit, or no larger one.
        """
        with self._writing() as (state, lines):
            state.limit.require_larger(limit)
            self._append(lines, {"kind": "raise", "limit": limit.as_dict()})

    def close_stream(self, stream_id: str) -> None:
        """Forbid every further step of a stream; its charge stays. Closing it again changes nothing.

        Errors:
            ConfigError: no such stream.
        """
        with self._writing() as (state, lines):
            known = state.find(stream_id)
            if known is None:
                raise ConfigError(
                    f"stream {stream_id!r} is not in the account",
                    where=str(self.path),
                    allowed=", ".join(charge.stream_id for charge in state.charges) or "none yet",
                )
            if not known.closed:
                self._append(lines, {"kind": "close", "stream_id": stream_id})

    # Inside

    @property
    def _head(self) -> Path:
        return self.path.with_name(f"{self.path.name}.head")

    @contextmanager
    def _writing(self) -> Iterator[tuple[AccountState, list[bytes]]]:
        """What the account says and its lines, while nobody else changes it."""
        self._require_file()
        with (
            file_errors("the account could not be written", self.path),
            _only_one(self.path.absolute().parent),
        ):
            state, lines = self._read()
            for path in (self.path, self._head):  # what an interrupted replacement left
                durable.unlink(path.with_name(f".{path.name}.tmp"))
            if not self._head.exists():
                self._write(lines)  # it was killed while it was made
            yield state, lines

    def _append(self, lines: list[bytes], content: dict[str, Any]) -> None:
        lines.append(chained({**content, "time": utc_now()}, lines[-1]))
        self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        """The file, and then its witness; the caller holds the folder's lock."""
        head = {"format": 1, "entry": len(lines), "seal": sha256_hex(lines[-1])}
        durable.replace_file(self.path, as_file(lines), mode=0o600)
        durable.replace_file(self._head, canonical_json(head), mode=0o600)

    def _require_file(self) -> None:
        if not self.path.is_file():
            raise ConfigError(
                "the account is missing",
                where=str(self.path),
                allowed="a file of dpstream ledger account create",
            )

    def _admit(self, state: AccountState, charged: Budget, span: Span | None, exceptions: Fraction) -> None:
        state.limit.check_definition(charged, exceptions)
        after = state.totals((charged, span), exceptions=exceptions)
        if not all(map(state.limit.admits, after)):
            raise BudgetError(
                f"with {amount_words(charged, exceptions)} of this stream ({state.whom}) all streams would cost "
                f"{largest(after)}; the limit is {state.limit}",
                where=str(self.path),
                allowed="a smaller budget, or dpstream ledger account raise",
            )

    def _read(self) -> tuple[AccountState, list[bytes]]:
        where = str(self.path)
        self._require_file()
        # Before the file: whoever commits in between writes the file before its head.
        head = self._read_head(where)
        with file_errors("the account could not be opened", self.path):
            data = read_bytes(self.path)
        problems, entries = read_chain(data)
        if not entries or entries[0].get("kind") != _KIND:
            # Nothing is done to the file: it may be anybody's.
            raise StoreDamagedError("is cut short, or no account", where=where)
        for path in (self.path, self._head):
            repair_mode(path, 0o600)
        require_format(int(entries[0].get("format", 0)), where, ACCOUNT_FORMAT)
        for problem in problems:
            raise StoreDamagedError(problem, where=where)
        lines = data.splitlines()
        self._check_head(head, lines, where)
        return _replay(entries, lines, where), lines

    def _read_head(self, where: str) -> tuple[int, str] | None:
        if not self._head.exists():
            return None
        with unreadable(f"{self._head.name} cannot be read", where):
            head = parse_json(read_bytes(self._head))
            return int(head["entry"]), str(head["seal"])

    def _check_head(self, head: tuple[int, str] | None, lines: list[bytes], where: str) -> None:
        """The witness beside the file: an account that was restored from an older copy is behind it."""
        if head is None:
            # Killed while the account was made; nothing is added before there is a head.
            if len(lines) > 1:
                raise StoreDamagedError(f"{self._head.name} is missing", where=where)
            return
        number, seal = head
        if number > len(lines):
            raise StoreDamagedError(
                f"{self._head.name} knows entry {number}, the account ends at entry {len(lines)}: rolled back",
                where=where,
            )
        if number < 1 or seal != sha256_hex(lines[number - 1]):
            raise StoreDamagedError(f"{self._head.name} knows another entry {number}", where=where)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """One process at a time, waiting for its turn; the kernel lets go when a process dies."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replay(entries: list[dict[str, Any]], lines: list[bytes], where: str) -> AccountState:
    """The account that follows from its entries. Entries that no sequence of charges can have left are damage."""
    with unreadable("the account's entries are unreadable", where):
        unit, limit = str(entries[0]["unit"]), Limit.from_dict(entries[0]["limit"])
        charges, raised = dict[str, Charge](), list[Raise]()
        for number, entry in enumerate(entries[1:], start=2):
            match entry["kind"]:
                case "charge":
                    charge = _charge_of(number, sha256_hex(lines[number - 1]), entry)
                    charges[charge.stream_id] = charge
                case "raise":
                    limit = Limit.from_dict(entry["limit"])
                    raised.append(Raise(number, limit, str(entry["time"])))
                case "close":
                    known = charges[entry["stream_id"]]
                    charges[known.stream_id] = replace(known, closed=True)
                case _:
                    raise StoreFormatError(f"entry {number} is of a newer version", where=where)
        state = AccountState(
            str(entries[0]["account_id"]),
            unit,
            entries[0].get("per"),
            limit,
            tuple(charges.values()),
            tuple(raised),
            len(entries),
        )
        if not all(map(limit.admits, state.totals())):
            raise StoreDamagedError("the account's charges pass its limit", where=where)
    return state


def _charge_of(number: int, seal: str, entry: dict[str, Any]) -> Charge:
    return Charge(
        entry=number,
        seal=seal,
        stream_id=str(entry["stream_id"]),
        stream=str(entry["stream"]),
        plan_hash=str(entry["plan_hash"]),
        unit=str(entry["unit"]),
        whose=dict(entry["whose"]),
        budget=budget_from_dict(entry["budget"]),
        charged=budget_from_dict(entry["charged"]),
        time=str(entry["time"]),
        span=Span(**entry["span"]) if "span" in entry else None,
        exceptions=Fraction(entry.get("exceptions", 0)),
    )


# One stream's side of an account: charged before its store exists, and checked against the account ever after.
#
# Order at the start: note the stream's id in the state directory, charge that id in the account, create the store
# with the charge in its sealed facts, forget the note. A stop in between leaves at most a charge without a stream,
# and the next start finds the note and goes on with the same charge; a stream without a charge cannot come about.
# A stream that was started without an account and charged later remembers its charge from its next opening on.

#: The note's name begins like the database's: the state directory holds no other files.
_NOTE = f"{DATABASE}.charge"
_ID_BYTES = 16


class Membership:
    """A stream in an account.

    Args:
        account: the account's file.
        state: the stream's state directory, which the caller has locked.
        facts, plan_hash: what the stream is pinned to.

    Errors:
        ConfigError: the account lies inside the state, whose files are the stream's own.
    """

    def __init__(self, account: str | Path, state: Path, facts: dict[str, Any], plan_hash: str) -> None:
        self._account = Account(account)
        if state.resolve() in self._account.path.resolve().parents:
            raise ConfigError(
                f"the account {str(account)!r} lies inside the state {str(state)!r}",
                where="account",
                allowed="another folder",
            )
        self._note = state.absolute() / _NOTE
        self._facts = facts
        self._plan_hash = plan_hash

    def begin(self, stream_id: bytes) -> dict[str, bytes]:
        """Charge a stream that is about to be started, and give what its store has to remember, its id included.

        ``stream_id`` gives way to the id of an interrupted start under the same plan.

        Errors:
            BudgetError: the account's limit would be passed. UnitError: its unit cannot be converted.
        """
        notes = self._notes()
        noted = notes.get(self._plan_hash)
        name = noted or stream_id.hex()
        if noted is None:
            self._write_notes({**notes, self._plan_hash: name})
        try:
            pin = self._account.charge(name, self._facts, self._plan_hash, again=noted is not None)
        except RefusedError:
            # Nothing was charged under the new id; an older one may have been, here or in another account.
            if noted is None:
                self._write_notes(notes)
            raise
        return {"stream_id": bytes.fromhex(name), PINNED: pin.to_bytes()}

    def check(self, meta: dict[str, bytes]) -> Pin:
        """Compare an opened store with the account, forget the note of its start, and give the pin to remember.

        Errors:
            ConfigError: the stream was never charged in this account, or is in another one.
            StoreDamagedError: the account does not know the charge that the store remembers.
        """
        state = self._account.read()
        charge = self._charge(state, meta)
        if self._note.exists():
            self._write_notes({})
        return state.pin(charge)

    def allow_step(self, meta: dict[str, bytes], step: int) -> None:
        """Refuse further steps of a stream that its owner closed.

        Errors:
            BudgetError: it was closed. And those of ``check``.
        """
        if self._charge(self._account.read(), meta).closed:
            raise BudgetError(
                "the stream is closed in its account",
                where=f"step {step}",
            )

    def preview(self, meta: dict[str, bytes] | None, step: int) -> None:
        """Refuse what ``begin`` (before there is a store, without ``meta``) or ``allow_step`` would; writes nothing.

        Errors: those of ``begin`` and of ``allow_step``.
        """
        if meta is not None:
            self.allow_step(meta, step)
            return
        state = self._account.read()
        noted = self._notes().get(self._plan_hash)
        if noted is None or state.find(noted) is None:
            self._account.require_room(state, self._facts)

    def _charge(self, state: AccountState, meta: dict[str, bytes]) -> Charge:
        where = str(self._account.path)
        charge = state.find(meta["stream_id"].hex())
        remembered = account_pin(meta, where)
        if remembered is None:
            # Started before it was in an account: the owner charged it later.
            if charge is None:
                raise ConfigError(
                    "the stream has no charge here",
                    where=where,
                    allowed="dpstream ledger account charge, or no account",
                )
            return charge
        pin = Pin.from_bytes(remembered, where)
        if pin.account_id != state.account_id:
            raise ConfigError(
                "the stream was charged in another account", where=where, allowed="the other account"
            )
        if charge is None or not state.knows(pin):
            what = "that the stream was closed" if pin.closed else "the stream's charge"
            raise StoreDamagedError(
                f"the account does not know {what} (entry {pin.entry}): rolled back or changed",
                where=where,
            )
        return charge

    def _notes(self) -> dict[str, str]:
        """The ids of interrupted starts by the hash of their plan: whoever goes back to a plan finds its charge."""
        if not self._note.exists():
            return {}
        try:
            notes = parse_json(read_bytes(self._note))["starts"]
            sound = all(len(bytes.fromhex(stream_id)) == _ID_BYTES for stream_id in notes.values())
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise StoreDamagedError("the note of a start is unreadable", where=str(self._note))
        return dict(notes)

    def _write_notes(self, notes: dict[str, str]) -> None:
        with file_errors("the state could not be opened", self._note):
            if notes:
                durable.replace_file(self._note, canonical_json({"starts": notes}), mode=0o600)
            else:
                durable.unlink(self._note)


def check_account(membership: Membership | None, meta: dict[str, bytes], where: str) -> Pin | None:
    """Refuse to open a stream without the account that it is charged in; see ``Membership.check``.

    Gives what a store has to remember from now on, as it was charged after its start, or closed since; None where
    there is nothing.

    Errors:
        ConfigError: it is in one, and none is given.
    """
    remembered = account_pin(meta, where)
    if membership is not None:
        pin = membership.check(meta)
        return pin if pin.to_bytes() != remembered else None
    if remembered is not None:
        raise ConfigError(
            "[budget] account is missing",
            where=where,
            allowed='[budget] account = "..." as at the start',
        )
    return None
