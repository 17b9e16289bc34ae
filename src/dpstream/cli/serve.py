"""``dpstream serve``: programs that answer over HTTP, and who may use them."""

from __future__ import annotations

import click

from dpstream.cli.serve_desk import register

__all__ = ["command"]


@click.group("serve", short_help="Serve releases and pages over HTTP; look after people and tokens.")
def command() -> None:
    """Serve over HTTP. Needs pip install 'dpstream[service]'.

    \b
    Example:
      dpstream serve people list service
    """


register(command)
