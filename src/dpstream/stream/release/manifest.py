"""Manifests: what a release says about itself. Every field is public.

No input hash, no clock, no size of anything private: only the plan, the step, and the released files.
"""

from __future__ import annotations

import datetime
import datetime as dt
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpstream.core.contracts import StreamPlan, Synthesis
from dpstream.core.privacy import Individual, PureDP, Record, User, amount_words, definition_words
from dpstream.core.schema import Categorical, Column, Found, Ordered, Schema
from dpstream.core.version import __version__
from dpstream.io.sinks.change_tables import ID, LABEL
from dpstream.io.sinks.period_tables import PERIOD, PERSON, WEIGHT, called, wide_name
from dpstream.io.sinks.table_files import Content, sha256_of, size_of
from dpstream.io.sinks.target import MEASUREMENTS
from dpstream.stream.declared import bound_of, counted_records, cut_words
from dpstream.stream.identity import exceptions_of
from dpstream.stream.predecessor_cost import base_words, covered
from dpstream.stream.release.released_verdicts import (
    averages_verdict,
    clipped_words,
    number_of_records,
    released_verdicts,
    when_measured,
)
from dpstream.stream.templates import words

_TYPES = {"real": "number"}


def descriptor(schema: Schema, name: str = "dpstream", path: str = "table.parquet") -> dict[str, Any]:
    """The descriptor of a released table, as plain values for JSON. It holds public declarations only.

    ``name`` becomes the package's name (lower case, other signs become ``-``); ``path`` is where a released
    table lies relative to the descriptor.
    """
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-") or "dpstream"
    resource = {
        "name": "table",
        "path": path,
        "profile": "tabular-data-resource",
        "schema": {"fields": [_field(column) for column in schema.released_columns], "missingValues": [""]},
    }
    return {
        "profile": "tabular-data-package",
        "name": slug,
        "title": name,
        "description": "Synthetic records: no row is a person. Values inside a bin are drawn uniformly, so an "
        "average of binned numbers may lie anywhere between the averages of the bins' two ends.",
        "resources": [resource],
        "dpstream": {
            "format": 1,
            "schema": schema.fingerprint(),
            **({} if schema.constraints is None else {"constraints": schema.constraints.spec()}),
        },
    }


def _field(column: Column) -> dict[str, Any]:
    kind = _TYPES.get(column.type_name, column.type_name)
    constraints: dict[str, Any] = {}
    if isinstance(column, Categorical):
        kind = "integer" if column.is_numeric else "string"
        listed: list[Any] = list(column.values if column.is_numeric else column.bin_labels())
        constraints["enum"] = listed if column.other is None else [*listed, column.other]
    elif isinstance(column, Ordered):
        constraints["minimum"], constraints["maximum"] = column.limits()
    becomes_null = column.missing is not None or (
        column.other is not None and not isinstance(column, Categorical)
    )
    constraints["required"] = not becomes_null
    beyond = clipped_words(column)
    spec = {key: _plain(value) for key, value in column.spec().items()}
    codes: list[dict[str, Any]] = [
        {"code": code, "label": label} for code, label in enumerate(column.labels())
    ]
    if isinstance(column, Categorical):
        for code, one in zip(codes[len(codes) - len(column.found) :], column.found, strict=True):
            code |= {"from_step": one.first, "noisy_count": one.count}
    return {
        "name": column.name,
        "type": kind,
        **({"description": f"Values are {beyond}."} if beyond else {}),
        "constraints": constraints,
        "dpstream": {**spec, "size": column.size, "codes": codes},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return [_plain(item) for item in value] if isinstance(value, list) else value


MANIFEST_FORMAT = 1

#: How many rows a block has, where a table was drawn in blocks.
DRAWN = "drawn_in_blocks_of"

#: In ``accuracy``: what the counted records are called, where they are not all records of the source as they are.
COUNTED = "counted_records"
#: In ``accuracy``: how many users the bound on events cuts.
CUT = "cut_users"

#: Where noisy counts are published with the step.
_MEASURED_WORDS = (
    " What this step measured is published beside its table: sums of it over all steps are unbiased estimates of the "
    "{records}, and dpstream measured says which of them have an exact interval."
)


@dataclass(frozen=True)
class StepFacts:
    """What changes from one manifest of a stream to the next."""

    step: int
    period: str | None
    total: float
    rows: int
    files: Mapping[str, Content]
    made_with_test_seed: bool
    accuracy: dict[str, Any]
    #: About persistent records; None where every table is drawn anew.
    records: dict[str, Any] | None = None
    #: What the files say about themselves; None where there are none.
    label: dict[str, Any] | None = None
    #: Rows of a block; None where the table was drawn at once.
    block: int | None = None
    #: Values that begin with the next step, by column.
    discovered: dict[str, Any] | None = None


def pretty_json(value: Any) -> bytes:
    """JSON for people and programs: stable order, one key a line."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def build_manifest(
    plan: StreamPlan, pinned: dict[str, Any], plan_hash: str, stream_id: str, facts: StepFacts
) -> bytes:
    """The manifest of one step; ``pinned`` are the facts the whole stream is pinned to."""
    manifest: dict[str, Any] = {
        "format": MANIFEST_FORMAT,
        "stream": pinned["stream"],
        "stream_id": stream_id,
        "step": facts.step,
        "period": facts.period,
        "holds": held_records(plan, pinned, facts.step, facts.period),
        "guarantee": {
            **covered(plan.budget, pinned.get("base")).as_dict(),
            **exceptions_of(plan),
            "words": promise(plan, facts.step, pinned, test_seed=facts.made_with_test_seed),
        },
        "unit": _unit(plan, facts.step),
        "relation": plan.unit.relation,
        "declared_public": pinned["declared_public"],
        "source": pinned["source"],
        "spent": _spent(plan),
        "mechanism": {"name": plan.name, "options": pinned["options"], "parts": pinned["parts"]},
        "horizon": plan.horizon,
        "schema": pinned["schema"]["fingerprint"],
        "plan_hash": plan_hash,
        "program": {"name": "dpstream", "version": __version__},
        "rows": max(0, round(facts.total)),
        "rows_in_table": facts.rows,
        "accuracy": facts.accuracy,
        "files": {
            name: {"sha256": sha256_of(content), "bytes": size_of(content)}
            for name, content in sorted(facts.files.items())
        },
        "made_with_test_seed": facts.made_with_test_seed,
    }
    if periods := plan.periods_of(facts.step):
        manifest["periods"] = periods
    if "base" in pinned:
        manifest["base"] = {**pinned["base"], "words": base_words(pinned["base"])}
    if facts.records is not None:
        manifest["records"] = facts.records
    if facts.block is not None:
        manifest[DRAWN] = facts.block
    if facts.discovered is not None:
        manifest["discovered"] = facts.discovered
    if facts.label is not None:
        manifest["label"] = facts.label
    return pretty_json(manifest)


def new_values(found: Mapping[str, Sequence[Found]], step: int) -> dict[str, Any]:
    """What a step's manifest says of the values that it discovered, by column."""
    return {
        name: [{"value": one.value, "from_step": one.first, "noisy_count": one.count} for one in new]
        for name, values in found.items()
        if (new := [one for one in values if one.first == step + 1])
    }


def values_of(manifests: Iterable[Mapping[str, Any]]) -> dict[str, list[Found]]:
    """The inverse of ``new_values``, of some manifests in the order of their steps."""
    found = dict[str, list[Found]]()
    for discovered in manifests:
        for name, values in discovered.items():
            new = [Found(one["value"], one["from_step"], one["noisy_count"]) for one in values]
            found.setdefault(name, []).extend(new)
    return found


def held_records(plan: StreamPlan, pinned: Mapping[str, Any], step: int, period: str | None) -> str:
    """Which records the release of a step is about, in words: a period adds to the table, and the table holds more."""
    on, end = _end_of(step, period)
    records = "records" if bound_of(plan.unit) is None else "admitted records"
    if isinstance(plan.unit, Individual):
        return f"everything that people reported up to {end}"
    if plan.reads == "present" or pinned["options"].get("deletions"):
        return f"the {records} present {on} {end}"
    return f"all {records} up to {end}"


def _end_of(step: int, period: str | None) -> tuple[str, str]:
    """The end of a step in words, and how a sentence goes on to it."""
    end = f"step {step}" if period is None else period.split("/")[-1]
    try:
        day = datetime.date.fromisoformat(end)
        return "on", f"{day.day} {day:%B} {day.year}"
    except ValueError:
        return "at the end of", end


def _unit(plan: StreamPlan, step: int) -> dict[str, Any]:
    unit: dict[str, Any] = {"name": plan.unit.name, "words": plan.unit.describe()}
    if isinstance(plan.unit, User) and bound_of(plan.unit) is not None:
        unit["max_events"] = plan.unit.max_events
        unit["each_event"] = str(plan.unit.per_event(plan.budget).amount)
    if isinstance(plan.unit, User) and plan.unit.per is not None:
        unit |= {"per": plan.unit.per.name, "period": plan.unit.per.label(step)}
    if isinstance(plan.unit, Record):
        unit["returns"] = plan.unit.returns
    return unit


def accuracy_of(
    synthesis: Synthesis,
    plan: StreamPlan,
    step: int,
    files: Collection[str] = (),
    *,
    with_base: bool = False,
    period_of: Callable[[int], str | None] = lambda step: None,
    schema: Schema | None = None,
    cut: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What the release says about its own errors, and what it is fit for; public scales and released choices only.

    Args:
        plan: says which steps are measured, and why counts have no error bars; under the relation ``replace`` the
            total is inexact.
        files: names of what is published with the step.
        with_base: whether the stream began with another one's table.
        period_of: what an earlier step stands for.
        schema: of the released table, where it is one of records.
        cut: what is published of users whom the bound cuts.
    """
    records, differ = ("records", "") if schema is None else counted_records(plan.unit, schema)
    errors = _errors_of(synthesis, plan, step, files, period_of, records, with_base=with_base)
    if synthesis.answers is None and synthesis.grows is None:
        return errors  # no table, so no uses of one
    verdicts = released_verdicts(synthesis, plan, step, errors, with_base=with_base, records=records)
    if schema is not None and synthesis.answers is not None and synthesis.grows is None:
        verdicts = (*verdicts, *averages_verdict(schema, synthesis.answers))
    if differ:
        if cut is not None:
            told = cut_words(plan.unit, cut, _end_of(cut["up_to_step"], period_of(cut["up_to_step"]))[1])
            errors, differ = {**errors, CUT: {**cut, "words": told}}, f"{differ} {told}"
        errors = {**errors, COUNTED: records, "words": f"{errors.get('words', '')}{differ}".strip()}
    return {**errors, "verdicts": [one.as_dict() for one in verdicts]}


def cut_of(manifest: Mapping[str, Any]) -> str | None:
    """How many users the bound cuts, in words; None where nobody counts them."""
    told = (manifest.get("accuracy") or {}).get(CUT)
    return None if told is None else str(told["words"])


def _errors_of(
    synthesis: Synthesis,
    plan: StreamPlan,
    step: int,
    files: Collection[str],
    period_of: Callable[[int], str | None],
    records: str,
    *,
    with_base: bool,
) -> dict[str, Any]:
    told = _MEASURED_WORDS.format(records=records) if MEASUREMENTS in files else ""
    ends = {"measured_up_to": synthesis.measured_up_to}
    if synthesis.total_measured_up_to != synthesis.measured_up_to:
        ends["total_measured_up_to"] = synthesis.total_measured_up_to
    up_to = dict[str, Any]()
    for key, end in ends.items():
        if end is not None:
            up_to[f"{key}_step"] = end
            if end < step and (period := period_of(end)) is not None:
                up_to[f"{key}_period"] = period
    facts = synthesis.accuracy()
    if facts is not None:
        texts = {
            "words": f"{words(plan, 'accuracy', step=step, **facts)}{told}".strip(),
            "bias": words(plan, "bias"),
        }
        return {**facts, **{key: text for key, text in texts.items() if text}, **up_to}
    measured = {} if synthesis.answers is None else synthesis.answers.measured
    errors = [one.standard_error for one in measured.values()]
    last = step if synthesis.measured_up_to is None else synthesis.measured_up_to
    about = {"step": step, "measured_up_to": last, "measured": len(measured), "with_base": with_base}
    counted = number_of_records({"step": step, "rows": 0, "accuracy": up_to})
    number = {
        "error": synthesis.total_error,
        "negative": synthesis.total if synthesis.total <= -0.5 else None,
        "passed": synthesis.passed,
        "records": records,
        "when": when_measured(counted.measured_up_to, counted.period),
    }
    total = words(plan, "step_total", **number, **{**about, "measured_up_to": counted.measured_up_to})
    counts = words(plan, "step_counts", **about, **plan.step_facts(step, last))
    return {
        **up_to,
        "total_standard_error": synthesis.total_error,
        "measured_every_step": {
            "standard_error": max(errors, default=None),
            "marginals": [[plan.domain.names[i] for i in clique] for clique in measured],
        },
        "words": f"{total} {counts}{told}",
    }


def _spent(plan: StreamPlan) -> dict[str, Any]:
    """What was spent, and how it adds up. Every step costs each unit in it the whole budget."""
    amount = str(plan.budget.amount)
    return {"step": amount, "total": amount, "planned": amount, "composition": words(plan, "composition")}


def promise(plan: StreamPlan, step: int, pinned: Mapping[str, Any], *, test_seed: bool) -> str:
    """What all releases up to a step promise together, in one or two sentences."""
    budget = covered(plan.budget, pinned.get("base"))
    name = "differential privacy" if isinstance(budget, PureDP) else "DP"
    definition = f"{definition_words(budget, plan.delta)} {name}"
    words = (
        f"All releases of this stream up to and including step {step}, taken together, satisfy "
        f"{definition} with {amount_words(budget, plan.delta)}; what is protected is {plan.unit.describe()}."
    )
    if "base" in pinned:
        words += f" {base_words(pinned['base'])}"
    if test_seed:
        return (
            "NO GUARANTEE: this stream was made with a test seed, whose noise can be predicted. "
            "With real entropy it would read: " + words
        )
    return words


# What a released file says about itself wherever it goes: that it is synthetic, and under which guarantee.
#
# Parquet files carry it in their metadata, under ``dpstream``; beside a CSV file lies ``table.csv-metadata.json`` (W3C,
# CSV on the Web).

Label = dict[str, Any]


def label_of(
    plan: StreamPlan,
    pinned: Mapping[str, Any],
    stream_id: str,
    step: int,
    period: str | None,
    test_seed: bool,
) -> Label:
    """The label of one step's files; public.

    Args:
        pinned: the facts the whole stream is pinned to.
        test_seed: whether the noise can be predicted, so that nothing is promised.
    """
    stream, held = pinned["stream"], held_records(plan, pinned, step, period)
    guarantee = promise(plan, step, pinned, test_seed=test_seed)
    about = words(plan, "about_rows")
    return {
        "synthetic": True,
        "title": f"{stream}, step {step}: synthetic records, made from {held}",
        "words": "Synthetic records, made by dpstream: no row is a person or a record. "
        f"{about}{' ' if about else ''}{guarantee}",
        "stream": stream,
        "stream_id": stream_id,
        "step": step,
        "period": period,
    }


def labelled(table: Any, label: Label) -> Any:
    """The table with its label in the metadata."""
    text = json.dumps(label, sort_keys=True, ensure_ascii=False).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), LABEL: text})


# What a stream's tables look like, for the codebook beside them.


def describe_tables(
    plan: StreamPlan, schema: Schema, name: str, path: str, *, with_ids: bool
) -> dict[str, Any]:
    """The codebook. That of a panel has a column for each period of the plan, and one of weights where it has them.

    Args:
        schema: the released columns.
        path: of the table, beside its manifest.
        with_ids: whether records persist, and have ids.
    """
    book = descriptor(schema, name, path)
    described = book["resources"][0]["schema"]
    fields = described["fields"]
    if row := words(plan, "row"):
        book["description"] = row
    if isinstance(plan.unit, Individual):
        periods = range(1, (plan.horizon or 0) + 1)
        told = plan.facts().get("panel", {})
        weighs, first = told.get("weight") is not None, told.get("first_release", 1)
        names = told.get("period_names")
        own = [_whole(PERSON), _whole(PERIOD) if names is None else _period(names)]
        wide = []
        for period in periods:
            weight = [_weight()] if weighs and period >= first else []
            wide += [
                {**field, "name": wide_name(field["name"], called(period, names))}
                for field in [*fields, *weight]
            ]
        described["fields"] = [own[0], *wide]
        book["dpstream"]["panel"] = {"fields": [*own, *fields, *([_weight()] if weighs else [])]}
        return book
    if with_ids:
        fields.insert(0, _whole(ID))
    return book


def _whole(name: str) -> dict[str, Any]:
    return {"name": name, "type": "integer", "constraints": {"required": True}}


def _period(names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": PERIOD,
        "type": "string",
        "description": "The name of the period, which the columns of a whole table end in. The allowed values are in "
        "the order of the periods.",
        "constraints": {"required": True, "enum": list(names)},
    }


def _weight() -> dict[str, Any]:
    return {
        "name": WEIGHT,
        "type": "number",
        "description": "Takes the padding out of sums over people, for questions that end with this period; may be "
        "negative.",
    }
