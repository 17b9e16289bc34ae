"""Reads one section of a configuration file strictly, and notes which defaults it used."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from dpstream.core import paths
from dpstream.core.contracts import Key, shown
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import exact_text
from dpstream.families.registry import DEFAULT_MECHANISM
from dpstream.project.keys import (
    SECTIONS,
    keys_of,
    rows_of,
)


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


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence.

    >>> did_you_mean("epsilom", ["epsilon", "rho"])
    "; did you mean 'epsilon'?"
    """
    near = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def reason_for(reason: str, variant: str) -> str:
    """Why a default is what it is, where that differs between mechanisms.

    >>> reason_for("few are enough (aim, mwem: they begin anew)", "mwem")
    'they begin anew'
    """
    parts = re.fullmatch(r"(.*) \(([\w, ]+): (.*)\)", reason)
    if parts is None:
        return reason
    return parts[3] if variant in parts[2].split(", ") else parts[1]


@dataclass
class Section:
    """One table of the file, or its top level (name ``""``)."""

    file: str
    name: str
    table: Mapping[str, Any]
    used: list[EffectiveSetting] = field(default_factory=list)
    #: The mechanism, where reasons differ between them: "... (dpstabs, aim: ...)" in the table.
    variant: str = ""
    #: Whose options they are, where the table names no mechanism.
    mechanism: str = DEFAULT_MECHANISM
    _rows: dict[str, Key] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = rows_of(self.name, self.table, self.mechanism)
        known = set(self._rows) if self.name else {*self._rows, *SECTIONS} - {""}
        for key in self.table:
            if key not in known:
                value = self.table[key]
                raise ConfigError(
                    f"unknown key {key!r} ({shown(value)}){self._belongs(key) or did_you_mean(key, known)}",
                    where=self.place(),
                    allowed=", ".join(sorted(known)),
                )

    def _belongs(self, key: str) -> str:
        """Which other kinds of source have a key, as the end of a sentence; empty: none."""
        row = keys_of(self.name).get(key) if self.name == "source" else None
        kinds = () if row is None else row.mechanisms
        return (
            f"; it belongs to kind = {' or '.join(json.dumps(kind) for kind in kinds)} only" if kinds else ""
        )

    def place(self, key: str | None = None) -> str:
        """File, section and key for messages."""
        parts = [self.file, *([f"[{self.name}]"] if self.name else []), *([key] if key else [])]
        return " ".join(parts)

    def wrong(self, key: str, what: str, allowed: str | None = None) -> ConfigError:
        """The error for one key's value; what is allowed stands in the table of keys."""
        return ConfigError(what, where=self.place(key), allowed=allowed or self._rows[key].allowed)

    def has(self, key: str) -> bool:
        """Whether the file says it."""
        return key in self.table

    def raw(self, key: str) -> Any:
        """The value as written, or None."""
        return self.table.get(key)

    def note(self, key: str, value: str, *, default: bool, reason: str | None = None) -> None:
        """Remember a value for the plan."""
        why = (reason or reason_for(self._rows[key].reason, self.variant)) if default else None
        self.used.append(EffectiveSetting(self.name, key, value, why))

    def required(self, key: str) -> Any:
        """A value that has no default."""
        if key not in self.table:
            raise self.wrong(key, "the key is missing")
        return self.table[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self.required(key) if default is None else self.table.get(key, default)
        if not isinstance(value, str) or not value or value != value.strip():
            raise self.wrong(key, f"{shown(value)} is not a text that can be used")
        self.note(key, value, default=key not in self.table)
        return value

    def line(self, key: str, longest: int) -> str:
        """A text of printable characters."""
        value = self.text(key)
        if len(value) > longest or not value.isprintable():
            raise self.wrong(key, f"{shown(value)} cannot be used")
        return value

    def file_path(
        self, key: str, base: Path, kind: Literal["file", "folder", "any"], default: str | None = None
    ) -> Path:
        """A path, relative to ``base``; what is there is a file or a folder, as ``kind`` says, or nothing is there."""
        text = self.text(key, default)
        path = base / text
        check = {"file": paths.check_file, "folder": paths.check_folder, "any": paths.check_path}[kind]
        try:
            paths.check_local(text)
        except ConfigError as error:  # without the text: a URL may hold a password
            raise self.wrong(key, error.what, error.allowed) from None
        try:
            check(path)
        except ConfigError as error:
            raise self.wrong(key, f"{paths.shown_path(path)}: {error.what}", error.allowed) from None
        return path

    def choice(self, key: str, choices: Iterable[str] | None = None, default: str | None = None) -> str:
        """One of some words; these, and the default, are those of the table of keys where they are not given."""
        row = self._rows[key]
        names = tuple(row.fragment["enum"] if choices is None else choices)
        value = self.table.get(key, row.default if default is None else default)
        if not isinstance(value, str) or value not in names:
            hint = did_you_mean(value, names) if isinstance(value, str) else ""
            raise self.wrong(key, f"{shown(value)} is not a choice{hint}", ", ".join(names))
        self.note(key, value, default=key not in self.table)
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false; by default as the table of keys has it."""
        usual = self._rows[key].default == "true" if default is None else default
        value = self.table.get(key, usual)
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
            raise self.wrong(key, f"{shown(given)} is no list of columns")
        self.note(key, ", ".join(given), default=False)
        return tuple(given)

    def _has_or_notes(self, key: str, default: object) -> bool:
        """Whether the file says it; else the default is noted."""
        if key not in self.table and default is not None:
            self.note(key, str(default), default=True)
        return key in self.table

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A whole number, or ``default``."""
        if not self._has_or_notes(key, default):
            return default
        value = self.table[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(key, f"{shown(value)} is not a whole number from {least}")
        self.note(key, str(value), default=False)
        return value

    def count_or_word(self, key: str) -> int | None:
        """A whole number from 1, or None for the word, which is the default."""
        word = str(self._rows[key].default)
        value = self.table.get(key, word)
        if value == word:
            self.note(key, word, default=key not in self.table)
            return None
        return self.count(key)

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
        if not _is_number(value):
            # What no guarantee allows (0, or a million) is for ``read`` to refuse: another exit code.
            raise self.wrong(key, f"{shown(value)} is not a number")
        try:
            result = read(value)
        except DpstreamError as error:
            allowed = error.allowed or self._rows[key].allowed
            raise type(error)(error.what, where=self.place(key), allowed=allowed) from None
        self.note(key, str(value), default=False)
        return result


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return exact_text(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def exact_number(value: Any) -> Fraction | None:
    """The exact number that a TOML text, integer or float says, or None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    number = exact_text(repr(value) if isinstance(value, float) else str(value))
    return None if number is None or number < 0 else number
