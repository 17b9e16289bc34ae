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
from dpstream.core.errors import ConfigError
from dpstream.core.version import __version__
from dpstream.lab.audits.finding import AuditFinding, AuditLength
from dpstream.tools.report.assembly import frame
from dpstream.tools.report.markup import Html, element, fold, join, raw, table

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


# Pictures of an audit: claimed and found as dots, a row for each family; attacks with what the claim allows.
#
# They are HTML and SVG with a style of their own, so that they look alike on the page of an audit and in the
# documentation.

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
#: Where the claim's line stands, and what is lost several times or without end, in percents of the width.
_CLAIM, _FAR, _END = 45.0, 90.0, 96.0
#: Dots that are nearer to each other are one, which says how many.
_BIN = 3.0

STYLE = raw("""<style>
.au { --au-ok: #0068a5; --au-bad: #b84e00; --au-line: #8a8a8a; --au-bg: rgba(128, 128, 128, .13); margin: 14px 0 6px; }
@media screen and (prefers-color-scheme: dark) { .au { --au-ok: #5cb8ec; --au-bad: #f29651; } }
.au-row { display: grid; grid-template-columns: minmax(8em, 15em) minmax(0, 1fr); gap: 2px 16px;
  align-items: center; margin: 0 0 4px; }
.au-row small { display: block; opacity: .8; font-size: .82em; line-height: 1.35; }
.au-track { position: relative; height: 40px; background: var(--au-bg); border-radius: 8px; }
.au-head .au-track { height: 20px; background: none; font-size: .8em; }
.au-head span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.au-track u { position: absolute; top: 0; bottom: 0; width: 2px; margin-left: -1px; background: var(--au-line); }
.au-track i, .au-track b { position: absolute; top: 50%; transform: translate(-50%, -50%); border-radius: 50%;
  width: 12px; height: 12px; font: 600 11px/1 system-ui, sans-serif; display: grid; place-items: center;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.au-track i { background: var(--au-ok); color: #fff; }
.au-track i.bad { background: var(--au-bad); }
.au-track b { border: 2px solid var(--au-bad); color: inherit; background: none; }
.au-track s { position: absolute; top: 50%; height: 4px; margin-top: -2px; background: var(--au-ok); opacity: .5;
  border-radius: 2px; }
.au-key { display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: .88em; margin: 8px 0 12px; }
.au-key .au-track { display: inline-block; width: 16px; height: 14px; background: none; vertical-align: -2px;
  margin-right: 5px; }
.au-roc { display: block; width: 100%; max-width: 430px; font: 12px system-ui, sans-serif; }
.au-roc path { fill: none; stroke-width: 1.6; }
.au-roc .allowed { fill: var(--au-bg); stroke: var(--au-line); }
.au-roc .own { stroke: var(--au-ok); }
.au-roc .even { stroke: var(--au-line); stroke-dasharray: 3 4; }
.au-roc text { fill: currentColor; }
@media (max-width: 620px) { .au-row { grid-template-columns: minmax(0, 1fr);
  } .au-head div:first-child { display: none; } }
@media (prefers-color-scheme: dark) { .au-track i { color: #0c1216; } }
</style>""")


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
    """A row of dots for each family: the loss that was found, as a multiple of the claim."""
    head = _row(
        "", [_word("0", 0.0), _word("the claim", _CLAIM), _word("2 ×", _FAR), _word("∞", 99.0)], "au-head"
    )
    rows = [_row(_label(name, own), _dots(own)) for name, own in families(findings).items()]
    return element("div", _key(), head, rows, class_="au")


def _key() -> Html:
    return element(
        "div",
        element("span", _swatch("i"), "a real mechanism: at most the claim"),
        element("span", _swatch("b"), "broken on purpose: must be beyond the claim"),
        class_="au-key",
    )


def _swatch(name: str) -> Html:
    return element("span", element(name, style="left:50%"), class_="au-track", aria_hidden="true")


def _label(name: str, own: Sequence[AuditFinding]) -> Html:
    real = [one for one in own if not one.control]
    broken = len(own) - len(real)
    most = max((_ratio(one) for one in real), default=0.0)
    words = [f"{len(real)} real"] + ([f"up to {100 * most:.0f} % of the claim"] if real else [])
    words += [f"{broken} broken, {sum(one.caught for one in own if one.control)} caught"] if broken else []
    return element("span", element("strong", name), element("small", "; ".join(words)))


def _ratio(one: AuditFinding) -> float:
    if one.found <= 0:
        return 0.0
    return one.found / one.claimed if one.claimed else math.inf


def _place(ratio: float) -> float:
    """
    >>> _place(0.0), _place(1.0), _place(math.inf)
    (1.5, 45.0, 96.0)
    """
    if ratio >= 2:
        return _END
    return 1.5 + (_CLAIM - 1.5) * ratio if ratio <= 1 else _CLAIM + (_FAR - _CLAIM) * (ratio - 1)


def _dots(own: Sequence[AuditFinding]) -> list[Html]:
    dots = [element("u", style=f"left:{_CLAIM}%")]
    for control in (False, True):
        bins: dict[int, list[AuditFinding]] = {}
        for one in own:
            if one.control == control:
                # What lies beyond the claim never shares a dot with what does not.
                place = _place(_ratio(one))
                bins.setdefault(int(place // _BIN) + 1000 * one.caught, []).append(one)
        for shared in bins.values():
            place = sum(_place(_ratio(one)) for one in shared) / len(shared)
            wide = 10 + min(20, round(4 * math.sqrt(len(shared) - 1)))
            said = f"{len(shared)} of them" if len(shared) > 1 else shared[0].subject
            bad = not control and any(one.caught for one in shared)
            dots.append(
                element(
                    "b" if control else "i",
                    str(len(shared)) if len(shared) > 2 else None,
                    style=f"left:{place:.1f}%;width:{wide}px;height:{wide}px",
                    title=said,
                    class_="bad" if bad else None,
                )
            )
    return dots


def _row(label: Html | str, track: Sequence[Html], extra: str = "") -> Html:
    return element(
        "div",
        element("div", label),
        element("div", track, class_="au-track"),
        class_=f"au-row {extra}".strip(),
    )


def _word(text: str, place: float) -> Html:
    return element("span", text, style=f"left:{max(2.0, place)}%")


def attack_dots(findings: Sequence[AuditFinding]) -> Html:
    """A row for each attack: the share of right guesses, what the claim allows, and the same without noise."""
    own = [one for one in findings if one.attack is not None]
    low = min([0.4, *(1 / one.attack.values for one in own if one.attack is not None)])

    def at(share: float) -> float:
        return 2 + 96 * (max(low, share) - low) / (1 - low)

    rows = []
    for one in own:
        made = one.attack
        assert made is not None
        first, last = made.interval
        name = one.subject.removeprefix("attack: ")
        words = (
            f"{100 * made.share:.0f} % of {made.made:,} guesses right"
            if made.made
            else "no guess worth making"
        )
        words += f"; by chance {100 / made.values:.0f} %, allowed {100 * made.allowed:.0f} %"
        words += "; sees nothing here, nor without noise" if one.blind else ""
        track = [
            element("u", style=f"left:{at(made.allowed):.1f}%", title="what the claim allows"),
            element("b", style=f"left:{at(made.without_noise):.1f}%", title="without noise"),
        ]
        if made.made:
            track += [
                element("s", style=f"left:{at(first):.1f}%;width:{at(last) - at(max(low, first)):.1f}%"),
                element("i", style=f"left:{at(made.share):.1f}%", class_="bad" if one.caught else None),
            ]
        rows.append(_row(element("span", element("strong", name), element("small", words)), track))
    marks = [_word(f"{100 * share:.0f} %", at(share)) for share in (0.25, 0.5, 0.75, 1.0) if share >= low]
    key = element(
        "div",
        element("span", _swatch("i"), "right guesses, with limits of 95 %"),
        element("span", _swatch("u"), "the most that the claim allows"),
        element("span", _swatch("b"), "the same attack on releases without noise"),
        class_="au-key",
    )
    return element("div", key, _row("", marks, "au-head"), rows, class_="au")


def rates(finding: AuditFinding) -> Html:
    """How many who are there are found, against how many who are not are taken for it: of one attack."""
    made = finding.attack
    assert made is not None
    assert made.curve
    side, edge = 300, 34

    def path(points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{edge + side * f:.1f} {10 + side * (1 - t):.1f}" for f, t in points)

    allowed = list(made.allowed_curve)
    # The mirror of the region: who guesses the other way round.
    under = [(1 - f, 1 - t) for f, t in allowed]
    name = finding.subject.removeprefix("attack: ")
    middle = min(made.curve, key=lambda point: abs(point[0] - 0.3))
    svg = element(
        "svg",
        element("path", d=path([*allowed, *under]) + "Z", class_="allowed"),
        element("path", d=path([(0, 0), (1, 1)]), class_="even"),
        element("path", d=path(sorted(made.curve)), class_="own"),
        element("text", "what the claim allows", x=edge + 0.08 * side, y=10 + 0.16 * side),
        element("text", name, x=edge + side * middle[0] + 8, y=10 + side * (1 - middle[1]) + 16),
        element("text", "taken for there, of those who are not", x=edge, y=side + 40),
        element("text", "found, of those who are there", x=-(side + 10), y=14, transform="rotate(-90)"),
        [element("text", f"{100 * x:.0f} %", x=edge + side * x - 9, y=side + 24) for x in (0.0, 0.5, 1.0)],
        viewBox=f"0 0 {side + edge + 36} {side + 48}",
        class_="au-roc",
        role="img",
        aria_label=f"{name}: true and false positive rates, inside the region that the claim allows",
    )
    return element("div", svg, class_="au")


# The page of an audit: the answer first, a picture, and all details folded.


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
    return frame(title, [STYLE], [head, element("main", sections)], _footer(report), marker=_MARKER)


def audit_body(report: AuditReport) -> str:
    """The same for a page of the documentation, which brings its own title and design."""
    word, sentence = report.answer()
    parts = [
        STYLE,
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
            "Each dot is one subject: how much it loses, as a multiple of what it claims. A lower bound well below the "
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
    parts = [element("p", words), attack_dots(attacks)]
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
    """Write ``audit.html``, ``audit.md`` and ``audit.json``, and return their paths. Each replaces an older file
    atomically."""
    body = json.dumps(report.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    files = {"audit.html": audit_html(report), "audit.md": report.markdown(), "audit.json": body}
    for name, text in files.items():
        durable.replace_file(folder / name, text.encode(), mode=0o644)
    return tuple(folder / name for name in files)
