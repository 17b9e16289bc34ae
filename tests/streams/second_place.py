"""A second place of releases that answers or does not: a folder where a bucket would be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpstream.core.errors import StoreError
from dpstream.io.sinks import Publisher, StepFiles
from dpstream.io.sinks.publisher import published_steps
from dpstream.io.sinks.table_files import Format


class SecondFolder(Publisher):
    """As a bucket: it is away while the file ``away`` is there, and lists no table that it lacks."""

    def __init__(self, directory: Path, away: Path, form: Format) -> None:
        super().__init__(directory, format=form)
        self._away = away

    def index(
        self, name: str, data: bytes, staying: Callable[[int], Mapping[str, bytes]] | None = None
    ) -> None:
        listed = {int(entry["step"]): entry["kept"] for entry in json.loads(data).get("steps", ())}
        lacking = sorted(listed.keys() - published_steps(self.directory))
        if any(listed[step] for step in lacking):
            return
        for step in lacking:
            assert staying is not None
            super().put(StepFiles.of(step, staying(step)))
        super().index(name, data)

    def __getattribute__(self, name: str) -> Any:
        if name in ("have", "put", "compare", "withdraw", "index"):
            away = super().__getattribute__("_away")
            if away.exists():
                raise StoreError("the second place does not answer", where=str(away))
        return super().__getattribute__(name)


def mirrored(home: Path, form: Format = "parquet") -> Publisher:
    """The folder ``releases``, and ``second`` beside it, which is away while ``away`` is there."""
    second = SecondFolder(home / "second", home / "away", form)
    return Publisher(home / "releases", format=form, beside=second)


def contents(root: Path) -> dict[str, bytes]:
    """All files of a place by their names, but for the witness, which is in the first place only."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != ".head.json")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
