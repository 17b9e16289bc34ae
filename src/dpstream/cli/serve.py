"""``dpstream serve``: programs that answer over HTTP, and who may use them."""

from __future__ import annotations

import click

from dpstream.cli import serve_releases

__all__ = ["command"]


@click.group("serve", short_help="Serve releases over HTTP.")
def command() -> None:
    """Serve over HTTP. Needs pip install 'dpstream[service]'.

    \b
    Example:
      dpstream serve releases releases
    """


command.add_command(serve_releases.command)
