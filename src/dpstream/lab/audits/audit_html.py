"""The page of an audit: the answer first, a picture, and all details folded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dpstream.core import durable
from dpstream.core.version import __version__
from dpstream.lab.audits.audit_page import AuditReport, amount, rounded_up, verdict
from dpstream.lab.audits.audit_pictures import STYLE, attack_dots, claimed_and_found, families, rates
from dpstream.lab.audits.finding import AuditFinding
from dpstream.tools.report.assembly import frame
from dpstream.tools.report.markup import Html, element, fold, join, table

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
