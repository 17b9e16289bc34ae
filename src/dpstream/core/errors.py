"""Every exception dpstream raises on purpose.

::

    DpstreamError
    +-- InputError            wrong input or configuration           exit code 2
    |   +-- ConfigError       dpstream.toml or an argument is wrong
    |   +-- SchemaError       a column's public domain is wrong
    |   +-- DataError         a batch or a file does not fit the schema
    |       +-- UnconfirmedError  a snapshot that loses most records waits for its owner
    +-- RefusedError          the guarantee does not allow it         exit code 3
    |   +-- BudgetError       the amount is unusable or spent
    |   +-- HorizonError      the planned number of steps is used up
    |   +-- UnitError         the privacy unit is not enforceable here
    |   +-- LimitError        a declared bound (size, overflow) would be passed
    +-- StoreError            the stream's state                      exit code 4
        +-- StoreLockedError  another process holds the stream
        +-- StoreDamagedError the stored state contradicts itself
        +-- StoreFormatError  written by a version this one cannot read
        +-- StepError         a step id that is reused or out of order

Each carries ``what`` was wrong, ``where``, and what is ``allowed``; the message is one sentence.
A private value or a private count never enters a message: running streams log messages, and
readers of logs are not the owner of the data. A column that nobody declared is counted and not
named: the header of a file that has none is a record.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dpstream.core.showing import shown

#: Characters of each part of a message.
_LONGEST = 900


class DpstreamError(Exception):
    """Base of all errors; ``exit_code`` is what the command line returns for it."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, allowed: str | None = None) -> None:
        what, where, allowed = shown(what), where and shown(where), allowed and shown(allowed)
        self.what = what
        self.where = where
        self.allowed = allowed
        message = _cut(what) if where is None else f"{_cut(where)}: {_cut(what)}"
        if allowed is not None:
            message = f"{message} (allowed: {_cut(allowed)})"
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders in parallel benchmarks; the keyword arguments must survive.
        return (_rebuild, (type(self), self.what, self.where, self.allowed))


def _cut(text: str) -> str:
    """The text, cut where it is long: a list of ten thousand names is not repeated whole."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 100]} ... {text[-60:]} ({len(text)} characters)"


def _rebuild(kind: type[DpstreamError], what: str, where: str | None, allowed: str | None) -> DpstreamError:
    return kind(what, where=where, allowed=allowed)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence.

    >>> did_you_mean("epsilom", ["epsilon", "rho"])
    "; did you mean 'epsilon'?"
    """
    near = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def counted(number: int, thing: str) -> str:
    """A number of things, for a message: things that nobody declared are counted and never named.

    >>> counted(1, "column"), counted(3, "column")
    ('1 column', '3 columns')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


class InputError(DpstreamError):
    """Wrong input or configuration; nothing was spent."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration file or an argument is wrong."""


class SchemaError(InputError):
    """A column's public domain is wrong or contradicts itself."""


class DataError(InputError):
    """A batch or a file does not fit the schema."""

    #: Whether values are the reason that the declared public domain does not have.
    outside_domain = False


class UnconfirmedError(DataError):
    """A snapshot that is empty or much smaller than the table waits until its owner has confirmed it."""


class RefusedError(DpstreamError):
    """The guarantee does not allow the request."""

    exit_code = 3


class BudgetError(RefusedError):
    """A privacy amount is unusable, or it is spent."""


class HorizonError(RefusedError):
    """The planned number of steps is used up."""


class UnitError(RefusedError):
    """The privacy unit cannot be enforced here."""


class LimitError(RefusedError):
    """A declared bound (sizes, 64-bit sums) would be passed."""


class StoreError(DpstreamError):
    """The stream's stored state stops the work."""

    exit_code = 4


class StoreLockedError(StoreError):
    """Another process holds the stream."""


class StoreDamagedError(StoreError):
    """The stored state contradicts itself or cannot be read."""


class StoreFormatError(StoreError):
    """The state was written by a version that this one cannot read."""


class StepError(StoreError):
    """A step id is reused with other content, missing, or out of order."""

    # The caller's input is at fault, not the store: the command line answers "wrong input".
    exit_code = 2


@contextmanager
def unreadable(what: str, where: str, allowed: str | None = None) -> Iterator[None]:
    """Around the reading of what this program wrote: whatever does not have its form was damaged.

    Errors:
        StoreDamagedError: as said here; what Python says of it may hold what is private.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise StoreDamagedError(what, where=where, allowed=allowed) from None
