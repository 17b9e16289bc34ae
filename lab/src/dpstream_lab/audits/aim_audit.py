"""Transcripts of AIM runs on neighbouring tables, which differ in one record (see ``door``)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.mechanisms.aim import AIM, AIMPlan, Candidates
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import Run
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.subjects import rebuilt, transcripts_of

_DOMAIN = Domain(("a", "b", "c", "d", "e"), (2, 3, 2, 4, 2))
_WORKLOAD = Workload.all_k_way(_DOMAIN, 2)

#: A few unions contain all pairs, so that nothing is selected; a small model leaves pairs to select.
_RECIPES = {
    "nothing selected": AIM(),
    "columns, then a cover": AIM(rounds=100, unions=False),
    "pairs": AIM(rounds=3, unions=False),
    "pairs and unions": AIM(rounds=3, max_cells=60),
}


def aim_subjects() -> Iterator[Subject]:
    """Pure and zCDP, with and without unions, both relations; then the controls."""
    budgets: tuple[Budget, ...] = (PureDP.of(1), ZCDP.of("1/2"))
    for budget, unit in itertools.product(budgets, (Event(), Event("replace"))):
        for how, recipe in _RECIPES.items():
            plan = recipe.calibrate(_WORKLOAD, budget, unit)
            yield aim_subject(plan, f"AIM, {budget}, {unit.name}, {how}")
    for budget in budgets:
        plan = _RECIPES["pairs"].calibrate(_WORKLOAD, budget, Event())
        yield aim_subject(plan, f"AIM with 2/3 of the noise, {budget}", wrap=QuietNoise, control=True)
        chooser = rebuilt(BrokenSelection, plan, recipe=replace(plan.recipe, measure_share=Fraction(1, 10)))
        yield aim_subject(
            chooser, f"AIM with a quarter of the sensitivity of its scores, {budget}", control=True
        )


#: The short one takes about 3 s of one core.
audit_aim = transcripts_of(aim_subjects, 10, 198)


def aim_subject(plan: AIMPlan, name: str, **more: Any) -> Subject:
    """Three tables: a crowded one, one whose columns agree, a nearly empty one; with their neighbours."""

    def pairs() -> Iterator[Pair]:
        for table, codes in _tables(plan.workload.domain).items():
            if plan.unit.relation == "replace":
                changed = codes.copy()
                changed[0] = (changed[0] + 1) % np.array(plan.workload.domain.sizes)
            else:
                changed = codes[1:]
            runs = [
                aim_run(plan, EncodedBatch(plan.workload.domain, rows).count(plan.counted, "inserts"))
                for rows in (codes, changed)
            ]
            yield Pair(f"a {table} table", *runs)
            yield Pair(f"a {table} table", *reversed(runs))

    return Subject(name, plan.budget, pairs, leans=(1, -1), **more)


def _tables(domain: Domain) -> dict[str, NDArray[np.int32]]:
    generator = np.random.default_rng(3)
    crowd = np.column_stack([generator.integers(0, size, 600) for size in domain.sizes]).astype(np.int32)
    agreeing = np.column_stack([generator.integers(0, 2, 400)] * len(domain)).astype(np.int32)
    return {"crowded": crowd, "agreeing": agreeing, "nearly empty": crowd[:1]}


def aim_run(plan: AIMPlan, counts: Sequence[NDArray[np.int64]], **given: Any) -> Run:
    """Everything that a run on these counts releases."""

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        made = plan.run_on(counts, randomness, **given)
        facts: list[Any] = [made.total, made.total_variance, made.rounds, made.spent, made.model.cliques]
        facts += [(one.clique, one.variance) for one in made.measurements]
        words = np.frombuffer(repr(facts).encode(), np.uint8)
        yield [words, *(one.values for one in made.measurements), *made.model.marginals(plan.counted)]

    return run


class _LowSensitivity(Candidates):
    @cached_property
    def sensitivity(self) -> int:
        return super().sensitivity // 4


class BrokenSelection(AIMPlan):
    """BROKEN: claims a quarter of the sensitivity of its scores. True loss of the selections: 4 epsilon, 16 rho."""

    @cached_property
    def candidates(self) -> Candidates:
        """The same candidates with a smaller claim."""
        made: Candidates = rebuilt(_LowSensitivity, super().candidates)
        return made
