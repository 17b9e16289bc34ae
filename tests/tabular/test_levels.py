"""Levels as headlines: what the file has to say, what each level costs, and which records it counts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpstream
from dpstream.core.contracts import StepPeriods
from dpstream.core.errors import ConfigError, DpstreamError, SchemaError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness, User
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.schema.levels import Lines
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.census import Census
from dpstream.families.tabular import Pooled
from dpstream.project.schema_file import read_schema, write_schema
from dpstream.stream.identity import plan_facts

ZIPS = tuple(f"z{i}" for i in range(12))
PLACES = {
    "region": [f"r{i // 6}" for i in range(12)],
    "district": [f"d{i // 3}" for i in range(12)],
    "zip": list(ZIPS),
}
COLUMNS = (Boolean("paid"), Categorical("zip", ZIPS), Categorical("kind", ["flat", "house", "ship"]))
SCHEMA = Schema(COLUMNS).with_levels("place", tuple(PLACES), PLACES)
RECIPE = Pooled(
    Workload.all_k_way(SCHEMA.domain, 2),
    headline=(("place",), ("region", "paid")),
    periods=StepPeriods(2),
    number=StepPeriods(2),
    iterations=5,
)

FILE = """
[columns]
zip = { type = "categorical", values = ["a", "b", "c"], other = "other", missing = "missing" }
kind = { type = "categorical", values = ["flat", "house"] }
[levels]
place = { columns = ["region", "district", "zip"], file = "places.csv" }
"""
LINES = "region,district,zip\nwest,w1,a\nwest,w1,b\neast,e1,c\n?,?,other\n?,?,missing\n"


def _read(folder: Path, lines: str) -> Schema:
    (folder / "schema.toml").write_text(FILE)
    (folder / "places.csv").write_text(lines)
    return read_schema(folder / "schema.toml")


def test_a_file_and_a_table_declare_the_same_levels(tmp_path: Path) -> None:
    schema = _read(tmp_path, LINES)
    rows = [line.split(",") for line in LINES.split()[1:]]
    table = dict(zip(("region", "district", "zip"), zip(*rows[::-1], strict=True), strict=True))
    assert (
        schema.fingerprint() == Schema(schema.columns).with_levels("place", tuple(table), table).fingerprint()
    )
    (tmp_path / "again.toml").write_text(write_schema(schema))
    assert read_schema(tmp_path / "again.toml") == schema
    assert schema.constraints is not None
    cells = [["flat", "flat"], ["flat", "house"]]
    both = schema.with_lines("uses", ("use", "kind"), Lines(cells, (2, 3), "lines", file="places.csv"))
    assert both.constraints is not None
    files = both.constraints.facts()["files"]
    assert list(files) == [f"places.csv: {name}" for name in ("region", "district", "use")]
    assert files["places.csv: use"] != files["places.csv: region"]
    codebook = {column.name: column.spec() for column in schema.released_columns}
    assert (
        Schema.from_codebook(codebook, schema.constraints.spec()).fingerprint()
        == Schema(schema.columns, constraints=schema.constraints).fingerprint()
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("?,?,other\n", "", "a line is missing for zip = 'other'"),
        ("?,?,missing\n", "", "a line is missing for zip = 'missing'"),
        (
            "west,w1,b\n",
            "east,w1,b\n",
            "line 3 puts district = 'w1' into region = 'east', and line 2 into 'west'",
        ),
        ("west,w1,b\n", "west,w1,b\nwest,w1,b\n", "line 4 gives zip = 'b' again, after line 3"),
        ("west,w1,b\n", "west,w1,z\n", "line 3: zip = 'z' is not declared"),
        ("west,w1,b\n", ",w1,b\n", "line 3 has no region"),
        ("region,", "area,", "the first line does not name each column once"),
    ],
)
def test_a_file_that_says_no_tree_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said.replace("?", r"\?")):
        _read(tmp_path, LINES.replace(old, new))


@pytest.mark.parametrize(
    ("headline", "said"),
    [
        ((("place",), ("zip",)), "occurs twice"),
        ((("place.county",),), "unknown column 'place.county'"),
        ((("place", "kind"),), "unknown column 'place'"),
    ],
)
def test_headlines_of_levels_that_cannot_be_measured(headline, said: str) -> None:
    with pytest.raises(DpstreamError, match=said):
        replace(RECIPE, headline=headline)


def test_a_census_measures_no_levels() -> None:
    with pytest.raises(ConfigError, match="headlines of measured columns only"):
        Census(Workload.all_k_way(SCHEMA.domain, 2), turnover=10, headline=(("place",),))


@pytest.mark.parametrize("deletes", [False, True])
def test_every_level_counts_each_event_of_its_period_once(deletes: bool) -> None:
    """At an epsilon without noise, measurements are the counts of their steps."""
    plan = replace(RECIPE, deletions=deletes, cancels=False).calibrate(epsilon="1000", horizon=5)
    state, generator, rows = plan.start(), np.random.default_rng(3), []
    seen = set()
    for step in range(1, 6):
        codes = generator.integers(0, SCHEMA.domain.sizes, (80, 3)).astype(np.int32)
        rows.append(codes)
        batch = EncodedBatch(SCHEMA.domain, codes, codes[:20] if deletes else None)
        release = plan.step(state, batch, Randomness.seeded(step))
        state = plan.unpack_state(plan.pack_state(state))
        for one in release.noisy_counts:
            if "headline" not in one.draw or one.columns is None:
                continue
            part = slice(20) if one.counted == "deletes" else slice(None)
            records = np.concatenate([own[part] for own in rows[one.first - 1 : one.last]])
            named = dict(zip(SCHEMA.domain.released.names, SCHEMA.with_derived(records).T, strict=True))
            shape = [len(_column(name).labels()) for name in one.columns]
            flat = np.ravel_multi_index([named[name] for name in one.columns], shape)
            np.testing.assert_array_equal(one.values, np.bincount(flat, minlength=np.prod(shape)))
            seen.add((one.columns, one.counted, one.first, one.last))
    sides = ("inserts", "deletes") if deletes else ("net",)
    for columns in (("region",), ("district",), ("zip",)):
        assert {(columns, side, first, min(first + 1, 5)) for side in sides for first in (1, 3, 5)} <= seen


@pytest.mark.parametrize("deletes", [False, True])
def test_tables_agree_with_their_levels(deletes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions of many small places, where a period and an epoch end: what is off is the noise of their levels.

    False alarms: 36 regions' mean squared errors exceed twice their variance with probability 1e-5. The control fits
    the finest level alone.
    """
    zips = [f"z{i}" for i in range(300)]
    places = {"region": [f"r{min(i // 30, 2)}" for i in range(300)], "zip": zips}
    schema = Schema((Categorical("zip", zips), Boolean("paid"))).with_levels("place", tuple(places), places)
    recipe = Pooled(
        Workload.all_k_way(schema.domain, 2),
        headline=(("place",),),
        periods=StepPeriods(1),
        number=StepPeriods(1),
        deletions=deletes,
    )
    region, sides = np.array([min(i // 30, 2) for i in range(300)]), 1 + deletes

    def spread(seed: int) -> float:
        generator, plan = np.random.default_rng(seed), recipe.calibrate(epsilon=1, horizon=None)
        state, truth = plan.start(), np.zeros(300)
        for step in range(1, 7):
            codes = np.column_stack([np.minimum(generator.geometric(0.02, 900) - 1, 299)] * 2).astype(
                np.int32
            )
            codes[:, 1] %= 2
            batch = EncodedBatch(schema.domain, codes, codes[:300] if deletes else None)
            truth += np.bincount(codes[300 * deletes :, 0], minlength=300)
            release = plan.step(state, batch, Randomness.seeded(100 * seed + step))
            state = plan.unpack_state(plan.pack_state(state))
        off = np.bincount(region, release.marginals([(0,)])[0] - truth)
        return float((off**2).mean()) / (6 * sides * plan.clocks[0].variances[0])

    assert np.mean([spread(seed) for seed in range(12)]) < 2.0
    monkeypatch.setattr("dpstream.families.tabular.pooled_facts.trees_of", lambda clocks: [])
    assert np.mean([spread(seed) for seed in range(3)]) > 4.0


def _column(name: str):
    return next(column for column in SCHEMA.released_columns if column.name == name)


@pytest.mark.parametrize("budget", [PureDP.of(1), ZCDP.of("1/8")])
@pytest.mark.parametrize("unit", [Event(), Event("replace"), User(3)])
def test_a_tree_is_one_headline_and_its_levels_share_it(budget, unit) -> None:
    plan = RECIPE.calibrate(budget, unit, horizon=12)
    assert sum(part.total for part in plan.all_parts()) == budget.amount
    clock = plan.clocks[0]
    assert sum((share.amount for _, share, _ in clock.draws), Fraction(0)) == clock.budget.amount
    assert [share.amount for _, share, _ in clock.draws[-3:]] == [clock.budget.amount / 6] * 3
    assert clock.labels[-3:] == ["region", "district", "zip"]
    named = replace(RECIPE, headline=(("place.region",), ("region", "paid"), ("district",)))
    assert named.calibrate(budget, unit, horizon=12).clocks[0].draws == clock.draws


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_record_changes_one_cell_of_each_level(relation: str) -> None:
    """Every record, one by one: the exact loss of a period is its budget. A level without a share costs more."""
    plan = RECIPE.calibrate(PureDP.of(1), Event(relation), horizon=12)
    clock, worst = plan.clocks[0], Fraction(0)
    codes = np.indices(SCHEMA.domain.sizes).reshape(3, -1).T.astype(np.int32)
    asked = plan.asked_cliques()
    ends = [codes[:1]] if relation == "replace" else [codes[:0]]
    for record in codes:
        before, after = (
            clock.read(dict(zip(asked, EncodedBatch(SCHEMA.domain, rows).count(asked, "net"), strict=True)))
            for rows in (ends[0], record[None])
        )
        moved = np.abs(after - before)
        worst = max(
            worst, sum((_loss(moved, clock, group, noise) for group, _, noise in clock.draws), Fraction(0))
        )
    assert worst == clock.budget.amount
    paid = [share.amount for _, share, _ in clock.draws if share.amount != clock.draws[-3][1].amount]
    assert sum(paid, Fraction(0)) < worst


def _loss(moved: np.ndarray, clock, group: tuple[int, ...], noise) -> Fraction:
    """Of one draw of a marginal: how far its cells move, by its scale."""
    return Fraction(int(moved[clock.parts[group[0]]].sum())) / noise.scale


def test_a_levels_file_that_changes_between_steps_is_refused(tmp_path: Path) -> None:
    rows = {"paid": [True, False], "zip": ["z1", "z2"], "kind": ["flat", "ship"]}
    accuracy = {"headline": ["place.region"], "periods": "2 steps"}
    with dpstream.open(tmp_path / "homes", SCHEMA, epsilon=1, accuracy=accuracy) as stream:
        stream.step(rows, "first")
    moved = {**PLACES, "district": ["d1", *PLACES["district"][1:]]}
    other = Schema(COLUMNS).with_levels("place", tuple(PLACES), moved)
    with pytest.raises(DpstreamError, match="schema"):
        dpstream.open(tmp_path / "homes", other, epsilon=1, accuracy=accuracy)
    with pytest.raises(ConfigError, match="other values of derived columns"):
        plan_facts(RECIPE.calibrate(PureDP.of(1)), other, "homes")
    with dpstream.open(tmp_path / "homes", SCHEMA, epsilon=1, accuracy=accuracy) as stream:
        stream.step(rows, "second")
    release = dpstream.read(tmp_path / "homes" / "releases")
    assert release.flow(["region"], 1, 2).labels == (("r0", "r1"),)
    assert release.flow("zip", 1, 2).values.shape == (12,)
