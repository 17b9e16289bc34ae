"""``dpstream warm``: compile ahead what a first step would compile."""

from __future__ import annotations

import click

from dpstream.core.errors import ConfigError


@click.command("warm", short_help="Compile all loops ahead, so that no first step waits for it.")
def command() -> None:
    """Compile the loops that read, count, hash, fit and sample.

    Numba compiles them for this machine at their first use, which takes some 20 seconds of one core, and keeps the code
    in files: in NUMBA_CACHE_DIR, beside the package, or in the user's cache folder. This verb does it ahead, for the
    user who runs it; `dpstream run` says so where it has to compile. A new version of dpstream, Python or Numba, and
    another kind of processor, compile anew. No private data are read. Where all is compiled it changes nothing.

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
            "compiled code cannot be kept, so nothing can be compiled ahead",
            where="warm",
            allowed="NUMBA_CACHE_DIR, a folder that only this user can write",
        )
    click.echo(f"all loops are compiled, and kept in {place}")
