"""What ``dpstream plan`` says about errors before any data is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_configs import PUBLIC, load

from dpstream.project.planning import describe


@pytest.mark.parametrize(
    ("horizon", "ends", "one_by_one"),
    [
        ("", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 32, 36, 41, 46, 52, 58, 65, 73], 9),
        ("\nhorizon = 5", [1, 2, 3, 4, 5], 5),
        ("\nhorizon = 12", [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12], 9),
    ],
)
def test_the_default_says_when_it_measures_and_what_it_cannot_say(
    tmp_path: Path, horizon: str, ends: list[int], one_by_one: int
) -> None:
    facts = describe(load(tmp_path, budget=f'epsilon = "1"{horizon}'))
    pooled = facts["pooled"]
    assert (pooled["epoch_ends"], pooled["measured_one_by_one"]) == (ends, one_by_one)
    # What it says instead can be done, and has error bars.
    assert 'name = "dpstabs" with k = 3' in " ".join(facts["words"]["further"])
    instead = describe(load(tmp_path, mechanism='name = "dpstabs"\nk = 3', budget=f'epsilon = "1"{horizon}'))
    assert "pooled" not in instead
    assert [part["name"] for part in instead["parts"]] == ["measure"]
    public = describe(load(tmp_path, stream=PUBLIC, mechanism='staleness = "1/2"'))["pooled"]
    assert (public["measured_one_by_one"], public["epoch_ends"][:4]) == (1, [1, 3, 7, 9]), "the last step"


def test_a_public_total_has_no_error(tmp_path: Path) -> None:
    plan = load(tmp_path, stream=PUBLIC, mechanism='name = "dpstabs"').plan()
    assert {predicted.total for predicted in plan.expected_errors([1, 10])} == {0.0}
