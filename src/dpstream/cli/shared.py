"""What the verbs share: the argument CONFIG, JSON, tables. Heavy modules are imported on use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpstream.cli.types import FilePath

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["config_argument", "console", "json_option", "print_json", "print_table"]

_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_PLAIN_WIDTH = 110


def config_argument(verb: _Verb) -> _Verb:
    """The configuration file."""
    return click.argument("config", default="dpstream.toml", type=FilePath("file"))(verb)


def json_option(verb: _Verb) -> _Verb:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(verb)


def print_json(value: Any) -> None:
    """Indented JSON on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def console(*, err: bool = False) -> Console:
    """A console that never cuts or colours what is piped."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """A table; the columns in ``right`` are aligned to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)
