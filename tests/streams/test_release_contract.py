"""What every family's release offers, asked without knowing which family it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_batches import same
from small_streams import small_schema, small_step, small_stream

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.families.growing import ERM, BBScheduler
from dpstream.io.sinks import read_table as read
from dpstream.stream import Release

CLASSIFIER = BBScheduler(ERM(small_schema("zip", "paid"), "paid"), 40, gamma="1/10")
#: Mechanism -> the family of its stream, and what is not as the family has it.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "pooled": ("table", {}),
    "dpstabs": ("table", {"mechanism": "dpstabs"}),
    "baseline": ("table", {"mechanism": "baseline"}),
    "census": ("keyed", {}),
    "scheduler": ("growing", {}),
    "classifier": ("growing", {"mechanism": CLASSIFIER}),
    "pmwg": ("growing", {"mechanism": {"name": "pmwg", "alpha": "1/5", "start": 40}}),
    "window": ("panel", {}),
    "cumulative": ("panel", {"mechanism": "panel-cumulative"}),
    "points": ("points", {}),
}


@pytest.mark.parametrize("name", list(CASES))
def test_every_release_keeps_the_contract(name: str, tmp_path: Path) -> None:
    family, options = CASES[name]
    with small_stream(tmp_path, family, 3, **options) as stream:
        release, plan, schema = stream.release(), stream.plan, stream._schema
    synthesis, released = release._synthesis, plan.released_schema(schema)
    assert synthesis.domain.names == schema.names
    table = release.sample()
    there = read(tmp_path / "releases", step=3).num_rows
    assert table.num_rows == release.rows == synthesis.rows(released, 10**7) == there
    assert table.equals(release.sample())
    assert release.manifest["accuracy"]["words"]
    again = plan.unpack_synthesis(synthesis.pack())
    assert again.released(released, release.rows, 5).equals(synthesis.released(released, release.rows, 5))
    if synthesis.answers is None:
        refuses_questions(release)
    else:
        assert synthesis.answers.marginal((0,)).values.shape == synthesis.domain.shape((0,))
        assert synthesis.answers.sample(7, 1).shape == (7, len(schema))
        assert release.sample(7, 1).num_rows == 7
        assert release.marginal([schema.names[0]]).values.size == schema.domain.sizes[0]
    if synthesis.grows is not None:
        assert synthesis.grows.table(released).equals(table)
        added = {"person", "period", *schema.names, "weight"}
        assert set(synthesis.grows.additions(released).column_names) == added


def refuses_questions(release: Release) -> None:
    """One error, whatever was asked."""
    asks: list[Callable[[], Any]] = [
        lambda: release.marginal(["paid"]),
        lambda: release.answer("paid = 1"),
        lambda: release.sample(3),
        lambda: release.sample(seed=3),
    ]
    for ask in asks:
        with pytest.raises(
            ConfigError, match="the release is a classifier: it gives neither records nor counts"
        ):
            ask()


@pytest.mark.parametrize("name", list(CASES))
def test_a_stream_that_is_opened_again_at_every_step_is_the_same_stream(name: str, tmp_path: Path) -> None:
    """State and randomness come back bit by bit, so that the releases are those of one long life."""
    family, options = CASES[name]
    lives = []
    for closing in (False, True):
        randomness, found = Randomness.seeded(4), []
        stream = small_stream(tmp_path / str(closing), family, seed=randomness, **options)
        for step in range(1, 7):
            if closing:
                stream.close()
                stream = small_stream(tmp_path / str(closing), family, seed=randomness, **options)
            synthesis = small_step(stream, family, step)._synthesis
            assert synthesis is not None
            found.append(synthesis.pack())
        stream.close()
        lives.append(found)
    assert all(map(same, *lives))
