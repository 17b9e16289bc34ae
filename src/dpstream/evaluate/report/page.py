"""One self-contained page: assembled, sealed by its content-security policy, and written."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import dpstream
from dpstream import durable
from dpstream.errors import ConfigError, StoreError
from dpstream.evaluate.label import LABEL
from dpstream.evaluate.private_folder import releases_around
from dpstream.evaluate.report import sections_error, sections_promise, sections_tables, sections_time
from dpstream.evaluate.report.charts import Charts
from dpstream.evaluate.report.collect import MOST_STEPS, Run, collect
from dpstream.evaluate.report.markup import Html, element, integer, raw, script_json
from dpstream.evaluate.report.truth import Truth, collect_truth

__all__ = ["MARKER", "render", "write_report"]

#: Stands near the top of every page: what may be replaced by a newer one.
MARKER = "<!-- a report by dpstream -->"
_SECTIONS = (
    ("promise", "Protection"),
    ("releases", "Releases"),
    ("columns", "Columns"),
    ("pairs", "Pairs"),
    ("movement", "Over time"),
    ("errors", "Error"),
    ("weak", "Weak spots"),
)


def write_report(
    run: str | Path,
    out: str | Path,
    *,
    private_data: bool = False,
    pairs: Sequence[tuple[str, str]] = (),
    most_steps: int = MOST_STEPS,
    force: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Write one self-contained page about a run: what it protects, what it cost, what it gives.

    Args:
        run: a configuration file, or a folder of releases. From the folder alone the page shows what any reader of
            the releases can see.
        out: the page, ending in ``.html``. An earlier report of that name is replaced.
        private_data: compare with the private table as well (a configuration only). The page then holds private
            truth, says so on top, and is written with mode 0600, never among the releases.
        pairs: pairs of columns that get a heat map whatever their association.
        most_steps: tables to read at most, evenly spaced with the first and the last.
        force: replace a file that is no report.
        tell: gets sentences for the terminal that do not belong on a page.

    Guarantee: without ``private_data`` everything on the page is post-processing of the releases and of public
    declarations; with it there is none.

    Errors:
        ConfigError: no run, no release yet, a place that cannot be taken, private data without a configuration.
        SchemaError: an unknown column in ``pairs``.
        StoreDamagedError: files that differ from their published hashes.
        StepError, DataError: private data that do not belong to the run.

    Cost: reads each drawn table once (twice with the private data, and these once). CPU time: 0.4 s for 104 steps
    of 8 columns (1.6 s with the private data), 4 s for 1,000 steps of 22 columns (15 s).
    """
    place = _place(Path(out), force)
    found = collect(run, most=most_steps)
    _check_place(place, found, private_data)
    if tell is not None and (text := _unfinished(found)) is not None:
        tell(text)
    truth = None
    chosen = sections_tables.chosen_pairs(found, _checked(pairs))
    if private_data:
        truth = collect_truth(found, chosen)
    page = render(found, chosen, truth)
    # A label may hold half of a surrogate pair, which no file can.
    _write(place, page.encode("utf-8", "replace"), private_data)
    return place


def render(run: Run, chosen: Sequence[tuple[int, ...]], truth: Truth | None) -> str:
    """The page as text."""
    private = truth is not None
    charts = Charts({facts.step: facts.period.split("/")[0] for facts in run.shown if facts.period})
    body = [
        sections_promise.promise(run),
        sections_time.releases(run, truth, charts),
        sections_tables.columns(run, truth),
        sections_tables.pairs(run, chosen, truth),
        sections_time.movement(run, charts),
        sections_error.errors(run, truth, charts),
        sections_error.weak(run, truth),
    ]
    data = {**charts.as_json(), "heat": sections_tables.heat_json(run, chosen, truth)}
    scripts = [_asset("uPlot.iife.min.js"), _asset("report.js")]
    title = f"{run.manifest['stream']}: dpstream report" + (f" ({LABEL})" if private else "")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex") if private else None,
        element("title", title),
        element("style", raw(_asset("uPlot.min.css") + _asset("report.css"))),
    )
    links = [element("a", text, href=f"#{name}") for name, text in _SECTIONS if name != "pairs" or chosen]
    page = element(
        "html",
        raw(MARKER),
        head,
        element(
            "body",
            sections_promise.banner(run, private),
            element(
                "div",
                sections_promise.header(run, private),
                element("nav", links, aria_label="Sections"),
                element("main", element("noscript", element("p", _NO_SCRIPT, class_="note")), body),
                _footer(run, truth),
                class_="page",
            ),
            element("script", script_json(data), type="application/json", id="data"),
            [element("script", raw(script)) for script in scripts],
            class_="private" if private else None,
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


_NO_SCRIPT = (
    "Lines and heat maps need JavaScript (nothing is loaded from anywhere); the rest of the page does not."
)


def _footer(run: Run, truth: Truth | None) -> Html:
    program = run.manifest["program"]
    read = f"{integer(len(run.shown))} manifests and {integer(len(run.tables))} tables"
    texts = [
        f"Made by dpstream {dpstream.__version__} from releases of {program['name']} {program['version']}. "
        f"{read} were read; all of them match their published hashes.",
        "Every number on this page is computed from the releases and from public declarations."
        if truth is None
        else f"This page holds private truth: {LABEL}.",
        "The page loads nothing. Charts are drawn by uPlot, whose licence stands in the source of the page.",
    ]
    licence = _asset("THIRD_PARTY.txt")
    return element("footer", [element("p", text) for text in texts], raw(f"<!--\n{licence}-->"))


def _policy(scripts: Sequence[str]) -> str:
    """No network at all, and no script but the page's own: each is named by its hash."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _checked(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    for pair in pairs:
        if len(pair) != 2 or pair[0] == pair[1]:
            raise ConfigError(
                f"{' '.join(pair)!r} is not a pair", where="pairs", allowed="two different columns"
            )
    return list(pairs)


def _place(out: Path, force: bool) -> Path:
    """The page's path, refused where it would destroy anything but an earlier report."""
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(
            f"the name {out.name!r} is not one of a page", where="--out", allowed="a name in .html"
        )
    if out.is_dir():
        raise ConfigError("there is a folder of that name", where=str(out), allowed="another name")
    if out.exists() and not force:
        with out.open("rb") as file:
            ours = MARKER.encode() in file.read(200)
        if not ours:
            raise ConfigError(
                "there is a file that is no report", where=str(out), allowed="another name, or --force"
            )
    return out


def _check_place(out: Path, run: Run, private: bool) -> None:
    # A link of that name is replaced, not followed.
    place = out.parent.resolve() / out.name
    inside = run.releases.resolve() in place.parents
    # Those of other streams too, and a copy of these: all are there to be published.
    releases = run.releases if inside else releases_around(place.parent)
    if private and releases is not None:
        raise ConfigError(
            f"a page with private truth has no place among the releases in {str(releases)!r}",
            where=str(out),
            allowed="a folder that is not published",
        )
    if inside and place.parent != run.releases.resolve():
        raise ConfigError(
            "a step's folder holds its own files only", where=str(out), allowed="another folder"
        )


def _unfinished(run: Run) -> str | None:
    """What is under way, for the owner's terminal; whether a step has begun is not public."""
    if run.config is None:
        return None
    from dpstream.streams import read_status
    from dpstream.streams.place import has_store

    folder, server = run.config.state_dir, run.config.server
    if not has_store(folder, server=server):
        return None
    status = read_status(folder, server=server)
    last = run.states[-1][0]
    if status.failed is not None:
        return f"step {status.reserved} stopped with {status.failed}; the report holds the steps up to {last}"
    if status.reserved is not None:
        return (
            f"step {status.reserved} was begun and is not finished; the report holds the steps up to {last}"
        )
    if status.unpublished:
        return f"{len(status.unpublished)} committed steps wait to be published; the report holds those up to {last}"
    return None


def _write(out: Path, page: bytes, private: bool) -> None:
    try:
        if not out.parent.is_dir():
            out.parent.mkdir(mode=0o700 if private else 0o755, parents=True)
        durable.replace_file(out, page, mode=0o600 if private else 0o644)
    except OSError as error:
        raise StoreError(
            f"the report could not be written: {error.strerror or error}", where=str(out)
        ) from error
