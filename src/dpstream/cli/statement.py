"""``dpstream statement``: the privacy statement of a stream."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import force_option, of_stream, require_free
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project import Config


@click.command("statement", short_help="Say for everybody what a stream publishes, protects and costs.")
@of_stream("--state", "--releases")
@click.option(
    "--out",
    type=FilePath("new", dash=True),
    help="A name in .md, .html or .json; - prints Markdown.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "html", "registry", "croissant", "dcat"]),
    help="The ending's; registry, croissant and dcat are JSON.",
)
@force_option
def command(
    config: Config,
    out: str | None,
    form: str | None,
    force: bool,
) -> None:
    """Say in plain words what is published, what is protected, what that means for a guess, what it costs, and who
    decided.

    Made from public facts: the plan, the steps so far, and [statement]. A terminal shows the first page; files and
    pipes have the annex, too. This text describes the program's guarantee. It is not legal advice.

    \b
    Example:
      dpstream statement dpstream.toml --out statement.html
      dpstream statement dpstream.toml --format croissant --out croissant.json
    """
    from dpstream.project.statement import RECORDS, newest_release, statement
    from dpstream.project.status import status_facts

    target = None if out in (None, "-") else Path(out)
    form = _form(target, form)
    if target is not None:
        require_free(target, force=force)
    facts = status_facts(config)
    if not facts["same_plan"]:
        raise ConfigError(
            "the stream was started with another plan",
            where=str(config.path),
            allowed=facts["remedy"] or "the stream's own configuration",
        )
    today = datetime.date.today()
    folder = config.output.dir
    if form in RECORDS:
        record = RECORDS[form](config, facts, newest_release(folder), today.isoformat())
        text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        date = f"{today.day} {today:%B %Y}"
        made = statement(config, facts, date=date)
        if form == "html":
            from dpstream.tools.report.statement_page import statement_page

            text = statement_page(made, folder, len(config.schema()))
        else:
            text = made.plain() if sys.stdout.isatty() and out is None else made.markdown()
    if target is None:
        click.echo(text, nl=False)
        return
    from dpstream.core import durable

    # A label may hold half of a surrogate pair, which no file can.
    durable.replace_file(target, text.encode("utf-8", "replace"), mode=0o644)
    click.echo(f"wrote {target}")


#: What a file of an ending holds where --format does not say it.
_ENDINGS = {".md": "markdown", ".html": "html", ".json": "registry"}


def _form(path: Path | None, form: str | None) -> str:
    """The format that --format or the file's ending says; an ending may not promise another one."""
    implied = None if path is None else _ENDINGS.get(path.suffix.lower())
    if path is None or (form is not None and implied is None):
        return form or "markdown"
    if implied is None:
        raise ConfigError(
            f"the name {path.name!r} tells no format",
            where="--out",
            allowed=f"{', '.join(_ENDINGS)}, or --format",
        )
    # Every record for programs is JSON.
    ending = next((end for end, one in _ENDINGS.items() if one == form), ".json")
    if form is not None and _ENDINGS[ending] != implied:
        raise ConfigError(
            f"--format {form} contradicts the name {path.name!r}",
            where="--out",
            allowed=f"a name ending in {ending}",
        )
    return form or implied
