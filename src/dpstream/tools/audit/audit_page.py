"""The report of an audit: plain words for a data steward first, then every number. It holds nothing private."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, counted
from dpstream.core.version import __version__
from dpstream.tools.audit.finding import AuditFinding, AuditLength
from dpstream.tools.report.assembly import frame
from dpstream.tools.report.markup import Html, block

AUDIT_FORMAT = 2


@dataclass(frozen=True)
class AuditReport:
    """All findings of one audit.

    Attributes:
        command: the command that made the report, so that readers can repeat it.
        config: the name of the stream whose configuration was audited; None: the program itself was.
        seconds: wall-clock time of the whole audit.
        left_out: what was not audited, and why, in sentences.
        scope: of a configuration: what was examined and what was not.
    """

    findings: tuple[AuditFinding, ...]
    length: AuditLength
    command: str
    config: str | None
    seconds: float
    left_out: tuple[str, ...] = ()
    scope: str = ""

    @property
    def passed(self) -> bool:
        """Whether no honest mechanism and every control was caught. Without findings: no."""
        return bool(self.findings) and all(finding.passed for finding in self.findings)

    @property
    def exceeding(self) -> tuple[AuditFinding, ...]:
        """Honest mechanisms that lose more than they claim."""
        return tuple(f for f in self.findings if f.caught and not f.control)

    @property
    def missed(self) -> tuple[AuditFinding, ...]:
        """Controls that were not caught."""
        return tuple(f for f in self.findings if f.control and not f.caught)

    @property
    def false_alarm(self) -> float:
        """An upper bound on the probability that chance alone makes the audit accuse an honest mechanism."""
        return sum(1 - f.confidence for f in self.findings if f.confidence is not None and not f.control)

    def complaints(self) -> list[str]:
        """One sentence for each finding that did not pass."""
        sentences = [
            f"{f.subject} loses {amount(f.found)} and claims {amount(f.claimed)} ({f.unit}): {f.detail}"
            for f in self.exceeding
        ]
        return sentences + [f"missed control: {f.subject}" for f in self.missed]

    def complaint(self) -> str:
        """The first of these sentences, and how many more there are."""
        first, *others = self.complaints()
        return f"{first}; and {len(others)} more" if others else first

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "format": AUDIT_FORMAT,
            "version": __version__,
            "command": self.command,
            "length": self.length,
            "config": self.config,
            "passed": self.passed,
            "false_alarm": self.false_alarm,
            "seconds": round(self.seconds, 1),
            **({"left_out": list(self.left_out)} if self.left_out else {}),
            **({"scope": self.scope} if self.scope else {}),
            "findings": [finding.as_json() for finding in self.findings],
        }

    def answer(self) -> tuple[str, str]:
        """The verdict in a word, and in a sentence."""
        if self.exceeding:
            return "no", f"Do not use this version: {self.complaint()}."
        if self.missed:
            return "worthless", f"The audit failed: {self.complaint()}."
        if not self.findings:
            return "none", "Nothing was audited."
        return "holds", f"Claims hold in {self.counted()}."

    def counted(self) -> str:
        """How many audits of real mechanisms there are, and how many controls."""
        controls = sum(f.control for f in self.findings)
        real = len(self.findings) - controls
        return (
            f"{counted(real, 'audit')} of real mechanisms; "
            f"{counted(controls, 'control')}, {len(self.missed) or 'none'} missed"
        )


def verdict(finding: AuditFinding) -> str:
    """The verdict in a word; a word in capitals is an alarm.

    >>> verdict(AuditFinding("x", "exact", 1.0, 1.5, None, None, True, "", 0.0))
    'caught'
    """
    if finding.control:
        return "caught" if finding.caught else "MISSED"
    return "EXCEEDS" if finding.caught else "holds"


def amount(value: float) -> str:
    """A loss with four digits, or the word "infinite"."""
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def rounded_up(value: float) -> str:
    """The value with two digits, rounded up, for upper bounds on probabilities.

    >>> rounded_up(1.11e-6), rounded_up(0.0)
    ('1.2e-6', '0')
    """
    short = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(value)
    return f"{short.normalize():e}" if short else "0"


def prepare_folder(folder: str | Path) -> Path:
    """Make the folder for the results, if it does not exist.

    Errors:
        ConfigError: the path, or a part of it, is a file.
    """
    place = Path(folder)
    taken = next((p for p in (place, *place.parents) if p.exists() and not p.is_dir()), None)
    if taken is not None:
        raise ConfigError(f"{str(taken)!r} is a file", where="--out", allowed="a folder, or a new name")
    place.mkdir(parents=True, exist_ok=True)
    return place


#: Family of a finding, by how its subject begins.
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Attack on the releases", ("attack",)),
    ("This configuration", ("configured",)),
    ("Counters", ("counter",)),
    ("Noise and selections", ("permute", "exponential", "sampler", "choice")),
    ("Tables", ("DP-STabS", "baseline", "pooled", "AIM", "equal rows", "published files")),
    ("Tables by key (census)", ("census",)),
    ("Panels", ("window", "cumulative")),
    ("Points", ("points",)),
    ("Growing tables", ("scheduler", "improver", "classifier")),
    ("Questions", ("run of tests", "analyst")),
)
_OTHERS = "Others"


def families(findings: Sequence[AuditFinding]) -> dict[str, list[AuditFinding]]:
    """The findings by family, in a fixed order; families without findings are left out.

    >>> list(families([AuditFinding("counter tree, T = 16", "exact", 1.0, 1.0, None, None, False, "", 0.0)]))
    ['Counters']
    """
    groups: dict[str, list[AuditFinding]] = {name: [] for name, _ in (*_FAMILIES, (_OTHERS, ()))}
    for finding in findings:
        name = next((name for name, begins in _FAMILIES if finding.subject.startswith(begins)), _OTHERS)
        groups[name].append(finding)
    return {name: group for name, group in groups.items() if group}


def family_rows(findings: Sequence[AuditFinding]) -> list[list[str]]:
    """Of each family: how many real mechanisms, the most that one loses of its claim, and how many controls were
    caught."""
    rows = []
    for name, group in families(findings).items():
        real = [finding.ratio for finding in group if not finding.control]
        broken = [finding.caught for finding in group if finding.control]
        most = max(real, default=0.0)
        share = "infinite" if math.isinf(most) else f"{100 * most:.0f} %"
        caught = f"{sum(broken)} of {len(broken)}" if broken else ""
        rows.append([name, str(len(real)), share if real else "", caught])
    return rows


def audit_facts(report: AuditReport) -> dict[str, Any]:
    """What the page says: how much of each claim is found, whether what is broken was caught, and every number."""
    word, sentence = report.answer()
    numbers = []
    for name, group in families(report.findings).items():
        ordered = sorted(group, key=lambda finding: (finding.control, finding.subject.lower()))
        broken = sum(finding.control for finding in group)
        rows = [_row(finding) for finding in ordered]
        numbers.append({"name": name, "real": len(group) - broken, "broken": broken, "rows": rows})
    return {
        "word": word,
        "sentence": sentence,
        "passed": report.passed,
        "config": report.config,
        "families": family_rows(report.findings),
        "numbers": numbers,
        "chance": rounded_up(report.false_alarm) if report.false_alarm > 0 else None,
        "left_out": report.left_out,
        "scope": report.scope,
        "footer": _footer(report),
    }


def _row(finding: AuditFinding) -> list[str]:
    missing = None if finding.confidence is None else float(f"{1 - finding.confidence:.6g}")
    return [
        finding.subject,
        verdict(finding),
        f"{amount(finding.claimed)}{'' if finding.unit == 'epsilon' else ' rho'}",
        amount(finding.found),
        "" if finding.runs is None else f"{finding.runs:,}",
        "exact" if missing is None else f"1 - {rounded_up(missing)}",
        finding.detail,
    ]


_MARKER = "<!-- an audit by dpstream -->"


def audit_html(report: AuditReport) -> str:
    """The whole page as text: no script, no address."""
    title = "Audit" if report.config is None else f"Audit: {report.config}"
    body = block("audit", "page", **audit_facts(report))
    return frame(title, Html(""), body, [_footer(report)], marker=_MARKER)


def _footer(report: AuditReport) -> str:
    return (
        f"Made by dpstream {__version__} in {report.seconds:,.0f} seconds ({report.length} form): "
        f"{report.command}. Noise is fresh, so bounds differ each time."
    )


def write_audit_report(report: AuditReport, folder: Path) -> tuple[Path, ...]:
    """Write ``audit.html`` and ``audit.json``, and return their paths. Each replaces an older file atomically."""
    body = json.dumps(report.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"audit.html": audit_html(report), "audit.json": body}
    for name, text in files.items():
        durable.replace_file(folder / name, text.encode(), mode=0o644)
    return tuple(folder / name for name in files)
