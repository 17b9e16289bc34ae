"""``run --log-json`` and ``--lineage``: one line of JSON per event, for machines that watch; OpenLineage events.

What a line may hold is listed here, and nothing else is copied from a log record: no message text, so that a
careless log line of some module cannot carry a value out. Lineage holds names from the public configuration, names and
types of released columns, and numbers of steps; no number of records, no statistics of inputs, and no message.

Source: OpenLineage, object model 2-0-2 (RunEvent), and its facets for schemas and versions of data sets.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import click

from dpstream.core.showing import shown
from dpstream.core.version import __version__

if TYPE_CHECKING:
    from dpstream.project import Config

_LOGGER = "dpstream.streams"


class JsonLog(logging.Handler):
    """Writes events to a file that only its owner can read (clock times say when data came), or to ``-``.

    Lines hold ``time`` (UTC), ``level``, ``event`` (``run`` or ``step``), ``stream``, ``step``, ``state``, and for
    a run that stopped ``error`` (the kind of the exception) and ``exit_code``. A log that cannot be written
    never stops a step: it says so once, and goes quiet.
    """

    def __init__(self, place: str) -> None:
        super().__init__(logging.INFO)
        self.stream_name: str | None = None
        self._place = place
        self._descriptor: int | None = None
        self._before = logging.NOTSET

    def __enter__(self) -> Self:
        if self._place != "-":
            # Not waiting: a named pipe that nobody reads would hold the run up for good.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            try:
                self._descriptor = os.open(self._place, flags, 0o600)
            except (OSError, ValueError) as error:
                self._give_up(error)
        logger = logging.getLogger(_LOGGER)
        self._before = logger.level
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is not None and error is not None:
            self._failed(kind, error)
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._before)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def emit(self, record: logging.LogRecord) -> None:
        """A step's event; other records are left out."""
        from dpstream.stream.step_log import StepEvent

        state, step = getattr(record, "event", None), getattr(record, "step", None)
        if isinstance(state, StepEvent) and isinstance(step, int):
            self.event(record.levelname.lower(), "step", step, state.value)

    def event(self, level: str, event: str, step: int | None, state: str, **more: Any) -> None:
        """Write one event as a line of JSON."""
        line = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
            "stream": self.stream_name,
            "step": step,
            "state": state,
            **more,
        }
        self.put(line)

    def put(self, line: dict[str, Any]) -> None:
        """Write one object as a line of JSON."""
        text = shown(json.dumps(line, ensure_ascii=False)) + "\n"
        if self._place == "-":
            sys.stderr.write(text)
            sys.stderr.flush()
        elif self._descriptor is not None:
            self._write(text.encode())

    def _failed(self, kind: type[BaseException], error: BaseException) -> None:
        if issubclass(kind, (KeyboardInterrupt, click.Abort)):
            self.event("warning", "run", None, "interrupted", exit_code=5)
        else:
            code = getattr(error, "exit_code", 4 if isinstance(error, OSError) else 1)
            self.event("error", "run", None, "stopped", error=kind.__name__, exit_code=code)

    def _write(self, data: bytes) -> None:
        try:
            os.write(self._descriptor if self._descriptor is not None else -1, data)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        from dpstream.core.paths import shown_path

        reason = error.strerror if isinstance(error, OSError) else "malformed name"
        click.echo(
            f"warning: {shown_path(self._place)}: {reason}; the log ends here, the run goes on",
            err=True,
        )
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PRODUCER = f"urn:dpstream:{__version__}"
_TYPES = {"begun": "START", "done": "COMPLETE", "interrupted": "ABORT", "stopped": "FAIL"}


class Lineage(JsonLog):
    """A log that says the same to tools of data lineage: a START, and then a COMPLETE, ABORT or FAIL."""

    def __init__(self, place: str, config: Config) -> None:
        super().__init__(place)
        self._config, self._releases = config, config.output.dir
        self._run, self._newest = str(uuid.uuid4()), 0

    def event(self, level: str, event: str, step: int | None, state: str, **more: Any) -> None:
        """Remember a step, or write an event about the run."""
        if event == "step":
            if state == "published" and step is not None:
                self._newest = max(self._newest, step)
            return
        self.put(
            {
                "eventType": _TYPES[state],
                "eventTime": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
                "run": {"runId": self._run},
                "job": {"namespace": "dpstream", "name": self._config.name},
                "inputs": [{"namespace": space, "name": name} for space, name in _inputs(self._config)],
                "outputs": [] if state == "begun" or not self._newest else [self._output()],
                "producer": _PRODUCER,
                "schemaURL": _EVENT,
            }
        )

    def _output(self) -> dict[str, Any]:
        from dpstream.core.errors import DpstreamError
        from dpstream.io.sinks.release_reader import read_manifest, released_schema

        facets = {"version": _facet("1-0-1/DatasetVersion", datasetVersion=str(self._newest))}
        try:
            schema = released_schema(self._releases, read_manifest(self._releases, self._newest))
        except DpstreamError:  # no table of records, or withdrawn since: the version says enough
            schema = None
        if schema is not None:
            fields = [{"name": column.name, "type": column.type_name} for column in schema.released_columns]
            facets["schema"] = _facet("1-1-1/Schema", fields=fields)
        return {"namespace": "file", "name": str(self._releases.absolute()), "facets": facets}


def _facet(kind: str, **values: Any) -> dict[str, Any]:
    version, _, name = kind.partition("/")
    url = f"{_SPEC}/facets/{version}/{name}DatasetFacet.json#/$defs/{name}DatasetFacet"
    return {"_producer": _PRODUCER, "_schemaURL": url, **values}


def _inputs(config: Config) -> list[tuple[str, str]]:
    """Namespace and name of what is read, as the configuration names it; nothing is looked up."""
    from dpstream.io.objects import is_object_url, object_path

    source, base = config.source_options, config.path.parent.absolute()
    if source.stdin:
        return []
    if source.kind == "files":
        stored = [object_path(text) for text in source.path if is_object_url(text)]
        local = [os.path.normpath(base / text) for text in source.path if not is_object_url(text)]
        return [
            *(("file", text) for text in local),
            *((f"{one.scheme}://{one.place}", one.key) for one in stored),
        ]
    if source.kind == "duckdb":
        return [("file", os.path.normpath(base / str(source.database)))]
    what = source.table or "query"
    if source.url is None:  # it may hold a password
        return [(source.kind, what)]
    parts = urlsplit(source.url)
    server = f"{parts.scheme}://{parts.hostname or 'localhost'}" + (f":{parts.port}" if parts.port else "")
    return [(server, f"{parts.path.strip('/')}.{what}".lstrip("."))]


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
                logs.append(stack.enter_context(Lineage(lineage, _load(config).at(None, options.get("out")))))
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
        help="Append OpenLineage events, without private values; - is standard error.",
    )
    option = click.option(
        "--log-json",
        metavar="FILE",
        envvar="DPSTREAM_LOG",
        show_envvar=True,
        help="Append events as JSON lines, without private values; - is standard error.",
    )
    decorated: Callable[..., int] = option(traced(wrapper))
    return decorated


def _load(config: str) -> Config:
    from dpstream.project import Config

    return Config.load(config)
