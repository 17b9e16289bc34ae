"""Releases compared with the store, from outside of a run."""

from __future__ import annotations

from pathlib import Path

from dpstream.io.sinks.publisher import Publisher
from dpstream.io.sinks.target import Differences
from dpstream.stream.store.place import viewed
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.store import publication_states, published_files
from dpstream.stream.store.store_database import file_errors


def compare_releases(
    path: str | Path, sink: Publisher, *, server: PostgresServer | None = None, deep: bool = False
) -> tuple[dict[int, dict[str, str]], Differences]:
    """Every published step with the SHA-256 of its files as the store knows them, and what of them is missing or
    changed, or is there although it was withdrawn. Changes nothing and needs no lock.

    Args:
        deep: read everything, and not only the last few steps.

    Errors:
        StoreDamagedError, StoreFormatError: the store cannot be read. StoreError: a place of releases cannot be read.
    """
    before: Differences = {}
    for _ in range(2):  # a run may publish, drop or withdraw a step between two looks: what stays is told
        with viewed(Path(path), server) as db:
            committed = {} if db is None else published_files(db)
            states = {} if db is None else publication_states(db)
        withdrawn = [step for step, state in states.items() if state == "withdrawn"]
        with file_errors("the releases could not be read", sink.directory):
            differences = sink.compared(committed, deep=deep, withdrawn=withdrawn)
        if not differences or differences == before:
            break
        before = differences
    return committed, differences
