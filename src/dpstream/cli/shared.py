"""What the verbs share: the stream that they are about, JSON, tables, exit codes. Heavy modules are imported on use."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError, StoreLockedError
from dpstream.core.showing import ShownStream, shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dpstream.project import Config
    from dpstream.stream import Stream

_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_PLAIN_WIDTH = 100
_CONFIG = "dpstream.toml"
#: Longer names of files would fill the lines that say what to type.
_SHORT = 20
_SCREENS = Path(__file__).with_name("screens.j2")
_RULE = re.compile("-+:?")
_NUMBER = re.compile(r"unknown|inf|nan|-?[0-9][0-9,.]*(e[+-][0-9]+)?")
#: Exit codes beside those of the exceptions: something that was checked is damaged; a run was interrupted and the state
#: is clean; the stream can be read, and somebody should look at it; nobody should use the newest table.
DAMAGED, INTERRUPTED, ATTENTION, UNFIT = 4, 5, 6, 7
CLEAN = "the state is clean, and the same command goes on where it stopped"


def config_argument(verb: _Verb) -> _Verb:
    """The configuration file."""
    return click.argument("config", default=_CONFIG, type=FilePath("file"))(verb)


def of_stream(*places: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The argument CONFIG, and options for other places than the file's; the verb gets the ``Config`` with them.

    Args:
        places: ``--state``; ``--out`` or ``--releases`` for the folder of the releases.
    """

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(verb)
        def loaded(config: str, **given: Any) -> Any:
            from dpstream.project import Config

            there = {place: given.pop(place.removeprefix("--")) for place in places}
            state = there.pop("--state", None)
            return verb(Config.load(config).at(state, *there.values()), **given)

        made: Callable[..., Any] = loaded
        for place in reversed(places):
            what = "secret state" if place == "--state" else "releases"
            made = click.option(place, type=FilePath("folder"), help=f"Another place for the {what}.")(made)
        return config_argument(made)

    return decorate


def by_option(verb: _Verb) -> _Verb:
    """``--by``: who decides."""
    return click.option(
        "--by",
        metavar="NAME",
        default=_login,
        help="Who decides (the login name); not published.",
    )(verb)


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return f"user {os.getuid()}"


#: Seconds that a decision waits for a run or a worker to let go of the stream; it does so after each step.
_PATIENCE = 600.0


def opened(config: Config, *, publish: bool = True) -> Stream:
    """The live stream, for a verb that decides something beside a run that is at work: it waits for that one's step.

    Errors: see ``Config.open_stream``.
    """
    end, waiting = time.monotonic() + _PATIENCE, False
    while True:
        try:
            return config.open_stream(publish=publish)
        except StoreLockedError:
            if time.monotonic() > end:
                raise
            if not waiting:
                click.echo("waiting: another command works on the stream", err=True)
                waiting = True
            time.sleep(0.5)


def json_option(verb: _Verb) -> _Verb:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(verb)


#: Of verbs that take other places than a configuration, too.
state_option = click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
force_option = click.option("--force", is_flag=True, help="Replace a file that is there.")


def print_json(value: Any) -> None:
    """Indented JSON on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_facts(block: str, facts: Any, *, as_json: bool = False, wrap: bool = False, **more: Any) -> None:
    """Print facts: as JSON for programs, or for people as a block of ``screens.j2`` says them.

    Args:
        facts: JSON-able. Where they are a list, the block has them as ``entries``.
        wrap: break long lines between words.
        more: what only the block needs, beside ``file``: the configuration's name as commands take it.
    """
    if as_json:
        print_json(facts)
        return
    from dpstream.stream.templates import Words

    known = facts if isinstance(facts, dict) else {"entries": facts}
    given, out = click.get_current_context().params.get("config") or _CONFIG, console()
    named = shlex.quote(given) if len(given) <= _SHORT else "CONFIG"
    more["file"] = "" if given == _CONFIG else f" {named}"
    for line in Words(_SCREENS).lines(block, **{**known, **more}):
        if not isinstance(line, str):
            _print_markdown(line)
        elif wrap:
            out.print(line)
        else:
            click.echo(line)


def screen_paragraphs(block: str, facts: dict[str, Any]) -> list[str]:
    """The sentences of a block of ``screens.j2``."""
    from dpstream.stream.templates import Words, said

    return said(Words(_SCREENS).paragraphs(block, **facts))


def first_lines(texts: Sequence[str], most: int = 21) -> list[str]:
    """The first texts, as many as fill ``most`` lines; one at least."""
    ends = itertools.accumulate(len(textwrap.wrap(text, _PLAIN_WIDTH - 2)) for text in texts)
    return [text for at, (text, end) in enumerate(zip(texts, ends, strict=True)) if not at or end <= most]


def _print_markdown(table: list[list[str]]) -> None:
    """A table whose second row may say how its columns are aligned; else columns of numbers are to the right."""
    headings, *rows = table
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headings)
    if rows and all(_RULE.fullmatch(cell) for cell in rows[0]):
        right = [at for at, cell in enumerate(rows.pop(0)) if cell.endswith(":")]
    else:
        right = [at for at, cells in enumerate(columns) if all(map(_NUMBER.fullmatch, cells))]
    print_table(headings, rows, right=right)


@contextlib.contextmanager
def seen() -> Iterator[None]:
    """Around a verb: whatever it prints passes ``showing.shown``, on both streams."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = ShownStream(sys.stdout), ShownStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def console(*, err: bool = False, bar: bool = False) -> Console:
    """A console that never cuts or colours what is piped; ``bar``: for a progress bar, with colours."""
    from rich.console import Console

    class Careful(Console):
        """Texts pass ``shown`` before they are styled and wrapped: the styles' own codes have to stay."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(shown(text), **options)

    stream: Any = sys.stderr if err else sys.stdout
    stream = stream.stream if isinstance(stream, ShownStream) else stream
    if bar:
        return Careful(file=stream)
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Careful(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def require_free(path: Path, allowed: str = "another name, or --force", *, force: bool = False) -> None:
    """Refuse a file that is there, and one whose folder is not.

    Errors:
        ConfigError: one of both.
    """
    if not path.parent.is_dir():
        raise ConfigError("the folder does not exist", where=str(path.parent), allowed="a folder that exists")
    if path.is_dir() or (path.exists() and not force):
        raise ConfigError("there is a file already", where=str(path), allowed=allowed)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """A table; the columns in ``right`` are aligned to the right. Numbers are not broken: where they lack the room,
    two tables are printed, which share the first column."""
    out, count = console(), len(headings)
    numbers = _table(headings, rows, right, [0, *(one for one in right if one)])
    wide = out.options.update(max_width=100_000)
    if count > 2 and right and out.measure(numbers, options=wide).minimum > out.width:
        for part in ([*range((count + 1) // 2)], [0, *range((count + 1) // 2, count)]):
            print_table(
                [headings[one] for one in part],
                [[row[one] for one in part] for row in rows],
                right=[new for new, one in enumerate(part) if one in right],
            )
    else:
        out.print(_table(headings, rows, right, range(count)))


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], columns: Iterable[int]
) -> Table:
    from rich import box
    from rich.table import Table

    table, chosen = Table(box=box.SIMPLE_HEAD, pad_edge=False), list(columns)
    for one in chosen:
        table.add_column(headings[one], justify="right" if one in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(row[one] for one in chosen))
    return table
