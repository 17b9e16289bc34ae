"""People, their logins and their tokens. Secrets are stored as hashes only.

A password is hashed with Argon2; a login's secret and a token are 32 random bytes, so one SHA-256 is enough for them.
Wrong tries are counted for names that exist and names that do not alike: neither the answer nor the time it takes says
whether somebody has that name. They are counted by name and address together, so that an outsider locks out nobody but
themselves; by address; and, with a limit that takes many addresses, by name.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.service.desk.database import ServiceDatabase
from dpstream.service.desk.facts import Person, Token, now
from dpstream.service.desk.roles import MAY, ROLES
from dpstream.service.desk.settings import Proxy, Settings
from dpstream.stream.store.store_database import StoreDatabase

#: Characters of a password, at least.
SHORTEST = 10
_LONGEST = 1000
#: Wrong tries in so many seconds: of a name from an address, of an address, of a name; after them every try is refused.
_WINDOW = 15 * 60
_MOST = (10, 100, 1000)
#: Argon2 takes 64 MB each time.
_HASHING = threading.BoundedSemaphore(2)


def check_name(name: str) -> str:
    """A name that can be kept.

    Errors:
        ConfigError: it cannot.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable():
        raise ConfigError("cannot be a name", where="person", allowed="1 to 100 printable characters")
    return name.strip()


def client_address(
    proxy: Proxy | None, address: str, secrets: Sequence[str], forwarded: Iterable[str]
) -> str:
    """From where somebody comes, to count wrong tries.

    Args:
        address: of the connection.
        secrets: the values of the header with the proxy's secret.
        forwarded: the values of X-Forwarded-For, in order; the last address in them is the proxy's own word. They are
            believed only where the configured proxy has sent them.
    """
    if proxy is None or not proxy.sent(address, secrets):
        return address
    last = ",".join(forwarded).rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return address


class People:
    """The tables of people, sessions, tokens and tries. ``clock``: Unix time; another one in tests."""

    def __init__(
        self, database: ServiceDatabase, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._settings, self._clock = database, settings, clock

    # Who somebody is

    def sign_in(self, name: str, password: str, address: str) -> str | None:
        """The secret of a new session; None where name or password is wrong, or after too many wrong tries."""
        moment = int(self._clock())
        both = json.dumps([name, address])
        keys = tuple(_hashed(one) for one in (f"both {both}", f"address {address}", f"name {name}"))
        with self._database.writing() as db:
            db.execute("DELETE FROM tries WHERE time < ?", (moment - _WINDOW,))
            if any(_tries(db, key) >= most for key, most in zip(keys, _MOST, strict=True)):
                return None
            # Counted before it is known to be wrong: tries at the same time count as well.
            (last,) = db.execute("SELECT coalesce(max(id), 0) FROM tries").fetchone()
            for number, key in enumerate(keys, start=int(last) + 1):
                db.execute("INSERT INTO tries VALUES (?, ?, ?)", (number, key, moment))
            row = db.execute(
                "SELECT password, own FROM people WHERE name = ? AND removed = 0", (name,)
            ).fetchone()
        nobody, stored = _nobody(), None if row is None else row[0]
        if not _verified(nobody if stored is None else stored, password) or stored is None:
            return None
        secret = secrets.token_urlsafe(32)
        with self._database.writing() as db:
            # This one was right; of an address and of a name the wrong ones stay, or it would buy more of them.
            db.execute("DELETE FROM tries WHERE who = ?", (keys[0],))
            for number, key in enumerate(keys, start=int(last) + 1):
                db.execute("DELETE FROM tries WHERE id = ? AND who = ?", (number, key))
            db.execute("DELETE FROM sessions WHERE made < ?", (moment - self._settings.session_seconds,))
            same = db.execute(
                "SELECT 1 FROM people WHERE name = ? AND password = ? AND removed = 0", (name, stored)
            )
            if same.fetchone() is None:
                return None  # changed meanwhile
            db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", (_hashed(secret), name, moment, moment, row[1])
            )
        return secret

    def of_session(self, secret: str) -> Person | None:
        """Whose session it is; None where it is over."""
        moment, key = int(self._clock()), _hashed(secret)
        with self._database.reading() as db:
            row = db.execute("SELECT person, made, used, own FROM sessions WHERE hash = ?", (key,)).fetchone()
            found = None if row is None else _person(db, str(row[0]), "session", bool(row[3]))
        if row is None or found is None:
            return None
        made, used = int(row[1]), int(row[2])
        lasts = made <= moment < made + self._settings.session_seconds
        if not lasts or not used <= moment < used + self._settings.idle_seconds:
            self.sign_out(secret)
            return None
        if moment >= used + 60:  # not at every look
            with self._database.writing() as db:
                db.execute("UPDATE sessions SET used = ? WHERE hash = ?", (moment, key))
        return found

    def sign_out(self, secret: str) -> None:
        """End a session."""
        with self._database.writing() as db:
            db.execute("DELETE FROM sessions WHERE hash = ?", (_hashed(secret),))

    def of_token(self, secret: str) -> Person | None:
        """Whose token it is."""
        with self._database.reading() as db:
            row = db.execute("SELECT person, own FROM tokens WHERE hash = ?", (_hashed(secret),)).fetchone()
            return None if row is None else _person(db, str(row[0]), "token", bool(row[1]))

    def of_header(self, name: str, address: str, secret: str) -> Person | None:
        """Who the proxy says it is: only if one is configured, ``address`` (of the connection) is its own, and
        ``secret`` is the one that it shares with the service."""
        proxy = self._settings.proxy
        if proxy is None or not proxy.sent(address, [secret]):
            return None
        with self._database.reading() as db:
            return _person(db, name, "proxy", True)

    def all(self) -> list[Person]:
        """Everybody, by name."""
        with self._database.reading() as db:
            rows = db.execute("SELECT name, roles FROM people WHERE removed = 0 ORDER BY name").fetchall()
        return [Person(name, frozenset(json.loads(roles))) for name, roles in rows]

    def tokens(self) -> list[Token]:
        """All tokens, without their secrets."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT number, person, label, made, made_by FROM tokens ORDER BY number"
            ).fetchall()
        return [Token(*row) for row in rows]


def add(db: StoreDatabase, name: str, roles: frozenset[str], password: str | None) -> None:
    """Somebody new, or somebody who was removed.

    Errors:
        ConfigError: the name is taken, or a role or the password cannot be used.
    """
    kept = _roles(roles)
    hashed = None if password is None else hashed_password(password)
    row = db.execute("SELECT removed FROM people WHERE name = ?", (check_name(name),)).fetchone()
    if row is not None and not row[0]:
        raise ConfigError("there is somebody with that name", where="person", allowed="another name")
    if row is None:
        db.execute("INSERT INTO people VALUES (?, ?, ?, 0, ?, 0)", (name, kept, hashed, now()))
    else:
        db.execute(
            "UPDATE people SET roles = ?, password = ?, own = 0, added = ?, removed = 0 WHERE name = ?",
            (kept, hashed, now(), name),
        )


def remove(db: StoreDatabase, name: str) -> None:
    """Somebody leaves: sessions and tokens end; the name stays known, so that decisions keep their meaning."""
    known(db, name)
    db.execute("UPDATE people SET removed = 1, roles = '[]', password = NULL WHERE name = ?", (name,))
    db.execute("DELETE FROM tokens WHERE person = ?", (name,))
    db.execute("DELETE FROM sessions WHERE person = ?", (name,))
    _require_owner(db)


def change_password(db: StoreDatabase, name: str, password: str, *, own: bool) -> None:
    """A new password; all sessions end. ``own``: the person has set it."""
    known(db, name)
    db.execute(
        "UPDATE people SET password = ?, own = ? WHERE name = ?", (hashed_password(password), int(own), name)
    )
    db.execute("DELETE FROM sessions WHERE person = ?", (name,))


def change_roles(db: StoreDatabase, name: str, roles: frozenset[str]) -> None:
    """Other roles, from the next request on."""
    known(db, name)
    db.execute("UPDATE people SET roles = ? WHERE name = ?", (_roles(roles), name))
    _require_owner(db)


def make_token(db: StoreDatabase, name: str, label: str, by: str, *, own: bool) -> str:
    """A new token; its secret is told once. ``own``: nobody but the person has seen it."""
    known(db, name)
    secret = secrets.token_urlsafe(32)
    (last,) = db.execute("SELECT coalesce(max(number), 0) FROM tokens").fetchone()
    db.execute(
        "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)",
        (int(last) + 1, _hashed(secret), name, check_name(label), now(), by, int(own)),
    )
    return secret


def may_decide(db: StoreDatabase, name: str) -> bool:
    """Whether somebody who is there still may decide."""
    found = _person(db, name, "", True)
    return found is not None and bool(found.roles & MAY["decide"])


def known(db: StoreDatabase, name: str) -> frozenset[str]:
    """The roles of somebody.

    Errors:
        ConfigError: there is nobody with that name.
    """
    found = _person(db, name, "", True)
    if found is None:
        raise ConfigError("there is nobody with that name", where="person", allowed="somebody who was added")
    return found.roles


def hashed_password(password: str) -> str:
    """The Argon2 hash.

    Errors:
        ConfigError: it is too short or too long.
    """
    if not SHORTEST <= len(password) <= _LONGEST:
        raise ConfigError(
            "the password cannot be used", where="password", allowed=f"{SHORTEST} to {_LONGEST} characters"
        )
    with _HASHING:
        return str(_argon2().hash(password))


def _person(db: StoreDatabase, name: str, means: str, own: bool) -> Person | None:
    row = db.execute("SELECT roles FROM people WHERE name = ? AND removed = 0", (name,)).fetchone()
    return None if row is None else Person(name, frozenset(json.loads(row[0])), means, own)


def _roles(roles: frozenset[str]) -> str:
    if not roles or not roles <= set(ROLES):
        raise ConfigError("cannot be roles", where="person", allowed=", ".join(ROLES))
    return json.dumps(sorted(roles))


def _require_owner(db: StoreDatabase) -> None:
    rows = db.execute("SELECT roles FROM people WHERE removed = 0").fetchall()
    if not any("owner" in json.loads(roles) for (roles,) in rows):
        raise ConfigError("nobody would be owner any more", where="person", allowed="another owner first")


def _tries(db: StoreDatabase, key: str) -> int:
    return int(db.execute("SELECT count(*) FROM tries WHERE who = ?", (key,)).fetchone()[0])


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _argon2() -> Any:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise ConfigError(
            "passwords need the package argon2-cffi", where="desk", allowed="pip install 'dpstream[service]'"
        ) from None
    return PasswordHasher()


@cache
def _nobody() -> str:
    """A hash that no password has, for names that nobody has: it takes as long to compare."""
    return str(_argon2().hash(secrets.token_urlsafe(32)))


def _verified(stored: str, password: str) -> bool:
    from argon2.exceptions import VerificationError, VerifyMismatchError

    if len(password) > _LONGEST:
        password = ""
    try:
        with _HASHING:
            return bool(_argon2().verify(stored, password))
    except (VerifyMismatchError, VerificationError):
        return False
