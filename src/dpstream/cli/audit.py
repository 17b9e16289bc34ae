"""``dpstream audit``: attack the program's own mechanisms, and broken ones beside them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import json_option, print_json
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError, RefusedError, counted

if TYPE_CHECKING:
    from dpstream.lab.audits import AuditFinding, AuditLength
    from dpstream.lab.audits.audit_page import AuditReport


@click.command("audit", short_help="Test the privacy claims; broken mechanisms must be caught.")
@click.argument("config", required=False, type=FilePath("file"))
@click.option("--long", "is_long", is_flag=True, help="More runs and longer streams; takes much longer.")
@click.option(
    "--only",
    metavar="LIST",
    help="Some of aim, census, classifiers, counters, exact, panels, points, pooled, published, questions, samplers, "
    "schedulers, turnover (CONFIG: attacks, exact, samplers, transcripts).",
)
@click.option(
    "--minutes",
    type=float,
    help="With CONFIG: the limit of CPU of the attacked runs, in minutes (2). Loading the program, what the attackers "
    "learn, and the other parts come on top.",
)
@click.option("--out", type=FilePath("folder"), help="Folder for audit.html and audit.json.")
@click.option(
    "--processes", type=Whole(1, 1024), default=2, show_default=True, help="How many processes work at once."
)
@json_option
def command(
    config: str | None,
    is_long: bool,
    only: str | None,
    minutes: float | None,
    out: str | None,
    processes: int,
    as_json: bool,
) -> None:
    """Does any mechanism lose more privacy than it claims? Reads no private data.

    Losses are computed exactly where that is possible, and bounded from below by many runs on pairs of
    neighbouring streams elsewhere. Mechanisms that are broken on purpose run beside the real ones and must be
    caught.

    With CONFIG, audits the mechanism exactly as that file configures it, on invented streams of its schema. Two streams
    that differ in one unit must lose what is claimed, and two that differ in everything must publish the same once
    their measurements and choices are the same. What is drawn is compared with its laws. Then releases are attacked:
    records are planted, and all releases of many runs are used to guess who was there and what the values of a known
    record are. The same without noise must be caught. The last line says what was examined and what was not.

    Exit code 3: something loses more than it claims, or a broken mechanism was not caught.

    \b
    Examples:
      dpstream audit
      dpstream audit dpstream.toml --minutes 10 --out audit
      dpstream audit dpstream.toml --only transcripts
      dpstream audit --long --out audit
    """
    from dpstream.lab.audits.attacks import MINUTES
    from dpstream.lab.audits.audit_page import AuditReport, prepare_folder, write_audit_report
    from dpstream.lab.audits.runner import run_audits

    names = None if only is None else tuple(word.strip() for word in only.split(",") if word.strip())
    if minutes is not None and config is None:
        raise ConfigError(
            "it belongs to the attacks on a configuration", where="--minutes", allowed="with CONFIG"
        )
    folder = None if out is None else prepare_folder(out)
    limit = MINUTES if minutes is None else minutes
    began = time.perf_counter()
    findings: list[AuditFinding] = []
    length: AuditLength = "long" if is_long else "short"
    left_out: list[str] = []

    def leave_out(error: ConfigError) -> None:
        left_out.append(str(error))
        click.echo(f"not audited: {error}", err=True)

    audited = run_audits(
        names,
        length,
        say_progress,
        config=config,
        minutes=limit,
        processes=processes,
        left_out=leave_out if names is None else None,
    )
    for finding in audited:
        if not as_json:
            if not findings:
                click.echo(_HEADING)
            click.echo(_line(finding))
        findings.append(finding)
    seconds = time.perf_counter() - began
    name, scope = (None, "") if config is None else _scope(config, names, attacked=not left_out)
    report = AuditReport(tuple(findings), length, _command(), name, seconds, tuple(left_out), scope)
    if as_json:
        print_json(report.as_json())
    else:
        _print_end(report)
    if folder is not None:
        for path in write_audit_report(report, folder):
            click.echo(f"wrote {path}", err=as_json)
    if not report.findings and left_out:
        raise ConfigError(
            "nothing was audited; the reasons are above",
            where="audit",
            allowed="another part (--only), or another configuration",
        )
    if not report.findings:
        raise ConfigError(
            "there is nothing of this kind to audit", where="--only", allowed="another part, or all of them"
        )
    if not report.passed:
        raise RefusedError("; ".join(report.complaints()), where="audit")


_HEADING = f"{'verdict':<17} {'claimed':>8} {'found':>9}  {'':<7} {'kind':<10} subject"


def _line(finding: AuditFinding) -> str:
    from dpstream.lab.audits.audit_page import amount, verdict

    return (
        f"{verdict(finding):<17} {amount(finding.claimed):>8} {amount(finding.found):>9}  {finding.unit:<7} "
        f"{finding.kind:<10} {finding.subject}"
    )


def _print_end(report: AuditReport) -> None:
    from dpstream.lab.audits.audit_page import rounded_up

    controls = sum(f.control for f in report.findings)
    click.echo("")
    click.echo(
        f"{report.counted()}: {len(report.exceeding)} lost more than claimed. "
        f"{counted(controls, 'control')}: {len(report.missed)} missed. {report.seconds:.0f} seconds."
    )
    if report.false_alarm > 0:
        click.echo(
            f"Chance alone accuses a real mechanism with probability {rounded_up(report.false_alarm)} at most."
        )
    if report.scope:
        click.echo(report.scope)


def say_progress(text: str) -> None:
    """On a terminal, one line that is written over; elsewhere a line for each part, and none for its single runs."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text} ...\r", err=True, nl=False)
    elif ": run " not in text or ": run 1 of " in text:
        click.echo(f"{text} ...", err=True)


def _command() -> str:
    context = click.get_current_context()
    words = ["dpstream audit"]
    for key, flag in (("is_long", "--long"), ("only", "--only"), ("minutes", "--minutes"), ("out", "--out")):
        value = context.params[key]
        if value:
            words.append(
                flag if value is True else f"{flag} {value:g}" if key == "minutes" else f"{flag} {value}"
            )
    config = context.params["config"]
    return " ".join([words[0], *([config] if config else []), *words[1:]])


def _scope(config: str, names: tuple[str, ...] | None, *, attacked: bool) -> tuple[str, str]:
    """The name of a configuration's stream, and what was examined of it."""
    from dpstream.lab.audits.configured import configured_audits, scope
    from dpstream.project import Config

    loaded = Config.load(config)
    there = [name for name in configured_audits(loaded) if names is None or name in names]
    return loaded.name, scope(loaded, [name for name in there if attacked or name != "attacks"])
