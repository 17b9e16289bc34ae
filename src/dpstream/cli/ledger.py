"""``dpstream ledger``: what a stream spent, whether that is what everything else says, and a public copy of it; and
``ledger account``: several streams on one private source, and the limit none of them may cross.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import DAMAGED, json_option, of_stream, print_facts, print_json, state_option
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError, StoreDamagedError, counted

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream.ledger.account import AccountState
    from dpstream.stream.ledger.reading import Ledger


#: Steps that are shown where nothing else is said.
_SHOWN = 10


@click.group("ledger", short_help="Show, check, export and add up what was spent.")
def command() -> None:
    """Say what a stream spent, on which step and part; check it, and export a public copy.

    \b
    Example:
      dpstream ledger show dpstream.toml
    """


@command.command("show", short_help="Print what every step cost, and what is left.")
@of_stream("--state")
@click.option("--last", type=Whole(), metavar="N", help="Last steps (10; all with --json).")
@json_option
def show(config: Config, last: int | None, as_json: bool) -> None:
    """Print what every step cost each unit, part by part, when (by this machine's clock), and the total against the
    plan.

    \b
    Example:
      dpstream ledger show dpstream.toml --last 10
    """
    from dpstream.project.status import ledger_facts
    from dpstream.stream.ledger.limit import shown_amount

    facts = ledger_facts(config, _read(config))
    shown = last or (len(facts["spends"]) if as_json else _SHOWN)
    earlier = max(0, len(facts["spends"]) - shown)
    facts["spends"] = facts["spends"][earlier:]
    print_facts(
        "ledger",
        facts,
        as_json=as_json,
        earlier=earlier,
        amount=lambda text: shown_amount(Fraction(text)),
    )


@command.command("verify", short_help="Recompute a ledger, and list what is wrong.")
@click.argument("place", default="dpstream.toml", type=FilePath("any"))
@state_option
@click.option("--releases", type=FilePath("folder"), help="The folder of the releases.")
@json_option
def verify(place: str, state: str | None, releases: str | None, as_json: bool) -> int:
    """Check a stream's ledger (PLACE: its configuration), an exported ledger (its file), or the decisions' log of a
    service (its folder).

    Seals, sums, manifests, account and border are recomputed. Exit code 0: sound; 4: something is wrong, and each
    fault is listed.

    \b
    Examples:
      dpstream ledger verify dpstream.toml
      dpstream ledger verify ledger.jsonl --releases releases
    """
    if Path(place).is_dir():
        from dpstream.service.desk import Desk, Settings

        desk = Desk(Settings.load(place))
        wrong, lines, head = desk.check_log()
        return _tell(
            f"decisions' log of {desk.settings.name}",
            wrong,
            as_json,
            {"service": desk.settings.name, "decisions": lines, "head": head},
            head=f"; hash of the last decision: {head}" if head else "",
        )
    from dpstream.stream.ledger.reading import check_export, is_export

    if Path(place).is_file() and is_export(place):
        checked = check_export(Path(place).read_bytes(), releases)
        facts = {name: getattr(checked, name) for name in ("stream", "steps", "total", "planned", "head")}
        head = f"; hash of the last step: {checked.head}" if checked.head else ""
        return _tell(f"ledger of {checked.stream}", list(checked.findings), as_json, facts, head=head)
    from dpstream.project import Config
    from dpstream.stream.inspection import verify_ledger

    config = Config.load(place).at(state, releases)
    findings = verify_ledger(
        config.state_dir,
        releases=config.output.dir,
        account=config.account,
        server=config.server,
        key=config.state_key(),
    )
    base = config.base()
    findings += [] if base is None else [broken.words for broken in base.broken]
    return _tell(f"ledger of {config.name}", findings, as_json, {"stream": config.name})


@command.command("export", short_help="Write a public ledger that checks itself.")
@of_stream("--state")
@click.option(
    "--out",
    type=FilePath("new", dash=True),
    required=True,
    help="The file to write; - prints it.",
)
def export(config: Config, out: str) -> None:
    """Write what every step cost as JSON lines, each with the SHA-256 of the line before. Public facts only.

    Keep or publish the printed hash: it shows any later change.

    \b
    Example:
      dpstream ledger export dpstream.toml --out ledger.jsonl
    """
    from dpstream.stream.ledger.reading import check_export, export_ledger, write_export

    ledger = _read(config)
    data = export_ledger(ledger)
    words = f"hash of the last of {counted(len(ledger.spends), 'step')}: {check_export(data).head}"
    if out == "-":
        click.echo(data, nl=False)
        click.echo(words, err=True)
        return
    write_export(Path(out), data)
    click.echo(f"wrote {out}\n{words}")


def _read(config: Config) -> Ledger:
    from dpstream.stream.ledger.reading import read_ledger

    return read_ledger(config.state_dir, server=config.server, key=config.state_key())


def _tell(what: str, findings: list[str], as_json: bool, facts: dict[str, Any], *, head: str = "") -> int:
    """Whether something that was checked is sound, and what is wrong with it; gives the exit code."""
    if as_json:
        print_json({"format": 1, "sound": not findings, **facts, "findings": findings})
    elif not findings:
        click.echo(f"the {what} is sound{head}")
    for finding in findings:
        click.echo(f"error: {finding}", err=True)
    return DAMAGED if findings else 0


_file = click.argument("file", type=FilePath("file"))
_limit = click.option(
    "--limit", required=True, metavar="AMOUNT", help='"epsilon=2", "rho=1/2" or "epsilon=2,delta=1e-9".'
)


@command.group("account", short_help="Add up streams under a limit.")
def account() -> None:
    """Add up what several streams on one private source cost, under a limit.

    With [budget] account = "../account.jsonl" a stream is charged its whole budget when it starts, or refused (exit
    code 3). Nothing is given back.

    \b
    Example:
      dpstream ledger account create account.jsonl --limit epsilon=2
    """


@account.command("create", short_help="Make an account.")
@_file
@_limit
@click.option("--unit", default="event", show_default=True, help="Who is protected, as in [stream] unit.")
@click.option("--per", metavar="PERIOD", help="With user: month, quarter or year, as in [stream] per.")
def create_account(file: str, limit: str, unit: str, per: str | None) -> None:
    """Make an empty account. An existing file is never replaced.

    \b
    Example:
      dpstream ledger account create account.jsonl --limit "epsilon=2,delta=1e-9" --unit event
    """
    from dpstream.stream.ledger.account import Account
    from dpstream.stream.ledger.limit import Limit

    stated = Limit.parse(limit)
    state = Account.create(file, stated, unit, per).read()
    click.echo(f"made {file}: its streams together may cost {stated} for each {state.whom}")


@account.command("show", short_help="Print charges, total and limit.")
@_file
@json_option
def show_account(file: str, as_json: bool) -> None:
    """Print which stream was charged what, the total, and the limit.

    \b
    Example:
      dpstream ledger account show account.jsonl
    """
    from dpstream.stream.ledger.account import Account

    print_facts("account", _account_facts(Account(file).read()), as_json=as_json)


@account.command("raise", short_help="Raise the limit; that stays on record.")
@_file
@_limit
def raise_limit(file: str, limit: str) -> None:
    """Raise the limit. From then on only the raised limit is promised, for earlier streams too.

    \b
    Example:
      dpstream ledger account raise account.jsonl --limit epsilon=3
    """
    from dpstream.stream.ledger.account import Account
    from dpstream.stream.ledger.limit import Limit

    stated = Limit.parse(limit)
    Account(file).raise_limit(stated)
    click.echo(f"the limit is now {stated}")


@account.command("charge", short_help="Charge a started stream.")
@_file
@of_stream("--state")
def charge(config: Config, file: str) -> None:
    """Charge a stream that was started without an account; repeating it changes nothing. Then write [budget] account
    into its configuration.

    \b
    Example:
      dpstream ledger account charge account.jsonl dpstream.toml
    """
    from dpstream.stream.ledger.account import Account

    ledger, charged = _read(config), Account(file)
    if ledger.pin is not None and ledger.pin.account_id != charged.read().account_id:
        raise ConfigError(
            "the stream is charged in another account",
            where=str(config.path),
            allowed="the account that charged it",
        )
    before = charged.read().find(ledger.stream_id)
    charged.charge(ledger.stream_id, ledger.facts, ledger.plan_hash, again=True)
    if before is not None:
        click.echo(f"nothing changed: stream {config.name} was charged {ledger.planned} before")
    else:
        click.echo(f"charged {ledger.planned} for stream {config.name}")


@account.command("close-stream", short_help="Let a stream take no further step.")
@_file
@click.argument("stream_id")
def close_stream(file: str, stream_id: str) -> None:
    """Let a stream take no further step, for good. Its charge stays.

    \b
    Example:
      dpstream ledger account close-stream account.jsonl 0123456789abcdef0123456789abcdef
    """
    from dpstream.stream.ledger.account import Account

    Account(file).close_stream(stream_id)
    click.echo(f"stream {stream_id} takes no further step; its charge stays")


@account.command("verify", short_help="Check an account and its streams.")
@_file
@click.argument("configs", nargs=-1, type=FilePath("file"))
@json_option
def verify_account(file: str, configs: tuple[str, ...], as_json: bool) -> int:
    """Check the chain of an account, and that each configuration's stream agrees with it.

    Charges of other streams are listed: an interrupted start leaves one. Exit code 0: sound; 4: something is wrong.

    \b
    Example:
      dpstream ledger account verify account.jsonl one/dpstream.toml two/dpstream.toml
    """
    from dpstream.stream.ledger.account import Account

    try:
        state = Account(file).read()
    except StoreDamagedError as error:
        return _tell("account", [error.what], as_json, {"other_charges": []})
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
                f"{config}: a copy of the stream of {other}, charged once; go on with one of them"
            )
    others = [f"{one.stream} ({one.stream_id})" for one in state.charges if one.stream_id not in seen]
    if not as_json:
        for other in others:
            click.echo(f"charged, without a given configuration: {other}")
    return _tell("account", findings, as_json, {"other_charges": others})


def _verify_stream(config: str, file: str) -> tuple[str | None, object, list[str]]:
    """The stream's id, where its state is, and what is wrong."""
    from dpstream.project import Config
    from dpstream.stream.inspection import verify_ledger
    from dpstream.stream.ledger.reading import read_ledger

    loaded = Config.load(config)
    key = loaded.state_key()
    place = loaded.state_dir.resolve(), loaded.server
    verified = verify_ledger(loaded.state_dir, account=file, server=loaded.server, key=key)
    try:
        return read_ledger(loaded.state_dir, server=loaded.server, key=key).stream_id, place, verified
    except StoreDamagedError:
        return None, place, verified


def _account_facts(state: AccountState) -> dict[str, Any]:
    from dpstream.core.privacy import amount_words

    total = state.total
    return {
        "format": 1,
        "account_id": state.account_id,
        "unit": state.unit,
        "per": state.per,
        "whom": state.whom,
        "limit": state.limit.as_dict(),
        "limit_words": str(state.limit),
        "total": {
            "epsilon": None if total.epsilon is None else str(total.epsilon),
            "rho": str(total.rho),
            "exceptions": str(total.exceptions),
        },
        "total_words": str(total),
        "charges": [
            {
                **{
                    name: getattr(charge, name)
                    for name in ("entry", "stream", "stream_id", "plan_hash", "unit", "closed", "time")
                },
                "budget": charge.budget.as_dict(),
                "charged": charge.charged.as_dict(),
                "charged_words": amount_words(charge.charged, charge.exceptions),
                "exceptions": str(charge.exceptions),
            }
            for charge in state.charges
        ],
        "raised": [
            {
                "entry": raised.entry,
                "limit": raised.limit.as_dict(),
                "limit_words": str(raised.limit),
                "time": raised.time,
            }
            for raised in state.raised
        ],
    }
