"""What a verb's options accept: paths of a kind that can be used, and numbers in the one plain form."""

from __future__ import annotations

import os
import re
from typing import Any, Literal

import click

from dpstream.core.durations import seconds
from dpstream.core.errors import ConfigError

#: Steps, rows and seeds are kept in 64 bits.
LARGEST = 2**63 - 1


class FilePath(click.Path):
    """A path, looked at before a verb has it.

    ``file``: to read, so a folder, a named pipe or a device is refused before it is opened. ``new``: to write, so
    whatever is there has to be a file (links are refused: the file would take the link's place). ``folder``: a folder
    or nothing. ``any``: the verb takes several kinds. Nothing there is fine for all; verbs say what they miss.

    Args:
        dash: whether ``-`` (or ``/dev/stdin``, ``/dev/stdout``) stands for standard input or output.
        there: whether it has to be there.

    Errors:
        ConfigError: the path can never be used, or something of another kind is there.
    """

    def __init__(
        self, kind: Literal["file", "new", "folder", "any"], *, dash: bool = False, there: bool = False
    ) -> None:
        super().__init__(allow_dash=dash)
        self.kind = kind
        self.dash = dash
        self.there = there

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text; ``-`` for standard input and output."""
        from dpstream.core import paths

        if self.dash and value in ("-", "/dev/stdout" if self.kind == "new" else "/dev/stdin"):
            return "-"
        if not value:
            raise ConfigError("the path is empty", where=_name(param), allowed="the name of a file or folder")
        if self.kind in ("folder", "new"):
            paths.check_local(value)
        checks = {"file": paths.check_file, "new": paths.check_target, "folder": paths.check_folder}
        checks.get(self.kind, paths.check_path)(value)
        if self.there and not os.path.exists(value):
            raise ConfigError("the file is missing", where=paths.shown_path(value), allowed="a file")
        return value


class Duration(click.types.FloatParamType):
    """A length of time such as 30s, 5m, 36h, 8d or 2w, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The seconds."""
        if isinstance(value, float):
            return value
        length = seconds(value) or seconds(f"{value}s")
        if not length:
            self.fail(f"expected a length of time such as 30s, 5m, 36h, 8d or 2w, got {value!r}", param, ctx)
        return length


class Whole(click.IntRange):
    """A whole number in plain digits (no blanks, signs but a minus, underscores or other scripts), within 64 bits."""

    name = "number"

    def __init__(self, least: int = 1, most: int = LARGEST) -> None:
        super().__init__(min=least, max=most)

    def _describe_range(self) -> str:
        """For help texts; click's own words for it would show the largest number of 64 bits."""
        return f"from {self.min}" if self.max == LARGEST else f"{self.min} to {self.max}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,20}", value):
            shown = value if len(value) <= 40 else f"{value[:37]}..."
            self.fail(f"expected a whole number of at most 64 bits, got {shown!r}", param, ctx)
        return super().convert(value, param, ctx)


class Steps(click.types.StringParamType):
    """Steps and ranges of them, such as 1,10,90-104, as ranges.

    Errors:
        ConfigError: a text that is neither.
    """

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """One range for each word."""
        ranges = []
        for word in str(value).split(","):
            match = re.fullmatch(r"\s*([0-9]{1,7})\s*(?:-\s*([0-9]{1,7})\s*)?", word)
            if match is None:
                raise ConfigError(
                    f"expected steps, got {word.strip()!r}", where=_name(param), allowed="such as 1,10,90-104"
                )
            steps = range(int(match[1]), int(match[2] or match[1]) + 1)
            if not steps or steps.start < 1:
                raise ConfigError(
                    f"{word.strip()!r} holds no step",
                    where=_name(param),
                    allowed="steps from 1, the smaller first",
                )
            ranges.append(steps)
        return ranges


def _name(param: click.Parameter | None) -> str:
    return "path" if param is None else param.opts[0] if param.opts else str(param.name)
