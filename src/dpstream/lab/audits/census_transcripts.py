"""Small census streams and their neighbours, for transcripts (see ``door``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstream.core.privacy import Record
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census.census_plan import Census, CensusPlan

TRANSCRIPT_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Steps of a transcript: with a gap of 2 and a ratio of 2, level 1 comes at step 4 and every fourth step after it.
TRANSCRIPT_STEPS = 9


def transcript_plan(kind: type[CensusPlan], budget: Budget, unit: Record, **options: Any) -> CensusPlan:
    """A plan with a gap of 2 steps and small models, so that a run on a few records selects something."""
    workload = Workload.all_k_way(TRANSCRIPT_DOMAIN, 2)
    recipe = Census(workload, **{"turnover": 4, "ratio": 2, "iterations": 5, "max_cells": 8, **options})
    return kind(recipe, budget, unit, None)


@dataclass(frozen=True)
class KeyedStay:
    """A record: its stay, and step -> its values from this step on."""

    comes: int
    leaves: int | None
    values: dict[int, tuple[int, ...]]

    def at(self, step: int) -> tuple[int, ...] | None:
        """The record's values at the end of a step; None: it is absent."""
        if step < self.comes or (self.leaves is not None and step >= self.leaves):
            return None
        return self.values[max(when for when in self.values if when <= step)]


def keyed_ends(
    stays: Sequence[KeyedStay], steps: int, domain: Domain, *, renewed: bool = False
) -> list[PresentBatch]:
    """The batches with the table at the end of every step.

    Args:
        renewed: BROKEN: an update is read as a delete and an insert, which begins another stay.
    """
    table, batches = PresentTable.empty(domain), list[PresentBatch]()
    for step in range(1, steps + 1):
        now = {key: stay.at(step) for key, stay in enumerate(stays)}
        changed = [key for key, stay in enumerate(stays) if now[key] != stay.at(step - 1)]
        keys = np.array([[key, 0] for key in changed], np.uint64).reshape(-1, 2)
        present = np.array([now[key] is not None for key in changed], np.bool_)
        codes = [now[key] for key in changed if now[key] is not None]
        changes = KeyedChanges(keys, present, np.array(codes, np.int32).reshape(-1, len(domain.sizes)))
        gone = np.empty(0, np.int32)
        if renewed:
            none = KeyedChanges(keys, np.zeros(len(keys), np.bool_), changes.codes[:0])
            table, gone = table.after(none, step)
        table, departed = table.after(changes, step)
        batches.append(PresentBatch(PresentView(table, np.concatenate([gone, departed]))))
    return batches


def neighbours(
    plan: CensusPlan, comes: int, leaves: int | None, first: int, *, renewed: bool
) -> tuple[list[PresentBatch], list[PresentBatch]]:
    generator = np.random.default_rng(comes)

    def values() -> tuple[int, ...]:
        outer = int(generator.integers(0, 2))
        return outer, int(generator.integers(0, 3)), outer

    known = []
    for number in range(first + 60):
        start = 1 if number < first else int(generator.integers(2, TRANSCRIPT_STEPS + 1))
        end = start + 1 + int(generator.integers(0, TRANSCRIPT_STEPS))
        known.append(KeyedStay(start, end, {start: values(), start + 1: values()}))
    own = KeyedStay(comes, leaves, {comes: (1, 2, 0), comes + 2: (0, 0, 1)})
    twin = KeyedStay(comes, leaves, {comes: (0, 1, 1), comes + 2: (1, 1, 0)})
    more = [*known, own]
    less = [*known, twin] if plan.unit.relation == "replace" else known
    one, other = (
        keyed_ends(own, TRANSCRIPT_STEPS, TRANSCRIPT_DOMAIN, renewed=renewed) for own in (more, less)
    )
    return one, other
