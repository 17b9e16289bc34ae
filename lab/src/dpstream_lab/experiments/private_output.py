"""The output folder of an experiment: private, and never among the releases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpstream.tools.evaluate.private_folder import open_private_folder, write_private


class PrivateFolder:
    """A folder of mode 0700 whose files have mode 0600 and are replaced whole.

    Args:
        path: the folder; it is made if it does not exist.
        apart_from: folders that must neither contain it nor lie in it, by their descriptions.

    Errors:
        ConfigError: ``path`` is a file, has other content, or is in or above a folder of releases (which has a
            catalogue).
    """

    def __init__(self, path: str | Path, apart_from: Mapping[str, Path] | None = None) -> None:
        self.path = open_private_folder(path, apart_from or {})

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, content: str | bytes) -> Path:
        """Replace a file, perhaps in a folder inside this one: a reader sees the old content or the new one."""
        path = self.path / name
        if path.parent != self.path:
            path.parent.mkdir(mode=0o700, exist_ok=True)
        return write_private(path, content.encode("utf-8") if isinstance(content, str) else content)

    def write_json(self, name: str, value: Any) -> Path:
        """Replace a file by JSON; a number that is not finite is refused."""
        return self.write(name, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
