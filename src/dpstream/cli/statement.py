"""``dpstream statement``: the privacy statement of a stream."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dpstream.cli.shared import config_argument, require_free
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError

__all__ = ["command"]


@click.command("statement", short_help="Print what a stream publishes, protects and costs, for everybody.")
@config_argument
@click.option(
    "--out",
    type=FilePath("new", dash=True),
    help="A file ending in .md or .html; else it is printed, for - and for pipes as Markdown.",
)
@click.option(
    "--contact", metavar="TEXT", help="Whom to ask; without it the statement has a line to fill in."
)
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
@click.option("--releases", type=FilePath("folder"), help="Another place for the releases.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(
    config: str,
    out: str | None,
    contact: str | None,
    state: str | None,
    releases: str | None,
    force: bool,
) -> None:
    """Say in plain words what is published and how often, what is protected and what that means for a guess, what it
    costs, what a renewal would cost together with it, and what is not protected.

    Made from the plan and from how far the stream is: all of it is public. The words are about the program's
    guarantee, they are no legal advice.

    \b
    Example:
      dpstream statement dpstream.toml --contact data@example.org --out statement.html
    """
    from dpstream.cli.status import status_facts
    from dpstream.project import Config
    from dpstream.project.statement_words import as_progress, statement

    loaded = Config.load(config)
    target = None if out in (None, "-") else _target(Path(out), force)
    facts = status_facts(loaded, state, releases)
    if not facts["same_plan"]:
        raise ConfigError(
            "the stream was started with another plan than this one",
            where=config,
            allowed=facts["remedy"] or "the configuration that the stream runs with",
        )
    made = statement(loaded, as_progress(facts), contact=contact)
    if target is None:
        reads = sys.stdout.isatty() and out is None
        click.echo(made.plain() if reads else made.markdown(), nl=False)
        return
    from dpstream.core import durable

    text = made.html() if target.suffix == ".html" else made.markdown()
    durable.replace_file(target, text.encode(), mode=0o644)
    click.echo(f"wrote {target}")


def _target(path: Path, force: bool) -> Path:
    if path.suffix not in (".md", ".html"):
        raise ConfigError(f"the name {path.name!r} tells no format", where="--out", allowed=".md, .html")
    require_free(path, force=force)
    return path
