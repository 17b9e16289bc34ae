"""The true points of a stream, step by step, as it was fed them. Private: for evaluation only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StepError
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.true_table import encoded_steps
from dpstream.tools.families.points.point_view import PointView

if TYPE_CHECKING:
    from dpstream.project import Config


def true_codes(config: Config, view: PointView, released: Mapping[int, int]) -> list[Codes]:
    """All records up to each of some steps, as codes of ``view``; private.

    Args:
        released: the steps, and how many points their releases say there were, which is public.

    Errors:
        ConfigError: records that can be read only once. StepError: a source that ends before the last of these
        steps, or has other numbers of records than the run read.
        DataError, SchemaError: files that cannot be read, or records that do not fit.

    Guarantee: none. Cost: one pass over the source; the records once for each of the steps.
    """
    parts, found, at = [], [], 0
    for entry, _, came, _ in encoded_steps(config, schema=view.schema):
        parts.append(came)
        at = entry.step
        if at in released:
            found.append(np.concatenate(parts))
            # Late records may have been released in another step than the one of their time.
            if config.source_options.late == "error" and len(found[-1]) != released[at]:
                raise StepError(
                    f"up to step {at} the source does not have the number of records that was released",
                    where="source",
                    allowed="the data that the run read",
                )
        if at == max(released):
            return found
    raise StepError(
        f"the source ends at step {at}, and step {max(released)} is released",
        where="source",
        allowed="the data that the run read, or earlier steps",
    )


def uniform_places(points: int, dimension: int) -> NDArray[np.float64]:
    """So many points spread over the whole space: what a release is worth that knows nothing. From a fixed seed."""
    return np.random.default_rng(1).random((points, dimension))
