"""The state of streams in Prometheus' text format: ``dpstream status --prometheus``, and the service's metrics.

What may be in it is listed here: public numbers, and the word of ``status --health``. No number of records, no size,
and no text of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.project.health import WORDS

if TYPE_CHECKING:
    from dpstream.project.config import Config

#: name -> what it is, in its unit.
_ABOUT = {
    "dpstream_steps": "Committed steps of the stream.",
    "dpstream_steps_left": "Steps that the plan still pays for; none where it pays for any number.",
    "dpstream_spent": "Privacy loss of all steps so far, in the unit of the label loss: epsilon, or rho (zCDP).",
    "dpstream_planned": "Privacy loss that the plan allows, in the unit of the label loss.",
    "dpstream_health": "1 for the word that dpstream status --health says, 0 for all others.",
    "dpstream_release_time_seconds": "When the newest release was written, as Unix time.",
    "dpstream_told_time_seconds": "When the worker of a service last looked at the stream, as Unix time.",
}


#: The values of one stream: labels and number of each line, by metric. JSON-able.
Values = dict[str, list[tuple[dict[str, str], float]]]


def metric_values(config: Config, facts: dict[str, Any], word: str, state: Path) -> Values:
    """The public numbers of a stream.

    Args:
        facts: what ``status`` knows.
        word: of the stream's health.
        state: the folder of the state.

    Errors: those of reading the state.
    """
    from dpstream.core.privacy import ZCDP
    from dpstream.stream import read_status

    budget = config.plan().budget
    spent = read_status(state, server=config.server).spent if facts["started"] else 0
    loss = {"loss": "rho" if isinstance(budget, ZCDP) else "epsilon"}
    times = [path.stat().st_mtime for path in Path(facts["releases"]).glob("step-*/manifest.json")]
    left = facts["steps_left"]
    return {
        "dpstream_steps": [({}, facts["steps"])],
        "dpstream_steps_left": [] if left is None else [({}, left)],
        "dpstream_spent": [(loss, float(spent))],
        "dpstream_planned": [(loss, float(budget.amount))],
        "dpstream_health": [({"word": one}, float(one == word)) for one in WORDS],
        "dpstream_release_time_seconds": [({}, max(times))] if times else [],
    }


def metrics_text(streams: Mapping[str, Values]) -> str:
    """The text, of one stream or of several: each metric's lines stand together, as the format wants it."""
    return "".join(f"{line}\n" for name in _ABOUT for line in _lines(name, streams))


def _lines(name: str, streams: Mapping[str, Values]) -> Iterator[str]:
    found = [(stream, *one) for stream, values in streams.items() for one in values.get(name, ())]
    if found:
        yield f"# HELP {name} {_ABOUT[name]}"
        yield f"# TYPE {name} gauge"
    for stream, labels, value in found:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"stream": stream, **labels}.items())
        yield f"{name}{{{shown}}} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
