"""The report of an audit: plain words for a data steward first, then every number. It holds nothing private."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.version import __version__
from dpstream.tools.audit.finding import AuditFinding, AuditLength
from dpstream.tools.report.assembly import frame
from dpstream.tools.report.markup import Html, element, fold, interval_table, join, table

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
            else "the counters, selectors, samplers, tables, panels, points, schedulers, classifiers and questions of "
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


#: Family of a finding, by how its subject begins.
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Attacks on the releases", ("attack",)),
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


def family_of(finding: AuditFinding) -> str:
    """The family that a finding belongs to.

    >>> family_of(AuditFinding("counter tree, T = 16", "exact", 1.0, 1.0, None, None, False, "", 0.0))
    'Counters'
    """
    return next((name for name, begins in _FAMILIES if finding.subject.startswith(begins)), _OTHERS)


def families(findings: Sequence[AuditFinding]) -> dict[str, list[AuditFinding]]:
    """The findings by family, in a fixed order; families without findings are left out."""
    found: dict[str, list[AuditFinding]] = {name: [] for name, _ in (*_FAMILIES, (_OTHERS, ()))}
    for one in findings:
        found[family_of(one)].append(one)
    return {name: own for name, own in found.items() if own}


def claimed_and_found(findings: Sequence[AuditFinding]) -> Html:
    """A row for each family: how much of the claim is found, and whether what is broken was caught."""
    rows = []
    for name, own in families(findings).items():
        real = [_ratio(one) for one in own if not one.control]
        broken = [one.caught for one in own if one.control]
        share = f"{100 * max(real):.0f} %" if real else ""
        rows.append([name, str(len(real)), share, f"{sum(broken)} of {len(broken)}" if broken else ""])
    heads = ["family", "real mechanisms", "most of a claim that is found", "broken ones caught"]
    return table(heads, rows, caption="Claimed and found")


def _ratio(one: AuditFinding) -> float:
    if one.found <= 0:
        return 0.0
    return one.found / one.claimed if one.claimed else math.inf


def attack_table(findings: Sequence[AuditFinding]) -> list[Html]:
    """The share of right guesses of each attack, with what the claim allows, and the same without noise."""
    pictures, rows = [], []
    for one in findings:
        made, name = one.attack, one.subject.removeprefix("attack: ")
        assert made is not None
        if made.made:
            words = f"{100 * made.share:.0f} % of {made.made:,}"
            pictures.append((name, words, made.share, (made.interval[1] - made.interval[0]) / 2))
        blind = "; sees nothing here, nor without noise" if one.blind else ""
        guessed = f"{100 * made.share:.0f} %" if made.made else "no guess worth making"
        rows.append(
            [
                name,
                f"{guessed}{blind}",
                *(f"{100 * share:.0f} %" for share in (1 / made.values, made.allowed, made.without_noise)),
            ]
        )
    heads = ["attack", "right guesses", "by chance", "allowed by the claim", "without noise"]
    parts = [interval_table(pictures, caption="Right guesses, with limits of 95 %")] if pictures else []
    return [*parts, table(heads, rows, caption="Right guesses, and what is allowed")]


#: False positive rates of a table of rates.
_RATES = (0.01, 0.05, 0.1, 0.2, 0.5)


def rates(finding: AuditFinding) -> Html:
    """How many who are there are found, against how many who are not are taken for it: of one attack."""
    made = finding.attack
    assert made is not None
    assert made.curve
    rows = [
        [
            f"{100 * rate:.0f} %",
            *(f"{100 * _at(curve, rate):.0f} %" for curve in (made.curve, made.allowed_curve)),
        ]
        for rate in _RATES
    ]
    heads = ["taken for there, of those who are not", "found, of those who are there", "allowed by the claim"]
    return table(heads, rows, caption="Who is found")


def _at(curve: Sequence[tuple[float, float]], rate: float) -> float:
    """The true positive rate at a false positive rate.

    >>> _at([(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)], 0.25)
    0.5
    """
    known = sorted([(0.0, 0.0), *curve, (1.0, 1.0)])
    return float(np.interp(rate, [false for false, _ in known], [true for _, true in known]))


# The page of an audit: the answer first, what was found in short, and all details folded.


_MARKER = "<!-- an audit by dpstream -->"


def audit_html(report: AuditReport) -> str:
    """The whole page as text: no script, no address."""
    word, sentence = report.answer()
    head = element(
        "header",
        element("p", "dpstream audit", class_="kicker"),
        element("h1", "Does it lose more privacy than it says?"),
        element(
            "p",
            element("span", word, class_=f"word {'good' if report.passed else 'unfit'}"),
            " ",
            sentence,
            class_="lead",
        ),
        element("p", _best(report)) if _best(report) else None,
        element("p", report.seen()) if report.seen() else None,
        element("p", report.asked(), class_="note"),
    )
    sections = [element("section", element("h2", title), *content) for title, content in _sections(report)]
    title = "Audit" if report.config is None else f"Audit: {report.config}"
    return frame(title, [], [head, element("main", sections)], _footer(report), marker=_MARKER)


def audit_body(report: AuditReport) -> str:
    """The same for a page of the documentation, which brings its own title and design."""
    word, sentence = report.answer()
    parts = [
        element("p", element("strong", word), " ", sentence),
        element("p", report.seen()) if report.seen() else None,
        element("p", report.asked()),
    ]
    for title, content in _sections(report):
        parts += [element("h2", title), *content]
    parts += [element("p", text) for text in _footer(report)]
    # A blank line would end the block of HTML.
    return "\n".join(line for line in join(parts).splitlines() if line.strip())


def _best(report: AuditReport) -> str:
    """The attack that gets furthest, in a sentence; empty without attacks."""
    own = [(one, one.attack) for one in report.findings if one.attack is not None and one.attack.curve]
    if not own:
        return ""
    one, made = max(own, key=lambda pair: (pair[0].found, pair[1].share))
    proved = f"proves a loss of epsilon {amount(one.found)} of the {amount(one.claimed)} that are claimed"
    if one.found == 0:
        proved = f"proves no loss in {one.runs:,} runs (claimed is epsilon {amount(one.claimed)})"
    return (
        f"The attack that finds most of who is there ({one.subject.removeprefix('attack: ')}) guesses "
        f"{100 * made.share:.0f} % right where the claim allows {100 * made.allowed:.0f} % and chance gives 50 %: it "
        f"{proved}."
    )


def _sections(report: AuditReport) -> list[tuple[str, list[Html]]]:
    found: list[tuple[str, list[Html]]] = []
    attacks = [one for one in report.findings if one.attack is not None]
    if attacks:
        found.append(("What an adversary gets from the releases", _attacks(attacks)))
    others = [one for one in report.findings if one.kind != "attack"]
    if others:
        words = (
            "Of each family: how much of its claim a real mechanism loses at most. A lower bound well below the "
            "claim is no fault: it says how much this audit can see."
        )
        found.append(("Claimed and found", [element("p", words), claimed_and_found(others)]))
    found.append(("All numbers", [element("p", _HOW), *_folded(report.findings)]))
    found.append(("What this does not show", [element("p", text) for text in report.limits()]))
    return found


_HOW = (
    "Found is an exact loss, or a lower confidence bound from many runs on inputs that differ in one record. It must "
    "not be "
    "above the claim, except for what is broken on purpose, where it must. Losses are epsilons unless the row says rho."
)


def _attacks(attacks: Sequence[AuditFinding]) -> list[Html]:
    stream = attacks[0].attack
    assert stream is not None
    members = [one for one in attacks if one.attack is not None and one.attack.curve]
    words = (
        f"Attacked: {stream.stream}. The attacker knows all other records, the program and its settings, has as many "
        "runs to learn from as are judged, and sees all releases. A coin decided of each planted record whether it was "
        "there; of a known record, which value one column has. Limits of 95 % count guesses as independent; what is "
        "proved does not."
    )
    parts = [element("p", words), *attack_table(attacks)]
    if members:
        best = max(members, key=lambda one: (one.found, one.attack.share if one.attack else 0.0))
        name = best.subject.removeprefix("attack: ")
        parts.append(fold(f"How often {name} finds who is there, and is wrong", rates(best)))
    explained = [element("li", element("strong", name), f": {what}") for name, what in _EXPLAINED.items()]
    parts.append(fold("What each attack does", element("ul", explained, class_="prose")))
    return parts


_EXPLAINED = {
    "closest record": "is a released record close to this one? The distance is the number of columns that differ (of "
    "points: of halvings of space).",
    "density ratio (DOMIAS)": "are released records denser here than records of the same kind that were not in the "
    "stream?",
    "likelihood ratio (LiRA)": "the likeness of all releases to the record, step by step, against its law with and "
    "without the record, learnt for each record from runs whose secrets are known.",
    "shadow models": "a classifier of several such numbers of all releases, learnt from runs whose secrets are known "
    "(Groundhog).",
    "noisy counts": "the likelihood ratio of the noisy counts that are published beside the tables. They are attacked "
    "where they are not published, too, because the guarantee is theirs.",
    "a known person's row": "all columns of a record but one are known: which value has that one?",
}


def _folded(findings: Sequence[AuditFinding]) -> list[Html]:
    parts = []
    for name, own in families(findings).items():
        rows = [
            [
                one.subject,
                verdict(one),
                f"{amount(one.claimed)}{'' if one.unit == 'epsilon' else ' rho'}",
                amount(one.found),
                "" if one.runs is None else f"{one.runs:,}",
                "exact"
                if one.confidence is None
                else f"1 - {rounded_up(float(f'{1 - one.confidence:.6g}'))}",
                one.detail,
            ]
            for one in sorted(own, key=lambda one: (one.control, one.subject.lower()))
        ]
        heads = ["subject", "verdict", "claimed", "found", "runs", "confidence", "where"]
        broken = sum(one.control for one in own)
        many = f"{len(own) - broken} real" + (f", {broken} broken on purpose" if broken else "")
        parts.append(fold(f"{name}: {many}", table(heads, rows, caption=name, numeric=len(heads))))
    return parts


def _footer(report: AuditReport) -> tuple[str, ...]:
    return (
        f"Made by dpstream {__version__} in {report.seconds:,.0f} seconds ({report.length} form): "
        f"{report.command}. "
        "It read no private data, and may be published. Noise is fresh in every run, so bounds from runs differ each "
        "time.",
    )


def write_audit_report(report: AuditReport, folder: Path) -> tuple[Path, ...]:
    """Write ``audit.html`` and ``audit.json``, and return their paths. Each replaces an older file atomically."""
    body = json.dumps(report.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"audit.html": audit_html(report), "audit.json": body}
    for name, text in files.items():
        durable.replace_file(folder / name, text.encode(), mode=0o644)
    return tuple(folder / name for name in files)
