"""What a released file says about itself wherever it goes: that it is synthetic, and under which guarantee.

Parquet files carry it in their metadata, under ``dpstream``; beside a CSV file lies ``table.csv-metadata.json`` (W3C,
CSV on the Web). Tables of steps that were made before there were labels are made again without one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpstream.core.contracts import StreamPlan
from dpstream.core.tables.change_tables import LABEL
from dpstream.stream.release.manifest import held_records, promise

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
    about = plan.about_rows()
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


def labelled(table: Any, label: Label | None) -> Any:
    """The table with its label in the metadata, where there is one."""
    if label is None:
        return table
    text = json.dumps(label, sort_keys=True, ensure_ascii=False).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), LABEL: text})
