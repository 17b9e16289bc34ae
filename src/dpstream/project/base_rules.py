"""From an old column's labels to a new column's: one public matrix per column, or a clear error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema import Schema
from dpstream.core.schema.column import Column
from dpstream.project.base_options import BaseOptions, Shares
from dpstream.project.reader import did_you_mean

#: Label of the nulls of a released column whose ``other`` and ``missing`` both show as null.
NULL = "null"


@dataclass(frozen=True)
class ColumnRule:
    """How a new column follows from the released table.

    Attributes:
        old: the old column, as its released values can be read; None for a column that it does not have.
        shares: shape (old labels, new labels), or (1, new labels); every row adds up to 1.
    """

    old: Column | None
    shares: NDArray[np.float64]


def readable(column: Column) -> Column:
    """The column as a released table shows it.

    Columns of numbers, dates and booleans show ``other`` as null. Where ``missing`` is declared besides, the two can
    no longer be told apart: such a null has the label ``null``, and a rule has to say what becomes of it.
    """
    import pyarrow as pa

    if column.other is None or pa.types.is_string(column.arrow_type()):
        return column
    return replace(column, other=None, missing=column.other if column.missing is None else NULL)


def column_rules(options: BaseOptions, old: Schema, new: Schema) -> tuple[ColumnRule, ...]:
    """One rule per new column: what is declared, and equal labels where nothing is.

    Errors:
        ConfigError: a label or a column that goes nowhere, a rule about something that is not there.
    """
    _check_names(options, old, new)
    rules = []
    for column in new.columns:
        name = options.rename.get(column.name, column.name)
        if name in old.names and name not in options.drop:
            rules.append(_mapped(options, readable(old[name]), column))
        else:
            rules.append(_filled(options, column))
    return tuple(rules)


def _check_names(options: BaseOptions, old: Schema, new: Schema) -> None:
    """Every name in the section is a column, and every old column goes somewhere."""
    for key, names, known, whose in (
        ("drop", options.drop, old.names, "predecessor"),
        ("rename", options.rename.values(), old.names, "predecessor"),
        ("rename", options.rename, new.names, "schema"),
        ("map", options.map, new.names, "schema"),
        ("fill", options.fill, new.names, "schema"),
    ):
        for name in names:
            if name not in known:
                raise _wrong(
                    options, key, f"the {whose} has no column {name!r}{did_you_mean(name, known)}", known
                )
    used = {options.rename.get(name, name) for name in new.names}
    for name in old.names:
        if name in options.drop and name in options.rename.values():
            raise _wrong(options, "drop", f"the column {name!r} is dropped and renamed", ("one of the two",))
        if name not in used and name not in options.drop:
            raise _wrong(
                options,
                "drop",
                f"the predecessor's column {name!r} goes nowhere",
                (f'drop = ["{name}"], or a column that it becomes under [base.rename]',),
            )


def _mapped(options: BaseOptions, old: Column, new: Column) -> ColumnRule:
    if new.name in options.fill:
        raise _wrong(
            options,
            "fill",
            f"the column {new.name!r} is in the predecessor",
            ("[base.map], or drop it there",),
        )
    declared = options.map.get(new.name, {})
    labels = old.labels()
    for label in declared:
        if label not in labels:
            what = f"the predecessor's column {old.name!r} has no value {label!r}"
            raise _wrong(options, "map", f"{what}{did_you_mean(label, labels)}", labels)
    rows = []
    for label in labels:
        if label not in declared and (label not in new.labels() or label == NULL):
            what = f"nothing says what becomes of {label!r} of the predecessor's column {old.name!r}"
            allowed = f"[base.map.{new.name}] with one or several of {_shown(new.labels())}"
            raise ConfigError(what, where=options.place, allowed=allowed)
        rows.append(
            _row(options, "map", new, declared.get(label)) if label in declared else _same(new, label)
        )
    return ColumnRule(old, np.array(rows))


def _filled(options: BaseOptions, new: Column) -> ColumnRule:
    if new.name in options.map:
        raise _wrong(options, "map", f"the predecessor has no column for {new.name!r}", ("[base.fill]",))
    if new.name not in options.fill:
        raise ConfigError(
            f"the predecessor has no column {new.name!r}, and nothing says what its records get",
            where=options.place,
            allowed=f"[base.fill] {new.name} = one or several of {_shown(new.labels())}, or [base.rename]",
        )
    return ColumnRule(None, np.array([_row(options, "fill", new, options.fill[new.name])]))


def _same(new: Column, label: str) -> NDArray[np.float64]:
    row = np.zeros(new.size)
    row[new.labels().index(label)] = 1.0
    return row


def _row(options: BaseOptions, key: str, new: Column, shares: Shares | None) -> NDArray[np.float64]:
    """Shares of the new labels; the last one makes the row add up to 1."""
    row, labels = np.zeros(new.size), new.labels()
    for label, share in (shares or {}).items():
        if label not in labels:
            what = f"the column {new.name!r} has no value {label!r}"
            raise _wrong(options, key, f"{what}{did_you_mean(label, labels)}", labels)
        row[labels.index(label)] = float(share)
    return row


def _shown(labels: tuple[str, ...]) -> str:
    return ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")


def _wrong(options: BaseOptions, key: str, what: str, allowed: object) -> ConfigError:
    names = tuple(str(name) for name in allowed)  # type: ignore[attr-defined]
    return ConfigError(what, where=f"{options.place} {key}", allowed=_shown(names))
