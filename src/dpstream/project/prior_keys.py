"""Keys of public knowledge about the table; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import TEXT

PRIOR_KEYS: tuple[Key, ...] = (
    Key(
        "prior",
        "file",
        'a file of a known format (.csv, .parquet, .ndjson) relative to this one, with name = "pooled" or "census"',
        None,
        "",
        "The public table: records, or counts with `weight`, in some or all columns of the schema. Its columns have "
        "the schema's names, its values the schema's values. Other columns are left out. The hash of the file is part "
        "of what the stream is pinned to.",
        fragment=TEXT,
    ),
    Key(
        "prior",
        "weight",
        "a column of numbers from 0 that is not in the schema",
        "every row is one record",
        "most public tables are lists of records",
        "The column of the file that says how many records a row stands for.",
        fragment=TEXT,
    ),
    Key(
        "prior",
        "public",
        "true",
        None,
        "",
        "Your word that the file is public and was not made from this stream's private records in any other way than "
        "by a release whose cost is accounted for.",
        fragment={"const": True},
    ),
)
