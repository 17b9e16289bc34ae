"""How far a source was read when a step was taken: what tells late rows from old ones.

Private (it holds numbers of records), so it lives in the state directory, mode 0600. It is written before
the step is committed, together with the step's number: the committed step says which entry counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dpstream import durable
from dpstream.errors import StoreDamagedError, StoreError

__all__ = ["Positions"]

#: The state directory holds files of the store only, and this name makes it one of them.
_NAME = "stream.sqlite.source.json"


class Positions:
    """The last two positions of a stream's source: of the committed step and of the one under way.

    Errors:
        StoreDamagedError: the file cannot be read, or it does not know the committed step.
        StoreError: it cannot be written.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / _NAME

    def at(self, step: int) -> dict[str, int] | None:
        """The position saved with ``step``; None before the first step."""
        if step == 0:
            return None
        saved = self._read()
        if str(step) not in saved:
            raise StoreDamagedError(
                f"the source's position at step {step} is missing",
                where=str(self._path),
                allowed='a stream that was run with the same "late" from its first step on',
            )
        return saved[str(step)]

    def save(self, step: int, position: Mapping[str, int]) -> None:
        """Remember the position with ``step``, and keep that of the step before."""
        before = self._read().get(str(step - 1)) if step > 1 else None
        entries = {str(step): dict(position), **({} if before is None else {str(step - 1): before})}
        data = json.dumps({"format": 1, "positions": entries}).encode()
        try:
            durable.replace_file(self._path, data, mode=0o600)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            raise StoreError(f"the source's position: {reason}", where=str(self._path)) from error

    def _read(self) -> dict[str, dict[str, int]]:
        try:
            value = json.loads(self._path.read_bytes())
            return {step: {str(k): int(v) for k, v in at.items()} for step, at in value["positions"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise StoreDamagedError("the source's position cannot be read", where=str(self._path)) from None
