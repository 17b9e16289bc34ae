"""``[state] key_file`` and ``key_env``: where the key of an encrypted store is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dpstream.project.reader import Section
from dpstream.stream import StateKey

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class KeyPlace:
    """A file or an environment variable; the key itself is read when a store is opened, not before."""

    file: Path | None
    variable: str | None

    def read(self) -> StateKey:
        """The key.

        Errors:
            ConfigError: it is not there, is none, or others may read it.
        """
        if self.file is not None:
            return StateKey.from_file(self.file)
        return StateKey.from_environment(self.variable or "")


def read_key_place(section: Section, base: Path, state: Path, output: Path) -> KeyPlace | None:
    """One of ``key_file`` and ``key_env``; None where the store is not encrypted.

    Errors:
        ConfigError: both, no name, or a file that lies in the state or among the releases.
    """
    if section.has("key_file") and section.has("key_env"):
        raise section.wrong("key_env", "key_file says it already", "one of key_file and key_env")
    if section.has("key_env"):
        name = section.text("key_env")
        if not _NAME.fullmatch(name):
            raise section.wrong("key_env", "this is not the name of an environment variable")
        return KeyPlace(None, name)
    if not section.has("key_file"):
        return None
    file = section.file_path("key_file", base, "file")
    for folder, what in ((state, "beside what it protects"), (output, "among the releases")):
        if folder.resolve() in file.resolve().parents:
            raise section.wrong("key_file", f"the key lies {what}")
    return KeyPlace(file, None)
