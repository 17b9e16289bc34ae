"""``python docs/cli_reference.py``: every verb's help as one page of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from dpstream.cli.main import main

_WIDTH = 100


def reference() -> str:
    """The page; equal for equal program versions, whatever the terminal."""
    lines = [
        "# Command line",
        "",
        "All verbs have `--help`. Where they exist, `--json` prints JSON, `--state` and `--out` (`--releases`)",
        "name other places for state and releases, `--by NAME` says who decides (the login name; not published),",
        "`--force` replaces a file. The verbs of `dpstream lab` have their help only.",
        "",
    ]
    for path, text in _helps():
        lines += [f"## {path}", "", "```text", _short(path, text), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


#: What the page says once of all verbs.
_EVERYWHERE = re.compile(
    r"^  (-h, --help|--json|--force|(--state|--out|--releases) PATH|--by NAME) +"
    r"(Show this|Print JSON|Another place|Who decides|Replace).*\n(?: {12,}.*\n)*",
    re.MULTILINE,
)


def _short(path: str, text: str) -> str:
    """A help without the usage that the page's heading says, what all verbs have, and what the verbs below say."""
    arguments = re.match(rf"Usage: {path} (?:\[OPTIONS\] ?)?(.*)\n\n", text)
    if arguments is not None:
        text = text[arguments.end() :]
    if " " in path:
        text = text.split("\n\nCommands:")[0]
    text = _EVERYWHERE.sub("", text + "\n").rstrip()
    text = re.sub(r"^  Examples?:\n", "", text, flags=re.MULTILINE)
    return text.removesuffix("Options:").rstrip()


def _helps() -> Iterator[tuple[str, str]]:
    with _context(main, "dpstream", None) as top:
        yield "dpstream", main.get_help(top).rstrip()
        yield from _verbs(main, "dpstream", top)


def _verbs(group: click.Group, path: str, above: click.Context) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(above):
        if name == "lab":  # of another distribution
            continue
        verb = group.get_command(above, name)
        if verb is not None:
            with _context(verb, name, above) as context:
                yield f"{path} {name}", verb.get_help(context).rstrip()
                if isinstance(verb, click.Group):
                    yield from _verbs(verb, f"{path} {name}", context)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )


if __name__ == "__main__":
    click.echo(reference(), nl=False)
