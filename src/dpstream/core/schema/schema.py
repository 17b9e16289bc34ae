"""A schema: columns with public domains, between raw tables and integer codes.

Trusted base: kernel (encodes private records).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpstream.core.errors import ConfigError, DataError, SchemaError, counted, did_you_mean
from dpstream.core.paths import sha256_hex
from dpstream.core.schema import arrow
from dpstream.core.schema.code_blocks import BLOCK_ROWS, CodeBlocks
from dpstream.core.schema.column import Column, Problem, Style, problems_error
from dpstream.core.schema.constraints import Constraints, Rules, domain_of, split_spec
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.discrete import Boolean, Categorical, Found
from dpstream.core.schema.domain import Codes, Domain
from dpstream.core.schema.encoded_table import BlockEncoder, EncodedTable
from dpstream.core.schema.levels import Lines, read_levels
from dpstream.core.schema.numeric import Integer, Real
from dpstream.core.threads import in_order

# Columns as declarations have them, in files and in codebooks: a table of their type and its options.

COLUMN_TYPES: dict[str, type[Column]] = {
    kind.type_name: kind for kind in (Boolean, Categorical, Integer, Real, Date, DateTime)
}


def column_from(name: str, spec: Any, place: str) -> Column:
    """A column of a declaration.

    Errors:
        SchemaError: names the column, key and value, and what is allowed.
    """
    if not isinstance(spec, Mapping):
        raise SchemaError(f"{spec!r}: expected a table", where=place, allowed="a table with a type")
    kinds = ", ".join(COLUMN_TYPES)
    if "type" not in spec:
        raise SchemaError("type is missing", where=place, allowed=f"type = one of {kinds}")
    word = spec["type"]
    kind = COLUMN_TYPES.get(word) if isinstance(word, str) else None
    if kind is None:
        hint = did_you_mean(str(word), COLUMN_TYPES)
        raise SchemaError(f"unknown type = {word!r}{hint}", where=place, allowed=kinds)
    keys = [item.name for item in fields(kind) if item.name not in ("name", "found")]
    for key in spec:
        if key != "type" and key not in keys:
            raise unknown_key(key, spec[key], ("type", *keys), place)
    try:
        return kind(name, **{key: value for key, value in spec.items() if key != "type"})
    except SchemaError as error:
        raise SchemaError(error.what, where=place, allowed=error.allowed) from None


def unknown_key(key: str, value: Any, allowed: Iterable[str], where: str) -> SchemaError:
    """The error for a key that nobody reads, with the nearest key that somebody reads."""
    names = sorted(allowed)
    shown = "a table" if isinstance(value, Mapping) else repr(value)
    return SchemaError(
        f"unknown key {key!r} ({shown}){did_you_mean(key, names)}", where=where, allowed=", ".join(names)
    )


Extra = Literal["error", "ignore"]


@dataclass(frozen=True)
class Schema:
    """What each column may hold: public, written by the steward and never read off private data.

    Args:
        columns: the measured columns, in the order of their codes; names are unique.
        ignore: names of data columns that are left out knowingly.
        null_values: texts that mean null, in text columns (unless they are declared values).
        confirmed: False for a draft whose values were read off private data.
        constraints: columns that follow from the measured ones, and cells that hold no record.
        edges_from_data: whether edges of numbers were read off private data, which plans and manifests then say.

    >>> from dpstream.core.schema import Boolean, Categorical
    >>> schema = Schema([Categorical("zip", ["94102", "94103"], other="other"), Boolean("paid")])
    >>> schema.encode({"zip": ["94103", "10001"], "paid": [True, False]}).tolist()
    [[1, 1], [2, 0]]
    """

    columns: tuple[Column, ...]
    ignore: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ("",)
    confirmed: bool = field(default=True, compare=False)
    constraints: Constraints | None = field(default=None, repr=False)
    edges_from_data: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        for key in ("columns", "ignore", "null_values"):
            value = getattr(self, key)
            if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
                raise SchemaError(f"{key}: expected a list", where="schema", allowed="a list")
            object.__setattr__(self, key, tuple(value))
        if not all(isinstance(column, Column) for column in self.columns):
            raise SchemaError(
                "columns: expected columns only",
                where="schema",
                allowed="Boolean, Categorical, ...",
            )
        if self.constraints is not None and not isinstance(self.constraints, Constraints):
            raise SchemaError(
                "constraints: expected Constraints", where="schema", allowed="Constraints(...), None"
            )
        for key in ("ignore", "null_values"):
            if not all(isinstance(text, str) for text in getattr(self, key)):
                raise SchemaError(f"{key}: expected texts", where="schema", allowed="texts")
        both = set(self.ignore) & {column.name for column in self.released_columns}
        if both:
            raise SchemaError(
                f"column {min(both)!r} is declared and ignored", where="schema", allowed="one of the two"
            )
        _ = self.domain
        if self.constraints is not None:
            self._refuse_open(self.constraints)

    def _refuse_open(self, constraints: Constraints) -> None:
        """Refuse constraints on columns whose domain grows: they list cells."""
        read = {name for one in constraints.derived for name in one.sources}
        if self.rules is not None:
            read |= {self.columns[i].name for one in self.rules.impossible for i in one.clique}
        made = {one.column.name for one in constraints.derived if getattr(one.column, "is_open", False)}
        if on := sorted(read.intersection(self.open_columns) | made):
            raise SchemaError(
                f"a constraint or level reads the column {on[0]!r}, whose values are discovered",
                where="schema",
                allowed="constraints on other columns, or a list of values",
            )

    @property
    def open_columns(self) -> tuple[str, ...]:
        """Names of the columns whose values are discovered."""
        return tuple(c.name for c in self.columns if isinstance(c, Categorical) and c.is_open)

    def grown(self, found: Mapping[str, Sequence[Found]], step: int | None = None) -> Schema:
        """This schema with the values that were discovered, of each column in the order of their codes.

        Args:
            step: only what records of this step have codes of; None: everything.
        """
        if not found:
            return self
        columns = []
        for column in self.columns:
            if isinstance(column, Categorical) and column.name in found:
                there = [one for one in found[column.name] if step is None or one.first <= step]
                column = replace(column, found=tuple(there))
            columns.append(column)
        return replace(self, columns=tuple(columns))

    @cached_property
    def domain(self) -> Domain:
        """Names and sizes: what everything behind the codes sees."""
        if self.rules is None:
            return domain_of(self.columns)
        trees = tuple((one.name, one.columns) for one in self.rules.constraints.levels)
        plain = domain_of(self.columns, self.rules.impossible)
        return replace(plain, derived=self.rules.follows, trees=trees)

    @cached_property
    def rules(self) -> Rules | None:
        """The constraints over the codes."""
        return None if self.constraints is None else Rules(self.constraints, self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in the order of the codes."""
        return self.domain.names

    @property
    def released_columns(self) -> tuple[Column, ...]:
        """The columns of released tables: the measured ones, and those that follow from them."""
        derived = () if self.constraints is None else self.constraints.derived
        return (*self.columns, *(one.column for one in derived))

    @property
    def read_names(self) -> tuple[str, ...]:
        """The columns that the data must have."""
        return (*self.names, *(column.name for column in (() if self.rules is None else self.rules.read)))

    @property
    def unread_names(self) -> tuple[str, ...]:
        """Columns that the data may have and that are not read."""
        derived = () if self.constraints is None else self.constraints.derived
        return (*self.ignore, *(one.column.name for one in derived if not one.read))

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.domain.index(name)]

    # Raw to codes.

    def encode(
        self, data: Any, *, where: str = "batch", reveal: bool = False, extra: Extra = "error"
    ) -> Codes:
        """int32[n, p] codes of a table, column-major.

        Parameters
        ----------
        data : pyarrow Table or RecordBatch, dict of arrays or lists, pandas, Polars, DuckDB relation, or
            an ``EncodedTable`` of this schema.
        where : the step or file, for messages.
        reveal : put up to ten offending values a column into the message. Only for the owner's
            terminal: the message is then private.
        extra : what to do with columns that are neither declared nor in ``ignore``.

        Errors: ``SchemaError`` for a declared column that is not there, and see ``require_exact``;
        ``DataError`` for undeclared columns, types that do not fit, and values without a code (all columns in
        one message).
        Cost: 10^6 rows of 15 text columns take 0.1 to 0.3 s; one int32 per cell.
        """
        if isinstance(data, EncodedTable):
            return self.encode_blocks(data, where=where).whole()
        codes, problems = self._encode(data, where=where, reveal=reveal, extra=extra)
        if problems:
            raise problems_error(problems, where)
        return codes

    def encode_blocks(self, data: Any, *, where: str = "batch") -> CodeBlocks:
        """The codes of a table in blocks of rows, in the narrowest type: 1 or 2 bytes a cell (4 for points).

        The same codes as those of ``encode``, and the same errors. Blocks are encoded in a few threads.
        """
        if isinstance(data, EncodedTable):
            if not data.encoder.gives_codes_of(self.columns, self.null_values, self.constraints):
                raise ConfigError(
                    "another schema encoded the records",
                    where=where,
                    allowed="the stream's schema",
                )
            rest = data.remaining()
            if data.num_rows and not rest.num_rows:  # its columns were looked at when they were encoded
                return data.blocks(np.empty((0, len(self)), dtype=np.int32))
            return data.blocks(self.encode(rest, where=where))
        self.require_exact(where)
        table = arrow.to_table(data, where)
        parts = [table.slice(start, BLOCK_ROWS) for start in range(0, table.num_rows, BLOCK_ROWS)]
        codes = []
        for block in in_order(self.encoder().encode, parts):
            if block is None:  # the whole table says what is wrong
                return CodeBlocks(len(self), [self.encode(table, where=where)])
            codes.append(block.codes)
        if not codes:  # columns of a wrong type are wrong without records, too
            self.encode(table, where=where)
        return CodeBlocks(len(self), codes)

    def encoder(self, kept: Sequence[str] = ()) -> BlockEncoder:
        """Encodes blocks of records; ``kept`` names columns that stay as they are."""
        return BlockEncoder(self.columns, self.null_values, kept, self.rules, self.unread_names)

    def problems(self, data: Any, *, where: str = "batch", reveal: bool = False) -> list[Problem]:
        """What keeps a table from being encoded, column by column; empty if nothing does."""
        return self._encode(data, where=where, reveal=reveal, extra="error")[1]

    def violated(self, data: Any, *, where: str = "batch", extra: Extra = "error") -> dict[str, int]:
        """How many records violate which constraint, as they were declared. Private, for the owner's terminal only.

        Nothing where some value has no code: ``problems`` says so.
        """
        codes, derived, problems = self._codes(data, where=where, reveal=False, extra=extra)
        if self.rules is None or problems:
            return {}
        return {words: int(broken.sum()) for words, broken in self.rules.violated(codes, derived)}

    def encode_keeping_nulls(self, data: Any, *, where: str = "batch") -> Codes:
        """As ``encode``, with ``NULL`` for nulls, and without a look at the constraints."""
        codes, _, problems = self._codes(data, where=where, reveal=False, extra="error", keep_null=True)
        if problems:
            raise problems_error(problems, where)
        return codes

    def _encode(self, data: Any, *, where: str, reveal: bool, extra: Extra) -> tuple[Codes, list[Problem]]:
        codes, derived, problems = self._codes(data, where=where, reveal=reveal, extra=extra)
        if self.rules is not None and not problems:
            problems = self.rules.settle(codes, derived)
        return codes, problems

    def _codes(
        self, data: Any, *, where: str, reveal: bool, extra: Extra, keep_null: bool = False
    ) -> tuple[Codes, list[Codes], list[Problem]]:
        """Codes of the measured columns, of those that follow and are read, and what has no code."""
        self.require_exact(where)
        table = arrow.to_table(data, where)
        self._check_names(table.column_names, where, extra, reveal)
        return self.encoder().codes(table, reveal=reveal, keep_null=keep_null)

    def _check_names(self, names: list[str], where: str, extra: Extra, reveal: bool) -> None:
        present = set(names)
        absent = [name for name in self.read_names if name not in present]
        if absent:
            raise SchemaError(
                f"the data lack {_columns(absent)}",
                where=where,
                allowed=f"all of {', '.join(self.read_names)}",
            )
        if extra == "ignore":
            return
        if extra != "error":
            raise ConfigError(f"unknown extra {extra!r}", where="encode", allowed="error, ignore")
        declared = {*self.read_names, *self.unread_names}
        unknown = [name for name in names if name not in declared]
        if unknown:
            many = counted(len(unknown), "undeclared column")
            raise DataError(
                f"the data hold {f'undeclared {_columns(unknown)}' if reveal else many}",
                where=where,
                allowed="columns of the schema and its ignore list; dpstream check --show-values names the others",
            )

    # Codes to raw.

    def decode(
        self,
        codes: Any,
        seed: int | np.random.Generator,
        style: Style = "value",
        *,
        dictionaries: bool = False,
    ) -> Any:
        """A ``pyarrow.Table`` of typed columns (``value``) or of labels (``label``).

        Bins become values drawn uniformly inside the bin; ``missing`` becomes null; ``other`` becomes its
        label in text columns and null elsewhere. The draw is post-processing of public codes, so an
        ordinary seed is enough and the same seed gives the same table.
        ``dictionaries``: columns of texts hold each text once, and its place in every row (Arrow's dictionaries);
        the types of other columns, and all values, are the same. Columns that follow from others come last.
        Errors: ``DataError`` for codes of another shape, outside the domain, or in a cell that no record is in.
        """
        import pyarrow as pa

        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.columns) or codes.dtype.kind not in "iu":
            raise DataError(
                "codes and schema differ",
                where="decode",
                allowed=f"integers [n, {len(self.columns)}]",
            )
        generator = np.random.default_rng(seed)
        arrays = []
        for column, own in zip(self.released_columns, self._released_codes(codes), strict=True):
            if dictionaries and isinstance(column, Categorical) and not column.is_numeric:
                arrays.append(column.texts(own))
            else:
                arrays.append(column.decode(own, generator, style))
        names = [column.name for column in self.released_columns]
        return pa.table(arrays, names=names) if dictionaries else pa.table(arrays, self.arrow_schema(style))

    def _released_codes(self, codes: Codes) -> Iterator[Codes]:
        """The codes of each released column."""
        self.require_possible(codes, "decode")
        yield from (codes[:, i] for i in range(len(self.columns)))
        if self.rules is not None:
            yield from self.rules.derive(codes)

    def require_possible(self, codes: Codes, where: str) -> None:
        """Raise ``DataError`` for codes of a record that the constraints exclude, or outside the domain."""
        if self.rules is None or not len(codes):
            return
        sizes = self.domain.sizes
        for i, column in enumerate(self.columns):
            if not 0 <= codes[:, i].min() <= codes[:, i].max() < sizes[i]:
                raise DataError(
                    f"column {column.name!r} holds unknown codes", where=where, allowed=f"0 to {sizes[i] - 1}"
                )
        if self.rules.has_impossible(codes):
            raise DataError(
                "the schema's constraints exclude a record of the codes",
                where=where,
                allowed="codes of Schema.encode",
            )

    def with_derived(self, codes: Codes) -> Codes:
        """The codes of all released columns, shape (records, released columns)."""
        return np.column_stack(list(self._released_codes(codes))) if self.constraints is not None else codes

    def arrow_schema(self, style: Style = "value") -> Any:
        """The ``pyarrow.Schema`` of decoded tables."""
        import pyarrow as pa

        text = pa.string()
        columns = self.released_columns
        return pa.schema([(c.name, text if style == "label" else c.arrow_type()) for c in columns])

    @classmethod
    def from_codebook(cls, columns: Mapping[str, Any], constraints: Mapping[str, Any] | None) -> Schema:
        """The schema of released tables, from what their codebook says of columns and constraints.

        Errors: ``SchemaError``, ``KeyError``, ``TypeError``, ``ValueError``: the codebook is malformed.
        """
        if not isinstance(columns, Mapping):
            raise SchemaError("columns are missing", where="schema", allowed="a table of columns by name")
        schema = cls(
            tuple(column_from(name, spec, f"schema column {name!r}") for name, spec in columns.items())
        )
        if constraints is None:
            return schema
        measured, read = split_spec(constraints, schema.columns)
        return cls(tuple(measured), constraints=read)

    def with_levels(self, name: str, columns: Sequence[str], table: Any) -> Schema:
        """This schema with a public tree over one of its columns, such as regions and districts over zip codes.

        Args:
            name: of the tree; a headline may be it, or one of its levels: ``place``, ``place.region``.
            columns: the levels, the coarsest first; the last is declared already, the others are made.
            table: public: a row for each value of the last column, with a column for each level.

        Errors:
            SchemaError: a value without a line, or with several, or a parent that differs from line to line.
        """
        where = f"levels {name!r}"
        rows = arrow.to_table(table, where)
        if not set(columns) <= set(rows.column_names):
            allowed = f"a table with {', '.join(columns)}"
            raise SchemaError("a level has no column in the table", where=where, allowed=allowed)
        cells = [rows[column].cast("string").to_pylist() for column in columns]
        return self.with_lines(name, columns, Lines(cells, range(1, rows.num_rows + 1), where, "row"))

    def with_lines(self, name: str, columns: Sequence[str], lines: Lines) -> Schema:
        """As ``with_levels``, from what a file says."""
        levels, derived = read_levels(name, columns, self.columns, lines)
        own = self.constraints
        if own is None:
            return replace(self, constraints=Constraints(derived, levels=(levels,)))
        joined = replace(own, derived=(*own.derived, *derived), levels=(*own.levels, levels))
        return replace(self, constraints=joined)

    def require_confirmed(self, where: str = "dpstream.toml") -> None:
        """Raise ``ConfigError`` for a draft that nobody has confirmed yet."""
        if not self.confirmed:
            raise ConfigError(
                "the schema is a draft with parts from private data",
                where=f"{where} [schema]",
                allowed="confirmed = true, once every line marked CONFIRM is public",
            )

    def require_exact(self, where: str = "dpstream.toml") -> None:
        """Raise ``SchemaError`` for a declared whole number from 2^53 on (in absolute value), whatever the data are.

        Readers type a column of whole numbers as double as soon as one value in it is null, and doubles round such
        numbers: one record would change how the others are coded.
        """
        for column in self.columns:
            number = column.inexact()
            if number is not None:
                raise SchemaError(
                    f"column {column.name!r} declares {number}; beyond 2^53 a null in the column rounds the "
                    "numbers of all records",
                    where=where,
                    allowed="whole numbers between -2^53 and 2^53; longer ones as texts; a running stream needs a "
                    "successor (dpstream init --after)",
                )

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the canonical declaration; equal for equal schemas."""
        spec: dict[str, Any] = {
            "format": 1,
            "columns": [{"name": column.name, **column.spec()} for column in self.columns],
            "ignore": sorted(self.ignore),
            "null_values": sorted(self.null_values),
        }
        if self.constraints is not None:  # the fingerprints of all other schemas stay what they were
            derived = self.released_columns[len(self.columns) :]
            spec["derived"] = [{"name": column.name, **column.spec()} for column in derived]
            spec["constraints"] = self.constraints.spec()
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
        return sha256_hex(text.encode())


def _columns(names: list[str]) -> str:
    quoted = ", ".join(repr(name) for name in names)
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"
