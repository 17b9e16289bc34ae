"""``dpstream audit``: attack the releases and transcripts of one configuration, and broken ones beside them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import json_option, print_facts, print_json
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from dpstream.tools.audit import AuditFinding, AuditLength, AuditReport

long_option = click.option("--long", "is_long", is_flag=True, help="More runs and longer streams.")
all_option = click.option("--all", "show_all", is_flag=True, help="Print every finding.")
out_option = click.option("--out", type=FilePath("folder"), help="Folder for audit.html and audit.json.")
processes_option = click.option(
    "--processes", type=Whole(1, 1024), default=2, show_default=True, help="Processes at once."
)


@click.command("audit", short_help="Test a configuration's claim on invented data.")
@click.argument("config", type=FilePath("file"))
@long_option
@click.option("--only", metavar="LIST", help="Some of attack, exact, samplers, transcripts.")
@click.option(
    "--minutes",
    type=float,
    help="CPU minutes of the attacked runs (0.5).",
)
@all_option
@out_option
@processes_option
@json_option
def command(
    config: str,
    is_long: bool,
    only: str | None,
    minutes: float | None,
    show_all: bool,
    out: str | None,
    processes: int,
    as_json: bool,
) -> None:
    """Does this configuration lose more privacy than it claims? Reads no private data.

    The mechanism runs as CONFIG says on neighbouring invented streams; draws are compared with their law, releases
    are attacked, and versions broken on purpose must be caught. `dpstream lab audit` examines all mechanisms.

    Exit code 3: something loses more than it claims, or a broken version was not caught.

    \b
    Examples:
      dpstream audit dpstream.toml --out audit
      dpstream audit dpstream.toml --only transcripts,samplers
    """
    from dpstream.tools.audit import audit_file
    from dpstream.tools.audit.attack import MINUTES

    names = named(only)
    left_out: list[str] = []

    def leave_out(error: ConfigError) -> None:
        left_out.append(str(error))
        click.echo(f"not audited: {error}", err=True)

    length: AuditLength = "long" if is_long else "short"
    audited = audit_file(
        config,
        names,
        length,
        part_progress(),
        minutes=MINUTES if minutes is None else minutes,
        processes=processes,
        left_out=leave_out if names is None else None,
    )
    show_audit(
        audited,
        length,
        command_text("dpstream audit", config),
        out,
        show_all=show_all,
        as_json=as_json,
        left_out=left_out,
        stream=lambda: _scope(config, names, attacked=not left_out),
    )


def named(only: str | None) -> tuple[str, ...] | None:
    """The names of ``--only``; None: all."""
    return None if only is None else tuple(word.strip() for word in only.split(",") if word.strip())


def show_audit(
    audited: Iterable[AuditFinding],
    length: AuditLength,
    made_by: str,
    out: str | None,
    *,
    show_all: bool,
    as_json: bool,
    left_out: list[str],
    stream: Callable[[], tuple[str | None, str]],
) -> None:
    """Print the verdict and what it rests on; write page and JSON into the folder ``out``.

    Args:
        show_all: print every finding, too.
        made_by: the command that readers can repeat.
        left_out: what was not audited; grows while findings come.
        stream: the name of the configured stream, and what was examined of it; asked at the end.

    Errors:
        RefusedError: something loses more than it claims, or a control was missed. ConfigError: nothing was audited.
    """
    from dpstream.tools.audit.audit_page import AuditReport, prepare_folder, write_audit_report

    folder: Path | None = None if out is None else prepare_folder(out)
    began = time.perf_counter()
    findings = tuple(audited)
    seconds = time.perf_counter() - began
    name, scope = stream()
    report = AuditReport(findings, length, made_by, name, seconds, tuple(left_out), scope)
    if as_json:
        print_json(report.as_json())
    else:
        alarms = (*report.exceeding, *report.missed)
        _print(
            report, report.findings if show_all else alarms[:_MOST], 0 if show_all else len(alarms[_MOST:])
        )
    if folder is not None:
        for path in write_audit_report(report, folder):
            click.echo(f"wrote {path}", err=as_json)
    if not report.findings and left_out:
        raise ConfigError(
            "nothing was audited",
            where="audit",
            allowed="another part (--only), or another configuration",
        )
    if not report.findings:
        raise ConfigError(
            "audits of this kind are missing", where="--only", allowed="another part, or all of them"
        )
    if not report.passed:
        raise RefusedError(report.complaint(), where="audit")


#: Findings on the first screen.
_MOST = 5


def _print(report: AuditReport, shown: Iterable[AuditFinding], more: int) -> None:
    """The answer, some findings, a line for each family, and what was not looked at."""
    from dpstream.tools.audit.audit_page import amount, family_rows, rounded_up, verdict

    word, sentence = report.answer()
    print_facts(
        "audit",
        {"word": word, "sentence": sentence, "seconds": report.seconds, "scope": report.scope},
        wrap=True,
        shown=tuple(shown),
        more=more,
        verdict=verdict,
        amount=amount,
        groups=family_rows(report.findings),
        chance=rounded_up(report.false_alarm) if report.false_alarm > 0 else None,
    )


def part_progress() -> Callable[[str], None]:
    """On a terminal, one line that is written over; elsewhere a line for each kind of part, which is its first word."""
    kinds = set[str]()

    def say(text: str) -> None:
        kind = text.split()[0]
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text} ...\r", err=True, nl=False)
        elif kind not in kinds:
            kinds.add(kind)
            click.echo(f"{text} ...", err=True)

    return say


def command_text(verb: str, *arguments: str) -> str:
    """The command that is running, with those of its options that are given."""
    given, words = click.get_current_context().params, [verb, *arguments]
    for key, flag in (("is_long", "--long"), ("only", "--only"), ("minutes", "--minutes"), ("out", "--out")):
        value = given.get(key)
        if value:
            words.append(
                flag if value is True else f"{flag} {value:g}" if key == "minutes" else f"{flag} {value}"
            )
    return " ".join(words)


def _scope(config: str, names: tuple[str, ...] | None, *, attacked: bool) -> tuple[str, str]:
    """The name of a configuration's stream, and what was examined of it."""
    from dpstream.project import Config
    from dpstream.tools.audit.configured import configured_audits, scope

    loaded = Config.load(config)
    there = [name for name in configured_audits(loaded) if names is None or name in names]
    return loaded.name, scope(loaded, [name for name in there if attacked or name != "attack"])
