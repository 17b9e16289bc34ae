"""Reads one section of a configuration file strictly, and notes which defaults it used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

from dpstream.core import paths
from dpstream.core.contracts import Key, build, shown
from dpstream.core.errors import ConfigError, did_you_mean
from dpstream.core.privacy.budget import exact_text


@dataclass(frozen=True)
class EffectiveSetting:
    """A value that the plan rests on: written in the file, or a default with its reason."""

    section: str
    key: str
    value: str
    #: None where the file says it.
    reason: str | None

    def line(self) -> str:
        """``key = value (default: reason)``.

        >>> EffectiveSetting("output", "format", "parquet", "it keeps the columns' types").line()
        "[output] format = parquet (default: it keeps the columns' types)"
        """
        name = f"[{self.section}] {self.key}" if self.section else self.key
        why = "" if self.reason is None else f" (default: {self.reason})"
        return f"{name} = {self.value}{why}"


def reason_for(reason: str, variant: str) -> str:
    """Why a default is what it is, where that differs between mechanisms.

    >>> reason_for("few are enough (aim, mwem: they begin anew)", "mwem")
    'they begin anew'
    """
    parts = re.fullmatch(r"(.*) \(([\w, ]+): (.*)\)", reason)
    if parts is None:
        return reason
    return parts[3] if variant in parts[2].split(", ") else parts[1]


_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_HOST = r"(?:[A-Za-z0-9_.%-]*|\[[0-9a-fA-F:.%]+\])(?::[0-9]+)?"
#: No password can hide in what this lets through: no second part before the host, no other sign.
_URL = re.compile(rf"postgres(?:ql)?://(?:[^\s:@/?#]+@)?{_HOST}(?:,{_HOST})*(?:/[^\s?#@:]*)?(?:\?[^\s#@]*)?")


def is_url(given: object) -> bool:
    """Whether this is the URL of a PostgreSQL server, by its beginning."""
    return isinstance(given, str) and given.startswith(("postgresql://", "postgres://"))


def refuse_password(url: str, where: str, url_env: str = "url_env") -> None:
    """Refuse a URL that would stand in a public file and may hold a password (ConfigError); it is not shown then.

    Args:
        url_env: how the variable with the whole URL is named where ``url`` was given.
    """
    if not _URL.fullmatch(url) or "password" in url.lower():
        raise ConfigError(
            "the URL holds a password, or signs that need %XX",
            where=where,
            allowed="postgresql://user@host:5432/database; the password in PGPASSWORD, ~/.pgpass, a service file "
            f"(postgresql:///?service=name), or the URL in the variable that {url_env} names",
        )


AnyKeys = TypeVar("AnyKeys")


@dataclass
class Section:
    """One table of the file, or its top level (name ``""``); ``keys.section_of`` makes it.

    Attributes:
        rows: its keys.
        folder: that paths are relative to.
        written: whether the file has the section.
        noted: the values that were read, by key.
        variant: the mechanism, where reasons differ between them: "... (dpstabs, aim: ...)" in the declaration.
        title: what messages call it; empty: its name.
    """

    file: str
    name: str
    table: Mapping[str, Any]
    rows: Mapping[str, Key]
    folder: Path = Path()
    written: bool = True
    noted: dict[str, EffectiveSetting] = field(default_factory=dict)
    variant: str = ""
    title: str = ""

    def read(self, kind: type[AnyKeys]) -> AnyKeys:
        """All keys, as the dataclass declares them.

        Errors:
            ConfigError: names file, section, key and value, and what is allowed.
        """
        values: AnyKeys = build(self, kind)
        return values

    @property
    def used(self) -> tuple[EffectiveSetting, ...]:
        """Every value that was read, with the reason of each default; of a section that may be missing, if it is
        there."""
        return tuple(self.noted.values()) if self.written or self.name != "accuracy" else ()

    def place(self, key: str | None = None) -> str:
        """File, section and key for messages."""
        title = self.title or self.name
        return " ".join([self.file, *([f"[{title}]"] if title else []), *([key] if key else [])])

    def wrong(self, key: str, what: str, allowed: str | None = None) -> ConfigError:
        """The error for one key's value; what is allowed stands in the table of keys."""
        return ConfigError(what, where=self.place(key), allowed=allowed or self.rows[key].allowed)

    def has(self, key: str) -> bool:
        """Whether the file says it."""
        return key in self.table

    def raw(self, key: str) -> Any:
        """The value as written, or None."""
        return self.table.get(key)

    def note(self, key: str, value: str, *, default: bool, reason: str | None = None) -> None:
        """Remember a value for the plan."""
        why = (reason or reason_for(self.rows[key].reason, self.variant)) if default else None
        self.noted.pop(key, None)
        self.noted[key] = EffectiveSetting(self.name, key, value, why)

    def required(self, key: str) -> Any:
        """A value that has no default."""
        if key not in self.table:
            raise self.wrong(key, "the key is missing")
        return self.table[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty; where a longest one is declared, of printable characters."""
        value = self.required(key) if default is None else self.table.get(key, default)
        bounds = self.rows[key].fragment
        longest = bounds.get("maxLength")
        if (
            not isinstance(value, str)
            or not value
            or value != value.strip()
            or (longest is not None and (len(value) > longest or not value.isprintable()))
            or not re.fullmatch(bounds.get("pattern", ".*"), value, re.DOTALL)
        ):
            raise self.wrong(key, f"{shown(value)} cannot be used")
        self.note(key, value, default=key not in self.table)
        return value

    def variable(self, key: str) -> str:
        """The name of an environment variable. What is written instead may be a secret, and is not shown."""
        name = self.raw(key)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.wrong(key, "expected the name of an environment variable")
        return self.text(key)

    def server_url(self, key: str) -> str:
        """The URL of a PostgreSQL database, without a password; one that may hold one is not shown."""
        url = self.raw(key)
        if not isinstance(url, str) or not is_url(url):
            raise self.wrong(key, "expected the URL of a PostgreSQL database")
        refuse_password(url, self.place(key))
        return self.text(key)

    def file_path(
        self, key: str, kind: Literal["file", "folder"] = "file", default: str | None = None
    ) -> Path:
        """A path, relative to the section's folder; what is there is a file or a folder, as ``kind`` says, or nothing
        is there."""
        text = self.text(key, default)
        path = self.folder / text
        try:
            paths.check_local(text)
        except ConfigError as error:  # without the text: a URL may hold a password
            raise self.wrong(key, error.what, error.allowed) from None
        try:
            (paths.check_file if kind == "file" else paths.check_folder)(path)
        except ConfigError as error:
            raise self.wrong(key, f"{paths.shown_path(path)}: {error.what}", error.allowed) from None
        return path

    def alone(self, *keys: str) -> None:
        """Refuse a key beside another one that says the same."""
        first, *others = [key for key in keys if self.has(key)] or [""]
        if others:
            raise self.wrong(others[0], f"{first} says it already", f"one of {' and '.join(keys)}")

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        """One of some words."""
        names = tuple(choices)
        value = self.required(key) if default is None else self.table.get(key, default)
        if not isinstance(value, str) or value not in names:
            hint = did_you_mean(value, names) if isinstance(value, str) else ""
            raise self.wrong(key, f"{shown(value)} is not a choice{hint}", ", ".join(names))
        self.note(key, value, default=key not in self.table)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"{shown(value)} is not a choice")
        self.note(key, str(value).lower(), default=key not in self.table)
        return value

    def columns(self, key: str, absent: str = "none") -> tuple[str, ...] | None:
        """A list of columns; None where the file has none, which is noted as ``absent``."""
        if not self.has(key):
            self.note(key, absent, default=True)
            return None
        given = self.table[key]
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            raise self.wrong(key, f"expected columns, got {shown(given)}")
        self.note(key, ", ".join(given), default=False)
        return tuple(given)

    def _has_or_notes(self, key: str, default: object) -> bool:
        """Whether the file says it; else the default is noted."""
        if key not in self.table and default is not None:
            self.note(key, str(default), default=True)
        return key in self.table

    def count(self, key: str, default: int | None = None) -> int | None:
        """A whole number within the bounds that are declared, or ``default``."""
        if not self._has_or_notes(key, default):
            return default
        value = self.table[key]
        fragment = self.rows[key].fragment
        bounds = fragment.get("anyOf", [fragment])[-1]
        least, most = bounds.get("minimum", 1), bounds.get("maximum")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= (most or value):
            until = "" if most is None else f" to {most}"
            raise self.wrong(key, f"{shown(value)} is not a whole number from {least}{until}")
        self.note(key, str(value), default=False)
        return value

    def share(self, key: str, default: Fraction) -> Fraction:
        """An exact number strictly between 0 and 1."""
        if not self._has_or_notes(key, default):
            return default
        value = self.table[key]
        number = exact_number(value)
        if number is None or not 0 < number < 1:
            raise self.wrong(key, f"{shown(value)} is not a share")
        self.note(key, str(number), default=False)
        return number

    def number(self, key: str, default: float) -> float:
        """A decimal number from 0; its upper end is for the part that takes it."""
        if not self._has_or_notes(key, default):
            return default
        value = self.table[key]
        number = exact_number(value)
        if number is None or number > 10**6:
            raise self.wrong(key, f"{shown(value)} cannot be used")
        self.note(key, str(value), default=False)
        return float(number)

    def amount(self, key: str, read: Callable[[Any], Any]) -> Any:
        """A privacy amount, read by ``read``, whose errors are told where in the file they are."""
        from dpstream.core.errors import DpstreamError

        value = self.table[key]
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric and not (isinstance(value, str) and exact_text(value) is not None):
            # What no guarantee allows (0, or a million) is for ``read`` to refuse: another exit code.
            raise self.wrong(key, f"{shown(value)} is not a number")
        try:
            result = read(value)
        except DpstreamError as error:
            allowed = error.allowed or self.rows[key].allowed
            raise type(error)(error.what, where=self.place(key), allowed=allowed) from None
        self.note(key, str(value), default=False)
        return result


def exact_number(value: Any) -> Fraction | None:
    """The exact number that a TOML text, integer or float says, or None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    number = exact_text(repr(value) if isinstance(value, float) else str(value))
    return None if number is None or number < 0 else number
