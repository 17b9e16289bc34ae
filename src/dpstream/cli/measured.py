"""``dpstream measured``: unbiased numbers with exact intervals, from a folder of releases alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import json_option, print_facts, require_free
from dpstream.cli.types import FilePath, Whole
from dpstream.core.errors import ConfigError, DpstreamError

if TYPE_CHECKING:
    from dpstream.stream.measured_counts import CountsOf
    from dpstream.stream.public_release import PublicRelease
    from dpstream.stream.release.estimates import Estimate
    from dpstream.stream.release.flows import AskedFlow, Change, Events, Series


#: Rows of the first screen.
_MOST = 12


@click.command("measured", short_help="Add up measurements: unbiased numbers with exact intervals.")
@click.argument("releases", type=FilePath("folder"))
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Counts of its values; repeat for combinations.",
)
@click.option(
    "--question",
    metavar="WORDS",
    help="Number of records with: \"paid and zip = '94103'\".",
)
@click.option(
    "--of",
    "kind",
    metavar="KIND",
    help='Count people, "at least 2", patterns (panels), departures, or "depth 5" (points).',
)
@click.option(
    "--mean",
    metavar="COLUMN",
    help="The average of a column; with --question, --from and --to, --every.",
)
@click.option("--as-of", type=Whole(), help="The end of this step (the last measured).")
@click.option("--from", "start", metavar="DAY", help="What came from this day (or step) on; with --to.")
@click.option("--to", "end", metavar="DAY", help="The last day (or step) of a flow, included.")
@click.option("--change", "earlier", metavar="DAY/DAY", help="The flow --from --to less that of these days.")
@click.option("--every", metavar="LENGTH", help="The flow of each week, month, quarter, year or N steps.")
@click.option(
    "--events",
    type=click.Choice(["net", "came", "left"]),
    default="net",
    show_default=True,
    help="Which records a flow counts; net: those that came less those that left.",
)
@click.option("--cover", is_flag=True, help="Widen a flow to the nearest measured days.")
@click.option("--confidence", default=0.95, show_default=True, help="Of each interval.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--out",
    type=FilePath("new"),
    help="A file for these counts; alone: all counts.",
)
@click.option("--format", "form", type=click.Choice(["csv", "sdmx-csv"]), help="Of --out (csv).")
@click.option("--force", is_flag=True, help="Replace the file of --out.")
@json_option
def command(
    releases: str,
    columns: tuple[str, ...],
    question: str | None,
    kind: str | None,
    mean: str | None,
    as_of: int | None,
    start: str | None,
    end: str | None,
    earlier: str | None,
    every: str | None,
    events: Events,
    cover: bool,
    confidence: float,
    as_csv: bool,
    out: str | None,
    form: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Add up the noisy counts in the folder RELEASES: unbiased numbers of records, each with an interval.

    Their errors are exact, those of a synthetic table's counts are not; they may be negative. Nothing else is read,
    nothing is spent. Without options: which counts exist, as of which step, how precise.

    \b
    Examples:
      dpstream measured releases
      dpstream measured releases --question "rent >= 1000" --confidence 0.99
      dpstream measured releases --column zip --every quarter
      dpstream measured releases --mean rent --question "zip = '94103'"
      dpstream measured releases --column zip --from 2024-04-01 --to 2024-06-30 --change 2024-01-01/2024-03-31
      dpstream measured releases --out counts.csv
    """
    import dpstream
    from dpstream.stream.release.estimates import Estimate
    from dpstream.stream.release.flows import AskedFlow

    timed = any(one is not None for one in (start, end, earlier, every))
    if mean is not None and (columns or kind or as_of or earlier or as_csv or out):
        raise ConfigError(
            "an average goes with few options",
            where="--mean",
            allowed="--question, --from, --to, --every, --events, --cover, --confidence, --json",
        )
    if timed and mean is None and (as_of is not None or question is not None):
        raise ConfigError(
            "flows are of the number of records, of columns, or of cells of points",
            where="--from, --to, --change, --every",
            allowed='alone, with --column or --of "depth 5", without --as-of and --question',
        )
    if as_csv and (as_json or not (columns or kind or timed)):
        raise ConfigError(
            "CSV holds counts of columns", where="--csv", allowed="with --column or --of, without --json"
        )
    if kind is not None and (columns or question is not None or as_of is not None):
        raise ConfigError(
            "--of counts something else than columns",
            where="--of",
            allowed="without --column, --question and --as-of",
        )
    if question is not None and columns:
        what = "a question names its columns itself"
        raise ConfigError(what, where="--question", allowed="without --column")
    if out is None and (form is not None or force):
        raise ConfigError("no file is named", where="--format, --force", allowed="with --out")
    if out is not None and (as_csv or as_json or kind or question or earlier):
        what = "a file holds flows, and counts as of a step"
        raise ConfigError(what, where="--out", allowed="without --csv, --json, --of, --question, --change")
    if out is not None:
        require_free(Path(out), force=force)
    release = dpstream.read(releases)
    names = columns if kind is None else (kind,)
    asked = AskedFlow(names, start, end, earlier, every, events, cover)
    if out is not None:
        _write(release, Path(out), form, _counts(release, asked, as_of), confidence)
    elif mean is not None:
        _means(release, mean, question, asked, confidence, as_json)
    elif timed:
        answer = asked.of(release)
        show = _cells if isinstance(answer, Estimate) else _rows
        show(answer, confidence, as_csv, as_json)  # type: ignore[arg-type]
    elif question is not None:
        _answer(release, question, as_of, confidence, as_json)
    elif kind is not None:
        kinds = release.measured_kinds()
        if kind not in kinds:
            raise ConfigError(
                f"{kind!r} was not measured",
                where="--of",
                allowed=", ".join(kinds) or "--column: nothing else was",
            )
        _cells(kinds[kind], confidence, as_csv, as_json)
    elif columns:
        estimate = _estimate(release, columns, as_of)
        _cells(estimate, confidence, as_csv, as_json)
    else:
        _known(release, as_of, as_json)


def _estimate(release: PublicRelease, columns: tuple[str, ...], as_of: int | None) -> Estimate:
    estimate = release.measured(columns, as_of=as_of)
    if estimate is None:
        missing = release.missing(columns, as_of=as_of)
        raise ConfigError(
            "these counts cannot be added up" if missing is None else missing.reason.rstrip("."),
            where=" x ".join(columns) or "the number of records",
            allowed="what `dpstream measured RELEASES` lists, or an earlier --as-of",
        )
    return estimate


def _counts(release: PublicRelease, asked: AskedFlow, as_of: int | None) -> list[CountsOf]:
    """What a file holds: the counts that the options name, or all that are measured again and again."""
    from dpstream.stream import measured_counts as made
    from dpstream.stream.release.flows import Series

    if asked.every or asked.start or asked.end:
        answer: Any = asked.of(release)
        if isinstance(answer, Series):
            return made.of_series(asked.events, answer)
        return [made.CountsOf(asked.events, answer.columns, answer.span, answer)]
    if asked.columns or as_of is not None:
        return [made.present(release, asked.columns, _estimate(release, asked.columns, as_of))]
    found = made.published_counts(release)[0]
    if all(own.estimate is None for own in found):
        what = "nothing is measured"
        raise ConfigError(
            what, where="--out", allowed="with --column; `dpstream measured RELEASES` lists them"
        )
    return found


def _write(
    release: PublicRelease, out: Path, form: str | None, counts: list[CountsOf], confidence: float
) -> None:
    from dpstream.core import durable
    from dpstream.io.sinks.table_files import to_bytes
    from dpstream.stream.measured_counts import to_rows, to_sdmx

    if form == "sdmx-csv":
        manifest = release.manifest()
        unit = "people" if manifest["unit"]["name"].startswith("individual") else _counted_records(release)
        table = to_sdmx(counts, str(manifest["stream"]), confidence, unit)
    else:
        table = to_rows(counts, confidence)
    durable.replace_file(out, to_bytes(table, "csv"), mode=0o644)
    click.echo(f"wrote {out}")


def _rows(answer: Change | Series, confidence: float, as_csv: bool, as_json: bool) -> None:
    """A change or a series."""
    from dpstream.stream.release.flows import answer_facts

    table = answer.to_table(confidence)
    if as_csv:
        from dpstream.io.sinks.table_files import to_bytes

        click.echo(to_bytes(table, "csv").decode(), nl=False)
        return
    rows = table.to_pylist()
    names = [name for name in table.column_names if name not in ("low", "high")]
    facts, percent = answer_facts(answer, confidence), f"{100 * confidence:g}"
    shown = {
        "names": names,
        "newest": rows[-_MOST:],
        "more": len(rows) - _MOST,
        "percent": percent,
        "whole": "--csv",
    }
    print_facts("measured_rows", facts, as_json=as_json, wrap=True, **shown)


def _cells(estimate: Estimate, confidence: float, as_csv: bool, as_json: bool) -> None:
    from dpstream.stream.release.flows import answer_facts

    if as_csv:
        from dpstream.io.sinks.table_files import to_bytes

        click.echo(to_bytes(estimate.to_table(confidence), "csv").decode(), nl=False)
        return
    facts = answer_facts(estimate, confidence)
    counted, unit = ("number", "") if estimate.about else (estimate.records, f" {estimate.records}")
    percent = f"{100 * confidence:g}"
    print_facts(
        "measured_cells", facts, as_json=as_json, wrap=True, counted=counted, unit=unit, percent=percent
    )


def _means(
    release: PublicRelease, column: str, where: str | None, asked: AskedFlow, confidence: float, as_json: bool
) -> None:
    """The average in the table, in a flow, or in the flow of each period."""
    from dpstream.io.sinks.release_reader import released_schema
    from dpstream.stream.release.averages import columns_of
    from dpstream.stream.release.flows import Series
    from dpstream.stream.release.released_verdicts import average_text

    found = [release.mean(column, where)]
    if asked.start or asked.end or asked.every:
        schema = released_schema(release.folder, release.manifest())
        columns = tuple(columns_of(schema, column, where))
        summed = tuple(f"mean({name})" if name == column else name for name in columns)
        try:
            answer = replace(asked, columns=summed).of(release)
        except DpstreamError:  # its sums were not measured, but perhaps its bins
            answer = replace(asked, columns=columns).of(release)
        flows: Any = answer.flows if isinstance(answer, Series) else (answer,)
        found = [release.mean(column, where, of=one) for one in flows if one is not None]
    rows = list[dict[str, Any]]()
    for one in found:
        ends, span = one.interval(confidence) or (None, None), one.span
        days = (
            {} if span is None else {"from": span.first_day or span.first, "to": span.last_day or span.last}
        )
        days = {name: str(day) for name, day in days.items()}
        rows.append({**days, "mean": one.value, "low": ends[0], "high": ends[1]})
    facts = {
        "column": column,
        "where": where,
        "confidence": confidence,
        "note": found[-1].note.rstrip("."),
        "rows": rows,
    }
    names = [name for name in rows[0] if name not in ("low", "high")]
    newest = [
        {name: average_text(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows[-_MOST:]
    ]
    shown = {"names": names, "newest": newest, "more": len(rows) - _MOST, "whole": "--json"}
    print_facts("measured_rows", facts, as_json=as_json, wrap=True, percent=f"{100 * confidence:g}", **shown)


def _answer(
    release: PublicRelease, question: str, as_of: int | None, confidence: float, as_json: bool
) -> None:
    print_facts(
        "measured_answer",
        release.answer(question, as_of=as_of).as_dict(question, confidence),
        as_json=as_json,
        wrap=True,
        records=_counted_records(release),
        step=release.step,
        percent=f"{100 * confidence:g}",
    )


def _known(release: PublicRelease, as_of: int | None, as_json: bool) -> None:
    """Number of records, every column, and whatever was measured together."""
    from dpstream.stream.release.manifest import cut_of

    kinds = {} if as_of is not None else release.measured_kinds()
    lines = release.measurements()
    asked = list[tuple[str, ...]]()
    if any(one.counted not in ("people", "points", "left") for one in lines) or not kinds:
        names = release.columns
        marginals = [one.columns for line in lines for one in line.marginals]
        wider = {columns for columns in marginals if columns and len(columns) > 1}
        asked = [(), *((name,) for name in names), *sorted(one for one in wider if set(one) <= set(names))]
    entries: list[dict[str, Any]] = []
    for columns in asked:
        estimate = release.measured(columns, as_of=as_of)
        missing = release.missing(columns, as_of=as_of)
        entries.append(
            {
                "columns": list(columns),
                "as_of": None if estimate is None else estimate.as_of,
                "standard_error": None if estimate is None else estimate.standard_error,
                "note": estimate.note
                if missing is None and estimate is not None
                else missing and missing.reason,
            }
        )
    for name, one in kinds.items():
        told = {"as_of": one.as_of, "standard_error": one.standard_error, "note": one.note}
        entries.append({"columns": [], "kind": name, **told})
    known = [entry["as_of"] for entry in entries if entry["as_of"] is not None]
    rows, unknown = list[dict[str, Any]](), dict[str, str]()
    for entry in entries:
        name = entry.get("kind") or " x ".join(entry["columns"]) or f"number of {_counted_records(release)}"
        if entry["as_of"] is None:
            unknown[name] = str(entry["note"])
        else:
            rows.append({**entry, "name": name})
    print_facts(
        "measured",
        entries,
        as_json=as_json,
        wrap=True,
        rows=rows[:_MOST],
        more=len(rows[_MOST:]),
        unknown=_unmeasured(unknown),
        step=release.step,
        behind=as_of is None and min(known, default=release.step) < release.step,
        counted=release.manifest()["accuracy"].get("counted"),
        cut=cut_of(release.manifest()),
    )


def _unmeasured(reasons: dict[str, str]) -> str:
    """The first of them, and the reason if all share it."""
    names, why = list(reasons), set(reasons.values())
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        ", ".join(names[:3])
        + more
        + (f": {why.pop()}" if len(why) == 1 else "; --json says why" if why else "")
    )


def _counted_records(release: PublicRelease) -> str:
    from dpstream.stream.release.manifest import COUNTED

    return str(release.manifest()["accuracy"].get(COUNTED, "records"))
