"""Durable streams: a plan, run exactly once per batch. See README.md in this folder."""

from __future__ import annotations

from dpstream.streams.account import Account
from dpstream.streams.asking import Asked, AskingStream
from dpstream.streams.base import Base
from dpstream.streams.batch import Batch
from dpstream.streams.encryption import StateKey
from dpstream.streams.ledger import Ledger, read_ledger, verify_ledger
from dpstream.streams.limit import Limit
from dpstream.streams.lock import StatePermissionWarning
from dpstream.streams.opening import open_stream
from dpstream.streams.postgres import PostgresServer
from dpstream.streams.publishing import Publishing
from dpstream.streams.release import MAX_CELLS, Answer, Marginal, Release
from dpstream.streams.sink import Sink
from dpstream.streams.status import StreamStatus, read_status
from dpstream.streams.stream import LedgerEntry, Stream

__all__ = [
    "MAX_CELLS",
    "Account",
    "Answer",
    "Asked",
    "AskingStream",
    "Base",
    "Batch",
    "Ledger",
    "LedgerEntry",
    "Limit",
    "Marginal",
    "PostgresServer",
    "Publishing",
    "Release",
    "Sink",
    "StateKey",
    "StatePermissionWarning",
    "Stream",
    "StreamStatus",
    "open_stream",
    "read_ledger",
    "read_status",
    "verify_ledger",
]
