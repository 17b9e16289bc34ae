"""What a family brings to a page, and the frame that all share: sealed by a policy, with the same head and foot."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts.verdicts import NOT_KNOWN
from dpstream.core.errors import ConfigError
from dpstream.core.version import __version__
from dpstream.stream.release.fitness import Fitness, fitness_of_step
from dpstream.tools.evaluate.run_folder import Folder, Told
from dpstream.tools.report.charts import Charts
from dpstream.tools.report.dates import calendar_of
from dpstream.tools.report.known_errors import beside_verdicts
from dpstream.tools.report.markup import Html, element, integer, raw, script_json
from dpstream.tools.report.opening import banner, opening, table_of_verdicts, title_of
from dpstream.tools.report.sections_files import files_section
from dpstream.tools.report.sections_promise import promise

if TYPE_CHECKING:
    from dpstream.project.sections import Publication

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

    run: Told
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


def charts_of(run: Told) -> Charts:
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


def _footer(run: Told, tables: int) -> list[str]:
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
