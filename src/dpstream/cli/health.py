"""``status --health``: exit codes for cron and monitoring, and how old a release may be."""

from __future__ import annotations

import re

import click

#: Exit code: the stream can be read, and somebody should look at it.
ATTENTION = 6
#: Exit code: nobody has to repair anything, and nobody should use the newest table.
UNFIT = 7
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def length(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """``90m``, ``36h``, ``8d``, ``2w`` as seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a length of time such as 36h, 8d or 2w", ctx, param)
    return float(match[1]) * _UNITS[match[2]]
