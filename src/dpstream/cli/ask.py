"""``dpstream ask``: questions to a growing database."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import config_argument, json_option, opened, state_option
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream import AnsweredQuestion, AskingStream

#: The configuration that is meant where none is named.
_USUAL = "dpstream.toml"


@click.command("ask", short_help="Answer questions about a growing table; hard ones spend budget.")
@config_argument
@click.argument("question", required=False)
@click.option(
    "--file",
    "path",
    type=FilePath("file", there=True),
    help="One question a line; # begins a comment.",
)
@click.option("--id", "question_id", help="A name for the question.")
@click.option("--list", "listed", is_flag=True, help="Print what was asked so far.")
@state_option
@json_option
def command(
    config: str,
    question: str | None,
    path: str | None,
    question_id: str | None,
    listed: bool,
    state: str | None,
    as_json: bool,
) -> None:
    """Answer questions about the records that `dpstream run` brought in, where the mechanism answers questions.

    A question is a condition, such as "age >= 65 and smoker"; the answer is the share of records that meet it. Easy
    questions are free; a hard one spends budget. Repeating a question or negating it costs nothing.

    \b
    Examples:
      dpstream ask dpstream.toml "age >= 65 and smoker"
      dpstream ask dpstream.toml --file questions.txt --json
    """
    from dpstream.project import Config

    config, question = _arranged(config, question, path is not None or listed)
    if sum((question is not None, path is not None, listed)) != 1:
        raise ConfigError("expected one thing to ask", where="ask", allowed="QUESTION, --file or --list")
    if question_id is not None and question is None:
        raise ConfigError("an id names one question", where="--id", allowed="with QUESTION")
    with _opened(Config.load(config).at(state)) as stream:
        if listed:
            for asked in (stored := list(stream.asked())):
                _show(asked, as_json)
            if not stored and not as_json:
                click.echo("no question was asked yet")
            return
        questions = [question] if question is not None else _lines(Path(str(path)))
        for text in questions:
            _show(stream.ask(text, question_id), as_json, text.strip())


def _arranged(config: str, question: str | None, asked: bool) -> tuple[str, str | None]:
    """Configuration and question where the question stands in the place of the configuration.

    Errors:
        ConfigError: a question alone, and no dpstream.toml here.
    """

    if not re.search(r"[<>=!]|\s", config) or _is_file(config):
        return config, question
    if question is not None and _is_file(question):
        return question, config
    if question is not None or asked:
        return config, question
    if not _is_file(_USUAL):
        raise ConfigError(
            f"{_USUAL} is missing",
            where="ask",
            allowed="dpstream ask CONFIG QUESTION",
        )
    return _USUAL, config


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _opened(config: Config) -> AskingStream:
    from dpstream.families.registry import mechanisms_with
    from dpstream.stream import AskingStream
    from dpstream.stream.store.place import has_store

    if config.plan().asks is None:
        asked = mechanisms_with(lambda family: family.asked)
        raise ConfigError(
            "the stream's releases answer questions already",
            where=str(config.path),
            allowed=" or ".join(f'[mechanism] name = "{name}"' for name in asked),
        )
    if not has_store(config.state_dir, server=config.server):
        raise ConfigError("the stream has no records yet", where="ask", allowed="dpstream run first")
    stream = opened(config, publish=False)
    assert isinstance(stream, AskingStream)
    return stream


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError("expected text in UTF-8", where=str(path)) from None
    questions = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not questions:
        raise ConfigError("questions are missing", where=str(path), allowed="one question a line")
    return questions


def _show(asked: AnsweredQuestion, as_json: bool, text: str | None = None) -> None:
    """Print an answer.

    Args:
        text: the question as it is asked now; the stored answer may be to other words for the same question.
    """
    other = text is not None and text != asked.question
    if as_json:
        facts = asked.as_dict() | ({"asked_as": text} if other else {})
        click.echo(json.dumps(facts, ensure_ascii=False, allow_nan=False))
        return
    head = f"{text}\n  the same question as: {asked.question}" if other else asked.question
    click.echo(f"{head}\n  " + asked.answer.describe().replace("\n", "\n  "))
    if asked.test_seed:
        click.echo("  warning: made with a test seed: NO GUARANTEE", err=True)
