"""Releases on standard output, beside the folder: ``[output] sink = "stdout"``."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

from dpstream.io.sinks.target import Comparison, Differences, StepFiles, TakesTables, Target


class StandardOutput(Target):
    """Writes releases as NDJSON: a line that begins a step, one line per record, and a line that ends the step.

    Only committed steps are written, in their order. If the process stops before a written step is recorded as
    published, the next process writes it again, whole and with equal lines. So readers take a step only when they see
    its end, and drop a step that they have already. Changes are written if the same process wrote the step before;
    otherwise the table is, if there is one.
    """

    takes: TakesTables = "files"

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._given = out
        self._last: int | None = None

    def have(self, stream_id: str) -> dict[int, str]:
        """Empty: a pipe remembers nothing."""
        return {}

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """Write one step, and flush; readers get nothing twice."""
        if mend:
            return
        changes = files.blocks("changes") if self._last == files.step - 1 else None
        blocks, kind = (changes, "changes") if changes is not None else (files.blocks("table"), "table")
        if blocks is None:
            blocks, kind = files.blocks("changes"), "changes"
        head = {"step": files.step, "stream": files.manifest.get("stream"), "kind": kind}
        self._write([{**head, "event": "begin", "period": files.manifest.get("period")}])
        rows = 0
        for block in blocks or ():
            self._write([{"step": files.step, **row} for row in block.to_pylist()])
            rows += block.num_rows
        self._write([{**head, "event": "end", "rows": rows}])
        self._out.flush()
        self._last = files.step

    def compare(self, asked: Comparison) -> Differences:
        """Empty: what was written to a pipe cannot be read back."""
        return {}

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """See ``take_back``; of a table that expired nothing is said."""
        if staying:
            self.take_back(step)

    def take_back(self, step: int) -> None:
        """Write a line which says that the step was withdrawn; what was written before cannot be taken back."""
        self._write([{"step": step, "event": "withdrawn"}])
        self._out.flush()

    @property
    def _out(self) -> BinaryIO:
        return sys.stdout.buffer if self._given is None else self._given

    def _write(self, lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False, default=_plain) + "\n" for line in lines)
        self._out.write(text.encode())


def _plain(value: datetime.date) -> str:
    return value.isoformat()
