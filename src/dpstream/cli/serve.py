"""``dpstream serve``: programs that answer over HTTP, and who may use them."""

from __future__ import annotations

import click

from dpstream.cli import serve_releases
from dpstream.cli.serve_desk import register


@click.group("serve", short_help="Serve releases and pages over HTTP; look after people and tokens.")
def command() -> None:
    """Serve over HTTP. Needs pip install 'dpstream[service]'.

    \b
    Examples:
      dpstream serve releases releases
      dpstream serve people list service
    """


command.add_command(serve_releases.command)
register(command)
