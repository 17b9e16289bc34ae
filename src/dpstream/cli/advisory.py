"""``dpstream advisory``: does a known flaw concern this stream?"""

from __future__ import annotations

import sys
from itertools import groupby

import click

from dpstream.cli.shared import ATTENTION, json_option, print_facts
from dpstream.cli.types import FilePath


@click.group("advisory", short_help="Say whether a flaw found in dpstream concerns a stream.")
def command() -> None:
    """Flaws that were found in released versions of dpstream, and the streams that they concern."""


@command.command("check")
@click.argument("releases", type=FilePath("folder"))
@click.option(
    "--file",
    "path",
    type=FilePath("file"),
    help="Other advisories than the built-in ones.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="The owner's public key, 64 hexadecimal digits. Compares every file with what it signed.",
)
@json_option
def check(releases: str, path: str | None, keys: tuple[str, ...], as_json: bool) -> None:
    """Say which published steps in RELEASES a known flaw of the program concerns. Only public files are read.

    The project publishes newer advisories as a file: name it with --file. Exit codes: 0 none concerns the stream, 6
    one does, 4 a file is missing or differs from the signed one.

    \b
    Examples:
      dpstream advisory check releases
      dpstream advisory check releases --key 3b6a27bc...
    """
    from dpstream.io.objects import any_path
    from dpstream.io.sinks.release_reader import check_signed
    from dpstream.io.sinks.signing import signed_folder
    from dpstream.project.advisories import concerned, read_advisories

    known = read_advisories(path)
    root = signed_folder(any_path(releases), keys) if keys else None
    signed = None if root is None else {"key": root.signature.key, "files": check_signed(root)}
    found, steps = concerned(root or releases, known)
    texts = ("id", "published", "title", "what", "guarantee", "remedy")
    concerns = [
        {**{name: getattr(one.advisory, name) for name in texts}, "steps": list(one.steps)} for one in found
    ]
    facts = {"signed": signed, "steps": steps, "advisories": len(known), "concerns": concerns}
    print_facts("advisories", facts, as_json=as_json, spans=[_spans(one.steps) for one in found])
    if found:
        sys.exit(ATTENTION)


def _spans(steps: tuple[int, ...]) -> str:
    """``1-3, 7``."""
    runs = groupby(enumerate(steps), key=lambda pair: pair[1] - pair[0])
    spans = [[step for _, step in run] for _, run in runs]
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
