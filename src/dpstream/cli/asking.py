"""Asks what a draft cannot know, on a terminal or from standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.project.config_draft import Question


def ask(question: Question) -> Any:
    """The value of the answer; None where it is left open. Asked again until the answer can be used."""
    click.echo(f"\n{question.words}")
    while True:
        try:
            text = click.prompt(question.key, default=question.default, show_default=bool(question.default))
        except click.Abort:
            raise ConfigError(
                "the questions were left before the last one, and nothing was written",
                where="--interactive",
                allowed="an answer to each; an empty one leaves it open",
            ) from None
        if not text.strip():
            return None
        try:
            return question.read(text.strip())
        except ConfigError as error:
            click.echo(str(error))
