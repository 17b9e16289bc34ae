"""``dpstream serve``: the consumers' feed, a service's pages, and who may do what there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import by_option, json_option, print_json, print_table
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError

if TYPE_CHECKING:
    from dpstream.service.desk import Desk

_folder = click.argument("folder", type=FilePath("folder"))
_person = click.argument("name")


@click.group("serve", short_help="Serve releases and pages over HTTP; look after people and tokens.")
def command() -> None:
    """Serve over HTTP. Needs pip install 'dpstream[service]'.

    \b
    Examples:
      dpstream serve releases releases
      dpstream serve people list service
    """


@command.command("releases", short_help="Give consumers their feed, from folders of releases alone.")
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
def releases(
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
    with _installed():
        from dpstream.service.releases import Tokens, find_places, make_app, serve
    found = find_places(places)
    allowed = None if tokens is None else Tokens(Path(tokens))
    app = make_app(found, tokens=allowed, origins=origins, readers=readers)
    names = ", ".join(place.name for place in found)
    serve(app, host, port, lambda address: click.echo(f"serving {names} at {address}"))


@command.command("pages", short_help="Serve a service's pages; dpstream up does it, too.")
@_folder
@click.option("--listen", metavar="HOST:PORT", help="Another address than service.toml has.")
def pages(folder: str, listen: str | None) -> None:
    """Serve the pages of the service in FOLDER. They open no state: the worker of dpstream up tells what they show, and
    does what people decide there.

    \b
    Example:
      dpstream serve pages service
    """
    with _installed():
        from dpstream.service.pages import serve
    serve(folder, listen)


@command.group("people", short_help="Say who may use the pages, and in which role.")
def people() -> None:
    """Look after the people of a service.

    \b
    Example:
      dpstream serve people add service "Anna Meier" --role approver
    """


@people.command("list", short_help="Print who there is.")
@_folder
@json_option
def list_people(folder: str, as_json: bool) -> None:
    """Print names and roles.

    \b
    Example:
      dpstream serve people list service
    """
    desk = _desk(folder)
    rows = [[one.name, ", ".join(sorted(one.roles))] for one in desk.people(desk.operator("command line"))]
    if as_json:
        print_json([{"name": name, "roles": roles.split(", ")} for name, roles in rows])
    else:
        print_table(["name", "roles"], rows)


@people.command("add", short_help="Add somebody.")
@_folder
@_person
@click.option("--role", "roles", multiple=True, required=True, help="A role; repeat it for several.")
@click.option("--no-password", is_flag=True, help="They come through the proxy, or with a token.")
@by_option
def add_person(folder: str, name: str, roles: tuple[str, ...], no_password: bool, by: str) -> None:
    """Add somebody, with a first password that is asked for. They set their own one on the pages; before that they do
    not count where two persons must approve.

    Roles: analyst (sees, asks), auditor (sees more), approver (decides), owner (all of that, and people).

    \b
    Example:
      dpstream serve people add service "Anna Meier" --role approver
    """
    desk = _desk(folder)
    desk.add_person(desk.operator(by), name, roles, None if no_password else _password())
    click.echo(f"added {name}: {', '.join(roles)}")


@people.command("roles", short_help="Give somebody other roles.")
@_folder
@_person
@click.option("--role", "roles", multiple=True, required=True, help="A role; repeat it for several.")
@by_option
def set_roles(folder: str, name: str, roles: tuple[str, ...], by: str) -> None:
    """Give somebody other roles, at once. The last owner stays one.

    \b
    Example:
      dpstream serve people roles service "Anna Meier" --role auditor
    """
    desk = _desk(folder)
    desk.set_roles(desk.operator(by), name, roles)
    click.echo(f"{name}: {', '.join(roles)}")


@people.command("password", short_help="Set a password for somebody.")
@_folder
@_person
@by_option
def set_password(folder: str, name: str, by: str) -> None:
    """Set a password, which is asked for; the person's sessions end.

    \b
    Example:
      dpstream serve people password service "Anna Meier"
    """
    desk = _desk(folder)
    desk.set_password(desk.operator(by), name, _password())
    click.echo(f"set a password for {name}")


@people.command("remove", short_help="Remove somebody.")
@_folder
@_person
@by_option
def remove_person(folder: str, name: str, by: str) -> None:
    """Remove somebody: sessions and tokens end at once, and approvals that wait for a second person do not count.

    \b
    Example:
      dpstream serve people remove service "Anna Meier"
    """
    desk = _desk(folder)
    desk.remove_person(desk.operator(by), name)
    click.echo(f"removed {name}")


@command.group("tokens", short_help="Look after tokens for programs.")
def tokens() -> None:
    """Look after the tokens with which programs come to the pages.

    \b
    Example:
      dpstream serve tokens add service "Anna Meier" --label nightly
    """


@tokens.command("list", short_help="Print which tokens there are, without their secrets.")
@_folder
@json_option
def list_tokens(folder: str, as_json: bool) -> None:
    """Print number, person, label and date of each token.

    \b
    Example:
      dpstream serve tokens list service
    """
    desk = _desk(folder)
    found = desk.tokens(desk.operator("command line"))
    if as_json:
        print_json([vars(one) for one in found])
        return
    rows = [[str(one.number), one.person, one.label, one.made, one.made_by] for one in found]
    print_table(["number", "person", "label", "made", "by"], rows, right=[0])


@tokens.command("add", short_help="Make a token and print it, once.")
@_folder
@_person
@click.option("--label", required=True, help="What it is for.")
@by_option
def add_token(folder: str, name: str, label: str, by: str) -> None:
    """Make a token with the roles of NAME, and print it. It is stored as a hash and shown nowhere again.

    \b
    Example:
      dpstream serve tokens add service "Anna Meier" --label nightly
    """
    desk = _desk(folder)
    click.echo(desk.add_token(desk.operator(by), name, label))


@tokens.command("remove", short_help="Remove a token.")
@_folder
@click.argument("number", type=Whole())
@by_option
def remove_token(folder: str, number: int, by: str) -> None:
    """Remove a token: it is refused from now on.

    \b
    Example:
      dpstream serve tokens remove service 3
    """
    desk = _desk(folder)
    desk.remove_token(desk.operator(by), number)
    click.echo(f"removed token {number}")


@command.command("decisions", short_help="Print who decided what.")
@_folder
@click.option("--after", type=Whole(0), default=0, show_default=True, help="Only later lines than this one.")
@json_option
def decisions(folder: str, after: int, as_json: bool) -> None:
    """Print the decisions' log of a service: number, time, person, what, stream, steps, reason. dpstream ledger verify
    checks it.

    \b
    Example:
      dpstream serve decisions service
    """
    desk = _desk(folder)
    found = desk.decisions(desk.operator("command line"), after)
    if as_json:
        print_json([vars(one) for one in found])
        return
    rows = [
        [
            str(one.number),
            one.time,
            one.person,
            one.kind,
            one.stream,
            ", ".join(map(str, one.steps)),
            one.reason,
        ]
        for one in found
    ]
    print_table(["number", "time", "person", "what", "stream", "steps", "reason"], rows, right=[0])


@contextmanager
def _installed() -> Iterator[None]:
    """Around an import of what serves over HTTP; ConfigError where it is not installed."""
    try:
        yield
    except ImportError:
        raise ConfigError(
            "what serves over HTTP is not installed", where="serve", allowed="pip install 'dpstream[service]'"
        ) from None


def _desk(folder: str) -> Desk:
    from dpstream.service.desk import Desk

    return Desk.open(Path(folder))


def _password() -> str:
    text: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return text
