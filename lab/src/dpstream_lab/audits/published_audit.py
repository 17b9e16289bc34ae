"""Exact audit of the code between a synthesis and the disk: does a published byte depend on the records?

A mechanism that reads no record runs as a durable stream on very different records, with the same random words (of a
test seed). All published files (manifests, catalogue, codebook and tables) must then be equal, byte for byte. Then they
are functions of the synthesis, public facts and fresh random words, and cost nothing beyond the mechanism's guarantee.
Timing is not audited.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpstream.core.contracts import PrivateBatch
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, DPStabsPlan
from dpstream.families.tabular.dpstabs import DPStabsState
from dpstream.io.sinks import Publisher
from dpstream.mechanisms import ModelSynthesis
from dpstream.stream import Batch, open_stream
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.tools.evaluate.array_types import Codes
from dpstream_lab.audits.subjects import rebuilt

_SCHEMA = Schema((Categorical("place", ("north", "south", "west")), Boolean("paid")))
_STEPS = 3


class BlindPlan(DPStabsPlan):
    """DP-STabS that replaces every batch by invented records, so that its synthesis cannot depend on a record."""

    def step(self, state: DPStabsState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """One step on 60 invented records."""
        return super().step(state, EncodedBatch(self.domain, _rows(60)), randomness)


class LeakyPlan(BlindPlan):
    """BROKEN: like ``BlindPlan``, but its total is one higher where the batch has a record."""

    def step(self, state: DPStabsState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        """The blind step, with a total that leaks."""
        synthesis = super().step(state, batch, randomness)
        leak = int(batch.count([()])[0][0]) > 0
        return replace(synthesis, records=synthesis.records + leak)


def audit_published(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The published files of a mechanism that reads no record, and of a control that leaks."""
    progress("published files")
    plan = DPStabs(Workload.all_k_way(_SCHEMA.domain, 2)).calibrate(PureDP.of(1))
    blind, leaky = rebuilt(BlindPlan, plan), rebuilt(LeakyPlan, plan)
    yield _published_finding("published files of a mechanism that reads nothing", blind, control=False)
    yield _published_finding("published files, total that leaks", leaky, control=True)


def published_bytes(plan: DPStabsPlan, batches: Sequence[Codes]) -> dict[str, bytes]:
    """Every published file of a durable stream in a temporary folder, with a fixed test seed."""
    with tempfile.TemporaryDirectory() as folder:
        releases = Path(folder) / "releases"
        with open_stream(
            plan,
            _SCHEMA,
            Path(folder) / "state",
            randomness=Randomness.seeded("published"),
            publish_to=Publisher(releases),
        ) as stream:
            for step, codes in enumerate(batches, start=1):
                stream.step(Batch(codes), f"batch {step}", period=f"week {step}")
        files = sorted(path for path in releases.rglob("*") if path.is_file())
        return {str(path.relative_to(releases)): path.read_bytes() for path in files}


def _published_finding(subject: str, plan: DPStabsPlan, *, control: bool) -> AuditFinding:
    start = time.perf_counter()
    streams = {
        "no record": [_rows(0)] * _STEPS,
        "one record at step 2": [_rows(0), _rows(1), _rows(0)],
        "many records": [_rows(500), _rows(40), _rows(7)],
    }
    made = {name: published_bytes(plan, batches) for name, batches in streams.items()}
    first = made.pop("no record")
    # This includes files that only one folder has.
    differing = sorted(
        {
            f"{file} ({name})"
            for name, files in made.items()
            for file in files.keys() | first.keys()
            if files.get(file) != first.get(file)
        }
    )
    size = sum(len(data) for data in first.values())
    detail = (
        f"all {len(first)} files, {size} bytes, are equal" if not differing else f"differs: {differing[0]}"
    )
    return AuditFinding.of(
        start,
        subject=subject,
        claimed=0.0,
        found=float("inf") if differing else 0.0,
        control=control,
        detail=f"{detail}; streams of {', '.join(streams)}",
    )


def _rows(count: int) -> Codes:
    """Invented records: codes of all values in turn."""
    sizes = np.array(_SCHEMA.domain.sizes)
    codes: Codes = (np.arange(count)[:, None] * np.array([1, 3]) % sizes).astype(np.int32)
    return codes
