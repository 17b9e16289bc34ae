"""A second place of releases that answers or does not: a folder where a bucket would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from dpstream.core.errors import StoreError
from dpstream.io.sinks import Bucket, FolderAndBucket, Publisher
from dpstream.io.sinks.publisher import MANIFEST
from dpstream.io.sinks.table_files import Format


class SecondFolder(Publisher):
    """What ``FolderAndBucket`` wants of a bucket. It is away while the file ``away`` is there."""

    def __init__(self, directory: Path, away: Path, form: Format) -> None:
        super().__init__(directory, format=form)
        self._away = away

    def steps(self) -> set[int]:
        """The steps that have a manifest."""
        return {int(path.parent.name[5:]) for path in self._directory.glob(f"step-*/{MANIFEST}")}

    def __getattribute__(self, name: str) -> Any:
        if name in ("published", "publish", "compare", "restore", "expire", "withdraw", "write_public"):
            away = super().__getattribute__("_away")
            if away.exists():
                raise StoreError("the second place does not answer", where=str(away))
        return super().__getattribute__(name)


def mirrored(home: Path, form: Format = "parquet") -> FolderAndBucket:
    """The folder ``releases``, and ``second`` beside it, which is away while ``away`` is there."""
    second = SecondFolder(home / "second", home / "away", form)
    return FolderAndBucket(Publisher(home / "releases", format=form), cast(Bucket, second))


__all__ = ["SecondFolder", "mirrored"]
