"""The model that is published with each release: its law, records under a condition, and its life as a file."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import certain, dpstream, make, released
from discovering import OPEN, batch, discovering
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_configs import PAID, ZIP
from toy_stream import start

import dpstream as dp
from dpstream.core.errors import ConfigError, LimitError, SchemaError, StoreDamagedError
from dpstream.core.graphical import Model, junction_tree
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.families.growing.growing_facts import SharesSynthesis
from dpstream.families.growing.tables import ModelTable
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks.release_reader import read_model, released_schema
from dpstream.mechanisms import ModelSynthesis
from dpstream.project import Config
from dpstream.stream.release.sampling import given as under
from dpstream.stream.release.sampling import published_model

sys.path.append(str(Path(__file__).parents[1] / "replay"))
from configurations import CONFIGURATIONS

#: A mixture of two models, changed by constraints, by levels, by time, by an earlier table, and carried over.
MODELS = (
    *("pooled, plain", "pooled, deletes", "pooled, constraints", "pooled, persistent", "dpstabs, deletes"),
    *("census, changes", "census, stays, headline", "census, public total", "scheduler", "successor"),
)
NONE = {"baseline": "kind = 'x'", "points": "kind = 'x'", "panel window": "poor", "pmwg": "kind = 'x'"}


def run(folder: Path, name: str) -> Config:
    """A stream of the replay; with the one that it begins with."""
    one = CONFIGURATIONS[name]
    if one.earlier:
        (folder / "before").mkdir()
        earlier = Config.load(CONFIGURATIONS[one.earlier].write(folder / "before", "earlier"))
        assert list(dp.run(earlier))
        earlier.output.dir.rename(folder / "earlier")
    config = Config.load(one.write(folder))
    assert list(dp.run(config))
    return config


@pytest.mark.parametrize("name", MODELS)
def test_readers_have_the_law_of_the_tables(tmp_path: Path, name: str) -> None:
    """Of every step: all columns together, the conditions, and the released table itself."""
    config = run(tmp_path, name)
    release = dp.read(config.output.dir)
    with config.open_stream(publish=False) as stream:
        for step in release.steps:
            own = stream.release(step)
            cells = own.marginal(release.columns)
            shares = cells.values / own.total if own.total else cells.values
            for place in itertools.islice(zip(*shares.nonzero(), strict=True), 0, None, 7):
                where = " and ".join(
                    f"{column} = '{names[code]}'"
                    for column, names, code in zip(cells.columns, cells.labels, place, strict=True)
                )
                assert release.probability(where, step) == pytest.approx(shares[place], rel=1e-6, abs=1e-12)
                assert own.probability(where) == pytest.approx(shares[place], rel=1e-6, abs=1e-12)
            # Total variation: below its mean's bound and what these records may add (McDiarmid; 1e-8 a table).
            law = shares.reshape(-1)
            bound = np.sqrt(law * (1 - law)).sum() / 2 + math.sqrt(math.log(1e8) / 2)
            for table in (release.table(step), release.sample(step=step, seed=1)) if own.rows else ():
                assert table.schema.equals(release.table(step).schema)
                drawn = counted(table, cells.columns, cells.labels)
                assert np.abs(drawn / own.rows - law).sum() / 2 * own.rows**0.5 < bound


def test_an_earlier_step_has_the_values_of_its_time(tmp_path: Path) -> None:
    with start(tmp_path, plan=discovering(2, 4), schema=OPEN, randomness=Randomness.seeded(1)) as stream:
        for step in range(1, 6):
            stream.step(batch(step), step)
        release, values = dp.read(tmp_path / "releases"), stream._found["kind"]
        later = {one.value for one in values}
        assert later
        for step in (1, 2, 5):
            marginal = stream.release(step).marginal(["kind"])
            drawn = release.sample(3000, seed=1, step=step).column("kind").to_pylist()
            assert bool(later & set(drawn)) == (step == 5)
            for label, count in zip(marginal.labels[0], marginal.values, strict=True):
                share = count / stream.release(step).total
                assert release.probability(f"kind = '{label}'", step) == pytest.approx(share, rel=1e-6)
        with pytest.raises(ConfigError, match="outside its values"):
            release.probability(f"kind = '{min(later)}'", 2)


def counted(table: Any, columns: tuple[str, ...], labels: tuple[tuple[str, ...], ...]) -> NDArray[np.float64]:
    """Rows of a table by cell."""
    counts = np.zeros([len(own) for own in labels])
    for row in zip(*(table.column(name).to_pylist() for name in columns), strict=True):
        texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in row]
        counts[tuple(own.index(text) for own, text in zip(labels, texts, strict=True))] += 1
    return counts.reshape(-1)


@pytest.mark.parametrize("name", NONE)
def test_what_is_drawn_from_no_graphical_model_says_so(tmp_path: Path, name: str) -> None:
    config = run(tmp_path, name)
    release = dp.read(config.output.dir)
    with pytest.raises(ConfigError, match=f"no model was published with step {release.step}"):
        release.sample(5)
    with config.open_stream(publish=False) as stream, pytest.raises(ConfigError, match="graphical model"):
        stream.release().sample(5, where=NONE[name])


@pytest.mark.parametrize("name", ["scheduler", "improver", "dpstabs", "census, changes", "pooled, deletes"])
def test_what_stays_of_a_withdrawn_step_does_not_draw_its_table_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Tried: every public number that may be a seed, with every model that stands. The control has the seed: where
    steps share a model, the others draw the table again."""
    growing = CONFIGURATIONS["scheduler"]
    seldom = replace(growing, mechanism=growing.mechanism.replace("1/10", "9/10"))
    monkeypatch.setitem(CONFIGURATIONS, "scheduler", seldom)
    config = run(tmp_path, name)
    table = dp.read(config.output.dir).table(3)
    with config.open_stream() as stream:
        drawn = stream._drawn(3)
        assert stream.withdraw(3, "a test")
    release = dp.read(config.output.dir)
    models = {}
    for step in release.steps:
        schema = released_schema(config.output.dir, release.manifest(step))
        facts = read_model(config.output.dir, step)
        model, schema = published_model(facts, schema, release.manifest(step), "")
        models[step] = [
            (model, schema),
            *((SharesSynthesis(ModelTable(one), 1), schema) for one in model.models),
        ]

    def again(seed: int) -> list[int]:
        return [
            step
            for step, ways in models.items()
            if any(one.released(schema, table.num_rows, seed).equals(table) for one, schema in ways)
        ]

    files = [path.read_text() for path in config.output.dir.rglob("*") if path.is_file()]
    numbers = {int(digits) for text in files for digits in re.findall(r"\b\d{9,19}\b", text)}
    public = {number for number in numbers if number < 2**63}
    assert not any(map(again, public))
    assert drawn is not None
    assert again(drawn[1]) == {"scheduler": [2], "improver": [4, 5]}.get(name, [])


# Conditions: texts of the grammar, beside what they mean in Python.

SCHEMA = Schema(
    [
        Categorical("a", ["x", "y", "z"], other="other"),
        Boolean("b", missing="missing"),
        Integer("c", edges=[0, 10, 20, 40]),
        Categorical("d", ["1", "2"]),
    ]
)
Meaning = Callable[[dict[str, str]], bool]
#: Where the bins of c begin.
BEGIN = dict(zip(SCHEMA.columns[2].labels(), (0, 10, 20), strict=True))


def compared() -> st.SearchStrategy[tuple[str, Meaning]]:
    equal = st.sampled_from([(c.name, label) for c in SCHEMA.columns for label in c.labels()])
    return st.one_of(
        equal.map(lambda one: (f"{one[0]} = '{one[1]}'", lambda row: row[one[0]] == one[1])),
        equal.map(lambda one: (f"not {one[0]} in ('{one[1]}')", lambda row: row[one[0]] != one[1])),
        st.sampled_from([10, 20]).map(lambda at: (f"c >= {at}", lambda row: BEGIN[row["c"]] >= at)),
        st.just(("b", lambda row: row["b"] == "true")),
    )


def joined(inner: st.SearchStrategy[tuple[str, Meaning]]) -> st.SearchStrategy[tuple[str, Meaning]]:
    def both(word: str, one: tuple[str, Meaning], other: tuple[str, Meaning]) -> tuple[str, Meaning]:
        quantor = all if word == "and" else any
        return f"({one[0]}) {word} ({other[0]})", lambda row: quantor([one[1](row), other[1](row)])

    return st.one_of(
        st.builds(both, st.sampled_from(["and", "or"]), inner, inner),
        inner.map(lambda one: (f"not ({one[0]})", lambda row: not one[1](row))),
        st.lists(inner, min_size=2, max_size=4).map(
            lambda terms: (
                " and ".join(text if " or " not in text else f"({text})" for text, _ in terms),
                lambda row: all(meaning(row) for _, meaning in terms),
            )
        ),
    )


@cache
def mixture() -> tuple[ModelSynthesis, list[dict[str, str]], NDArray[np.float64]]:
    """A mixture, all records by their labels, and the probability of each."""
    domain = SCHEMA.domain
    models = []
    for seed, cliques in enumerate(([(0, 1), (1, 2)], [(2, 3)])):
        tree = junction_tree(domain, cliques)
        models.append(Model(tree, np.random.default_rng(seed).normal(0, 2, tree.parameters), 100.0))
    made = ModelSynthesis(tuple(models), 100.0, weights=(0.3, 0.7))
    codes = np.indices(domain.sizes).reshape(len(domain), -1).T
    rows = [
        {c.name: c.labels()[k] for c, k in zip(SCHEMA.columns, row, strict=True)} for row in codes.tolist()
    ]
    return made, rows, np.exp(made.log_density(codes))


@settings(max_examples=200, deadline=None)
@given(st.recursive(compared(), joined, max_leaves=8))
def test_a_condition_means_what_it_says_of_every_record(condition: tuple[str, Meaning]) -> None:
    text, meaning = condition
    table, rows, law = mixture()
    true = np.array([meaning(row) for row in rows])
    mass, left = float(law[true].sum()), under(table, SCHEMA, text)
    if left is None:
        assert not true.any()
        return
    assert left[1] == pytest.approx(mass, rel=1e-9)
    codes = np.indices(SCHEMA.domain.sizes).reshape(len(SCHEMA.columns), -1).T
    assert np.exp(left[0].log_density(codes)) == pytest.approx(np.where(true, law, 0.0) / mass, abs=1e-12)
    drawn = left[0].sample(50, 1)
    assert true[np.ravel_multi_index(tuple(drawn.T), SCHEMA.domain.sizes)].all()


def test_what_is_too_rare_wrong_or_too_wide_is_refused_in_one_sentence(tmp_path: Path) -> None:
    text = certain(tmp_path, columns=ZIP.replace('"c"]', '"c"]\nother = "other"') + PAID)
    rows = [f"{letter},true" for letter in "aaabbbcc"] + ["c,false"] * 4
    for step in range(1, 5):
        (tmp_path / f"data/{step:03d}.csv").write_text(
            "step,zip,paid\n" + "".join(f"{step},{row}\n" for row in rows), encoding="utf-8"
        )
    dpstream("run", text)
    release = dp.read(tmp_path / "releases")
    assert release.probability("zip = 'other' and not zip = 'other'") == 0.0
    for where in ("zip = 'other'", "zip = 'other' and not zip = 'other'"):
        with pytest.raises(
            ConfigError, match=r"expects \S+ such records of 48 \(measured: .*at least one expected record"
        ):
            release.sample(10, where=where)
    assert (
        release.sample(7, where="zip = 'c' and not paid", seed=3).to_pylist()
        == [{"zip": "c", "paid": False}] * 7
    )
    assert release.sample(9, seed=3).equals(release.sample(9, seed=3))
    for wrong in ({"rows": -1}, {"seed": True}, {"where": "zip ="}, {"where": "zap = 'c'"}, {"step": 9}):
        with pytest.raises((ConfigError, SchemaError)):
            release.sample(**wrong)
    for step, measured in ((2, "12 as of step 2, 95 % interval"), (4, "not known")):
        options = "--where", "zip = 'c'", "--step", step, "--rows", 3, "--out", tmp_path / f"{step}.csv"
        done = dpstream("sample", tmp_path / "releases", *options)
        assert f"50 %, about {6 * step}.0 of" in done.stdout
        assert f"measured: {measured}" in done.stdout
        assert (tmp_path / f"{step}.csv").read_text().count('"c"') == 3
    options = "--state", tmp_path / "state", "--out", tmp_path / "d.csv"
    assert "--state" in dpstream("sample", tmp_path / "releases", *options, code=2).stderr
    wide = Schema([Categorical(name, [str(k) for k in range(150)]) for name in "abc"])
    table = ModelSynthesis((Model.uniform(wide.domain, 1.0),), 1.0)
    with pytest.raises(LimitError, match="a x b x c has 3375000 cells"):
        under(table, wide, "a = '1' or b = '2' or c = '3'")
    assert (under(table, wide, "a = '1' and b = '2' and c = '3'") or (None, 0.0))[1] == pytest.approx(
        150.0**-3
    )


def test_the_file_is_checked_restored_withdrawn_and_declined(tmp_path: Path) -> None:
    config = make(tmp_path)
    dpstream("run", config)
    releases, before = tmp_path / "releases", released(tmp_path)
    file = releases / "step-000003/model.json"
    listed = read_manifest(releases, 3)["files"]["model.json"]
    assert listed["bytes"] == len(before["step-000003/model.json"]) < 3_000

    file.write_bytes(file.read_bytes().replace(b"0.", b"0.0", 1))
    with pytest.raises(
        StoreDamagedError, match=r"step-000003/model\.json: the file differs from its published hash"
    ):
        dp.read(releases, 3).sample(5)
    file.unlink()
    with pytest.raises(StoreDamagedError, match=r"step-000003/model\.json: file missing"):
        dp.read(releases, 3).probability("paid")
    with Config.load(config).open_stream() as stream:
        assert stream.publish_again() == [3]
    assert released(tmp_path) == before

    dpstream("withdraw", config, "--step", 3, "--reason", "wrong")
    assert not file.exists()
    with pytest.raises(ConfigError, match="step 3 was withdrawn: wrong"):
        dp.read(releases).sample(5, step=3)

    # As in a folder of an earlier form: the step's manifest lists no model.
    declined = make(tmp_path / "declined")
    declined.write_text(declined.read_text().replace("[output]", "[output]\nmodel = false"), encoding="utf-8")
    dpstream("run", declined)
    assert not list((tmp_path / "declined/releases").rglob("model.json"))
    with pytest.raises(ConfigError, match="no model was published with step 4"):
        dp.read(tmp_path / "declined/releases").sample(5)
    with Config.load(declined).open_stream(publish=False) as stream:
        assert stream.release().sample(5, where="paid").column("paid").to_pylist() == [True] * 5
    # A file that no program of ours wrote, under its hash.
    facts: dict[str, Any] = json.loads(before["step-000004/model.json"])
    for change in (
        {"columns": []},
        {"parts": [{"weight": 1.0, "potentials": [{}], "impossible": []}]},
        {"records": "many"},
        {"format": 2},
        {"step": float("inf")},
        {"step": 3},
        {"schema": "0" * 64},
        {"parts": [{**facts["parts"][0], "weight": 5.0}]},
        {"parts": [{**facts["parts"][0], "potentials": [{"columns": ["paid"], "values": [0.0]}]}]},
    ):
        facts_of = {**facts, **change}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpstream.stream.public_release.read_model", lambda *_, made=facts_of: made)
            with pytest.raises(StoreDamagedError, match="model of step 4: unreadable model"):
                dp.read(releases).sample(5)
