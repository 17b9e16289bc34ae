"""What a family brings to a page, and the frame that all share: sealed by a policy, with the same head and foot."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, PureDP, decimal_text, zcdp_to_epsilon
from dpstream.core.version import __version__
from dpstream.stream.predecessor_cost import own_budget
from dpstream.stream.release.fitness import Fitness, fitness_of_step
from dpstream.stream.release.verdicts import (
    MEANING,
    NOT_KNOWN,
    PREDICTED,
    SIMULATED,
    SMALL_GROUP,
    Use,
    Verdict,
)
from dpstream.stream.templates import sentence
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.dates import Calendar, calendar_of
from dpstream.tools.report.known_errors import beside_verdicts
from dpstream.tools.report.markup import Html, element, fold, integer, join, percent, raw, script_json, table

if TYPE_CHECKING:
    from dpstream.project.sections import Publication


#: Beyond this epsilon the bound has more than 13 digits, and says nothing.
_HARDLY_A_BOUND = 30


def promise(run: PublishedRun) -> Html:
    """The section on what is protected, and at what cost; its clauses are folded."""
    manifest = run.manifest
    plain = element("div", [element("p", text) for text in _plainly(run)], class_="aloud")
    return element(
        "section",
        element("h2", "What is protected, and what it cost"),
        plain,
        fold(
            "What is not covered",
            element("ul", [element("li", text) for text in _limits(run)], class_="prose"),
        ),
        _declared(run),
        fold("Where the budget goes", _parts(run)),
        fold(
            "The exact words of the manifest",
            element("p", str(manifest["guarantee"]["words"])),
            element("p", f"Accounting: {manifest['spent']['composition']}."),
            element("p", f"Plan {manifest['plan_hash']}" if "plan_hash" in manifest else None, class_="hash"),
        ),
        id="promise",
    )


def factor_words(guarantee: dict[str, Any]) -> str:
    """The promise in half a sentence.

    >>> factor_words({"definition": "pure", "epsilon": "1"})
    'it makes any outcome at most 2.72 times likelier'
    """
    if guarantee["definition"] == "pure":
        return f"it makes any outcome {_times(Fraction(guarantee['epsilon']))}"
    implied = Fraction(zcdp_to_epsilon(ZCDP.of(Fraction(guarantee["rho"])), "1e-9"))
    return f"it makes any outcome {_times(implied)}, but for a chance of one in a billion"


def _plainly(run: PublishedRun) -> list[str]:
    manifest = run.manifest
    last = run.shown[-1].step
    words = [f"Protected is {manifest['unit']['words']}."]
    words += _bound(manifest["guarantee"], last, str(manifest.get("relation", "add-remove")))
    if run.test_seed:
        return [
            "There is no guarantee: this stream was made with a test seed. Otherwise it would read:",
            *words,
        ]
    words.append(
        "This holds against somebody who knows every other record, has any amount of computing power, and "
        "watches every release."
    )
    spent = decimal_text(Fraction(manifest["spent"]["total"]))
    planned = decimal_text(Fraction(manifest["spent"]["planned"]))
    name = "epsilon" if own_budget(manifest)["definition"] == "pure" else "rho"
    words.append(f"Spent so far: {name} {spent} of {planned} that the plan allows. {_more_steps(manifest)}")
    return words


def _more_steps(manifest: dict[str, Any]) -> str:
    """Why a further step costs those who are in earlier ones nothing."""
    if str(manifest["spent"]["composition"]).startswith("parallel"):
        horizon = manifest["horizon"]
        end = "" if horizon is None else f" The plan ends after {integer(horizon)} steps."
        return f"A further step protects its own records with the same amount and takes nothing from earlier ones.{end}"
    return "The amount is for the whole stream: further steps are paid for already."


def _bound(guarantee: dict[str, Any], last: int, relation: str = "add-remove") -> list[str]:
    """The promise as a factor.

    >>> _bound({"definition": "pure", "epsilon": "1"}, 3)[0][:97]
    'Whether it is there or not, any outcome of all releases up to step 3 together is at most 2.72 tim'
    """
    whatever = "Whatever it holds" if relation == "replace" else "Whether it is there or not"
    opening = f"{whatever}, any outcome of all releases up to step {last} together"
    if guarantee["definition"] == "pure":
        epsilon = Fraction(guarantee["epsilon"])
        return [
            f"{opening} is {_times(epsilon)} in one case than in the other (epsilon = {decimal_text(epsilon)})."
        ]
    rho = Fraction(guarantee["rho"])
    implied = Fraction(zcdp_to_epsilon(ZCDP.of(rho), "1e-9"))
    bound = Fraction(math.ceil(implied * 10**4), 10**4)
    return [
        f"{opening} looks almost the same: the releases satisfy zero-concentrated differential privacy with "
        f"rho = {decimal_text(rho)}.",
        f"It implies that any outcome is {_times(bound)} in one case than in the other, plus a chance of one in "
        f"10^9 (epsilon = {decimal_text(bound)}, delta = 1e-9).",
    ]


def _times(epsilon: Fraction) -> str:
    """Rounded up, so that the sentence stays true.

    >>> _times(Fraction(1)), _times(Fraction(100))
    ('at most 2.72 times likelier', 'bounded by a factor so large that it protects hardly anything')
    """
    if epsilon > _HARDLY_A_BOUND:
        return "bounded by a factor so large that it protects hardly anything"
    factor = math.exp(float(PureDP(epsilon).amount))
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"at most {math.ceil(factor * 10**digits) / 10**digits:,.{min(digits, 2)}f} times likelier"


def _limits(run: PublishedRun) -> list[str]:
    unit = run.manifest["unit"]["name"]
    pure = run.manifest["guarantee"]["definition"] == "pure"
    what = "records, or stays of a record," if "returns" in run.manifest["unit"] else "records"
    ten = "ten times the epsilon" if pure else "a hundred times the rho, and ten times the epsilon or more"
    several = f"A person with several {what} is protected less, in proportion: ten of them, {ten}."
    limits = []
    if unit == "event-replace":
        limits += [
            "How many records there are is public. Protected is what any one of them holds.",
            several,
        ]
    elif unit.startswith("event"):
        limits += [
            "A record that is added and later withdrawn or corrected is two such events, and loses twice as much.",
            several,
        ]
    elif unit.startswith("record"):
        limits.append(several)
    limits += [
        "The names of columns, their values and bins, and this stream's settings are public and not protected.",
        "What is true of people in general can be learned, with or without any one record in the table. That is "
        "what the releases are for.",
        "The running time, the memory of the program and the folder with its secret state are outside the promise.",
    ]
    return limits


def _declared(run: PublishedRun) -> Html | None:
    facts = run.manifest["declared_public"]
    if not facts:
        return None
    items = [element("li", sentence(str(text))) for text in facts]
    return fold(
        "What this stream's owner declared public, and what a halt shows",
        element("ul", items, class_="prose fine"),
    )


def _parts(run: PublishedRun) -> Html:
    manifest = run.manifest
    amount = "epsilon" if own_budget(manifest)["definition"] == "pure" else "rho"
    parts: Sequence[dict[str, Any]] = manifest["mechanism"].get("parts", [])
    rows = [[str(p["name"]), str(p["times"]), _amount(p["amount"]), _amount(p["total"])] for p in parts]
    rows.append(["together", "", "", _amount(manifest["spent"]["step"])])
    # A person is in every step, a user in several, and an early record of a growing database in every run: they pay
    # once for all.
    composition = str(manifest["spent"]["composition"])
    once = not composition.startswith("parallel")
    per, what = ("in all", "What all steps take together") if once else ("a step", "What one step takes")
    if composition.startswith("parallel over epochs"):
        per, what = "an epoch", "What one epoch takes (steps that are measured together)"
    made = table(
        ["part", "times" if once else f"times {per}", f"{amount} each", f"{amount} {per}"],
        rows,
        caption=f"{what}, by part of the mechanism ({manifest['mechanism']['name']})",
    )
    details = [
        element("li", element("b", f"{p['name']}: "), str(p["detail"])) for p in parts if p.get("detail")
    ]
    return join([made, element("ul", details, class_="prose note") if details else None])


def _amount(text: str) -> str:
    return decimal_text(Fraction(str(text)))


# How to use what was released: the files, and the rules that keep one from wrong conclusions.


_WHAT = {
    "table": "what was released; any program reads it",
    "changes": "what is new or different since the step before",
    "measurements": "what was measured, with its noise: exact intervals (dpstream measured)",
    "manifest": "how it was made, what is protected, how wrong it may be",
}


def files_section(run: PublishedRun, own: Sequence[str] | None = None) -> Html:
    """The section on the files of the last release.

    Args:
        own: rules in place of those for tables of synthetic records.
    """
    step = int(run.manifest["step"])
    folder = f"step-{step:06d}"
    names = [name for name in (*run.manifest.get("files", {}), "manifest.json") if "metadata" not in name]
    rows = [[f"{folder}/{name}", _WHAT.get(name.split(".")[0], "see the manifest")] for name in names] + [
        ["codebook.json", "columns, types and labels"],
        ["catalogue.json", "all releases with their hashes"],
    ]
    rules = list(own or ()) or [
        "Ask what was measured before you count rows: measured counts have exact intervals, counts of rows have none.",
        "Rows are no sample. A standard error or a p-value that a program computes from them is wrong.",
        "Leave small groups alone: the noise of a measured count does not shrink with the count.",
    ]
    weight = run.manifest.get("records", {}).get("weight")
    if weight is not None and own is None:
        rules.insert(0, f"Add up the column {weight}, do not count rows: weights take out invented people.")
    code = (
        f'import dpstream as dp\nrelease = dp.read("releases")\ntable = release.table({step}, frame="pandas")'
    )
    return element(
        "section",
        element("h2", "How to use the files"),
        element("ol", [element("li", text) for text in rules], class_="prose"),
        fold(
            f"The files of step {step}",
            table(["file", "what it is"], rows, caption="In the folder of releases", numeric=9),
            element("pre", element("code", code)),
            element(
                "p",
                "To cite: the stream's name, the step and the version of the program stand in its manifest.",
                class_="note",
            ),
        ),
        id="files",
    )


# The first card of a page: what this is, what one may conclude from it, how wrong it may be, and how old it
# is.


def banner(run: PublishedRun, unfit: str | None) -> Html:
    """What nobody may overlook: noise that can be predicted, rows that nobody can use."""
    warnings = []
    if run.test_seed:
        warnings.append(
            element(
                "div",
                element("strong", "No guarantee."),
                " This stream was made with a test seed: whoever knows it can take the noise away.",
                class_="warning",
            )
        )
    if unfit is not None:
        warnings.append(element("div", element("strong", "unfit:"), f" {unfit}", class_="warning"))
    return element("div", warnings, role="alert") if warnings else Html("")


def opening(
    run: PublishedRun,
    dates: Calendar,
    what: str,
    card: Html | None,
    links: Sequence[tuple[str, str]],
    *,
    kicker: str | None = None,
    about: Publication | None = None,
) -> Html:
    """The whole card, with the links to what is below.

    Args:
        what: what was released, up to the noun: ``10,023 invented records with 8 columns``.
        card: what one may conclude.
        kicker: what kind of thing this is; that of synthetic data where it is None.
        about: what the owner says to readers, where that is known.
    """
    lead = f"{what}, made from {run.shown[-1].holds}."
    if "invented" in what:
        lead += " No row is a person or a record."
    described = None if about is None else about.description
    return element(
        "header",
        element(
            "p",
            kicker or "Synthetic data: what they are good for",
            class_="kicker",
        ),
        element("h1", element("bdi", title_of(run, about))),
        None if described is None else element("p", described),
        element("p", lead, class_="lead"),
        card,
        element("dl", _age(run, dates), _many(run, dates), _loss(run), class_="facts"),
        element("nav", [element("a", text, href=f"#{name}") for name, text in links], aria_label="Sections"),
    )


def title_of(run: PublishedRun, about: Publication | None) -> str:
    """What the owner calls the data set; the stream's name where that is not known."""
    return (None if about is None else about.title) or str(run.manifest["stream"])


def table_of_verdicts(
    verdicts: Sequence[Verdict], size: int, beside: Mapping[Use, str] | None = None, records: str = ""
) -> Html | None:
    """What one may conclude, use by use, each with a band as wide as its error.

    Args:
        size: how many records there are.
        beside: what else is known of the errors of a use.
        records: what they are called, where they are not all that the source has.

    Without a verdict on pairs the table has one column.
    """
    more = beside or {}
    one_column = all(one.use != "pairs" for one in verdicts)
    if not verdicts:
        return None
    # What nobody knows is said once.
    asked = [
        one.use for one in verdicts if one.word == NOT_KNOWN and one.as_of is None and one.use != "averages"
    ]
    unknown = next((use for use in asked if use not in more), None)
    rows = [
        (
            _USES[one.use].format(group=integer(size * SMALL_GROUP)),
            one.word,
            _error(one, size, one.use == unknown, more.get(one.use), one_column, records),
            _picture(one),
        )
        for one in verdicts
    ]
    meaning = "; ".join(f"{word}: {what}" for word, what in MEANING.items())
    return conclusions(
        rows,
        "What these words mean",
        element("p", f"{meaning}. {_range_words(verdicts)}"),
        element("ul", [element("li", one.words) for one in verdicts]),
    )


def conclusions(
    rows: Sequence[tuple[str, str | None, Sequence[Html | str], Html | None]],
    summary: str,
    *more: Html,
    title: str = "What you may conclude, and how wrong it may be",
) -> Html:
    """What one may conclude: a row for each use, and below it what opens.

    Args:
        rows: the use, the word on it (None: its error alone speaks), the error in words, and its picture.
    """
    made = [
        element(
            "tr",
            element("th", use, scope="row"),
            element(
                "td",
                None if word is None else element("span", word, class_=f"word {word.replace(' ', '-')}"),
                class_="verdict",
            ),
            element("td", error, class_="error", colspan=2 if picture is None else None),
            None if picture is None else element("td", picture, class_="picture", aria_hidden="true"),
        )
        for use, word, error, picture in rows
    ]
    return join(
        [
            element("h2", title, class_="quiet"),
            element("table", element("tbody", made), class_="verdicts"),
            element("details", element("summary", summary), *more),
        ]
    )


def _range_words(found: Sequence[Verdict]) -> str:
    """How often a range holds the truth, by where its error comes from."""
    hows = {one.how for one in found}
    texts = ["A range is two standard errors to either side, and holds the truth in about 19 of 20 cases."]
    if PREDICTED in hows:
        texts.append("By the plan it is about measured sums: what a model adds is not in it.")
    if SIMULATED in hows:
        texts.append(
            "By simulation a standard error is widened, as in the published intervals, for the few runs and for what "
            "no simulation can see; such intervals held the truth in 90 to 100 % of the cells where this was tried."
        )
    if any(one.share is not None and one.use in ("columns", "pairs") for one in found):
        texts.append(
            "An average count is the table's size divided by the combinations of values. Large counts are further off, "
            "and so are average ones in the other half of the pairs: the range is not one for all counts."
        )
    return " ".join(texts)


_USES = {
    "totals": "How many there are",
    "columns": "Counts of one column",
    "pairs": "Two columns together",
    "small groups": "A group of 1 % ({group})",
    "averages": "Averages of binned numbers",
}
_WHERE = {"columns": "in every column ", "pairs": "in half of the pairs "}
_HOW = {"predicted": "by the plan", "simulated": "by simulation", "modelled": "by its model", "exact": ""}


def _error(
    one: Verdict, size: int, first_unknown: bool, more: str | None, one_column: bool, records: str
) -> list[Html | str]:
    if one.share is None and one.word == NOT_KNOWN and one.as_of is None and one.use != "averages":
        command = "how wrong is not known; the publisher can find out with dpstream errors"
        return [text for text in (more, command if first_unknown else None) if text]
    if one.share is None:
        return [f"{one.why}."]
    off = 2 * one.share
    if off == 0:
        return ["exact" if one.use != "totals" else f"{integer(size)}, a public number"]
    number = {"totals": float(size), "small groups": size * SMALL_GROUP}.get(one.use)
    by = percent(off) if number is None else f"{integer(number * off)}"
    words = {
        "totals": f"{integer(size)}{records and f' {records}'}, give or take {by}",
        "small groups": f"give or take {by}" + (": more than there are" if off > 1 else ""),
    }.get(
        one.use,
        f"{'' if one_column else _WHERE.get(one.use, '')}an average count is right to within {by}",
    )
    if one.as_of is not None:
        words += f" as of step {one.as_of}"
    if more:
        words += f"; {more}" + ("" if one.how == SIMULATED else " by simulation")
    how = _HOW.get(one.how or "", "")
    return [words, " ", element("small", how) if how else ""]


def _picture(one: Verdict) -> Html | None:
    """The number as a dot in the middle, and as far as it may be off to either side: nothing to the whole number."""
    if one.share is None:
        return None
    reach = min(1.0, 2 * one.share)
    over = " over" if 2 * one.share > 1 else ""
    band = element(
        "i", class_=f"band{over}", style=f"left:{50 * (1 - reach):.1f}%;right:{50 * (1 - reach):.1f}%"
    )
    return element("span", band, element("i", class_="dot"), class_=f"range {one.word}")


def _age(run: PublishedRun, dates: Calendar) -> Html:
    last = run.shown[-1].step
    measured = run.measured_up_to
    day = dates.day(last)
    # The page's script adds how long ago that was; the page itself is the same whenever it is made.
    age = element("time", day, datetime=day, class_="age") if day else None
    more: list[Html | str | None] = [f"release {last}" if dates.name(last) != f"step {last}" else None, age]
    if measured < last:
        more.append(f"measured up to {dates.name(measured)}; what came since is expected")
    return _fact("Newest table", dates.name(last), _with_commas(more))


def _many(run: PublishedRun, dates: Calendar) -> Html:
    steps = [facts.step for facts in run.shown]
    often = dates.every(steps) if len(run.states) == len(run.shown) else ""
    horizon = run.manifest["horizon"]
    planned = None if horizon is None else f"of {integer(horizon)} planned"
    more = [planned, often, f"since {dates.name(run.states[0][0])}" if len(run.states) > 1 else None]
    return _fact("Releases", integer(len(run.states)), _with_commas(more))


def _loss(run: PublishedRun) -> Html:
    guarantee = run.manifest["guarantee"]
    whom = str(run.manifest["unit"]["words"]).split(" (")[0].split(":")[0].split(";")[0]
    if run.test_seed:
        return _fact("Privacy", "no guarantee", [f"otherwise {_short(guarantee)}"])
    return _fact("Privacy", _short(guarantee), [f"protects {whom}: {factor_words(guarantee)}"])


def _fact(name: str, value: str, more: Sequence[Html | str]) -> Html:
    return element(
        "div", element("dt", name), element("dd", value, class_="big"), element("dd", *more, class_="more")
    )


def _with_commas(parts: Sequence[Html | str | None]) -> list[Html | str]:
    there = [part for part in parts if part]
    return [x for i, part in enumerate(there) for x in ((", ", part) if i else (part,))]


def _short(guarantee: dict[str, Any]) -> str:
    """Rounded up to three digits.

    >>> _short({"definition": "pure", "epsilon": "1/2"}), _short({"definition": "zCDP", "rho": "0.0243559703"})
    ('ε = 0.5', 'ρ = 0.0244')
    """
    sign, key = ("ε", "epsilon") if guarantee["definition"] == "pure" else ("ρ", "rho")
    amount = Fraction(guarantee[key])
    digits = 2 - math.floor(math.log10(amount)) if amount else 0
    short = Fraction(math.ceil(amount * Fraction(10) ** digits)) / Fraction(10) ** digits
    return f"{sign} = {float(short):.10g}"


#: Stands near the top of every page: what may be replaced by a newer one.
REPORT_MARKER = "<!-- a report by dpstream -->"
_NO_SCRIPT = "Heat maps, sliders and tables of values need JavaScript (nothing is loaded from anywhere)."


Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """What is on a page beside its frame and the section on protection.

    Attributes:
        run: what the manifests tell.
        sections: name, title in the list of links (empty: no link) and content.
        what: what was released, up to the noun, for the first sentence.
        charts: those in the sections.
        tables: how many released tables were read.
        heat: data of heat maps, for the script.
        size: how many there are, where that is not the number of rows.
        kicker: what kind of thing this is, above its name; that of synthetic data where it is None.
        card: what one may conclude, where that is not told by verdicts on tables.
        rules: for using the files, where those of tables do not fit.
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
    rules: Sequence[str] | None = None
    measured: Callable[[], str | None] | None = None
    columns: int | None = None


@dataclass(frozen=True)
class FamilyPage:
    """How a report shows the releases of a family.

    Attributes:
        draw: reads the public folder.
        pairs: whether chosen pairs of columns can be shown.
        refusal: why not, and what to use instead.
    """

    draw: Callable[[Folder, Pairs], Page]
    pairs: bool = False
    refusal: tuple[str, str] = ("", "none")

    def page(self, folder: Folder, pairs: Pairs) -> str:
        """The whole page as text.

        Errors:
            ConfigError: pairs that cannot be shown. Others as of ``write_report``.
        """
        if pairs and not self.pairs:
            what, instead = self.refusal
            raise ConfigError(what, where="report", allowed=instead)
        fit = fitness_of_step(folder.releases, folder.manifest_of, folder.steps[-1])
        about = None if folder.config is None else folder.config.publication
        return assemble(self.draw(folder, pairs), folder.releases, fit=fit, about=about)


def errors_section(texts: Sequence[str]) -> Html:
    """How wrong it can be, where only sentences say it."""
    return element(
        "section", element("h2", "How wrong it can be"), [element("p", text) for text in texts], id="errors"
    )


def charts_of(run: PublishedRun) -> Charts:
    """An empty collection of charts that calls steps by their dates."""
    return Charts(calendar_of(run))


def assemble(made: Page, releases: Path, *, fit: Fitness, about: Publication | None = None) -> str:
    """The whole page as text.

    Args:
        releases: the folder, for published errors by simulation.
        fit: what the newest table is fit for.
        about: what the owner says to readers, where that is known.
    """
    run, dates = made.run, made.charts.dates
    links = [(name, title) for name, title, _ in made.sections if title]
    links += [("promise", "Privacy and cost"), ("files", "Use the files")]
    size = run.shown[-1].rows if made.size is None else made.size
    card = made.card
    if card is None:
        unknown = any(one.use == "columns" and one.word == NOT_KNOWN for one in fit.verdicts)
        measured = made.measured() if unknown and made.measured is not None else None
        beside = beside_verdicts(releases, run.shown[-1].step, measured)
        # Of one column there are no pairs, and no command would make them known.
        judged = [one for one in fit.verdicts if one.use != "pairs" or made.columns != 1]
        card = table_of_verdicts(
            judged, size, beside, "" if run.counted_records == "records" else run.counted_records
        )
    head = opening(run, dates, made.what, card, links, kicker=made.kicker, about=about)
    body = [*(content for _, _, content in made.sections), promise(run), files_section(run, made.rules)]
    data = {**made.charts.as_json(facts.step for facts in run.shown), "heat": made.heat}
    return frame(
        f"{title_of(run, about)}: dpstream report",
        [banner(run, fit.unfit)],
        [head, element("main", element("noscript", element("p", _NO_SCRIPT, class_="note")), body)],
        _footer(run, made.tables),
        data=data,
    )


def frame(
    title: str,
    above: Sequence[Html],
    body: Sequence[Html],
    footer: Sequence[str],
    *,
    data: dict[str, Any] | None = None,
    private: bool = False,
    marker: str = REPORT_MARKER,
) -> str:
    """A whole page in the one design: sealed by a policy, without the network.

    Args:
        above: what stands over the whole width.
        data: for the page's script; without any there is no script.
        marker: says to a later run what kind of page it may replace.
    """
    scripts = [] if data is None else [_asset("report.js")]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex") if private else None,
        element("title", title),
        element("style", raw(_asset("report.css"))),
    )
    foot = element("footer", [element("p", text) for text in footer])
    block = element("script", script_json(data), type="application/json", id="data") if scripts else None
    page = element(
        "html",
        raw(marker),
        head,
        element(
            "body",
            above,
            element("div", body, foot, class_="page"),
            block,
            [element("script", raw(script)) for script in scripts],
            class_="private" if private else None,
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _footer(run: PublishedRun, tables: int) -> list[str]:
    program = run.manifest["program"]
    read = f"{integer(len(run.shown))} manifests and {integer(tables)} tables"
    return [
        f"Made by dpstream {__version__} from releases of {program['name']} {program['version']} of the "
        f"stream {run.manifest['stream']}. "
        f"{read} were read; all of them match their published hashes.",
        "Every number on this page is computed from the releases and from public declarations.",
        "The page loads nothing.",
    ]


def _policy(scripts: Sequence[str]) -> str:
    """No network at all, and no script but the page's own: each is named by its hash."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
