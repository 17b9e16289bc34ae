"""Encryption at rest: what is private in a store is sealed, value by value, before the database sees it.

Guarantee: whoever reads the store, its log, its archives or the database server, and has no key, learns of a sealed
value its length (rounded up, see below) and when it was written; a sealed value that was changed, or was put into
another row, column or stream, is found when it is read. Not hidden: what is public anyway (ledger, names of steps,
manifests), and how many rows there are (steps; with the unit ``user`` also users). No defence against somebody who
reads the process, or the key.

Cipher: AES-256-GCM of the package ``cryptography``. Every opening of a store draws a salt of 128 bits, and a key for
its values alone is derived from it (HMAC-SHA256, as in NIST SP 800-108); nonces are random, 96 bits. After 2^20
values a new salt is drawn, so two equal nonces under one key have a probability below 2^-56 for each salt, in a life
of any length, without a counter that a copied or restored store could repeat. The associated data are the stream,
the kind of value and the row.

Padding: a value of n bytes is padded to a length with only log2 log2 n significant bits (Padmé; Nikitin et al.,
"Reducing Metadata Leakage from Encrypted Files and Communication with PURBs", 2019), at most 12 % longer: states
are compressed before, and their exact length would depend on the counts.

Trusted base: encryption (seals private state).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.foreign import cipher
from dpstream.core.paths import read_key
from dpstream.stream.store.sealed_history import (
    ENCRYPTION,
    POSITION,
    RESERVED_POSITION,
    forget_latest,
    read_open,
    write_open,
)
from dpstream.stream.store.store_database import (
    UNSEALED,
    RowKey,
    Sealing,
    StoreDatabase,
    damaged_store,
    file_errors,
)

_PREFIX = "dpstream-key-1:"
_KEY_BYTES = 32
_KEY_TEXT = "the text of dpstream store key"
_MAGIC = b"dpE1"
_SALT, _NONCE, _TAG = 16, 12, 16
_HEAD = len(_MAGIC) + _SALT + _NONCE
_VALUES = 2**20
_KEPT = 1000
_END = b"\x80"
#: How far a source was read takes this many bytes at least: the number of digits counts records.
_LEAST = {POSITION: 1024, RESERVED_POSITION: 1024}


@dataclass(frozen=True)
class StateKey:
    """The key of an encrypted store: 32 random bytes, which are never shown."""

    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the operating system's entropy."""
        return cls(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def from_text(cls, text: str, where: str) -> Self:
        """Read a key from what ``text`` gave.

        Errors:
            ConfigError: the text is not a key; the message hides it.
        """
        body = text.strip()
        try:
            secret = base64.b64decode(body.removeprefix(_PREFIX), validate=True)
        except ValueError:
            secret = b""
        if not body.startswith(_PREFIX) or len(secret) != _KEY_BYTES:
            raise ConfigError("expected a key", where=where, allowed=_KEY_TEXT)
        return cls(secret)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a file of ``write_key``.

        Errors:
            ConfigError: it cannot be read, holds no key, or others than its owner may read it.
        """
        data = read_key(path, "a file of dpstream store key", "dpstream store rekey")
        return cls.from_text(data.decode("ascii", "replace"), str(path))

    @classmethod
    def from_environment(cls, name: str) -> Self:
        """Read the environment variable ``name``.

        Errors:
            ConfigError: it is not set, or holds no key.
        """
        where = f"the environment variable {name}"
        if not os.environ.get(name):
            raise ConfigError("is not set", where=where, allowed=_KEY_TEXT)
        return cls.from_text(os.environ[name], where)

    @property
    def text(self) -> str:
        """The key as text, for a file or a variable. Secret."""
        return _PREFIX + base64.b64encode(self.secret).decode()

    @property
    def name(self) -> str:
        """A public name that tells keys apart and reveals nothing about them; the store and messages hold it."""
        return hmac.new(self.secret, b"dpstream key name", hashlib.sha256).hexdigest()[:16]


def write_key(path: Path) -> StateKey:
    """Make a new key in the new file ``path`` (0600).

    Errors:
        ConfigError: the file exists. StoreError: it cannot be written.
    """
    key = StateKey.generate()
    with file_errors("the key could not be written", path):
        try:
            durable.write_file(path, f"{key.text}\n".encode(), mode=0o600)
        except FileExistsError:
            raise ConfigError("the file exists", where=str(path), allowed="another name") from None
        durable.sync_directory(path.absolute().parent)
    return key


class Cipher(Sealing):
    """Seals the values of one stream with one key.

    Errors:
        ConfigError: the package ``cryptography`` is missing.

    Cost: about 5 microseconds for a value, as much again where it is the first of its opening, and some 5 ms for
    each megabyte.
    """

    def __init__(self, key: StateKey, stream_id: bytes, where: str) -> None:
        self.name: str | None = key.name
        self._secret = key.secret
        self._start = _MAGIC + _framed(stream_id)
        self._where = where
        self._aead, self._invalid = cipher("encryption", "[state]")
        self._subkeys: dict[bytes, Any] = {}
        self._salt, self._left = b"", 0

    def seal(self, data: bytes, kind: str, *place: RowKey) -> bytes:
        """The encrypted value; another one at every call."""
        if self._left == 0:
            self._salt, self._left = secrets.token_bytes(_SALT), _VALUES
        self._left -= 1
        nonce = os.urandom(_NONCE)
        padded = (data + _END).ljust(_padded(max(len(data) + 1, _LEAST.get(kind, 0))), b"\0")
        body = self._subkey(self._salt).encrypt(nonce, padded, self._bound_to(kind, place))
        return b"".join((_MAGIC, self._salt, nonce, body))

    def open(self, data: bytes, kind: str, *place: RowKey) -> bytes:
        """Decrypt a value.

        Errors:
            StoreDamagedError: it was changed, or sealed for another place.
        """
        salt, nonce = data[len(_MAGIC) : len(_MAGIC) + _SALT], data[_HEAD - _NONCE : _HEAD]
        try:
            if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEAD + _TAG:
                raise self._invalid
            padded: bytes = self._subkey(salt).decrypt(nonce, data[_HEAD:], self._bound_to(kind, place))
        except self._invalid:
            rows = "".join(f" {part}" for part in place if isinstance(part, int))
            raise StoreDamagedError(
                f"an encrypted value ({kind}{rows}) was changed or moved",
                where=self._where,
            ) from None
        return padded[: padded.rindex(_END)]

    def _bound_to(self, kind: str, place: tuple[RowKey, ...]) -> bytes:
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in (kind, *place)]
        return self._start + b"".join(map(_framed, parts))

    def _subkey(self, salt: bytes) -> Any:
        subkey = self._subkeys.get(salt)
        if subkey is None:
            if len(self._subkeys) >= _KEPT:
                self._subkeys.clear()
            derived = hmac.digest(self._secret, b"dpstream values" + salt, "sha256")
            subkey = self._subkeys[salt] = self._aead(derived)
        return subkey


def sealing_for(key: StateKey | None, stream_id: bytes, where: str) -> Sealing:
    """What a stream's values are sealed with."""
    return UNSEALED if key is None else Cipher(key, stream_id, where)


def key_name(db: StoreDatabase) -> str | None:
    """The name of the key that a store is encrypted with; None where it is not."""
    name = read_open(db, ENCRYPTION)
    return None if name is None else name.decode()


def unlock(db: StoreDatabase, key: StateKey | None) -> None:
    """From now on ``db`` reads and writes with ``key``.

    Errors:
        StoreError: the store is encrypted and the key is missing or another one, or it is not encrypted at all.
    """
    used = key_name(db)
    if used is None and key is not None:
        raise StoreError(
            "the store is plain; a key is given",
            where=db.where,
            allowed="dpstream store rekey --to, or no key",
        )
    if used is not None and (key is None or used != key.name):
        given = "no key" if key is None else f"the key {key.name}"
        raise StoreError(
            f"the store is encrypted with the key {used}, and {given} is given",
            where=db.where,
            allowed="its key ([state] key_file or key_env)",
        )
    row = db.execute("SELECT value FROM meta WHERE key = 'stream_id'").fetchone()
    if row is None:
        raise damaged_store("the stream's id is missing", db.where)
    db.sealing = sealing_for(key, bytes(row[0]), db.where)


def mark(db: StoreDatabase, sealing: Sealing) -> None:
    """Note in the store which key it is encrypted with, inside the caller's transaction."""
    forget_latest(db, ENCRYPTION)
    if sealing.name is not None:
        write_open(db, ENCRYPTION, 0, sealing.name.encode())


def _padded(size: int) -> int:
    """The next length that has few significant bits."""
    exponent = size.bit_length() - 1
    unit = 1 << max(0, exponent - max(exponent, 1).bit_length())
    return -(-size // unit) * unit


def _framed(part: bytes) -> bytes:
    """The part after its length, so that no two lists of parts look alike."""
    return len(part).to_bytes(4, "little") + part
