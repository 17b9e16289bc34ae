"""People, the one-time tokens with which they sign in, and their sessions; of secrets the hashes only.

A proxy says who somebody is, or a one-time token does. Such a token is made on the machine and nowhere else, so that
nobody on the pages can be another one; whoever has the machine can publish without the pages anyway.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator

from dpstream.core.errors import ConfigError
from dpstream.service.desk.database import ServiceDatabase
from dpstream.service.desk.facts import Person, now
from dpstream.service.desk.roles import MAY, ROLES
from dpstream.service.desk.settings import Settings
from dpstream.service.tokens import new_token, token_hash
from dpstream.stream.store.store_database import StoreDatabase

#: A one-time token can be used for so many seconds.
TOKEN_SECONDS = 24 * 3600


def check_name(name: str) -> str:
    """A name that can be kept.

    Errors:
        ConfigError: it cannot.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable():
        raise ConfigError("cannot be a name", where="person", allowed="1 to 100 printable characters")
    return name.strip()


class Sessions:
    """One-time tokens and sessions. ``clock``: Unix time; another one in tests."""

    def __init__(
        self, database: ServiceDatabase, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._settings, self._clock = database, settings, clock

    def make_token(self, db: StoreDatabase, name: str) -> str:
        """A token with which ``name`` signs in, once and soon; an earlier one is refused from now on."""
        known(db, name)
        token = new_token()
        db.execute("DELETE FROM tokens WHERE person = ?", (name,))
        expires = int(self._clock()) + TOKEN_SECONDS
        db.execute("INSERT INTO tokens VALUES (?, ?, ?)", (token_hash(token), name, expires))
        return token

    def sign_in(self, token: str) -> str | None:
        """The secret of a new session; None where the token was used, has expired, or never was."""
        moment, key = int(self._clock()), token_hash(token)
        with self._database.reading() as db:
            if db.execute("SELECT 1 FROM tokens WHERE hash = ?", (key,)).fetchone() is None:
                return None
        secret = new_token()
        with self._database.writing() as db:
            row = db.execute("SELECT person, expires FROM tokens WHERE hash = ?", (key,)).fetchone()
            db.execute("DELETE FROM tokens WHERE hash = ? OR expires <= ?", (key, moment))
            db.execute("DELETE FROM sessions WHERE made < ?", (moment - self._settings.session_seconds,))
            if row is None or moment >= int(row[1]):
                return None
            db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)", (token_hash(secret), row[0], moment, moment)
            )
        return secret

    def person(self, secret: str) -> Person | None:
        """Whose session it is; None where it is over."""
        moment, key = int(self._clock()), token_hash(secret)
        with self._database.reading() as db:
            row = db.execute("SELECT person, made, used FROM sessions WHERE hash = ?", (key,)).fetchone()
            person = None if row is None else find_person(db, str(row[0]))
        if row is None or person is None:
            return None
        made, used = int(row[1]), int(row[2])
        lasts = made <= moment < made + self._settings.session_seconds
        if not lasts or not used <= moment < used + self._settings.idle_seconds:
            self.sign_out(secret)
            return None
        if moment >= used + 60:  # not at every look
            with self._database.writing() as db:
                db.execute("UPDATE sessions SET used = ? WHERE hash = ?", (moment, key))
        return person

    def sign_out(self, secret: str) -> None:
        """End a session."""
        with self._database.writing() as db:
            db.execute("DELETE FROM sessions WHERE hash = ?", (token_hash(secret),))


def everybody(db: StoreDatabase) -> list[Person]:
    """Everybody, by name."""
    rows = db.execute("SELECT name, roles FROM people WHERE removed = 0 ORDER BY name").fetchall()
    return [Person(name, frozenset(json.loads(roles))) for name, roles in rows]


def find_person(db: StoreDatabase, name: str) -> Person | None:
    """Somebody who is there."""
    row = db.execute("SELECT roles FROM people WHERE name = ? AND removed = 0", (name,)).fetchone()
    return None if row is None else Person(name, frozenset(json.loads(row[0])))


def add(db: StoreDatabase, name: str, roles: frozenset[str]) -> None:
    """Somebody new, or somebody who was removed.

    Errors:
        ConfigError: the name is taken, or a role cannot be used.
    """
    kept = _roles(roles)
    if find_person(db, name) is not None:
        raise ConfigError("the name is taken", where="person", allowed="another name")
    db.execute(
        "INSERT INTO people VALUES (?, ?, ?, 0) ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, "
        "added = excluded.added, removed = 0",
        (name, kept, now()),
    )


def remove(db: StoreDatabase, name: str) -> None:
    """Somebody leaves: sessions and tokens end; the name stays known, so that decisions keep their meaning."""
    end_sessions(db, name)
    with _an_owner_stays(db):
        db.execute("UPDATE people SET removed = 1, roles = '[]' WHERE name = ?", (name,))


def end_sessions(db: StoreDatabase, name: str) -> None:
    """End all sessions of somebody, and the token that was not used yet."""
    known(db, name)
    db.execute("DELETE FROM tokens WHERE person = ?", (name,))
    db.execute("DELETE FROM sessions WHERE person = ?", (name,))


def change_roles(db: StoreDatabase, name: str, roles: frozenset[str]) -> None:
    """Other roles, from the next request on."""
    known(db, name)
    with _an_owner_stays(db):
        db.execute("UPDATE people SET roles = ? WHERE name = ?", (_roles(roles), name))


def may_decide(db: StoreDatabase, name: str) -> bool:
    """Whether somebody who is there still may decide."""
    person = find_person(db, name)
    return person is not None and bool(person.roles & MAY["decide"])


def known(db: StoreDatabase, name: str) -> None:
    """Check that somebody is there.

    Errors:
        ConfigError: the name is unknown.
    """
    if find_person(db, name) is None:
        raise ConfigError("the name is unknown", where="person", allowed="somebody who was added")


def _roles(roles: frozenset[str]) -> str:
    if not roles or not roles <= set(ROLES):
        raise ConfigError("cannot be roles", where="person", allowed=", ".join(ROLES))
    return json.dumps(sorted(roles))


@contextlib.contextmanager
def _an_owner_stays(db: StoreDatabase) -> Iterator[None]:
    """Where somebody is owner before a change, somebody is afterwards."""
    owned = _owned(db)
    yield
    if owned and not _owned(db):
        raise ConfigError("the last owner stays", where="person", allowed="another owner first")


def _owned(db: StoreDatabase) -> bool:
    return any("owner" in person.roles for person in everybody(db))
