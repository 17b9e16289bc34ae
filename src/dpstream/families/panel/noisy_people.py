"""What each period of a panel measured: noisy numbers of people, as they are published beside the release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.counters.cell_law import cell_law

if TYPE_CHECKING:
    from dpstream.families.panel.cumulative import CumulativeRelease
    from dpstream.families.panel.window import WindowRelease


def counted_patterns(release: WindowRelease, names: Sequence[str]) -> tuple[NoisyCounts, ...]:
    """The histogram of the newest window: people by what they reported in each of its periods, without padding."""
    if release.noisy is None:
        return ()
    last, width = release.period, release.plan.recipe.window
    first = last - width + 1
    query = {"kind": "patterns", "columns": list(names), "periods": width}
    draw = f"window, periods {first} to {last}"
    return (NoisyCounts(draw, "people", first, last, query, release.noisy, release.noise),)


def counted_thresholds(
    release: CumulativeRelease, name: str, codes: Sequence[int]
) -> tuple[NoisyCounts, ...]:
    """The counters' running sums, one for each threshold that can be reached by now; at the first period also the
    number of people, where it is private.

    Args:
        name: of the column; ``codes``: those of its values that are counted.
    """
    plan, last, made = release.plan, release.period, list[NoisyCounts]()
    if release.noisy_people is not None and plan.total_noise is not None:
        people = np.array([release.noisy_people], np.int64)
        made.append(
            NoisyCounts("number of people", "people", 1, 1, marginal_query([]), people, plan.total_noise)
        )
    for times in range(1, min(last, plan.recipe.largest) + 1):
        law = cell_law(plan.counters[times - 1], last - times + 1, 1)
        assert law is not None
        made.append(
            NoisyCounts(
                f"period {last}, at least {times}",
                "people",
                1,
                last,
                {"kind": "at least", "columns": [name], "codes": list(codes), "times": times},
                release.estimates[times : times + 1],
                law,
                series=f"at least {times}",
            )
        )
    return tuple(made)
