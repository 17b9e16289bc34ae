"""``dpstream warm``: compile ahead what a first step would compile."""

from __future__ import annotations

import click

from dpstream.core.errors import ConfigError


@click.command("warm", short_help="Compile all loops ahead of the first step.")
def command() -> None:
    """Compile the loops that read, count, hash, fit and sample, for this machine and user.

    Else Numba compiles them at first use (20 seconds of a core). The code is kept in NUMBA_CACHE_DIR, in the user's
    cache, or beside the package, and serves every install of the same version. No private data are read.

    \b
    Example (in a container image):
      NUMBA_CACHE_DIR=/var/cache/dpstream dpstream warm
    """
    from dpstream.core.compiling import kept_in
    from dpstream.project.warming import warm

    warm()
    place = kept_in()
    if place is None:
        raise ConfigError(
            "compiled code cannot be kept",
            where="warm",
            allowed="NUMBA_CACHE_DIR, a folder that this user alone can write",
        )
    click.echo(f"all loops are compiled, and kept in {place}")
