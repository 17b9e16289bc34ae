"""``run --log-json``: one line of JSON per event, for machines that watch.

What a line may hold is listed here, and nothing else is copied from a log record: no message text, so that a
careless log line of some module cannot carry a value out.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
from types import TracebackType
from typing import Any, Self

import click

from dpstream.core.showing import shown

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

        reason = error.strerror if isinstance(error, OSError) else "no name can hold a NUL"
        click.echo(
            f"warning: {shown_path(self._place)}: {reason}; the log ends here, the run goes on",
            err=True,
        )
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
