"""``dpstream init``: draft a configuration from a data file.

Trusted base: owner (drafts from private records).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import require_free
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project.config_draft import Question


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from dpstream.project.json_schema import schema_text

        click.echo(schema_text(), nl=False)
        context.exit()


@click.command("init", short_help="Draft a configuration from data, or after an earlier stream.")
@click.argument("data", type=FilePath("any"), required=False)
@click.option("--time-column", metavar="COLUMN", help="The step of a row.")
@click.option(
    "--person-column",
    metavar="COLUMN",
    help="The person of a row; without --time-column one row a person.",
)
@click.option(
    "--key-column",
    metavar="COLUMN",
    help="The key of a record (recognised).",
)
@click.option(
    "--delete-time-column",
    metavar="COLUMN",
    help="The end of a stay (recognised).",
)
@click.option(
    "--mechanism",
    metavar="NAME",
    help="The mechanism (chosen from the data).",
)
@click.option("--table", metavar="NAME", help="The table of a database.")
@click.option(
    "--url-env",
    metavar="NAME",
    help="Instead of DATA: the variable with a PostgreSQL URL.",
)
@click.option(
    "--out", default="dpstream.toml", show_default=True, type=FilePath("new"), help="The file to write."
)
@click.option(
    "--after",
    metavar="CONFIG",
    type=FilePath("file"),
    help="Instead of DATA: the earlier stream.",
)
@click.option(
    "--public",
    metavar="COLUMN",
    multiple=True,
    help="Write this column's values: each is publicly known ('*' for all).",
)
@click.option(
    "--interactive",
    is_flag=True,
    help="Ask what the data cannot tell.",
)
@click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema for editors, and exit.",
)
def command(
    data: str | None,
    time_column: str | None,
    person_column: str | None,
    key_column: str | None,
    delete_time_column: str | None,
    mechanism: str | None,
    table: str | None,
    url_env: str | None,
    out: str,
    after: str | None,
    public: tuple[str, ...],
    interactive: bool,
) -> None:
    """Draft a configuration from DATA: a file (also of DuckDB), a folder, a quoted pattern, or the URL of a PostgreSQL
    server.

    The draft is as private as the data (mode 0600). Lines marked FILL IN are yours to decide: the budget, the
    calendar, the values of each column. --public writes the values of a column, marked CONFIRM: confirm that each is
    public, or replace it. Then set confirmed = true; until then nothing runs.

    Feeds of changes, stays, panels, coordinates and columns that follow from others are recognised. With --after,
    continue an earlier stream after its last release; no data are read.

    \b
    Examples:
      dpstream init 'data/*.parquet' --time-column file_date --public zip
      dpstream init bookings.csv --key-column id --time-column start --delete-time-column end
      dpstream init --after dpstream.toml --out next.toml
    """
    from dpstream.project.config_draft import draft_config
    from dpstream.project.reader import is_url
    from dpstream.project.succession import draft_successor

    said = (time_column, person_column, key_column, delete_time_column, mechanism, table)
    of_data = interactive or public or any(given is not None for given in said)
    if [data, url_env, after].count(None) != 2 or (after is not None and of_data):
        raise ConfigError(
            "expected one thing to draft from",
            where="init",
            allowed="DATA, --url-env NAME, or --after CONFIG",
        )
    target = Path(out)
    require_free(target, "--out with a free name")
    if after is not None:
        _write(target, draft_successor(after, target))
        click.echo(f"wrote {out}: make your changes, and map the old values under [base]")
        click.echo(f"next: dpstream plan {out}")
        return
    place = None if data is None or is_url(data) else _pattern(Path(data), target.parent)
    text = draft_config(
        data,
        time_column=time_column,
        person_column=person_column,
        key_column=key_column,
        delete_time_column=delete_time_column,
        mechanism=mechanism,
        path=place,
        database_table=table,
        url_env=url_env,
        public=public,
        ask=_ask if interactive else None,
        tell=lambda sentence: click.echo(f"private: {sentence}"),
    )
    _write(target, text)
    click.echo(f"wrote {out}: go through CONFIRM and FILL IN, then set confirmed = true")
    if 'every = "files"' in text and "\nkey_column =" not in text:
        click.echo("each file is a step: --time-column COLUMN spreads the rows over days, weeks or months")
    click.echo(f"next: dpstream check {out}")


def _write(target: Path, text: str) -> None:
    with os.fdopen(
        os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    from dpstream.project.json_schema import NAME, schema_text

    # It says nothing about the data. One that is there may be of the owner's own version, so it stays.
    with contextlib.suppress(FileExistsError), target.with_name(NAME).open("x", encoding="utf-8") as file:
        file.write(schema_text())


def _pattern(data: Path, base: Path) -> str:
    """What ``[source] path`` says: relative to the configuration; a folder becomes a pattern."""
    if data.is_dir():
        endings = {
            "".join(p.suffixes[-2:] if p.suffix == ".gz" else [p.suffix])
            for p in data.iterdir()
            if p.is_file()
        }
        data = data / (f"*{endings.pop()}" if len(endings) == 1 else "*")
    return os.path.relpath(data, base)


def _ask(question: Question) -> Any:
    """The value of the answer; None where it is left open. Asked again until the answer can be used."""
    click.echo(f"\n{question.words}")
    while True:
        try:
            text = click.prompt(question.key, default=question.default, show_default=bool(question.default))
        except click.Abort:
            raise ConfigError(
                "questions are open; nothing was written",
                where="--interactive",
                allowed="an answer to each, or an empty line",
            ) from None
        if not text.strip():
            return None
        try:
            return question.read(text.strip())
        except ConfigError as error:
            click.echo(str(error))
