"""The options ``--log-json`` and ``--lineage``: files that are told what a run does."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.lineage import Lineage
from dpstream.cli.logs import JsonLog

if TYPE_CHECKING:
    from dpstream.project import Config


def logged(verb: Callable[..., Any]) -> Callable[..., int]:
    """Adds ``--log-json`` and ``--lineage`` to a verb whose first argument is CONFIG and that returns its exit code."""

    @functools.wraps(verb)
    def wrapper(config: str, log_json: str | None, lineage: str | None, **options: Any) -> int:
        if log_json is None and lineage is None:
            return int(verb(config=config, **options) or 0)
        with contextlib.ExitStack() as stack:
            logs: list[JsonLog] = []
            if log_json is not None:
                logs.append(stack.enter_context(JsonLog(log_json)))
                logs[0].stream_name = _load(config).name
            if lineage is not None:
                logs.append(stack.enter_context(Lineage(lineage, _load(config), options.get("out"))))
            for log in logs:
                log.event("info", "run", None, "begun")
            code = int(verb(config=config, **options) or 0)
            for log in logs:
                if code:
                    log.event("warning", "run", None, "interrupted", exit_code=code)
                else:
                    log.event("info", "run", None, "done", exit_code=0)
            return code

    traced = click.option(
        "--lineage",
        metavar="FILE",
        help="Append OpenLineage events about the run, one JSON object a line: names and steps, no private value; - is "
        "standard error.",
    )
    option = click.option(
        "--log-json",
        metavar="FILE",
        envvar="DPSTREAM_LOG",
        show_envvar=True,
        help="Append one line of JSON per event, without private values; - is standard error.",
    )
    decorated: Callable[..., int] = option(traced(wrapper))
    return decorated


def _load(config: str) -> Config:
    from dpstream.project import Config

    return Config.load(config)
