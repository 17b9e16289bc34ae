"""One stream's side of an account: charged before its store exists, and checked against the account ever after.

Order at the start: note the stream's id in the state directory, charge that id in the account, create the store
with the charge in its sealed facts, forget the note. A stop in between leaves at most a charge without a stream,
and the next start finds the note and goes on with the same charge; a stream without a charge cannot come about.
A stream that was started without an account and charged later remembers its charge from its next opening on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import BudgetError, ConfigError, RefusedError, StoreDamagedError
from dpstream.core.paths import parse_json, read_bytes
from dpstream.stream.identity import canonical_json
from dpstream.stream.ledger.account_file import Account, AccountState, Charge, Pin
from dpstream.stream.store.sealed_history import PINNED, account_pin
from dpstream.stream.store.sqlite import DATABASE
from dpstream.stream.store.store_database import file_errors

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
                allowed="a place outside of all states and releases",
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
            with file_errors("the state could not be opened", self._note):
                durable.unlink(self._note)
        return state.pin(charge)

    def allow_step(self, meta: dict[str, bytes], step: int) -> None:
        """Refuse further steps of a stream that its owner closed.

        Errors:
            BudgetError: it was closed. And those of ``check``.
        """
        if self._charge(self._account.read(), meta).closed:
            raise BudgetError(
                "the stream was closed in its account: its budget stays spent, and it takes no further step",
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
                    "this stream was started without an account and was not charged in this one",
                    where=where,
                    allowed="charging it there (dpstream ledger account charge), or no account",
                )
            return charge
        pin = Pin.from_bytes(remembered, where)
        if pin.account_id != state.account_id:
            raise ConfigError(
                "this stream was charged in another account",
                where=where,
                allowed="the account that it was charged in",
            )
        if charge is None or not state.knows(pin):
            what = "that the stream was closed" if pin.closed else "the stream's charge"
            raise StoreDamagedError(
                f"the account does not know {what} (entry {pin.entry}): it was rolled back or changed, "
                "and other streams could spend this budget again",
                where=where,
            )
        return charge

    def _notes(self) -> dict[str, str]:
        """The ids of interrupted starts by the hash of their plan: whoever goes back to a plan finds its charge."""
        if not self._note.exists():
            return {}
        try:
            stored = parse_json(read_bytes(self._note))
            # Of one plan only, as the first versions wrote it.
            notes = stored["starts"] if "starts" in stored else {stored["plan_hash"]: stored["stream_id"]}
            sound = all(len(bytes.fromhex(stream_id)) == _ID_BYTES for stream_id in notes.values())
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise StoreDamagedError("the note of an interrupted start cannot be read", where=str(self._note))
        return dict(notes)

    def _write_notes(self, notes: dict[str, str]) -> None:
        with file_errors("the state could not be opened", self._note):
            if notes:
                durable.replace_file(self._note, canonical_json({"starts": notes}), mode=0o600)
            else:
                durable.unlink(self._note)


def check_account(membership: Membership | None, meta: dict[str, bytes], where: str) -> bytes | None:
    """Refuse to open a stream without the account that it is charged in; see ``Membership.check``.

    Gives what a store has to remember from now on, as it was charged after its start, or closed since; None where
    there is nothing.

    Errors:
        ConfigError: it is in one, and none is given.
    """
    remembered = account_pin(meta, where)
    if membership is not None:
        pin = membership.check(meta).to_bytes()
        return pin if pin != remembered else None
    if remembered is not None:
        raise ConfigError(
            "this stream is charged in an account, and none is given",
            where=where,
            allowed='[budget] account = "..." as it was when the stream was charged',
        )
    return None
