"""More synthetic records of a release, also under a condition, from its model; and the model as readers get it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpstream.core.contracts import Synthesis, SyntheticTable
from dpstream.core.errors import ConfigError, InputError, LimitError, StoreDamagedError
from dpstream.core.schema import Categorical, Schema, parse_predicate
from dpstream.core.schema.domain import Domain, Impossible, pack_mask
from dpstream.io.sinks.target import MODEL
from dpstream.mechanisms import ModelSynthesis
from dpstream.stream.release.answers import Answer, check_cells
from dpstream.stream.release.table_blocks import drawing, whole_table

#: Under a condition that fewer records are expected to satisfy, none are drawn: the model says nothing of them.
LEAST_EXPECTED = 1.0


def model_file(synthesis: Synthesis, schema: Schema, step: int) -> dict[str, bytes]:
    """The file of a step's model, by its name; none where it has no such model. Post-processing of the release.

    Args:
        schema: the released columns of the step.
    """
    parts = synthesis.model()
    if parts is None:
        return {}
    facts = {
        "format": 1,
        "step": step,
        "schema": schema.fingerprint(),
        "records": synthesis.total,
        "columns": _columns(schema),
        "parts": parts,
    }
    return {MODEL: f"{json.dumps(facts, separators=(',', ':'))}\n".encode()}


def published_model(
    facts: Mapping[str, Any], schema: Schema, manifest: Mapping[str, Any], place: str
) -> tuple[ModelSynthesis, Schema]:
    """The inverse of ``model_file``, and the columns of its step.

    Args:
        schema: the columns of the codebook, which may have values that later steps discovered.

    Errors:
        StoreDamagedError: the file is not such a model, is another step's, or has other columns.
    """
    try:
        found = {one.name: one.found for one in schema.columns if isinstance(one, Categorical)}
        schema = schema.grown(found, int(facts["step"]))
        about = [facts[name] for name in ("format", "step", "schema", "columns")]
        if about != [1, manifest["step"], manifest["schema"], _columns(schema)]:
            raise ValueError
        domain = Domain(schema.domain.names, schema.domain.sizes)
        return ModelSynthesis.of_model(domain, facts["parts"], float(facts["records"])), schema
    except (KeyError, TypeError, ValueError, OverflowError, InputError, LimitError):
        raise StoreDamagedError("unreadable model", where=place) from None


def _columns(schema: Schema) -> list[dict[str, Any]]:
    return [{"name": column.name, "values": list(column.labels())} for column in schema.columns]


def given(table: SyntheticTable, schema: Schema, where: str) -> tuple[SyntheticTable, float] | None:
    """The records that satisfy a question, and their share of all, exactly under the model; None where none do.

    Errors:
        ConfigError, SchemaError: a question that cannot be read, or a release without a graphical model.
        LimitError: too many columns that something else than ``and`` joins.
    """
    terms = parse_predicate(where, schema).terms
    for term in terms:
        check_cells(schema.domain, term.columns, "where")
    return table.given([Impossible(term.columns, pack_mask(~term.mask())) for term in terms])


def sampled(
    table: Synthesis,
    schema: Schema,
    rows: int,
    seed: int | None,
    where: str | None,
    manifest: Mapping[str, Any],
    answer: Callable[[str], Answer],
    *,
    block: int | None = None,
) -> Any:
    """Synthetic records as a pyarrow Table.

    Args:
        answer: gives what was measured of such records, where the condition is refused.
        block: of a table that is drawn in blocks of so many rows.

    Errors:
        ConfigError: negative rows or seed; or a condition that fewer than ``LEAST_EXPECTED`` records are expected to
            satisfy. Others as ``given``.
    """
    seed = secrets.randbits(63) if seed is None else seed
    for name, value in (("rows", rows), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
            raise ConfigError(f"{value!r} cannot be used", where=name, allowed="an integer from 0")
    if where is not None:
        assert isinstance(table, SyntheticTable)
        left = given(table, schema, where)
        expected = 0.0 if left is None else left[1] * manifest["rows"]
        if left is None or expected < LEAST_EXPECTED:
            raise ConfigError(
                f"the model expects {expected:.2g} such records of {manifest['rows']:,} "
                f"(measured: {measured_words(answer, where)})",
                where="where",
                allowed="at least one expected record",
            )
        table = left[0]
    return whole_table(drawing(table, schema, int(rows), int(seed), block, {}))


def measured_words(answer: Callable[[str], Answer], where: str) -> str:
    """The measured number of records that satisfy a question, with its interval, in words."""
    try:
        known = answer(where)
    except LimitError:
        return "not known"
    ends = known.interval()
    if known.measured_value is None or ends is None:
        return "not known"
    return f"{known.measured_value:,.0f} as of step {known.as_of}, 95 % interval {ends[0]:,.0f} to {ends[1]:,.0f}"
