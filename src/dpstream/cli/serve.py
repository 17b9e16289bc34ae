"""``dpstream serve``: the consumers' feed, a service's pages, and who may do what there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import by_option, json_option, print_json, print_table
from dpstream.cli.types import FilePath, Whole
from dpstream.core.foreign import from_extra

if TYPE_CHECKING:
    from dpstream.service.desk import Desk

_folder = click.argument("folder", type=FilePath("folder"))
_person = click.argument("name")


@click.group("serve", short_help="Serve releases and pages; manage people and tokens.")
def command() -> None:
    """Serve over HTTP. Needs pip install 'dpstream[service]'.

    \b
    Examples:
      dpstream serve releases releases
      dpstream serve people list service
    """


@command.command("releases", short_help="Serve folders of releases to consumers.")
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=Whole(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--tokens",
    type=FilePath("file", there=True),
    help="Require tokens: a file of their SHA-256.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Allow browsers' pages of this origin; repeatable; * for all.",
)
@click.option(
    "--readers",
    type=Whole(1, 100_000),
    default=1000,
    show_default=True,
    help="Most readers that wait for news.",
)
def releases(
    places: tuple[str, ...], host: str, port: int, tokens: str | None, origins: tuple[str, ...], readers: int
) -> None:
    """Give consumers their feed: tables, changes, measurements, answers with errors, and news of releases.

    PLACE is a folder of releases, or NAME=FOLDER. Only public files are read: run it as a user without access to a
    state. Held steps are missing; withdrawn ones are "410 Gone". The page / lists all addresses. Use a proxy for
    TLS.

    \b
    Examples:
      dpstream serve releases releases
      dpstream serve releases evictions=/srv/evictions jobs=/srv/jobs --port 8080 --tokens tokens.txt
    """
    with from_extra("service", "serve"):
        from dpstream.service.releases import find_places, make_app, serve
        from dpstream.service.tokens import TokenFile
    found = find_places(places)
    allowed = None if tokens is None else TokenFile(Path(tokens))
    app = make_app(found, tokens=allowed, origins=origins, readers=readers)
    names = ", ".join(place.name for place in found)
    serve(app, host, port, lambda address: click.echo(f"serving {names} at {address}"))


@command.command("pages", short_help="Serve a service's pages alone.")
@_folder
@click.option("--listen", metavar="HOST:PORT", help="Address, instead of service.toml.")
def pages(folder: str, listen: str | None) -> None:
    """Serve the pages of the service in FOLDER. The worker of dpstream up opens the states and carries out decisions.

    \b
    Example:
      dpstream serve pages service
    """
    with from_extra("service", "serve"):
        from dpstream.service.pages import serve
    serve(folder, listen)


@command.group("people", short_help="Manage people and roles.")
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
@click.option("--role", "roles", multiple=True, required=True, help="A role; repeatable.")
@by_option
def add_person(folder: str, name: str, roles: tuple[str, ...], by: str) -> None:
    """Add somebody: through the proxy in service.toml, or with a one-time token.

    Roles: analyst (sees, asks), auditor (sees more), approver (decides), owner (all, and people).

    \b
    Examples:
      dpstream serve people add service "Anna Meier" --role approver
      dpstream serve people token service "Anna Meier"
    """
    desk = _desk(folder)
    desk.add_person(desk.operator(by), name, roles)
    click.echo(f"added {name}: {', '.join(roles)}")


@people.command("token", short_help="Print a one-time token to sign in with.")
@_folder
@_person
@by_option
def make_token(folder: str, name: str, by: str) -> None:
    """Make and print a one-time token with which NAME signs in, within a day. An earlier unused token is refused from
    now on.

    \b
    Example:
      dpstream serve people token service "Anna Meier"
    """
    desk = _desk(folder)
    click.echo(desk.make_sign_in_token(desk.operator(by), name))
    click.echo(f"for one sign-in within a day at http://{desk.settings.listen}/sign-in", err=True)


@people.command("sign-out", short_help="Sign somebody out everywhere.")
@_folder
@_person
@by_option
def sign_out(folder: str, name: str, by: str) -> None:
    """End all logins of NAME, and an unused one-time token.

    \b
    Example:
      dpstream serve people sign-out service "Anna Meier"
    """
    desk = _desk(folder)
    desk.end_sessions(desk.operator(by), name)
    click.echo(f"signed out {name}")


@people.command("roles", short_help="Give somebody other roles.")
@_folder
@_person
@click.option("--role", "roles", multiple=True, required=True, help="A role; repeatable.")
@by_option
def set_roles(folder: str, name: str, roles: tuple[str, ...], by: str) -> None:
    """Give somebody other roles, at once. The last owner stays owner.

    \b
    Example:
      dpstream serve people roles service "Anna Meier" --role auditor
    """
    desk = _desk(folder)
    desk.set_roles(desk.operator(by), name, roles)
    click.echo(f"{name}: {', '.join(roles)}")


@people.command("remove", short_help="Remove somebody.")
@_folder
@_person
@by_option
def remove_person(folder: str, name: str, by: str) -> None:
    """Remove somebody: logins end at once, and approvals that wait for a second person do not count.

    \b
    Example:
      dpstream serve people remove service "Anna Meier"
    """
    desk = _desk(folder)
    desk.remove_person(desk.operator(by), name)
    click.echo(f"removed {name}")


@command.command("token", short_help="Print a token for a program or a reader.")
@click.argument("file", type=FilePath("file"))
@click.argument("note")
def token(file: str, note: str) -> None:
    """Add a token's SHA-256 and NOTE to FILE, and print the token, once. It opens the feed (--tokens FILE), or
    monitoring (tokens = "FILE" in service.toml). Deleting the line ends the token.

    \b
    Example:
      dpstream serve token tokens.txt "the statistics office"
    """
    from dpstream.service.tokens import add_token

    click.echo(add_token(Path(file), note))


@command.command("decisions", short_help="Print who decided what.")
@_folder
@click.option("--after", type=Whole(0), default=0, show_default=True, help="Later lines only.")
@json_option
def decisions(folder: str, after: int, as_json: bool) -> None:
    """Print the decisions' log of a service: number, time, person, decision, stream, steps, reason.

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


def _desk(folder: str) -> Desk:
    from dpstream.service.desk import Desk

    return Desk.open(Path(folder))
