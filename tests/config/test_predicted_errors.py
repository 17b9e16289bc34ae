"""What ``dpstream plan`` says about errors before any data is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_configs import PUBLIC, load

from dpstream.project.planning import describe


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ('epsilon = "1"', [1, 10, 100, 1000]),
        ('epsilon = "1"\nhorizon = 40', [1, 10, 20, 30, 40]),
        ('epsilon = "1"\nhorizon = 3', [1, 2, 3]),
        ('epsilon = "1"\nhorizon = 1', [1]),
    ],
)
@pytest.mark.parametrize("name", ["dpstabs", "baseline"])
def test_errors_at_a_few_steps(tmp_path: Path, budget: str, steps: list[int], name: str) -> None:
    source = 'path = "data/*.csv"\ntime_column = "step"\nend = 1000'
    if "horizon" in budget:
        source = source.replace("1000", budget.rsplit(" ", 1)[1])
    config = load(tmp_path, mechanism=f'name = "{name}"\nk = 2', budget=budget, source=source)
    facts = describe(config)
    predicted = facts["predicted_errors"]
    assert [one["step"] for one in predicted["steps"]] == steps
    for one in predicted["steps"]:
        assert 0 < one["even_share"] <= one["every_step"]
        assert one["measurements"] == max(1, round(one["step"] * 2 / 3))
        assert one["total"] > 0
        running = facts["noise"]["running_sum"].get(str(one["step"]))
        assert running is None or one["every_step"] == pytest.approx(running)


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
    assert facts["predicted_errors"] is None
    pooled = facts["pooled"]
    assert (pooled["epoch_ends"], pooled["measured_one_by_one"]) == (ends, one_by_one)
    # What it says instead can be done, and has error bars.
    assert 'name = "dpstabs" with k = 3,' in " ".join(facts["words"]["further"])
    instead = describe(load(tmp_path, mechanism='name = "dpstabs"\nk = 3', budget=f'epsilon = "1"{horizon}'))
    assert "pooled" not in instead
    assert [part["name"] for part in instead["parts"]] == ["measure"]
    public = describe(load(tmp_path, stream=PUBLIC, mechanism='staleness = "1/2"'))["pooled"]
    assert (public["measured_one_by_one"], public["epoch_ends"][:4]) == (1, [1, 3, 7, 9]), (
        "the last planned step"
    )


def test_a_public_total_has_no_error(tmp_path: Path) -> None:
    facts = describe(load(tmp_path, stream=PUBLIC, mechanism='name = "dpstabs"'))
    assert {one["total"] for one in facts["predicted_errors"]["steps"]} == {0.0}
