"""What ``dpstream plan`` says about errors before any data is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import PUBLIC, load

from dpstream.config.description import describe


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
    assert ("models fitted to them" in predicted["words"]) is (name == "baseline")


def test_a_public_total_has_no_error(tmp_path: Path) -> None:
    facts = describe(load(tmp_path, stream=PUBLIC))
    assert {one["total"] for one in facts["predicted_errors"]["steps"]} == {0.0}
