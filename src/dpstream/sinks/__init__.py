"""Where releases go, and how they are read back. See README.md in this folder."""

from __future__ import annotations

from dpstream.sinks.database import DatabaseFeed, DuckDBFeed, PostgresFeed
from dpstream.sinks.feed import Feed, Piece, StandardOutput, Tee
from dpstream.sinks.publisher import Publisher
from dpstream.sinks.reader import (
    read,
    read_catalogue,
    read_changes,
    read_manifest,
    readable_steps,
    released_schema,
)

__all__ = [
    "DatabaseFeed",
    "DuckDBFeed",
    "Feed",
    "Piece",
    "PostgresFeed",
    "Publisher",
    "StandardOutput",
    "Tee",
    "read",
    "read_catalogue",
    "read_changes",
    "read_manifest",
    "readable_steps",
    "released_schema",
]
