"""What the worker tells of a stream: read without the stream's lock, but for tables that wait for approval.

No row of a state, no exact count and no batch id is in it: health in a word and a sentence, numbers of steps, amounts
of loss, periods, verdicts, ledger lines, and what a mechanism has released or will.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError
from dpstream.project.status import health, ledger_facts, metric_values, status_facts
from dpstream.service.desk.board import HeldRow
from dpstream.service.desk.facts import canonical
from dpstream.stream.asking_stream import AskingStream
from dpstream.stream.ledger.reading import read_ledger
from dpstream.stream.store.place import has_store

if TYPE_CHECKING:
    import pyarrow as pa

    from dpstream.project import Config
    from dpstream.stream import Stream

#: Rows of a table that waits for approval, on the board.
MAX_ROWS = 100_000
#: What of ``status_facts`` is on the board.
_FACTS = (
    *("last_step", "last_period", "released_at", "unfit", "cut", "next_due", "steps", "steps_left"),
    *("spent", "planned", "protects", "held", "withdrawn"),
)


def board_facts(config: Config, asked: dict[str, Any] | None) -> dict[str, Any]:
    """The facts of a stream, JSON-able; those of its card and ``ledger``, ``account``, ``asked`` and ``metrics``.

    Args:
        asked: see ``asked_facts``.

    Errors: those of reading the state.
    """
    facts = status_facts(config)
    word, why = health(config, facts)
    board: dict[str, Any] = {
        "health": word,
        "why": why,
        "verdicts": [str(one["words"]) for one in facts["verdicts"]],
        **{key: facts[key] for key in _FACTS},
        "asks": config.plan().asks is not None,
        "asked": asked,
        "metrics": metric_values(config, facts, word),
    }
    if facts["started"]:
        ledger = read_ledger(config.state_dir, server=config.server, key=config.state_key())
        board["ledger"] = ledger_facts(config, ledger)
        board["account"] = board["ledger"]["account"]
        board["ledger"]["rejected"] = facts["rejected"]
        planned = Fraction(config.plan().budget.amount)
        board["share"] = float(ledger.total.amount / planned) if planned and ledger.spends else None
    return board


def held_manifests(config: Config) -> dict[int, str]:
    """The held steps, each with the SHA-256 of its manifest."""
    if not has_store(config.state_dir, server=config.server):
        return {}
    ledger = read_ledger(config.state_dir, server=config.server, key=config.state_key())
    return {one.step: one.manifest_sha256 for one in ledger.spends if one.publication == "held"}


def held_rows(stream: Stream, manifests: dict[int, str]) -> list[HeldRow]:
    """Held steps with their tables; ``stream`` is open."""
    found = []
    for step, digest in manifests.items():
        release = stream.release(step)
        table, whole = _table(release)
        errors = canonical(stream.column_errors(step))
        found.append(HeldRow(step, digest, canonical(release.manifest), _packed(table), whole, errors))
    return found


def asked_facts(stream: Stream) -> dict[str, Any] | None:
    """What a question costs at most, and what was spent; None where the stream is not asked."""
    if not isinstance(stream, AskingStream) or not stream.last_step:
        return None
    return {
        "most": str(stream.most),
        "spent": str(stream.standing.spent),
        "planned": str(stream.plan.budget.amount),
        "hard_left": stream.standing.hard_left,
    }


def _table(release: Any) -> tuple[pa.Table | None, bool]:
    """The table, or so many rows of the same model where it is large or is made only when it is published."""
    try:
        if release.rows <= MAX_ROWS:
            return release.table(), True
    except ConfigError:
        pass
    try:
        return release.sample(min(release.rows, MAX_ROWS), seed=1), False
    except ConfigError:
        return None, False


def _packed(table: pa.Table | None) -> bytes | None:
    if table is None:
        return None
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
