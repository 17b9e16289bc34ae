"""The predecessor's public side: which release a successor begins with, where the border is, and the table itself."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts import StreamPlan
from dpstream.core.errors import ConfigError, DataError, StoreDamagedError, UnitError
from dpstream.core.privacy import InsertedRecord, Record, User
from dpstream.project.base_options import BaseOptions
from dpstream.project.base_rules import ColumnRule, column_rules
from dpstream.project.start_table import ColumnSource, MappedTable
from dpstream.stream.identity import require_same_unit, whose_unit
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.predecessor_cost import Broken, Together, own_budget, together
from dpstream.stream.release.released_verdicts import number_of_records

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.io.sources.source_options import SourceOptions


@dataclass(frozen=True)
class Predecessor:
    """What the folder says. All of it is public.

    Attributes:
        step: the release that the successor begins with.
        manifest, digest: its manifest, and the manifest's hash.
        last, last_digest: the manifest of the last step that was published, withdrawn or not, and its hash.
        lost: later steps, all of them withdrawn: their events are in no table.
        schema: the old columns.
    """

    folder: Path
    step: int
    manifest: dict[str, Any]
    digest: str
    last: dict[str, Any]
    last_digest: str
    lost: tuple[int, ...]
    schema: Schema


def read_predecessor(options: BaseOptions) -> Predecessor:
    """Read and check everything but the table.

    Errors:
        ConfigError: no releases, no such step, or one that was withdrawn, dropped, or is not the last.
        StoreDamagedError: files that differ from their hashes.
    """
    from dpstream.io.sinks import read_catalogue, read_manifest, released_schema

    folder = options.releases
    if not (folder / "catalogue.json").is_file():
        raise ConfigError(
            f"there are no releases in {str(folder)!r}",
            where=f"{options.place} releases",
            allowed="the folder of a stream that has published",
        )
    entries = {int(entry["step"]): entry for entry in read_catalogue(folder)["steps"]}
    if not entries:
        raise ConfigError("the predecessor has no release", where=options.place, allowed="one or more")
    there = [step for step, entry in entries.items() if entry["state"] != "withdrawn"]
    step = max(there, default=max(entries)) if options.step is None else options.step
    if step not in entries:
        raise ConfigError(
            f"the predecessor has no published step {step}",
            where=f"{options.place} step",
            allowed=f"{max(there)}" if there else "a step that is published (a held one has to be approved)",
        )
    entry = entries[step]
    if entry["state"] == "withdrawn" or not entry["kept"]:
        why = "was withdrawn" if entry["state"] == "withdrawn" else "was dropped by the keep policy"
        raise ConfigError(
            f"the table of step {step} {why}", where=f"{options.place} step", allowed="a table that is there"
        )
    lost = tuple(sorted(number for number in entries if number > step))
    later = [number for number in lost if number in there]
    if later:
        raise ConfigError(
            f"step {step} is not the predecessor's last one: what came in step {later[0]} would be lost",
            where=f"{options.place} step",
            allowed=f"{max(there)}",
        )
    manifest = read_manifest(folder, step)
    return Predecessor(
        folder,
        step,
        manifest,
        str(entry["manifest_sha256"]),
        read_manifest(folder, max(entries)),
        str(entries[max(entries)]["manifest_sha256"]),
        lost,
        released_schema(folder, manifest),
    )


def border(old: Mapping[str, Any], new: SourceOptions, place: str) -> tuple[str | None, str]:
    """Where the old stream ends and the new one starts, if public facts show that no event is in both.

    Args:
        old: the manifest of the predecessor's last step.

    Returns:
        The first day (or number) of the new stream, and the reason why the border holds; or None, and why
        nothing shows it.

    Errors:
        ConfigError: there is a border, and the successor does not begin at it.
    """
    cut, own = old["source"], new.pinned()
    # A time column (or one and the same question for a period) decides about each record by itself.
    same = cut is not None and _way(cut) == _way(own) and (cut["time_column"] or "query" in cut)
    if not same or new.grid is None:
        return None, "nothing public shows that the two streams cut the same records at one border in time"
    if old["period"] is not None and isinstance(new.start, datetime.date):
        last = datetime.date.fromisoformat(str(old["period"]).split("/")[1])
        _require_start(new.start, last + datetime.timedelta(days=1), place)
    elif old["period"] is None and isinstance(cut["start"], int) and isinstance(new.start, int):
        _require_start(new.start, cut["start"] + int(old["step"]), place)
    else:
        return None, "one of the two streams has a calendar and the other has not"
    return str(new.start), (
        f"records before {new.start} are in the earlier stream only, and all others in this one only (as long as "
        "the earlier one publishes no further step, and both write times alike: with an offset, or without one)"
    )


def _way(cut: Mapping[str, Any]) -> dict[str, Any]:
    """How a source assigns records to steps, for comparison; files and standard input do it alike."""
    kind = cut.get("kind", "files")
    return {"kind": "files" if kind == "stdin" else kind, **{k: cut.get(k) for k in ("query", "time_column")}}


def _require_form(cut: Mapping[str, Any], own: Mapping[str, Any], stream: str, place: str) -> None:
    """In UTC and as it stands, one time may lie on both sides of a border."""
    files = all(_way(one)["kind"] == "files" and one["time_column"] and one["every"] for one in (cut, own))
    forms = [f"{'with' if one.get('offsets') else 'without'} an offset" for one in (own, cut)]
    if files and forms[0] != forms[1]:
        raise ConfigError(
            f"this stream reads times {forms[0]}, and the stream {stream!r} read them {forms[1]}: a record could be "
            "counted in both",
            where=f"{place}, [source] time_column = {own['time_column']!r}",
            allowed=f"times {forms[1]}, as there (cast the column), and offsets = "
            f"{'true' if cut.get('offsets') else 'false'} in [source]",
        )


def _require_start(start: object, wanted: object, place: str) -> None:
    if start != wanted:
        raise ConfigError(
            f"the stream starts at {start}, and its predecessor ends before {wanted}: what lies between would be in "
            "both or in neither",
            where=place,
            allowed=f"[source] start = {wanted}",
        )


def base_facts(
    options: BaseOptions,
    predecessor: Predecessor,
    plan: StreamPlan,
    schema: Schema,
    source: SourceOptions,
    before: Sequence[Broken] | None = None,
) -> dict[str, Any]:
    """What the successor is pinned to, JSON-able; the columns and the border are checked.

    Args:
        before: the broken borders between the streams before this one; None: nobody can look at them.

    Errors:
        UnitError: the two streams protect different units. ConfigError: see ``column_rules`` and ``border``; an earlier
        stream that has drawn a step again; times of another form than the predecessor's.
    """
    manifest = predecessor.manifest
    if manifest["unit"]["name"] != plan.unit.name:
        raise UnitError(
            f"the predecessor protects the unit {manifest['unit']['name']!r} and this stream {plan.unit.name!r}: "
            "what both cost together cannot be said",
            where=options.place,
            allowed="the same unit",
        )
    facts = {"unit": plan.unit.name, "source": source.pinned()}
    if isinstance(plan.unit, Record):
        facts["returns"] = plan.unit.returns
    told = {**manifest["unit"], "unit": manifest["unit"]["name"], "source": manifest["source"]}
    require_same_unit(facts, whose_unit(told), str(manifest["stream"]), options.place)
    # What an earlier stream says of its unit and that of a still earlier one, readers of this one have to know.
    if (manifest["source"] or {}).get("same_unit") and not source.same_unit:
        raise UnitError(
            f"the predecessor {manifest['stream']!r} says why its unit is that of the stream before it "
            f"(same_unit = {manifest['source']['same_unit']!r}), and this stream does not",
            where=options.place,
            allowed="[stream] same_unit here, too",
        )
    again = [one.words for one in before or () if one.again is not None]
    if again:
        raise ConfigError(
            f"{'; '.join(again)}: what all streams cost together cannot be said",
            where=options.place,
            allowed="another stream to begin with",
        )
    column_rules(options, predecessor.schema, schema)
    if predecessor.last["source"] is not None:
        _require_form(predecessor.last["source"], source.pinned(), str(manifest["stream"]), options.place)
    starts, why = border(predecessor.last, source, options.place)
    earlier = manifest.get("base", {}).get("composition")
    if isinstance(plan.unit, InsertedRecord):
        why = "a record's key may come on both sides of the border, and each stream counts it once"
    elif isinstance(plan.unit, User):
        why = "a user's events may lie on both sides of the border, and each stream has its own bound on them"
    elif isinstance(plan.unit, Record):
        why = (
            "a record's stay may lie on both sides of the border, and each stream charges what it sees of it"
        )
    elif starts is not None and earlier is not None and (earlier["rule"] == "sum" or before):
        starts, why = None, "not every border between the earlier streams is shown to hold"
    elif starts is not None and earlier is not None and before is None:
        starts, why = (
            None,
            "without [base] config nothing shows whether the streams before the earlier one go on",
        )
    rule: Together = "sum" if starts is None or isinstance(plan.unit, User | Record) else "parallel"
    budget = dict(own_budget(manifest))
    last = {"stream": manifest["stream"], "stream_id": manifest["stream_id"], "budget": budget}
    periods = [*([] if earlier is None else earlier["periods"]), last]
    budgets = [*(budget_from_dict(period["budget"]) for period in periods), plan.budget]
    return {
        "stream": manifest["stream"],
        "stream_id": manifest["stream_id"],
        "plan_hash": manifest["plan_hash"],
        "step": predecessor.step,
        "period": manifest["period"],
        "manifest_sha256": predecessor.digest,
        "total_standard_error": _total_error(manifest),
        "made_with_test_seed": bool(manifest["made_with_test_seed"]),
        "withdrawn_since": list(predecessor.lost),
        "last_manifest_sha256": predecessor.last_digest,
        "rule": options.rule(),
        "composition": {
            "rule": rule,
            "border": starts,
            "periods": periods,
            "own": plan.budget.as_dict(),
            "together": together(budgets, rule).as_dict(),
            "why": why if rule == "parallel" else f"{why}, so that the budgets add up",
        },
    }


def _total_error(manifest: Mapping[str, Any]) -> float | None:
    """The standard error of the table's number of records; None where a negative estimate was shown as 0."""
    number = number_of_records(manifest)
    return None if not number.value and number.error else number.noise_error


def base_table(options: BaseOptions, predecessor: Predecessor, schema: Schema) -> MappedTable:
    """The table in the new columns. Checked against its published hashes.

    Errors:
        StoreDamagedError: files that differ from their hashes, or hold values without a code.
    """
    from dpstream.io.sinks import read_table

    table = read_table(predecessor.folder, predecessor.step)
    columns = []
    for rule in column_rules(options, predecessor.schema, schema):
        codes = np.zeros(table.num_rows, np.int32)
        if rule.old is not None:
            codes = _codes(rule, table, predecessor)
        columns.append(ColumnSource(codes, rule.shares))
    return MappedTable(
        schema.domain,
        tuple(columns),
        float(predecessor.manifest["rows"]),
        _total_error(predecessor.manifest),
        int(predecessor.digest[:15], 16),
    )


def _codes(rule: ColumnRule, table: Any, predecessor: Predecessor) -> Any:
    assert rule.old is not None
    try:
        return rule.old.encode(table.column(rule.old.name))
    except DataError:
        raise StoreDamagedError(
            f"the released column {rule.old.name!r} holds values that its codebook does not declare",
            where=f"{predecessor.folder}, step {predecessor.step}",
        ) from None
