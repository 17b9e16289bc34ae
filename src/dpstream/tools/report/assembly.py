"""What a family brings to a page, and the frame that all share: sealed by a policy, with the same head and foot."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, PureDP, decimal_text, zcdp_to_epsilon
from dpstream.core.showing import script_json
from dpstream.core.version import __version__
from dpstream.stream.predecessor_cost import own_budget
from dpstream.stream.release.fitness import Fitness, fitness_of_step
from dpstream.stream.release.verdicts import MEANING, NOT_KNOWN, SMALL_GROUP, Use, Verdict
from dpstream.stream.templates import sentence
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.dates import Calendar, calendar_of
from dpstream.tools.report.markup import Html, block, integer, page, part, percent
from dpstream.tools.report.time_page import time_section

if TYPE_CHECKING:
    from dpstream.project.keys import Publication


Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """What is on a page beside its frame and the section on protection.

    Attributes:
        run: what the manifests tell.
        sections: name, title in the list of links (empty: no link) and content.
        what: what was released, up to the noun, for the first sentence: ``10,023 invented records with 8 columns``.
        charts: those in the sections.
        tables: how many released tables were read.
        heat: data of heat maps, for the script.
        size: how many there are, where that is not the number of rows.
        kicker: what kind of thing this is, above its name; that of synthetic data where it is None.
        card: what one may conclude, where that is not told by verdicts on tables.
        rules: items of a list for using the files, where those of tables do not fit.
        measured: says how far the measured numbers of columns may be off; asked where the table's errors are not known.
        columns: how many the records have, where that is known.
    """

    run: PublishedRun
    sections: Sequence[tuple[str, str, Html | None]]
    what: str
    charts: Charts
    tables: int = 0
    heat: dict[str, Any] = field(default_factory=dict)
    size: int | None = None
    kicker: str | None = None
    card: Html | None = None
    rules: Html | None = None
    measured: Callable[[], str | None] | None = None
    columns: int | None = None


@dataclass(frozen=True)
class FamilyPage:
    """How a report shows the releases of a family.

    Attributes:
        draw: reads the public folder.
        pairs: whether chosen pairs of columns can be shown.
    """

    draw: Callable[[Folder, Pairs], Page]
    pairs: bool = False

    def page(self, folder: Folder, pairs: Pairs) -> str:
        """The whole page as text.

        Errors:
            ConfigError: pairs that cannot be shown. Others as of ``write_report``.
        """
        if pairs and not self.pairs:
            raise ConfigError("the page lacks heat maps", where="report", allowed="a report without --pair")
        fit = fitness_of_step(folder.releases, folder.manifest_of, folder.steps[-1])
        about = None if folder.config is None else folder.config.publication
        made = self.draw(folder, pairs)
        if folder.release is not None:
            stocks = (stock.span for headline in folder.headlines for stock in headline.stocks)
            made.charts.dates = made.charts.dates.ending(stocks)
            section = time_section(folder.release, folder.headlines, made.charts)
            made = replace(made, sections=[("time", "Over time", section), *made.sections])
        return assemble(made, fit=fit, about=about)


def charts_of(run: PublishedRun) -> Charts:
    """An empty collection of charts that calls steps by their dates."""
    return Charts(calendar_of(run))


#: Stands near the top of every page: what may be replaced by a newer one.
REPORT_MARKER = "<!-- a report by dpstream -->"


def assemble(made: Page, *, fit: Fitness, about: Publication | None = None) -> str:
    """The whole page as text.

    Args:
        fit: what the newest table is fit for.
        about: what the owner says to readers, where that is known.
    """
    run, dates = made.run, made.charts.dates
    card = made.card
    if card is None:
        unknown = any(one.use == "columns" and one.word == NOT_KNOWN for one in fit.verdicts)
        measured = made.measured() if unknown and made.measured is not None else None
        size = run.shown[-1].rows if made.size is None else made.size
        card = table_of_verdicts(
            fit.verdicts,
            size,
            measured,
            "" if run.counted_records == "records" else run.counted_records,
            made.columns,
        )
    # What the owner calls the data set; the stream's name where that is not known.
    title = (None if about is None else about.title) or str(run.manifest["stream"])
    links = [(name, link) for name, link, content in made.sections if content]
    pure = run.manifest["guarantee"]["definition"] == "pure"
    opening = block(
        "report",
        "opening",
        kicker=made.kicker,
        title=title,
        description=None if about is None else about.description,
        what=made.what,
        holds=run.shown[-1].holds,
        card=card,
        links=[*links, ("promise", "Privacy and cost"), ("files", "Use the files")],
        test_seed=run.test_seed,
        pure=pure,
        **_newest_facts(run, dates),
    )
    sections = [content for _, _, content in made.sections]
    sections += [block("report", "promise", **_promise_facts(run)), _files(run, made.rules)]
    program, tables = (
        run.manifest["program"],
        f"{integer(made.tables)} table{'' if made.tables == 1 else 's'}",
    )
    return frame(
        f"{title}: dpstream report",
        block("report", "banner", test_seed=run.test_seed, unfit=fit.unfit),
        block("report", "body", opening=opening, sections=sections),
        [
            f"Made by dpstream {__version__} from releases of {program['name']} {program['version']} of the stream "
            f"{run.manifest['stream']}. {integer(len(run.shown))} manifests, {tables}: "
            "all hashes match.",
            "Every number is public. The page loads nothing.",
        ],
        data={**made.charts.as_json(facts.step for facts in run.shown), "heat": made.heat},
    )


def _newest_facts(run: PublishedRun, dates: Calendar) -> dict[str, Any]:
    """The first card's facts: how old the newest table is, how many there are, what it costs whom."""
    last, guarantee = run.shown[-1].step, run.manifest["guarantee"]
    steps = [facts.step for facts in run.shown]
    horizon = run.manifest["horizon"]
    about = [
        None if horizon is None else f"of {integer(horizon)} planned",
        dates.every(steps) if len(run.states) == len(run.shown) else "",
        f"since {dates.name(run.states[0][0])}" if len(run.states) > 1 else None,
    ]
    measured = run.measured_up_to
    return {
        "newest": {
            "name": dates.name(last),
            "number": last if dates.name(last) != f"step {last}" else None,
            "day": dates.day(last),
            "measured": dates.name(measured) if measured < last else None,
        },
        "releases": {"number": len(run.states), "about": about},
        "loss": {
            "short": _short(guarantee),
            "whom": str(run.manifest["unit"]["words"]).split(" (")[0].split(":")[0].split(";")[0],
            "times": _times(_epsilon(guarantee)),
        },
    }


def _epsilon(guarantee: Mapping[str, Any]) -> Fraction:
    """That of a pure guarantee; else the one that a rho implies but for a chance of one in a billion."""
    if guarantee["definition"] == "pure":
        return Fraction(guarantee["epsilon"])
    return Fraction(zcdp_to_epsilon(ZCDP.of(Fraction(guarantee["rho"])), "1e-9"))


#: Beyond this epsilon the bound has more than 13 digits, and says nothing.
_HARDLY_A_BOUND = 30


def _times(epsilon: Fraction) -> str:
    """Rounded up, so that the sentence stays true.

    >>> _times(Fraction(1)), _times(Fraction(100))
    ('at most 2.72 times likelier', 'bounded so loosely that it protects hardly anything')
    """
    if epsilon > _HARDLY_A_BOUND:
        return "bounded so loosely that it protects hardly anything"
    factor = math.exp(float(PureDP(epsilon).amount))
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"at most {math.ceil(factor * 10**digits) / 10**digits:,.{min(digits, 2)}f} times likelier"


def _short(guarantee: Mapping[str, Any]) -> str:
    """Rounded up to three digits.

    >>> _short({"definition": "pure", "epsilon": "1/2"}), _short({"definition": "zCDP", "rho": "0.0243559703"})
    ('ε = 0.5', 'ρ = 0.0244')
    """
    sign, key = ("ε", "epsilon") if guarantee["definition"] == "pure" else ("ρ", "rho")
    amount = Fraction(guarantee[key])
    digits = 2 - math.floor(math.log10(amount)) if amount else 0
    short = Fraction(math.ceil(amount * Fraction(10) ** digits)) / Fraction(10) ** digits
    return f"{sign} = {float(short):.10g}"


def _promise_facts(run: PublishedRun) -> dict[str, Any]:
    """What is protected, and at what cost."""
    manifest = run.manifest
    guarantee, spent, unit = manifest["guarantee"], manifest["spent"], manifest["unit"]
    epsilon, pure = _epsilon(guarantee), guarantee["definition"] == "pure"
    if not pure:
        epsilon = Fraction(math.ceil(epsilon * 10**4), 10**4)
    # A person is in every step, a user in several, and an early record of a growing database in every run: they pay
    # once for all.
    composition = str(spent["composition"])
    paid_by = "step" if composition.startswith("parallel") else "stream"
    parts: Sequence[dict[str, Any]] = manifest["mechanism"].get("parts", [])
    rows = [[str(p["name"]), str(p["times"]), _amount(p["amount"]), _amount(p["total"])] for p in parts]
    return {
        "test_seed": run.test_seed,
        "unit": {"name": unit["name"], "words": unit["words"], "returns": "returns" in unit},
        "replaced": manifest.get("relation") == "replace",
        "last": run.shown[-1].step,
        "pure": pure,
        "times": _times(epsilon),
        "epsilon": decimal_text(epsilon),
        "rho": None if pure else decimal_text(Fraction(guarantee["rho"])),
        "amount": "epsilon" if own_budget(manifest)["definition"] == "pure" else "rho",
        "spent": _amount(spent["total"]),
        "planned": _amount(spent["planned"]),
        "parallel": composition.startswith("parallel"),
        "horizon": manifest["horizon"],
        "declared": [sentence(str(text)) for text in manifest["declared_public"]],
        "paid_by": "epoch" if composition.startswith("parallel over epochs") else paid_by,
        "budget": [*rows, ["together", "", "", _amount(spent["step"])]],
        "mechanism": manifest["mechanism"]["name"],
        "details": [(p["name"], p["detail"]) for p in parts if p.get("detail")],
        "guarantee_words": guarantee["words"],
        "composition": composition,
        "plan_hash": manifest.get("plan_hash"),
    }


def _amount(text: object) -> str:
    return decimal_text(Fraction(str(text)))


_FILES = {
    "table": "the released table",
    "changes": "changes since the step before",
    "measurements": "measurements (dpstream measured)",
    "manifest": "method, guarantee, errors",
}


def _files(run: PublishedRun, rules: Html | None) -> Html:
    """The section on the files of the last release.

    Args:
        rules: in place of those for tables of synthetic records.
    """
    step = int(run.manifest["step"])
    names = [name for name in (*run.manifest.get("files", {}), "manifest.json") if "metadata" not in name]
    rows = [[f"step-{step:06d}/{name}", _FILES.get(name.split(".")[0], "see the manifest")] for name in names]
    rows += [
        ["codebook.json", "columns, types and labels"],
        ["catalogue.json", "all releases with their hashes"],
    ]
    weight = run.manifest.get("records", {}).get("weight")
    return block("report", "files", step=step, files=rows, rules=rules, weight=weight)


def table_of_verdicts(
    verdicts: Sequence[Verdict],
    size: int,
    measured: str | None = None,
    records: str = "",
    columns: int | None = None,
) -> Html | None:
    """What one may conclude, use by use, each with a band as wide as its error.

    Args:
        size: how many records there are.
        measured: how far the measured numbers of columns may be off, where the table's errors are not known.
        records: what they are called, where they are not all that the source has.
        columns: how many they have, where that is known.

    Without a verdict on pairs the table has one column.
    """
    if not verdicts:
        return None
    # One column has no pairs.
    verdicts = [one for one in verdicts if one.use != "pairs" or columns != 1]
    common = {"size": size, "records": records, "pairs": any(one.use == "pairs" for one in verdicts)}
    # What nobody knows is said once.
    beside: dict[Use, str] = {}
    if measured is not None:
        beside["columns"] = f"{measured}; the table's errors are not known"
    unknown = next((one.use for one in verdicts if _is_unknown(one) and one.use not in beside), None)
    rows = []
    for one in verdicts:
        facts = _error_facts(one, size, beside.get(one.use), is_first_unknown=one.use == unknown)
        use = _USES[one.use].format(group=integer(size * SMALL_GROUP))
        rows.append((use, one.word, block("report", "error", **common, **facts), _picture(one)))
    ranges = block(
        "report",
        "ranges",
        meaning=MEANING,
        hows={one.how for one in verdicts},
        averages=any(one.share is not None and one.use in ("columns", "pairs") for one in verdicts),
        words=[one.words for one in verdicts],
    )
    return part("conclusions", rows, "What these words mean", ranges)


_USES = {
    "totals": "How many there are",
    "columns": "Counts of one column",
    "pairs": "Two columns together",
    "small groups": "A group of 1 % ({group})",
    "averages": "Averages of binned numbers",
}


def _is_unknown(one: Verdict) -> bool:
    """Whether simulations would make it known."""
    return one.share is None and one.word == NOT_KNOWN and one.as_of is None and one.use != "averages"


def _error_facts(one: Verdict, size: int, beside: str | None, *, is_first_unknown: bool) -> dict[str, Any]:
    """What the template says of how wrong a number of one use may be."""
    said = None if one.share is not None else beside if _is_unknown(one) else f"{one.why}."
    off = None if one.share is None else 2 * one.share
    number = {"totals": float(size), "small groups": size * SMALL_GROUP}.get(one.use)
    by = None if off is None else percent(off) if number is None else integer(number * off)
    return {
        "use": one.use,
        "said": said,
        "unknown": one.why if is_first_unknown else None,
        "off": off,
        "by": by,
        "as_of": one.as_of,
        "how": one.how,
    }


def _picture(one: Verdict) -> Html | None:
    """The number as a dot in the middle, and as far as it may be off to either side: nothing to the whole number."""
    if one.share is None:
        return None
    reach = min(1.0, 2 * one.share)
    over = " over" if 2 * one.share > 1 else ""
    return block("report", "picture", over=over, end=f"{50 * (1 - reach):.1f}%", word=one.word)


def frame(
    title: str,
    above: Html,
    body: Html,
    footer: Sequence[str],
    *,
    data: Mapping[str, Any] | None = None,
    private: bool = False,
    marker: str = REPORT_MARKER,
) -> str:
    """A whole page in the one design: sealed by a policy, without the network.

    Args:
        above: what stands over the whole width.
        data: for the page's script; without data the page has none.
        marker: says to a later run what kind of page it may replace.
    """
    script = None if data is None else Html(_asset("report.js") + _asset("sortable.js"))
    return page(
        title=title,
        above=above,
        body=body,
        footer=footer,
        private=private,
        marker=Html(marker),
        policy=_policy(script),
        style=Html(_asset("report.css")),
        data=Html(script_json(data)),
        script=script,
    )


def _policy(script: str | None) -> str:
    """No network at all, and no script but the page's own, which is named by its hash."""
    allowed = "'none'"
    if script is not None:
        digest = hashlib.sha256(script.encode()).digest()
        allowed = f"'sha256-{base64.b64encode(digest).decode()}'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
