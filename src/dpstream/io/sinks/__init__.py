"""Where releases go, and how they are read back. See README.md in this folder."""

from __future__ import annotations

from dpstream.io.sinks.bucket import Bucket
from dpstream.io.sinks.database_feed import DatabaseFeed, DuckDBFeed, PostgresFeed
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
from dpstream.io.sinks.standard_output import StandardOutput
from dpstream.io.sinks.target import StepFiles, Target
