"""What the worker tells and the pages show: the facts of each stream, and its held steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpstream.service.desk.facts import Card, Task, canonical, now
from dpstream.stream.store.store_database import StoreDatabase

#: What of a stream's facts is on its card; the rest (ledger, account, asked) is for methods of its own.
_ON_CARD = {one.name for one in fields(Card)} - {"name", "needed", "told_at", "pending"}


@dataclass(frozen=True)
class HeldRow:
    """A held step as it is stored. ``rows``: an Arrow IPC file of its table (``whole``), or of rows of its model;
    ``errors``: as of ``Stream.column_errors``, in JSON."""

    step: int
    sha256: str
    manifest: str
    rows: bytes | None
    whole: bool
    errors: str = "{}"


def write_board(
    db: StoreDatabase,
    stream: str,
    facts: Mapping[str, Any],
    fresh: Iterable[HeldRow],
    held: Iterable[int] | None,
) -> None:
    """Replace what is told of a stream.

    Args:
        fresh: held steps that are not stored yet, or with another manifest.
        held: all steps that are held now; others are forgotten. None: it is not known.
    """
    db.execute(
        "INSERT INTO board VALUES (?, ?, ?) ON CONFLICT (stream) DO UPDATE SET told = excluded.told, "
        "facts = excluded.facts",
        (stream, now(), canonical(dict(facts))),
    )
    staying = None if held is None else set(held)
    for (step,) in db.execute("SELECT step FROM held WHERE stream = ?", (stream,)).fetchall():
        if staying is not None and step not in staying:
            db.execute("DELETE FROM held WHERE stream = ? AND step = ?", (stream, step))
    for one in fresh:
        db.execute("DELETE FROM held WHERE stream = ? AND step = ?", (stream, one.step))
        db.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?)",
            (stream, one.step, one.sha256, one.manifest, one.rows, int(one.whole), one.errors),
        )


def read_facts(db: StoreDatabase, stream: str) -> tuple[str | None, dict[str, Any]]:
    """When the worker told it, and what; None and nothing where it never did."""
    row = db.execute("SELECT told, facts FROM board WHERE stream = ?", (stream,)).fetchone()
    return (None, {}) if row is None else (str(row[0]), json.loads(row[1]))


def card_of(
    name: str, told: str | None, facts: Mapping[str, Any], needed: int, pending: Iterable[Task]
) -> Card:
    """The card."""
    shown: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in facts.items()
        if key in _ON_CARD
    }
    shown |= {"needed": needed, "told_at": told, "pending": tuple(pending)}
    return Card(name, **shown)


def held_row(db: StoreDatabase, stream: str, step: int, *, rows: bool = False) -> HeldRow | None:
    """A held step; ``rows``: with its table."""
    row = db.execute(
        f"SELECT step, sha256, manifest, {'rows' if rows else 'NULL'}, whole, errors FROM held "
        "WHERE stream = ? AND step = ?",
        (stream, step),
    ).fetchone()
    if row is None:
        return None
    number, digest, manifest, table, whole, errors = row
    return HeldRow(number, digest, manifest, None if table is None else bytes(table), bool(whole), errors)


def known_held(db: StoreDatabase, stream: str) -> set[tuple[int, str]]:
    """The held steps that are stored, with the hashes of their manifests."""
    rows = db.execute("SELECT step, sha256 FROM held WHERE stream = ?", (stream,)).fetchall()
    return {(int(step), str(digest)) for step, digest in rows}
