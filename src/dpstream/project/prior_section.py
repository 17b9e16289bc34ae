"""``[prior]`` of a file: the public table that says what the private one may look like."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PublicPrior, StreamRecipe, shown
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.project.reader import Section

if TYPE_CHECKING:
    from dpstream.core.schema import Column, Schema
    from dpstream.core.schema.domain import Codes

#: The weights of several rows that add up to this or less are taken for shares.
_SHARES_UP_TO = 1.000_001
#: More records than anybody has; a column of such sums holds something else.
_MOST_RECORDS = 1e12


def read_prior(section: Section, base: Path, schema: Schema) -> PublicPrior:
    """Read the section and its file.

    Errors:
        ConfigError: nobody confirmed that it is public; a file that cannot be read, has no column of the schema, holds
        values that the schema does not, or no record.

    Cost: the whole file is read.
    """
    path = section.file_path("file", base, "file")
    if section.required("public") is not True:
        raise section.wrong(
            "public",
            f"{shown(section.raw('public'))} does not confirm that the prior is public",
            "true, as your word that everybody may know this file",
        )
    section.note("public", "true", default=False)
    schema.require_exact(f"{section.file} [schema]")
    weight = section.text("weight") if section.has("weight") else None
    if weight is None:
        section.note("weight", "every row is one record", default=True)
    elif weight in schema.names:
        raise section.wrong("weight", f"column {weight!r} is declared in the schema as well")
    table, digest = _read(section, path)
    # Arrow's tables may name a column twice; whoever reads by name would get either.
    names = [name for name in schema.names if table.column_names.count(name) == 1]
    if not names:
        raise section.wrong(
            "file",
            f"{path.name!r} has none of the schema's columns",
            f"a table with one or more of {', '.join(schema.names)}",
        )
    columns = tuple(schema.names.index(name) for name in names)
    # Constraints may read columns that the prior does not have; the model gives their cells no mass anyway.
    columns_only = tuple(schema.columns[i] for i in columns)
    own = replace(schema, columns=columns_only, ignore=(), constraints=None)
    try:
        # The prior is public: its values may be shown.
        codes = own.encode(table.select(names), where=path.name, reveal=True)
    except DpstreamError as error:
        raise ConfigError(
            error.what,
            where=f"{section.place('file')}, {path.name}",
            allowed=error.allowed or "values that the schema declares, in their columns",
        ) from None
    weights = np.ones(len(codes)) if weight is None else _weights(section, table, weight)
    if not weights.sum() > 0.0:
        raise section.wrong("file", f"{path.name!r} holds no record", "one record or more")
    if weight is not None:
        _check_records(section, weight, weights)
    facts: dict[str, Any] = {"sha256": digest, "columns": names, "records": float(weights.sum())}
    if weight is not None:
        facts["weight"] = weight
    return PublicPrior(schema.domain, columns, codes, weights, facts, _unnamed(columns_only, codes, weights))


def check_prior_taken(section: Section, prior: PublicPrior | None, recipe: StreamRecipe) -> None:
    """ConfigError where the mechanism takes no prior."""
    if prior is not None and getattr(recipe, "prior", None) is not prior:  # of the baseline, it is a word
        raise ConfigError(
            "the mechanism of this file takes no prior",
            where=section.place(),
            allowed='a file without [prior], or [mechanism] name = "pooled" or "census"',
        )


def _check_records(section: Section, name: str, weights: NDArray[np.float64]) -> None:
    """ConfigError where the weights can be no numbers of records."""
    total, allowed = (
        float(weights.sum()),
        f"numbers of records, more than 1 and at most {_MOST_RECORDS:.0e} together",
    )
    if total < 1.0 or (total <= _SHARES_UP_TO and np.count_nonzero(weights) > 1):
        raise section.wrong("weight", f"column {name!r} adds up to {total:.3g}, as shares do", allowed)
    if total > _MOST_RECORDS:
        raise section.wrong("weight", f"column {name!r} adds up to {total:.3g}", allowed)


def _unnamed(columns: Sequence[Column], codes: Codes, weights: NDArray[np.float64]) -> dict[str, float]:
    """The share of the prior's records in the bin ``other`` of each column that has any there."""
    found = {
        column.name: float(weights[codes[:, i] == column.other_code].sum() / weights.sum())
        for i, column in enumerate(columns)
        if column.other_code is not None
    }
    return {name: share for name, share in found.items() if share > 0.0}


def _read(section: Section, path: Path) -> tuple[Any, str]:
    """The file as a table, and the SHA-256 of its bytes."""
    from dpstream.io.sources.formats import read_table

    try:
        before = _digest(path)
        table = read_table(path)
        digest = _digest(path)
    except DpstreamError as error:
        raise section.wrong("file", f"{path.name!r}: {error.what}", error.allowed) from None
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise section.wrong("file", f"{path.name!r}: {reason}", "a file that can be read") from None
    if digest != before:
        raise section.wrong("file", f"{path.name!r} changed while it was read", "a file that stays as it is")
    return table, digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _weights(section: Section, table: Any, name: str) -> NDArray[np.float64]:
    """The numbers of records that rows stand for."""
    import pyarrow as pa

    if table.column_names.count(name) != 1:
        raise section.wrong("weight", f"the file has no column {name!r}", "a column of the file")
    try:
        weights = np.asarray(table.column(name).cast(pa.float64()).to_numpy(), dtype=np.float64)
    except (pa.ArrowException, ValueError):
        raise section.wrong("weight", f"column {name!r} holds what is no number") from None
    if not np.isfinite(weights).all() or (weights < 0.0).any():
        raise section.wrong("weight", f"column {name!r} holds numbers below 0, or none where one is needed")
    return weights
