"""Durable streams: a plan, run exactly once per batch. See README.md in this folder."""

from __future__ import annotations

from dpstream.core.tables.keyed_reading import KeyedBatch, KeyRules, Snapshot
from dpstream.stream.admission import Batch
from dpstream.stream.asking_stream import AnsweredQuestion, AskingStream
from dpstream.stream.inspection import StreamStatus, read_status, verify_ledger
from dpstream.stream.ledger.account import Account
from dpstream.stream.ledger.limit import Limit
from dpstream.stream.ledger.reading import Ledger, read_ledger
from dpstream.stream.opening import open_stream
from dpstream.stream.predecessor_cost import Base
from dpstream.stream.release.answers import MAX_ANSWER_CELLS, Answer
from dpstream.stream.release.publishing import Publishing
from dpstream.stream.release.release import Marginal, Release
from dpstream.stream.store.encryption import StateKey
from dpstream.stream.store.lock import StatePermissionWarning
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.stream import Stream
