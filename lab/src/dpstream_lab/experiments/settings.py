"""The settings of experiments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dpstream.tools.evaluate.private_folder import LABEL
from dpstream_lab.experiments.grid import Result

#: Where it says what the papers leave open, and what was chosen.
CHOICES = "What the paper leaves open, and what was chosen: docs/decisions/0011-experiments.md."


def settings_page(about: str, *parts: str) -> str:
    """The page ``settings.md``.

    Args:
        about: what was run.
    """
    return "\n\n".join([f"**{LABEL}**", f"# Settings of the {about}", *parts])


def settings_table(results: Sequence[Result]) -> str:
    """The options of every method on every stream, from the runs themselves."""
    groups: dict[str, dict[str, Any]] = {}
    epsilons: dict[str, dict[str, None]] = {}
    for result in results:
        facts = result.values["settings"]
        key = json.dumps([facts["stream"], facts["method"]])
        groups.setdefault(key, facts)
        epsilons.setdefault(key, {})[facts["epsilon"]] = None
    lines = [
        "## What each method was told",
        "",
        "Counters are described as they are at the first epsilon.",
        "",
        "| stream | method | steps run, of | epsilons | mechanism and options |",
        "|---|---|---|---|---|",
    ]
    for key, facts in groups.items():
        options = ", ".join(f"{name} = {_text(value)}" for name, value in facts["options"].items())
        lines.append(
            f"| {facts['stream']} | {facts['method']} | {facts['steps']}, {facts['horizon']} "
            f"| {', '.join(epsilons[key])} | {facts['mechanism']}: {options} |"
        )
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.replace("|", "/")
    return text if len(text) <= 160 else text[:157] + "..."
