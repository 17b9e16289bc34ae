"""``dpstream serve releases``: the consumers' feed."""

from __future__ import annotations

from pathlib import Path

import click

from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError


@click.command("releases", short_help="Give consumers their feed, from folders of releases alone.")
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=Whole(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--tokens",
    type=FilePath("file", there=True),
    help="Only those may read who have a token whose SHA-256 is a line of this file.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin, such as https://example.org, read in a browser (repeat it; * for all).",
)
@click.option(
    "--readers", type=Whole(1, 100_000), default=1000, show_default=True, help="Most that wait for news."
)
def command(
    places: tuple[str, ...], host: str, port: int, tokens: str | None, origins: tuple[str, ...], readers: int
) -> None:
    """Give consumers their feed: streams, steps, tables in four forms, changes, measurements, answers with errors, and
    news of releases.

    PLACE is a folder of releases, or NAME=FOLDER. Nothing else is read: run it as a user without any right to a state.
    Everything it gives is public and costs no budget. A step that is held is not there; one that was withdrawn is
    "410 Gone" with its reason. The page / lists all addresses. Use a proxy for TLS.

    \b
    Examples:
      dpstream serve releases releases
      dpstream serve releases evictions=/srv/evictions jobs=/srv/jobs --port 8080 --tokens tokens.txt
    """
    try:
        from dpstream.service.releases import Tokens, find_places, make_app, serve
    except ImportError:
        raise ConfigError(
            "what serves over HTTP is not installed", where="serve", allowed="pip install 'dpstream[service]'"
        ) from None
    found = find_places(places)
    allowed = None if tokens is None else Tokens(Path(tokens))
    app = make_app(found, tokens=allowed, origins=origins, readers=readers)
    names = ", ".join(place.name for place in found)
    serve(app, host, port, lambda address: click.echo(f"serving {names} at {address}"))
