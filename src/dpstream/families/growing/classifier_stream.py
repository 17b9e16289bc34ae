"""Streams of classifiers: schedulers and improvers around ``ERM``, as they state and release their runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstream.core.contracts import Packed, Synthesis, pack_fields, unpack_fields
from dpstream.core.schema import Categorical, Domain, Real, Schema
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.erm_run import LOSSES, LinearClassifier
from dpstream.families.growing.growing_facts import LastRun
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.growing.run_schedule import ScheduledRun

#: The bound of released numbers that the codebook shows: no number comes near it.
_CODEBOOK_BOUND = 1e12


@dataclass(frozen=True)
class ClassifierSynthesis(Synthesis):
    """The last run's classifier at the present size.

    Attributes:
        classifier: of the last run; all coefficients are 0 before the first.
        t: number of records now; public.
        made: the last run; None before the first.
        excess: a bound on its expected excess risk, on the records that it was trained on (``ERM.predicted_excess``);
            None before the first run.
        next_run: the size at which the next one is due.
    """

    noun = "a classifier"

    classifier: LinearClassifier
    t: int
    made: LastRun | None
    excess: float | None
    next_run: int
    #: The number of records is public.
    total_error = 0.0

    @property
    def domain(self) -> Domain:
        """The columns of the records."""
        return self.classifier.features.domain

    @property
    def total(self) -> float:
        """The number of records: public, not estimated."""
        return float(self.t)

    def rows(self, schema: Schema, most: int) -> int:
        """One row for each feature; never cut."""
        return len(schema["feature"].labels())

    def released(self, schema: Schema, rows: int, seed: int) -> Any:
        """One row for each feature: its name, its coefficient, and what was measured with which noise."""
        import pyarrow as pa

        made = self.classifier
        names = schema["feature"].labels()
        columns: dict[str, Any] = {
            "feature": pa.array(names, pa.string()),
            "coefficient": pa.array(made.coefficients),
            "measured": pa.array(made.measured),
            "standard_error": pa.array(np.full(len(names), made.standard_error)),
        }
        return pa.table(columns)

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says: which run this is, what it cost, and how noisy the coefficients are."""
        facts = {
            "total_standard_error": 0.0,
            "records": self.t,
            "next_run_at": self.next_run,
            "run": None if self.made is None else self.made.facts(),
        }
        if self.made is None or self.excess is None:
            return facts
        return {
            **facts,
            "standard_error": self.classifier.standard_error,
            "shrinkage": self.classifier.shrinkage,
            "excess": self.excess if self.excess < LOSSES[self.classifier.loss].at_zero else None,
        }

    def pack(self) -> Packed:
        """Arrays and JSON."""
        return pack_fields(self)


@dataclass(frozen=True)
class ClassifierPlan(GrowingPlan):
    """A calibrated scheduler or improver whose black box is ``ERM``.

    Guarantee: that of ``GrowingPlan``. A release is a classifier; as a table, one row for each feature.
    """

    @property
    def erm(self) -> ERM:
        """The black box."""
        assert isinstance(self.box, ERM)
        return self.box

    def released_schema(self, schema: Schema) -> Schema:
        """The columns of the table of coefficients; features are named by the labels of ``schema``."""
        names = self.erm.features.names(schema)
        numbers = [
            Real(name, (low, _CODEBOOK_BOUND))
            for name, low in (
                ("coefficient", -_CODEBOOK_BOUND),
                ("measured", -_CODEBOOK_BOUND),
                ("standard_error", 0.0),
            )
        ]
        return Schema((Categorical("feature", names), *numbers))

    def promise(self, run: ScheduledRun) -> float | None:
        """The bound on the excess risk; None where a classifier of zeros would be within it, too."""
        bound = self.promised_excess(run)
        return bound if bound < LOSSES[self.erm.loss].at_zero else None

    def promised_excess(self, run: ScheduledRun) -> float:
        """A bound on the expected excess risk of a run, before any data is read."""
        return self.erm.predicted_excess(run.budget, run.t)

    def classifier_facts(self) -> dict[str, Any]:
        """See ``GrowingPlan.classifier_facts``."""
        features = self.erm.features
        return {"target": features.target, "columns": list(features.columns or ())}

    def unpack_synthesis(self, packed: Packed) -> ClassifierSynthesis:
        """The inverse of ``ClassifierSynthesis.pack``."""
        return unpack_fields(ClassifierSynthesis, packed, **self._given)

    def _blank(self) -> LinearClassifier:
        features = self.erm.features
        return LinearClassifier(features, self.erm.loss, np.zeros(features.dimension), 0.0, 0, 1.0)

    @property
    def _given(self) -> dict[str, Any]:
        return {"features": self.erm.features, "loss": self.erm.loss}

    def _synthesis(self, table: Any, t: int, made: LastRun | None, done: int) -> ClassifierSynthesis:
        excess = None
        if made is not None:
            excess = self.promised_excess(self.schedule.run(*made.epochs, made.t))
        return ClassifierSynthesis(table, t, made, excess, max(self.schedule.time(done + 1), t + 1))
