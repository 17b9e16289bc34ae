"""Questions to linear queries: a condition in words, one cell of a marginal, or a value in [0, 1] for every cell.

A linear query is the mean of ``f`` over the records, ``f`` in [0, 1]; replacing one of t records moves it by at most
1/t."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.predicate import parse_predicate
from dpstream.families.growing.blackbox import LinearQuery

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: Words, labels by column, values for all cells (or for those of some columns), or a ``LinearQuery``.
Question = (
    str
    | Mapping[str, Any]
    | LinearQuery
    | Sequence[float]
    | NDArray[Any]
    | tuple[Sequence[str], NDArray[Any]]
)


def linear_query(question: Question, schema: Schema) -> LinearQuery:
    """Read a question about ``schema``'s columns.

    Args:
        question: a condition such as ``age >= 65 and smoker = true`` (the grammar of ``Release.answer``); a mapping
            from columns to labels, ``{"city": "Bern", "smoker": "true"}``: the cell of a marginal; an array with a
            value in [0, 1] for every cell of all columns (C order); ``(columns, array)``: for every cell of these
            columns.

    Errors:
        ConfigError, SchemaError: an unknown column, label or word, or a value outside [0, 1].
    """
    if isinstance(question, LinearQuery):
        return question
    if isinstance(question, str):
        predicate = parse_predicate(question, schema)
        return LinearQuery(predicate.columns, predicate.mask().reshape(-1).astype(np.float64))
    if isinstance(question, Mapping):
        return _cell(question, schema)
    if isinstance(question, tuple) and len(question) == 2 and isinstance(question[1], np.ndarray):
        names, values = question
        clique = schema.domain.clique(names)
        if [schema.domain.names[i] for i in clique] != list(names):
            raise ConfigError(
                "the columns of the values are not in the schema's order",
                where="query",
                allowed=", ".join(schema.domain.names[i] for i in clique),
            )
        return LinearQuery(clique, _values(values, schema.domain.cells(clique)))
    everything = tuple(range(len(schema.domain)))
    return LinearQuery(everything, _values(question, schema.domain.cells(everything)))


def describe_question(question: Question, schema: Schema) -> str:
    """The question as a text that tells it from every other one: what a store remembers of it.

    Words stay as they are; values are named by their hash.
    """
    if isinstance(question, str):
        return question.strip()
    if isinstance(question, Mapping):
        return json.dumps({str(k): str(v) for k, v in question.items()}, sort_keys=True, ensure_ascii=False)
    query = linear_query(question, schema)
    digest = hashlib.sha256(np.ascontiguousarray(query.weights, "<f8").tobytes()).hexdigest()
    return f"values of {schema.domain.label(query.clique)}: sha256:{digest}"


def _cell(question: Mapping[str, Any], schema: Schema) -> LinearQuery:
    if not question:
        raise ConfigError("the cell names no column", where="query", allowed=", ".join(schema.names))
    clique = schema.domain.clique(question)
    values = np.zeros(schema.domain.shape(clique))
    place = []
    for i in clique:
        column = schema.columns[i]
        label, labels = str(question[column.name]), column.labels()
        label = label.lower() if isinstance(question[column.name], bool) else label
        if label not in labels:
            shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
            raise ConfigError(f"{label!r} is no label of {column.name!r}", where="query", allowed=shown)
        place.append(labels.index(label))
    values[tuple(place)] = 1.0
    return LinearQuery(clique, values.reshape(-1))


def _values(given: Any, cells: int) -> NDArray[np.float64]:
    if np.iscomplexobj(given):
        raise ConfigError("a query has complex values", where="query", allowed="real numbers from 0 to 1")
    try:
        values = np.asarray(given, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise ConfigError(
            "the question cannot be read", where="query", allowed="words, labels, or numbers"
        ) from None
    if len(values) != cells:
        raise ConfigError(
            f"the query has {len(values)} values", where="query", allowed=f"{cells}, one for every cell"
        )
    return values
