"""Present records against a dict of keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, count_marginals

DOMAIN = Domain(("zip", "paid"), (300, 2))
CLIQUES = [(), (0,), (1,), (0, 1)]


def changes(events: dict[tuple[int, int], tuple[int, int] | None]) -> KeyedChanges:
    keys = np.array(sorted(events), np.uint64).reshape(-1, 2)
    present = np.array([events[int(a), int(b)] is not None for a, b in keys], np.bool_)
    codes = np.array([events[int(a), int(b)] for a, b in keys[present]], np.int32).reshape(-1, 2)
    return KeyedChanges(keys, present, codes)


KEY = st.tuples(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), st.integers(0, 3))
STEP = st.dictionaries(KEY, st.none() | st.tuples(st.integers(0, 299), st.integers(0, 1)), max_size=12)


@given(st.lists(STEP, max_size=8))
def test_a_table_is_the_dict_of_its_keys(steps: list[dict[tuple[int, int], tuple[int, int] | None]]) -> None:
    table, known = PresentTable.empty(DOMAIN), dict[tuple[int, int], tuple[int, tuple[int, int]]]()
    for step, events in enumerate(steps, start=1):
        before, old = table, dict(known)
        table, departed = table.after(changes(events), step)
        left = []
        for key, value in events.items():
            if value is None:
                left += [known.pop(key)[0]] if key in known else []
            else:
                known[key] = (known[key][0] if key in known else step, value)
        assert sorted(departed.tolist()) == sorted(left)
        assert contents(table) == known
        assert contents(before) == old, "a step may not change the table that was committed"
        for after in range(step + 1):
            codes = np.array([v for f, v in known.values() if f > after], np.int32).reshape(-1, 2)
            expected = count_marginals(codes, DOMAIN, CLIQUES)
            view = PresentBatch(PresentView(table, departed)).present
            assert all(
                np.array_equal(a, b) for a, b in zip(view.count(CLIQUES, after), expected, strict=True)
            )


def contents(table: PresentTable) -> dict[tuple[int, int], tuple[int, tuple[int, int]]]:
    rows = zip(table.keys.tolist(), table.first.tolist(), table.codes.tolist(), strict=True)
    return {(a, b): (first, (zip_code, paid)) for (a, b), first, (zip_code, paid) in rows}


def test_what_does_not_fit_is_refused() -> None:
    table = PresentTable.empty(DOMAIN)
    twice = KeyedChanges(np.ones((2, 2), np.uint64), np.zeros(2, np.bool_), np.zeros((0, 2), np.int32))
    with pytest.raises(DataError, match="ascend"):
        table.after(twice, 1)
    with pytest.raises(DataError):
        table.after(changes({(0, 0): (300, 0)}), 1)
    with pytest.raises(ConfigError, match="a mechanism of present records cannot have the"):
        PresentBatch(PresentView(table, np.zeros(0, np.int32))).count(CLIQUES)
    assert "hidden" in repr(PresentBatch(PresentView(table, np.zeros(0, np.int32))))
