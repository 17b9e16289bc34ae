"""What a person moves on the way through the stream: the neighbours of the guarantee, as the noise sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.privacy import Individual, Randomness
from dpstream.core.schema import Boolean, Schema
from dpstream.core.tables import EncodedReports
from dpstream.families.panel import PanelWindow, people
from dpstream.families.panel.people import seat

PERIODS = 4
SCHEMA = Schema((Boolean("poor", missing="absent"),))
ABSENT = 2
#: What each of up to eight people reports in each period; None: no report.
History = list[int | None]
histories = st.lists(
    st.lists(st.sampled_from([0, 1, None]), min_size=PERIODS, max_size=PERIODS), min_size=2, max_size=8
)


def batches(panel: dict[int, History]) -> Iterator[EncodedReports]:
    """One batch a period; a person's mark is unrelated to the order in which people come."""
    for period in range(PERIODS):
        here = {(37 * p) % 251: h[period] for p, h in panel.items() if h[period] is not None}
        marks = np.array([[mark] + [0] * 15 for mark in sorted(here)], np.uint8).reshape(-1, 16)
        codes = np.array([[here[mark]] for mark in sorted(here)], np.int32).reshape(-1, 1)
        yield EncodedReports(SCHEMA.domain, codes, marks)


def seen(panel: dict[int, History], relation: str) -> Counter[int]:
    """What reaches the noise: with a window of all periods, how many people have each whole history."""
    places = 10 if relation == "replace" else None
    plan = PanelWindow(SCHEMA, PERIODS, people=places).calibrate(
        rho="1", unit=Individual(relation), horizon=PERIODS
    )
    state: Any = plan.start()
    for batch in batches(panel):
        plan.step(state, batch, Randomness.seeded(1))
    return Counter(state.private.tolist())


def moved(one: Counter[int], other: Counter[int]) -> int:
    """L1 distance of two histograms."""
    return sum(abs(one[code] - other[code]) for code in one | other)


def code(history: History) -> int:
    result = 0
    for report in history:
        result = 3 * result + (ABSENT if report is None else report)
    return result


@settings(max_examples=60)
@given(histories, st.lists(st.sampled_from([0, 1, None]), min_size=PERIODS, max_size=PERIODS))
def test_one_history_is_one_place_of_a_panel_with_places(found: list[History], other: History) -> None:
    """Late, early, now and then: everybody's whole history arrives, and a change of one moves one person."""
    panel = dict(enumerate(found))
    counts = seen(panel, "replace")
    never = 10 - sum(any(report is not None for report in history) for history in found)
    expected = Counter(code(h) for h in found if any(report is not None for report in h))
    expected[code([None] * PERIODS)] += never
    assert counts == +expected
    assert moved(counts, seen({**panel, 0: other}, "replace")) <= 2
    # Who never joins is no change at all beside an empty place.
    assert moved(counts, seen({key: panel[key] for key in panel if key}, "replace")) <= 2


@settings(max_examples=40)
@given(histories)
def test_one_person_more_is_one_count_more(found: list[History]) -> None:
    """Add/remove: everybody is there in the first period; later periods may lack reports."""
    panel: dict[int, History] = {key: [1, *history[1:]] for key, history in enumerate(found)}
    counts = seen(panel, "add-remove")
    assert counts == Counter(code(history) for history in panel.values())
    assert moved(counts, seen({key: panel[key] for key in panel if key}, "add-remove")) == 1


def test_people_who_are_mixed_up_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: reports read as if people came in the order of their marks."""

    def mixed_up(*given: Any, **options: Any) -> Any:
        marks, seats = seat(*given, **options)
        return marks, np.sort(seats)

    panel: dict[int, History] = {1: [1, 1, 1, 1], 2: [None, None, 0, 0], 5: [0, 0, 1, 1], 7: [None, 1, 0, 1]}
    right = seen(panel, "replace")
    monkeypatch.setattr(people, "seat", mixed_up)
    assert seen(panel, "replace") != right
