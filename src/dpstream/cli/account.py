"""``dpstream ledger account``: several streams on one private source, and the limit none of them may cross."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import config_argument, json_option, print_json, print_table
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError, StoreDamagedError

if TYPE_CHECKING:
    from dpstream.stream.ledger.account import AccountState

_DAMAGED = 4
_file = click.argument("file", type=FilePath("file"))
_limit = click.option(
    "--limit", required=True, metavar="AMOUNT", help='"epsilon=2", "rho=1/2" or "epsilon=2,delta=1e-9".'
)


@click.group("account", short_help="Add up the streams on one private source, under a limit.")
def command() -> None:
    """Add up what several streams on one private source cost, under a limit that none of them may cross.

    A configuration names the file: [budget] account = "../account.sqlite". A stream is then charged its
    plan's whole budget when it is started, and refused (exit code 3) where the limit would be passed. Nothing
    is given back.

    \b
    Example:
      dpstream ledger account create account.sqlite --limit epsilon=2
    """


@command.command("create", short_help="Make an account.")
@_file
@_limit
@click.option("--unit", default="event", show_default=True, help="Who is protected, as in [stream] unit.")
def create(file: str, limit: str, unit: str) -> None:
    """Make an account that no stream is in yet. An existing file is never replaced.

    \b
    Example:
      dpstream ledger account create account.sqlite --limit "epsilon=2,delta=1e-9" --unit event
    """
    from dpstream.stream.ledger.account import Account
    from dpstream.stream.ledger.limit import Limit

    stated = Limit.parse(limit)
    Account.create(file, stated, unit)
    click.echo(f"made {file}: all streams in it together may cost {stated} each unit {unit!r}")


@command.command("show", short_help="Print charges, total and limit.")
@_file
@json_option
def show(file: str, as_json: bool) -> None:
    """Print which stream was charged what, the total, and the limit.

    \b
    Example:
      dpstream ledger account show account.sqlite
    """
    from dpstream.stream.ledger.account import Account

    facts = _facts(Account(file).read())
    if as_json:
        print_json(facts)
        return
    if facts["charges"]:
        rows = [
            [
                str(one["entry"]),
                one["stream"],
                one["stream_id"],
                one["charged_words"],
                one["time"],
                _state(one),
            ]
            for one in facts["charges"]
        ]
        print_table(["entry", "stream", "id", "charged", "time", ""], rows, right=[0])
    click.echo(f"total: {facts['total_words']}; limit: {facts['limit_words']}; unit {facts['unit']}")
    for one in facts["raised"]:
        click.echo(f"entry {one['entry']}: the limit was raised to {one['limit_words']} ({one['time']})")


@command.command("raise", short_help="Raise the limit; that stays on record.")
@_file
@_limit
def raise_limit(file: str, limit: str) -> None:
    """Raise the limit. From then on only the raised one is promised, for the earlier streams too.

    \b
    Example:
      dpstream ledger account raise account.sqlite --limit epsilon=3
    """
    from dpstream.stream.ledger.account import Account
    from dpstream.stream.ledger.limit import Limit

    stated = Limit.parse(limit)
    Account(file).raise_limit(stated)
    click.echo(f"the limit is {stated} now; what was before stays on record")


@command.command("charge", short_help="Charge a stream that was started without an account.")
@_file
@config_argument
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
def charge(file: str, config: str, state: str | None) -> None:
    """Charge a stream that was started before it was in an account. Charging it again changes nothing.

    Then write [budget] account into its configuration.

    \b
    Example:
      dpstream ledger account charge account.sqlite dpstream.toml
    """
    from dpstream.project import Config
    from dpstream.stream.ledger.account import Account
    from dpstream.stream.ledger.reading import read_ledger

    loaded = Config.load(config)
    folder = loaded.state_dir if state is None else Path(state)
    ledger = read_ledger(folder, server=loaded.server, key=loaded.state_key())
    account = Account(file)
    if ledger.pin is not None and ledger.pin.account_id != account.read().account_id:
        raise ConfigError("this stream is charged in another account", where=config, allowed="that account")
    account.charge(ledger.stream_id, ledger.facts, ledger.plan_hash, again=True)
    click.echo(f"charged {ledger.planned} for stream {loaded.name}")


@command.command("close-stream", short_help="Let a stream take no further step.")
@_file
@click.argument("stream_id")
def close_stream(file: str, stream_id: str) -> None:
    """Let a stream take no further step, for good. Its charge stays: what was released stays released.

    \b
    Example:
      dpstream ledger account close-stream account.sqlite 0123456789abcdef0123456789abcdef
    """
    from dpstream.stream.ledger.account import Account

    Account(file).close_stream(stream_id)
    click.echo(f"stream {stream_id} takes no further step; its charge stays")


@command.command("verify", short_help="Check an account, and that its streams agree with it.")
@_file
@click.argument("configs", nargs=-1, type=FilePath("file"))
@json_option
def verify(file: str, configs: tuple[str, ...], as_json: bool) -> int:
    """Check the chain of an account, and for each configuration that its stream and the account agree.

    Charges whose stream is in none of the configurations are listed: a start that was interrupted leaves one.
    Exit code 0: all is well; 4: something is wrong.

    \b
    Example:
      dpstream ledger account verify account.sqlite one/dpstream.toml two/dpstream.toml
    """
    from dpstream.stream.ledger.account import Account

    try:
        state = Account(file).read()
    except StoreDamagedError as error:
        return _tell([error.what], [], as_json)
    findings: list[str] = []
    seen: dict[str, tuple[str, object]] = {}
    for config in configs:
        stream_id, place, problems = _verify_stream(config, file)
        findings += [f"{config}: {one}" for one in problems]
        if stream_id is None:
            continue
        other, elsewhere = seen.setdefault(stream_id, (config, place))
        if elsewhere != place:
            findings.append(
                f"{config}: its state and that of {other} are copies of one stream, which was charged once; go on with "
                "one of them"
            )
    others = [f"{one.stream} ({one.stream_id})" for one in state.charges if one.stream_id not in seen]
    return _tell(findings, others, as_json)


def _verify_stream(config: str, file: str) -> tuple[str | None, object, list[str]]:
    """The stream's id, where its state is, and what is wrong."""
    from dpstream.project import Config
    from dpstream.stream.ledger.reading import read_ledger, verify_ledger

    loaded = Config.load(config)
    key = loaded.state_key()
    place = loaded.state_dir.resolve(), loaded.server
    verified = verify_ledger(loaded.state_dir, account=file, server=loaded.server, key=key)
    try:
        return read_ledger(loaded.state_dir, server=loaded.server, key=key).stream_id, place, verified
    except StoreDamagedError:
        return None, place, verified


def _tell(findings: list[str], others: list[str], as_json: bool) -> int:
    if as_json:
        print_json({"format": 1, "sound": not findings, "findings": findings, "other_charges": others})
    else:
        for other in others:
            click.echo(f"charged, and in no given configuration: {other}")
        if not findings:
            click.echo("the account is sound")
    for finding in findings:
        click.echo(f"error: {finding}", err=True)
    return _DAMAGED if findings else 0


def _facts(state: AccountState) -> dict[str, Any]:

    total = state.total
    return {
        "format": 1,
        "account_id": state.account_id,
        "unit": state.unit,
        "limit": state.limit.as_dict(),
        "limit_words": str(state.limit),
        "total": {"epsilon": None if total.epsilon is None else str(total.epsilon), "rho": str(total.rho)},
        "total_words": str(total),
        "charges": [
            {
                "entry": one.entry,
                "stream": one.stream,
                "stream_id": one.stream_id,
                "plan_hash": one.plan_hash,
                "unit": one.unit,
                "budget": one.budget.as_dict(),
                "charged": one.charged.as_dict(),
                "charged_words": str(one.charged),
                "closed": one.closed,
                "time": one.time,
            }
            for one in state.charges
        ],
        "raised": [
            {
                "entry": entry.number,
                "limit": limit.as_dict(),
                "limit_words": str(limit),
                "time": entry.written,
            }
            for entry, limit in state.raised
        ],
    }


def _state(charge: dict[str, Any]) -> str:
    return "closed" if charge["closed"] else ""
