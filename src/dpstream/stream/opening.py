"""Opening a stream: arguments, pinned facts, and which kind of stream a plan has.

Trusted base: kernel (opens a private store).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.threads import thread_count
from dpstream.io.sinks.publisher import Publisher
from dpstream.stream.admission import require_record
from dpstream.stream.asking_stream import AskingStream
from dpstream.stream.declared import require_open
from dpstream.stream.identity import plan_facts, plan_hash
from dpstream.stream.ledger.account import Membership
from dpstream.stream.predecessor_cost import Base
from dpstream.stream.release.publishing import Publishing
from dpstream.stream.store.encryption import StateKey
from dpstream.stream.store.place import has_store
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.stream import Stream

if TYPE_CHECKING:
    from dpstream.core.schema import Schema


def open_stream(
    plan: StreamPlan,
    schema: Schema,
    path: str | Path,
    *,
    name: str = "stream",
    randomness: Randomness | None = None,
    publish_to: Publisher | None = None,
    source: Mapping[str, Any] | None = None,
    declared_public: Sequence[str] = (),
    publishing: Publishing | None = None,
    server: PostgresServer | None = None,
    account: str | Path | None = None,
    key: StateKey | None = None,
    base: Base | None = None,
) -> Stream:
    """Open the stream whose secret state lives in ``path``, or start it there.

    Guarantee: what ``plan`` states, for everything that ever leaves the stream, crashes and repetitions
    included, as long as nobody restores an old copy of the whole state directory.

    Args:
        plan: the calibrated mechanism. An existing state has to belong to the same plan.
        schema: the public declaration behind ``plan.domain``.
        path: a directory of its own (0700); never inside the releases.
        name: of the stream, in manifests.
        randomness: entropy of the operating system by default; a seeded one marks every manifest.
        publish_to: where releases go; None keeps them in the state only (and they stay unpublished).
        source: public facts about how records are cut into steps (``SourceOptions.pinned``), JSON-able. Like
            the plan they may not change while the stream lives.
        declared_public: what the cut treats as public knowledge, in sentences, for every manifest.
        publishing: what is published of a step and when, and how much is kept.
        server: keeps the store; ``path`` then holds only the witness against a database that is rolled back.
        account: the file in which several streams on one private source add up. The plan's whole budget is
            charged there once, before the stream is started.
        key: encrypts what is private in the store; an encrypted store opens with its key only.
        base: the public release of another stream that this one begins with; read only when it is started.

    Errors:
        BudgetError: the account's limit would be passed.
        ConfigError: another plan, a unit that the mechanism does not read for, or a bad argument.
        StoreLockedError: somebody has it open.
        StoreDamagedError: the state contradicts itself or the published catalogue.
        StoreFormatError: written by a newer version.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"the stream's name is {name!r}", where="stream", allowed="a printable text")
    thread_count()  # what is wrong with it is said before anything is drawn
    schema.require_confirmed(name)
    require_record(plan)
    require_open(plan, schema)
    if any(c.inexact() is not None for c in schema.columns) and not has_store(Path(path), server=server):
        # A stream that has begun takes no further step either, but is still read, published and withdrawn.
        schema.require_exact(name)
    policy = publishing or Publishing()
    policy.check_columns(schema.names)
    if (
        publish_to is not None
        and publish_to.draws_tables
        and (policy.records != "fresh" or plan.reads == "reports")
    ):
        raise ConfigError(
            "records persist; the sink draws anew",
            where="publish_to",
            allowed='another sink, or records = "fresh"',
        )
    facts = plan_facts(plan, schema, name, source, declared_public, None if base is None else base.facts)
    random = randomness or Randomness.system()
    member = None if account is None else Membership(account, Path(path), facts, plan_hash(facts))
    kind: type[Stream] = Stream if plan.asks is None else AskingStream
    return kind(plan, schema, Path(path), facts, random, publish_to, policy, server, member, key, base)
