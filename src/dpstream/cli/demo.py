"""``dpstream demo``: a first look, on invented data."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dpstream.cli.types import Whole


@click.command("demo", short_help="Run an invented stream, and show it beside its truth.")
@click.option("--out", default="demo", show_default=True, help="Folder to make, or to make anew.")
@click.option("--steps", type=Whole(2), default=104, show_default=True, help="Weeks to simulate.")
@click.option(
    "--seed", type=Whole(0), default=0, show_default=True, help="Of the invented data, not the noise."
)
def command(out: str, steps: int, seed: int) -> None:
    """Simulate a city's eviction notices, publish a synthetic table each week, and write a page of true beside
    released values.

    Other people's folders are refused.

    \b
    Examples:
      dpstream demo
      dpstream demo --steps 12 --out /tmp/look
    """
    from dpstream.tools.demo import demo

    code = demo(Path(out), steps, seed)
    if code:
        sys.exit(code)
