"""``dpstream ledger``: what a stream spent, whether that is what everything else says, and a public copy of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.account import command as account
from dpstream.cli.shared import config_argument, json_option, print_json, print_table
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import counted

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream.ledger.reading import Ledger

_DAMAGED = 4
_state = click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")


@click.group("ledger", short_help="Say what was spent, check it, and export it; add streams up.")
def command() -> None:
    """Say what a stream spent, on which step and part; check that, and write a public copy of it.

    Several streams on one private source add up in an account, see dpstream ledger account.

    \b
    Example:
      dpstream ledger show dpstream.toml
    """


command.add_command(account)


@command.command("show", short_help="Print what every step cost, and what is left.")
@config_argument
@_state
@click.option("--last", type=Whole(), metavar="N", help="Only the last N steps.")
@json_option
def show(config: str, state: str | None, last: int | None, as_json: bool) -> None:
    """Print what every step cost each unit in it, part by part, when, and the total against the plan.

    Changes nothing and needs no lock. Times are those of this machine's clock; no release holds one.

    \b
    Example:
      dpstream ledger show dpstream.toml --last 10
    """
    from dpstream.project.ledger_facts import ledger_facts

    loaded, ledger = _read(config, state)
    facts = ledger_facts(loaded, ledger)
    facts["spends"] = facts["spends"][-(last or 0) :]
    if as_json:
        print_json(facts)
    else:
        _print(facts)


@command.command("verify", short_help="Recompute a ledger from all that is known, and say what is wrong.")
@click.argument("place", default="dpstream.toml", type=FilePath("any"))
@_state
@click.option("--releases", type=FilePath("folder"), help="The folder of the releases.")
@json_option
def verify(place: str, state: str | None, releases: str | None, as_json: bool) -> int:
    """Check the ledger of a stream (PLACE: its configuration), an exported one (PLACE: that file), or the decisions'
    log of a service (PLACE: its folder).

    Of a stream: the chain of seals, the head file, sums against the plan, the manifests in the store and among the
    releases, its account, and whether a stream before it went on after the border. Of an exported ledger: its chain
    and its sums, and with --releases the released manifests. Of decisions: that each line follows from the one
    before, that every task says what its decision says, and that the log is no shorter than the worker has seen it.
    Exit code 0: all is well; 4: something is wrong, and each thing is said.

    \b
    Examples:
      dpstream ledger verify dpstream.toml
      dpstream ledger verify ledger.jsonl --releases releases
      dpstream ledger verify service
    """
    if Path(place).is_dir():
        from dpstream.service.desk import Desk, Settings

        desk = Desk(Settings.load(place))
        wrong, lines, head = desk.check_log()
        return _tell(wrong, as_json, {"service": desk.settings.name, "decisions": lines, "head": head})
    from dpstream.stream.ledger.reading import check_export, is_export

    if Path(place).is_file() and is_export(place):
        checked = check_export(Path(place).read_bytes(), releases)
        return _tell(
            list(checked.findings),
            as_json,
            {
                "stream": checked.stream,
                "steps": checked.steps,
                "total": checked.total,
                "planned": checked.planned,
                "head": checked.head,
            },
        )
    from dpstream.project import Config
    from dpstream.stream.ledger.reading import verify_ledger

    loaded = Config.load(place)
    findings = verify_ledger(
        _place(loaded, state),
        releases=loaded.output.dir if releases is None else releases,
        account=loaded.account,
        server=loaded.server,
        key=loaded.state_key(),
    )
    base = loaded.base(_place(loaded, state))
    findings += [] if base is None else [one.words for one in base.broken]
    return _tell(findings, as_json, {"stream": loaded.name})


@command.command("export", short_help="Write a public ledger that checks itself.")
@config_argument
@_state
@click.option(
    "--out",
    type=FilePath("new", dash=True),
    required=True,
    help="The file to write, as JSON lines; - prints it.",
)
@click.option("--times", is_flag=True, help="Write when each step was committed, too.")
@click.option(
    "--secret", is_flag=True, help="Write batch ids, too; the file is then readable by its owner only."
)
def export(config: str, state: str | None, out: str, times: bool, secret: bool) -> None:
    """Write what every step cost as JSON lines, each with the SHA-256 of the line before.

    Public facts only: step, period, definition, spent, parts, total, hash of the manifest. No hash of
    private records; no batch id and no time unless asked for. Keep or publish the hash that is printed: it
    shows any later change of what the ledger says now.

    \b
    Example:
      dpstream ledger export dpstream.toml --out ledger.jsonl
    """
    from dpstream.stream.ledger.reading import check_export, export_ledger, write_export

    _, ledger = _read(config, state)
    data = export_ledger(ledger, secret=secret, times=times)
    told = f"{counted(len(ledger.spends), 'step')}; hash of the last one: {check_export(data).head}"
    if out == "-":
        click.echo(data, nl=False)
        click.echo(told, err=True)
        return
    write_export(Path(out), data, private=secret)
    click.echo(f"wrote {out}: {told}")


def _read(config: str, state: str | None) -> tuple[Config, Ledger]:
    from dpstream.project import Config
    from dpstream.stream.ledger.reading import read_ledger

    loaded = Config.load(config)
    return loaded, read_ledger(_place(loaded, state), server=loaded.server, key=loaded.state_key())


def _place(config: Config, state: str | None) -> Path:
    return config.state_dir if state is None else Path(state)


def _print(facts: dict[str, Any]) -> None:
    click.echo(f"stream {facts['stream']}, mechanism {facts['mechanism']}, unit {facts['unit']}")
    click.echo(f"protected: {facts['protects']}")
    if facts["spends"]:
        rows = [
            [
                str(one["step"]),
                one["period"] or "",
                _amount(one["spent"]),
                ", ".join(f"{part['name']} {_amount(part['total'])}" for part in one["parts"]),
                one["time"] or "not known",
            ]
            for one in facts["spends"]
        ]
        print_table(["step", "period", "spent", "parts", "time"], rows, right=[0])
    click.echo(
        f"total so far: {facts['total_words']}; planned: {facts['planned_words']} (each unit is in one step, or "
        "is charged once for all: steps do not add up)"
    )
    left = "without end" if facts["steps_left"] is None else str(facts["steps_left"])
    click.echo(f"steps taken: {facts['steps']}; left: {left}")
    if facts["used_up"]:
        click.echo("the plan is used up: another step is refused (exit code 3)")
    if facts["account"] is not None:
        click.echo(_account_words(facts["account"]))


def _account_words(account: dict[str, Any]) -> str:
    charged = account["charged"] or "nothing: this stream is not in it"
    closed = "; closed: another step is refused (exit code 3)" if account["closed"] else ""
    return (
        f"account {account['file']}: this stream was charged {charged}; {account['streams']} streams together cost "
        f"{account['total']}; limit: {account['limit']}{closed}"
    )


def _amount(text: str) -> str:
    from dpstream.stream.ledger.limit import shown_amount

    return shown_amount(Fraction(text))


def _tell(findings: list[str], as_json: bool, facts: dict[str, Any]) -> int:
    if as_json:
        print_json({"format": 1, "sound": not findings, **facts, "findings": findings})
    elif not findings:
        last = "step" if "stream" in facts else "decision"
        extra = f"; hash of the last {last}: {facts['head']}" if facts.get("head") else ""
        whose = (
            f"ledger of {facts['stream']}" if "stream" in facts else f"decisions' log of {facts['service']}"
        )
        click.echo(f"the {whose} is sound{extra}")
    for finding in findings:
        click.echo(f"error: {finding}", err=True)
    return _DAMAGED if findings else 0
