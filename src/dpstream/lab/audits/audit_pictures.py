"""Pictures of an audit: claimed and found as dots, a row for each family; attacks with what the claim allows.

They are HTML and SVG with a style of their own, so that they look alike on the page of an audit and in the
documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpstream.lab.audits.finding import AuditFinding
from dpstream.tools.report.markup import Html, element, raw

#: Family of a finding, by how its subject begins.
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Attacks on the releases", ("attack",)),
    ("This configuration", ("configured",)),
    ("Counters", ("counter",)),
    ("Selections", ("permute", "exponential")),
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
