"""The number of records of a release and its error: the only place that reads them off a manifest. Public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpstream.core.contracts.verdicts import EXACT, MODELLED, How


@dataclass(frozen=True)
class NumberOfRecords:
    """How many records a release has, and how wrong that may be.

    Attributes:
        value: the released number.
        error: its standard error; 0 where the number is public, None where the error is not known. Of records that
            nobody has measured yet no error is known, however small the error of the others is.
        how: where the error comes from: noise alone, or the mechanism's model; None without an error.
        step: the step of the release.
        measured_up_to: the last step up to which all records are measured.
        period: what that step stands for, where a period was given.
    """

    value: int
    error: float | None
    how: How | None
    step: int
    measured_up_to: int
    period: str | None = None

    @property
    def noise_error(self) -> float | None:
        """The error, where noise alone gives it."""
        return self.error if self.how == EXACT else None

    @property
    def expected_since(self) -> bool:
        """Whether records came since that are expected, not measured."""
        return self.measured_up_to < self.step

    @property
    def measured_when(self) -> str:
        """The last measured step in words: its last day, where a period was given."""
        return when_measured(self.measured_up_to, self.period)


def number_of_records(manifest: Mapping[str, Any]) -> NumberOfRecords:
    """The number of records of the release that a manifest is about."""
    accuracy, step = manifest.get("accuracy") or {}, int(manifest["step"])
    error, how = accuracy.get("total_standard_error"), EXACT
    if error is None:
        error, how = accuracy.get("total_model_standard_error"), MODELLED
    up_to = int(accuracy.get("measured_up_to_step", step))
    return NumberOfRecords(
        int(manifest["rows"]),
        None if error is None else float(error),
        None if error is None else how,
        step,
        up_to,
        accuracy.get("measured_up_to_period") if up_to < step else manifest.get("period"),
    )


def when_measured(step: int, period: str | None) -> str:
    """
    >>> when_measured(11, "2013-11-01/2013-11-30"), when_measured(3, None)
    ('step 11 (2013-11-30)', 'step 3')
    """
    return f"step {step}" if period is None else f"step {step} ({period.rsplit('/', 1)[-1]})"
