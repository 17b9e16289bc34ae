"""``python docs/cli_reference.py``: every verb's help as one page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dpstream.cli.main import main

_WIDTH = 100


def reference() -> str:
    """The page; equal for equal program versions, whatever the terminal."""
    lines = [
        "# Command line",
        "",
        "Made by `python docs/cli_reference.py`; a test compares it with the program.",
        "",
    ]
    for path, text in _helps():
        lines += [f"## {path}", "", "```text", text, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _helps() -> Iterator[tuple[str, str]]:
    with _context(main, "dpstream", None) as top:
        yield "dpstream", main.get_help(top).rstrip()
        yield from _verbs(main, "dpstream", top)


def _verbs(group: click.Group, path: str, above: click.Context) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(above):
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
