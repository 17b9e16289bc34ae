"""Where releases go, and how they are read back. See README.md in this folder."""

from __future__ import annotations

from dpstream.io.sinks.bucket import Bucket, FolderAndBucket
from dpstream.io.sinks.database_feed import DatabaseFeed, DuckDBFeed, PostgresFeed
from dpstream.io.sinks.feed import Feed, FeedRelease, FolderAndFeed, StandardOutput
from dpstream.io.sinks.publisher import Publisher
from dpstream.io.sinks.release_reader import (
    read_catalogue,
    read_changes,
    read_manifest,
    read_measurements,
    read_table,
    readable_steps,
    released_schema,
)

__all__ = [
    "Bucket",
    "DatabaseFeed",
    "DuckDBFeed",
    "Feed",
    "FeedRelease",
    "FolderAndBucket",
    "FolderAndFeed",
    "PostgresFeed",
    "Publisher",
    "StandardOutput",
    "read_catalogue",
    "read_changes",
    "read_manifest",
    "read_measurements",
    "read_table",
    "readable_steps",
    "released_schema",
]
