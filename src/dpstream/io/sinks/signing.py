"""Signed releases: the hashes of all files that are ever replaced, in one file under the owner's Ed25519 signature.

The signature names the stream and lists catalogue, its parts, codebook, notices of withdrawals, simulated errors, and
the files that explain the folder. A step's other files need no line: the catalogue has the hash of its manifest, which
has theirs. Before a listed file is replaced, the signature lists its hashes of before and after; once it is, only the
new one. So a stop at any moment leaves no folder that readers refuse, and the next run signs it alone.

What is not signed is not there for readers with a key. A whole folder of an earlier day has a true signature:
readers who know a later step notice it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.paths import parse_json, read_key
from dpstream.io.objects import AnyPath, ObjectPath, read_place
from dpstream.io.sinks.catalogue import CATALOGUE

SIGNATURE = "signature.json"
#: What every signed message begins with, so that signatures for other purposes cannot pass.
_PURPOSE = b"dpstream releases 1\n"
_MAKE = "openssl genpkey -algorithm ed25519 -out FILE"
#: What to do about a signature of an earlier day: the next one would vouch for errors of that day.
NEWEST = f"the newest files; or remove {SIGNATURE} and errors"
#: File -> its SHA-256; while it is being replaced, also that of before.
Hashes = dict[str, list[str]]


def sha256(data: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Signer:
    """The owner's private key, from a PEM file that only the owner reads. Equal hashes get equal signatures.

    Attributes:
        public: the public key, in 64 hexadecimal digits.

    Errors:
        ConfigError: the file cannot be read, others may read it, or it holds something else.
    """

    def __init__(self, path: Path) -> None:
        ed25519, serialization, exceptions = _cryptography()
        without = f"to withdraw, remove [output] sign and {SIGNATURE}"
        data = read_key(path, f"{_MAKE}; {without}", "a new key")
        try:
            self._key = serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            self._key = None
        if not isinstance(self._key, ed25519.Ed25519PrivateKey):
            raise ConfigError("expected an Ed25519 private key", where=str(path), allowed=_MAKE)
        self.public = str(self._key.public_key().public_bytes_raw().hex())

    def sign(self, stream_id: str, files: Mapping[str, Sequence[str]]) -> bytes:
        """The file with the signature of these hashes."""
        listed = {name: list(files[name]) for name in sorted(files)}
        facts = {"format": 1, "stream_id": stream_id, "key": self.public, "files": listed}
        return _document(facts, self._key.sign(_message(facts)).hex())

    def signed(self, data: bytes | None) -> Hashes:
        """The hashes that a file lists under this key; empty without a file, or under another key."""
        try:
            return {} if data is None else _verified(data, (self.public,), "")[1]
        except (ConfigError, StoreDamagedError):
            return {}


class Signature:
    """The signature of a folder of releases, checked with a reader's keys.

    Attributes:
        key: the public key that signed. files: the hashes that it vouches for.

    Errors:
        ConfigError: no signature, or another key's. StoreDamagedError: a signature that is not valid.
    """

    def __init__(self, root: AnyPath, keys: Sequence[str]) -> None:
        self.root, self._keys = root, keys
        self.renew()

    def renew(self) -> None:
        """Read it again: the owner may have published."""
        path = self.root / SIGNATURE
        try:
            data = read_place(path)
        except FileNotFoundError:
            raise ConfigError(
                "the folder is not signed", where=str(path), allowed="the owner's signature"
            ) from None
        facts, self.files = _verified(data, self._keys, str(path))
        self.key, self.stream_id = str(facts["key"]), str(facts["stream_id"])


@dataclass(frozen=True, repr=False, eq=False)
class SignedPath(ObjectPath):
    """A file, or a folder, below signed releases; ``key`` is its path from there. Every file that is read is compared
    with what was signed; a step's file is not, because its reader compares it with the catalogue's hashes.

    Errors of ``read_bytes``:
        StoreDamagedError: another file than the signed one, named. FileNotFoundError: none, and none was signed.
    """

    signature: Signature = field(kw_only=True)

    @property
    def inner(self) -> AnyPath:
        """Where it is."""
        return self.signature.root / self.key if self.key else self.signature.root

    def __str__(self) -> str:
        return str(self.inner)

    def is_file(self) -> bool:
        """Whether it is listed, or is a step's file that is there."""
        return self.key in self.signature.files or (self.key.startswith("step-") and self.inner.is_file())

    exists = is_file

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The signed files that match, in the order of their names."""
        return (self._at(name) for name in self.signature.files if fnmatchcase(name, f"{self.key}/{pattern}"))

    def names(self) -> set[str]:
        """The names of the files of a step's folder, where they can be listed."""
        if isinstance(self.inner, ObjectPath):
            return set(self.inner.below())
        return {path.name for path in self.inner.glob("*")}

    def read_bytes(self) -> bytes:
        """The whole file."""
        for attempt in range(3):
            if attempt:
                self.signature.renew()  # the owner may be publishing
            listed = self.signature.files.get(self.key)
            try:
                data = read_place(self.inner)
            except FileNotFoundError:
                if listed is None:
                    raise
                what = "signed file missing"
                continue
            if sha256(data) in listed if listed is not None else self.key.startswith("step-"):
                return data
            what = "changed since, or of another day"
            if self.key == CATALOGUE and f'"{self.signature.stream_id}"'.encode() not in data:
                what = f"{SIGNATURE} is of another stream"
        raise StoreDamagedError(what, where=str(self))

    def _at(self, key: str) -> ObjectPath:
        return SignedPath("", "", key, signature=self.signature)


def signed_folder(root: AnyPath, keys: str | Sequence[str]) -> SignedPath:
    """A folder of releases whose files are compared with its signature whenever they are read.

    Args:
        keys: public keys in 64 hexadecimal digits, of which one has signed.

    Errors:
        ConfigError: something else. As of ``Signature``.
    """
    given = (keys,) if isinstance(keys, str) else tuple(keys)
    if not all(re.fullmatch("[0-9a-f]{64}", str(key)) for key in given):
        raise ConfigError("expected a public key", where="key", allowed="64 of 0-9a-f")
    return SignedPath("", "", "", signature=Signature(root, given))


def _verified(data: bytes, keys: Sequence[str], where: str) -> tuple[dict[str, Any], Hashes]:
    """What a file with a signature says, and its hashes, once it is known that one of the keys signed it."""
    ed25519, _, exceptions = _cryptography()
    try:
        facts: dict[str, Any] = parse_json(data)
        signature = facts.pop("signature")
        if facts["key"] not in keys:
            what = f"signed with another key, {facts['key']}"
            raise ConfigError(what, where=where, allowed=", ".join(keys))
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(facts["key"]))
        key.verify(bytes.fromhex(signature), _message(facts))
        if _document(facts, signature) == data and facts["format"] == 1:
            return facts, facts["files"]
    except (ValueError, KeyError, TypeError, AttributeError, exceptions.InvalidSignature):
        pass
    raise StoreDamagedError("the signature is not valid", where=where)


def _message(facts: Mapping[str, Any]) -> bytes:
    return _PURPOSE + json.dumps(facts, sort_keys=True).encode()


def _document(facts: Mapping[str, Any], signature: str) -> bytes:
    return (json.dumps({**facts, "signature": signature}, indent=1) + "\n").encode()


def _cryptography() -> tuple[Any, Any, Any]:
    """Of the package: Ed25519, what reads keys, and exceptions."""
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(
            "signatures need the package cryptography",
            where="key",
            allowed="pip install 'dpstream[encryption]'",
        ) from None
    return ed25519, serialization, exceptions
