"""A question is known by its values in all cells, whatever its words: one answer between two arrivals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pmwg_cases import CELLS, DOMAIN, SCHEMA, Arrived, asker, plan

from dpstream.families.growing.blackbox import LinearQuery
from dpstream.families.growing.pmwg_facts import WEIGHT_BITS
from dpstream.families.growing.pmwg_plan import grid_values
from dpstream.stream import Batch, open_stream


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_questions_are_the_same_where_their_values_are(data: st.DataObject) -> None:
    """Against all cells, written out: whatever columns a question names and however it is put."""
    which = plan()

    def drawn() -> LinearQuery:
        clique = tuple(sorted(data.draw(st.sets(st.integers(0, 2)))))
        # Few values over few cells: equal ones are common, and many columns are named without need.
        shape = [size if data.draw(st.booleans()) else 1 for size in DOMAIN.shape(clique)]
        values = data.draw(
            st.lists(st.sampled_from([0.0, 1.0]), min_size=math.prod(shape), max_size=math.prod(shape))
        )
        spread = np.broadcast_to(np.array(values).reshape(shape), DOMAIN.shape(clique))
        return LinearQuery(clique, spread.reshape(-1))

    one, other = drawn(), drawn()
    weights = [grid_values(each, DOMAIN) for each in (one, other)]
    (own, complement), (theirs, their_complement) = which.question_bytes(one), which.question_bytes(other)
    assert (own == theirs) == np.array_equal(*weights)
    assert (complement == theirs) == np.array_equal(2**WEIGHT_BITS - weights[0], weights[1])
    assert (own == their_complement) == (complement == theirs)


def test_a_question_has_one_answer_between_arrivals() -> None:
    which = plan(start=100, hard_questions=4)
    made = asker(which, [1000] + [0] * (CELLS - 1))
    first = made.ask("city = 'Bern'")
    assert first.kind == "hard"
    assert made.ask("not (city = 'Basel' or city = 'Chur')") == first
    opposite = made.ask("city != 'Bern'")
    assert (opposite.value, opposite.half_width) == (1 - first.value, first.half_width)
    assert made.ask("city in ('Basel', 'Chur')") == opposite
    # A column named without need is none; a value apart is another question.
    assert made.ask("city = 'Bern' and (smoker or not smoker)") == first
    assert made.standing.asked == 1
    assert made.standing.spent == first.spent
    made.arrive(Arrived([1] + [0] * (CELLS - 1)))
    assert made.ask("city = 'Bern'").t == 1001
    assert made.standing.asked == 2


def test_an_implied_answer_has_the_books_of_now(tmp_path: Path) -> None:
    """Hard questions were asked since the answer that it follows from."""
    which = plan(start=100, hard_questions=4, learning="matching")
    made = asker(which, [1000] + [0] * (CELLS - 1))
    first = made.ask("city = 'Bern'")
    for question in ("smoker", "age >= 65"):
        made.ask(question)
    implied, now = made.ask("city != 'Bern'"), made.standing
    assert now.spent > first.spent
    assert (implied.spent, implied.left, implied.hard_asked) == (now.spent, now.left, now.hard)
    assert implied.hard_left == now.hard_left

    with open_stream(which, SCHEMA, tmp_path / "state") as stream:
        stream.step(Batch({"city": ["Bern"] * 120, "smoker": [True] * 120, "age": [70] * 120}), "b1")
        stored = stream.ask("smoker").answer
        for question in ("city = 'Bern'", "age >= 65"):
            stream.ask(question)
        standing = stream.standing
        assert standing.spent > stored.spent
        for told in (stream.ask("not smoker").answer, stream.ask("smoker", "again").answer):
            assert (told.spent, told.left, told.hard_asked) == (standing.spent, standing.left, standing.hard)
        assert stream.ask("smoker").answer == stored, "the stored answer stays what it was"


def test_an_implied_answer_keeps_the_reason() -> None:
    """That the data was not asked, or the value is not corrected, holds for the complement too."""
    first = asker(plan(start=100, hard_questions=4), [1000] + [0] * (CELLS - 1)).ask("city = 'Bern'")
    assert first.of_complement().reason == "one minus the answer to the complement"
    refused = replace(first, kind="refused", reason="no hard question is left")
    assert refused.of_complement().reason == (
        "one minus the answer to the complement; no hard question is left"
    )
