"""The report of an audit: plain words for a data steward first, then every number. It holds nothing private."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.core.version import __version__
from dpstream.lab.audits.finding import AuditFinding, AuditLength

AUDIT_FORMAT = 1


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
            f"{f.subject} loses {amount(f.found)} and claims {amount(f.claimed)} ({f.unit})"
            for f in self.exceeding
        ]
        return sentences + [f"the control was not caught: {f.subject}" for f in self.missed]

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

    def markdown(self) -> str:
        """The report as a Markdown page."""
        honest = [f for f in self.findings if not f.control]
        controls = [f for f in self.findings if f.control]
        lines = ["# Audit: does the program lose more privacy than it says?", "", *self._summary(), ""]
        lines += self._how()
        for title, kind in (
            ("Attacks on releases", "attack"),
            ("Exact losses", "exact"),
            ("Lower bounds from runs", "empirical"),
        ):
            rows = [f for f in honest if f.kind == kind]
            if rows:
                lines += [f"## {title}", "", *_table(rows), ""]
        if controls:
            lines += ["## Controls: broken on purpose, to be caught", "", *_table(controls), ""]
        lines += ["## Make it again", "", "```sh", self.command, "```", "", self._made(), ""]
        return "\n".join(lines)

    def answer(self) -> tuple[str, str]:
        """The verdict in a word, and in a sentence."""
        if self.exceeding:
            return "no", f"Do not use this version: {'; '.join(self.complaints())}."
        if self.missed:
            return "worthless", f"The audit is worth nothing: {'; '.join(self.complaints())}."
        if not self.findings:
            return "none", "Nothing was audited."
        return "holds", f"Nothing lost more than it claims, in {self.counted()}."

    def counted(self) -> str:
        """How many audits of real mechanisms there are, and how many of them are attacks; controls are no part."""
        honest = [f for f in self.findings if not f.control]
        words = _count(len(honest), "audit of a real mechanism", "audits of real mechanisms")
        attacks = sum(f.attack is not None for f in honest)
        if not attacks:
            return words
        blind = sum(f.blind for f in honest)
        which = f"; {blind} of these {'sees' if blind == 1 else 'see'} nothing here" if blind else ""
        return f"{words} ({_count(attacks, 'attack', 'attacks')} on the releases{which})"

    def seen(self) -> str:
        """Whether the audit can see anything; empty where nothing was broken on purpose, or not all of it was
        caught."""
        broken = sum(f.control for f in self.findings)
        if not broken or self.missed:
            return ""
        told = (
            f"Can the audit see anything? Yes: {_count(broken, 'control', 'controls')} (mechanisms that we broke on "
            "purpose) went through the same, and every one was caught."
        )
        blind = [f.subject.removeprefix("attack: ") for f in self.findings if f.blind]
        if blind:
            told += (
                f" Not by every attack: {', '.join(blind)} would find nothing here without noise either, and "
                f"{'is' if len(blind) == 1 else 'are'} no evidence."
            )
        return told

    def asked(self) -> str:
        """What was asked."""
        what = (
            f"the stream {self.config} as it is configured"
            if self.config
            else "the counters, selectors, panels, points, schedulers, classifiers, questions and whole streams of "
            "this program"
        )
        return (
            "dpstream promises a number, epsilon (or rho): the most that everything it publishes may tell about one "
            f"record. This audit attacks {what} on invented data and measures how much they really tell. It reads no "
            "private data, and this page may be published. (With epsilon 1, whether one record was there or not makes "
            "no outcome more than 2.72 times likelier.)"
        )

    def limits(self) -> list[str]:
        """What an audit does not show."""
        told = [
            "An audit can find a leak; it cannot prove that there is none. The proofs are on the theory pages. "
            "Nothing here "
            "looks at the time a step takes, at your machine, or at what else you publish about the same people."
        ]
        if self.false_alarm > 0:
            told.append(
                f"Chance alone accuses a real mechanism of this page with probability {rounded_up(self.false_alarm)} "
                "at most: "
                "limits are exact (Clopper and Pearson), and each attack is chosen on other runs than it is judged on."
            )
        return (
            told
            + [f"Not audited: {sentence}." for sentence in self.left_out]
            + [self.scope] * bool(self.scope)
        )

    def _summary(self) -> list[str]:
        word, sentence = self.answer()
        seen = self.seen()
        return [
            f"**What was asked.** {self.asked()}",
            "",
            f"**Answer: {word}.** {sentence}",
            *(
                ["", seen.replace("Can the audit see anything?", "**Can the audit see anything?**")]
                if seen
                else []
            ),
            "",
            f"**What this does not show.** {self.limits()[0]}",
            *(line for sentence in self.left_out for line in ("", f"**Not audited:** {sentence}.")),
        ]

    def _how(self) -> list[str]:
        lines = [
            "## How to read the tables",
            "",
            "*Claimed* is the promise. *Found* is what was measured: an exact loss, or a lower confidence bound from "
            "many runs on two inputs that differ in one record. Found must not be above claimed, except for controls, "
            "where it must. A lower bound well below the claim is no fault: it says how much this attack can see.",
            "",
        ]
        if any("transcripts" in f.subject for f in self.findings):
            lines += [
                "Transcripts are whole outputs of tiny streams. The loss of each is exact; the table gives the largest "
                "of those that were tried, so a loss above the claim would be certain, and one below it is no proof.",
                "",
            ]
        if any(f.kind != "exact" for f in self.findings):
            lines += [
                "Bounds from runs: the attack is chosen on one part of the runs and judged on the others, by exact "
                "binomial limits (Clopper and Pearson). The confidence stands in each row; chance alone accuses any "
                f"honest mechanism of this whole page with probability {rounded_up(self.false_alarm)} at most.",
                "",
            ]
        return [
            *lines,
            "Losses are epsilons unless the row says rho. The documentation explains the method (theory, auditing).",
            "",
        ]

    def _made(self) -> str:
        return (
            f"The {self.length} form, dpstream {__version__}, {self.seconds:.0f} seconds. Noise is fresh in "
            "every run, so bounds from runs differ a little each time."
        )


def _table(findings: Sequence[AuditFinding]) -> list[str]:
    empirical = any(f.kind != "exact" for f in findings)
    heads = (
        ["subject", "claimed", "found", "verdict"] + (["runs", "confidence"] if empirical else []) + ["where"]
    )
    lines = [
        "| " + " | ".join(heads) + " |",
        "|---|---:|---:|---|" + ("---:|---|" if empirical else "") + "---|",
    ]
    # Sorted by subject, because the order of findings depends on the processes.
    for f in sorted(findings, key=lambda finding: finding.subject.lower()):
        unit = "" if f.unit == "epsilon" else " rho"
        cells = [f.subject, f"{amount(f.claimed)}{unit}", f"{amount(f.found)}{unit}", verdict(f)]
        if empirical:
            runs = "" if f.runs is None else f"{f.runs:,}"
            cells += [runs, "exact" if f.confidence is None else f"1 - {_error(f.confidence)}"]
        cells.append(f.detail)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def verdict(finding: AuditFinding) -> str:
    """The verdict in a word or three; a word in capitals is an alarm.

    >>> verdict(AuditFinding("x", "exact", 1.0, 1.5, None, None, True, "", 0.0))
    'caught'
    """
    if finding.control:
        return "caught" if finding.caught else "MISSED"
    if finding.caught:
        return "EXCEEDS"
    return "sees nothing here" if finding.blind else "holds"


def amount(value: float) -> str:
    """A loss with four digits, or the word "infinite"."""
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def _error(confidence: float) -> str:
    """One minus the confidence, rounded up, without the stray digits of the floating-point subtraction."""
    return rounded_up(float(f"{1 - confidence:.6g}"))


def rounded_up(value: float) -> str:
    """The value with two digits, rounded up, for upper bounds on probabilities.

    >>> rounded_up(1.11e-6), rounded_up(0.0)
    ('1.2e-6', '0')
    """
    short = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(value)
    return f"{short.normalize():e}" if short else "0"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def prepare_folder(folder: str | Path) -> Path:
    """Make the folder for the results, if it does not exist.

    Errors:
        ConfigError: the path, or a part of it, is not a folder.
    """
    place = Path(folder)
    taken = next((p for p in (place, *place.parents) if p.exists() and not p.is_dir()), None)
    if taken is not None:
        raise ConfigError(f"{str(taken)!r} is not a folder", where="--out", allowed="a folder, or a new name")
    place.mkdir(parents=True, exist_ok=True)
    return place
