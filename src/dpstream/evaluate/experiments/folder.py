"""A folder for numbers that touch private truth: for its owner only, and never among the releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpstream import durable
from dpstream.errors import ConfigError

__all__ = ["PrivateFolder"]

_CATALOGUE = "catalogue.json"


class PrivateFolder:
    """A folder of mode 0700 whose files have mode 0600 and are replaced whole.

    Args:
        path: is made where it is missing.

    Errors:
        ConfigError: not a folder, or a folder of releases (or inside one), which others read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError("this is a file", where=str(self.path), allowed="a folder, or a new name")
        full = self.path.resolve()
        for folder in (full, *full.parents):
            if (folder / _CATALOGUE).exists():
                raise ConfigError(
                    f"{str(folder)!r} is a folder of releases, and these numbers are not releasable",
                    where=str(self.path),
                    allowed="a folder that is not among the releases",
                )
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def sub(self, name: str) -> PrivateFolder:
        """A folder inside this one."""
        return PrivateFolder(self.path / name)

    def write(self, name: str, content: str | bytes) -> Path:
        """Replace a file: a reader sees the old content or the new one."""
        path = self.path / name
        data = content.encode("utf-8") if isinstance(content, str) else content
        durable.replace_file(path, data, mode=0o600)
        return path

    def write_json(self, name: str, value: Any) -> Path:
        """The same with JSON; a number that is not finite has no place in it."""
        return self.write(name, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
