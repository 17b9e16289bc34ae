"""What is looked at of a Spark data frame before a row is read: whether it is one, its names, types and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.tables.contribution import id_problem, no_ids_of
from dpstream.spark.tasks import Ids

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


def refuse_constraints(schema: Schema) -> None:
    """Refuse public constraints, which rows are held against before they are counted.

    Errors:
        ConfigError: the schema has some.
    """
    if schema.constraints is not None:
        raise ConfigError(
            "records that stay in Spark cannot follow public constraints",
            where="schema.constraints",
            allowed="records from another source, or a schema without constraints",
        )


def check_columns(frame: Any, schema: Schema, own: tuple[str, ...], where: str) -> None:
    """Check names and types on a table without rows, as the executors will see it."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    fields = []
    for one in frame.schema.fields:
        if one.name in own:
            continue
        try:
            kind = to_arrow_type(one.dataType, timezone="UTC")
        except PySparkException:
            kind = pa.struct([])  # a type that no column reads
        fields.append((one.name, kind))
    names = [name for name, _ in fields]
    empty = pa.Table.from_arrays([pa.array([], kind) for _, kind in fields], names=names)
    schema.encode(empty, where=where)


def check_ids(frame: Any, ids: Ids, where: str) -> None:
    """Check name and type of the column of the ids."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    if ids.column not in frame.columns:
        allowed = f"the column of the {ids.what}s"
        raise DataError(f"there is no column {ids.column!r}", where=where, allowed=allowed)
    kind = frame.schema[ids.column].dataType
    try:
        wrong = id_problem(to_arrow_type(kind, timezone="UTC"), where, ids.what)
    except PySparkException:  # a type that Arrow does not have
        wrong = no_ids_of(kind.simpleString(), where, ids.what)
    if wrong is not None:
        raise wrong


def quoted(name: str) -> str:
    """A name of a column as Spark's SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def is_frame(frame: Any) -> bool:
    """Whether it is a data frame of Spark, told by its class: nothing of Spark is imported for others."""
    kinds = type(frame).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql") for kind in kinds)
