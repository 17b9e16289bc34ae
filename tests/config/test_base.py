"""What a successor begins with, as far as configuration and public files tell."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from small_configs import PAID, write_config

from dpstream import ZCDP, Batch, Categorical, Config, PureDP, Record, Schema
from dpstream.core.errors import ConfigError, StoreDamagedError, UnitError
from dpstream.core.privacy import Noise, Randomness
from dpstream.io.sources import SourceOptions
from dpstream.project.base import base_facts, base_table, border, read_predecessor
from dpstream.project.succession import draft_successor
from dpstream.stream.predecessor_cost import Broken, base_words, together

COLUMNS = (
    '[schema.columns.rent]\ntype = "real"\nedges = [0, 500, 1000]\nother = "strange"\nmissing = "unknown"\n'
    '[schema.columns.since]\ntype = "date"\nedges = ["2020-01-01", "2021-01-01", "2022-01-01"]\n'
    f'{PAID}other = "unclear"\n'
)
SOURCE = 'path = "data/*.csv"\ntime_column = "day"\nevery = "week"\nstart = "2026-01-05"\nend = "2026-01-18"'
ROWS = (
    [(100.0, "2020-05-05", True)] * 30
    + [(None, "2021-05-05", False)] * 20
    + [(-5.0, "2021-05-05", None)] * 10
)


def written(folder: Path, name: str, source: str, *, more: str = "", **parts: str) -> Path:
    """The configuration of a stream whose releases and state are called after it."""
    return write_config(
        folder,
        file=f"{name}.toml",
        name=name,
        source=source,
        mechanism='workload = [["rent", "since", "paid"]]',
        rest=f'[output]\ndir = "{name}"\n[state]\ndir = "{name}-state"\n{more}',
        **{"columns": COLUMNS, "budget": 'epsilon = "500"', **parts},
    )


class Noiseless(Randomness):
    """Zeros in place of noise. The largest budget there is (1000) would leave some by chance."""

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


def old_stream(folder: Path, **options: Any) -> Path:
    """A stream of two weeks whose table is the truth; nulls have two meanings in one column."""
    path = written(folder, "old", SOURCE, **options)
    config = Config.load(path)
    rent, since, paid = zip(*ROWS, strict=True)
    data = {
        "rent": pa.array(rent, pa.float64()),
        "since": pa.array(since),
        "paid": ["true" if p else "false" if p is False else "?" for p in paid],
    }
    with config.open_stream(randomness=Noiseless.seeded(1)) as stream:
        for week in ("2026-W02", "2026-W03"):
            day = {"2026-W02": "2026-01-05/2026-01-11", "2026-W03": "2026-01-12/2026-01-18"}[week]
            empty = {key: values[:0] for key, values in data.items()}
            stream.step(Batch(data if week == "2026-W02" else empty), week, day)
    return path


BASE = '[base]\nreleases = "old"\n'
LATER = SOURCE.replace('"2026-01-05"', '"2026-01-19"').replace('"2026-01-18"', '"2026-02-01"')


def successor(folder: Path, more: str = BASE, source: str = LATER, **options: Any) -> Config:
    return Config.load(written(folder, "new", source, more=more, **options))


def counts(config: Config) -> dict[str, float]:
    options = config.base_options
    assert options is not None
    table = base_table(options, read_predecessor(options), config.schema())
    names = config.schema().names
    found = {}
    for i, values in enumerate(table.marginals([(i,) for i in range(len(names))])):
        labels = config.schema().columns[i].labels()
        found |= {f"{names[i]} {label}": value for label, value in zip(labels, values, strict=True)}
    return found


def test_nulls_with_two_meanings_need_a_rule(tmp_path: Path) -> None:
    old_stream(tmp_path)
    with pytest.raises(ConfigError, match="what becomes of 'null' of the predecessor's column 'rent'"):
        successor(tmp_path).facts()
    rule = '[base.map.rent]\nnull = {unknown = "2/3", strange = "1/3"}\n'
    found = counts(successor(tmp_path, BASE + rule))
    assert found["rent unknown"] == pytest.approx(20)
    assert found["rent strange"] == pytest.approx(10)
    # Where null can only be "other", or text, it is read without a rule; bins are called alike.
    assert (found["paid unclear"], found["paid true"], found["paid false"]) == pytest.approx((10, 30, 20))
    assert [v for k, v in found.items() if k.startswith("since")] == pytest.approx([30, 30])


def test_other_bins_are_mapped_by_their_labels(tmp_path: Path) -> None:
    old_stream(tmp_path)
    columns = COLUMNS.replace("[0, 500, 1000]", "[0, 250, 500, 1000]")
    rule = BASE + '[base.map.rent]\nnull = "unknown"\n'
    with pytest.raises(ConfigError, match=r"what becomes of '.*500.*' of the predecessor's column 'rent'"):
        successor(tmp_path, rule, columns=columns).facts()
    schema = successor(tmp_path, rule).schema()
    halves = successor(tmp_path, rule, columns=columns).schema()["rent"].labels()[:2]
    split = f'"{schema["rent"].labels()[0]}" = {list(halves)!r}\n'.replace("'", '"')
    found = counts(successor(tmp_path, rule + split, columns=columns))
    assert [found[f"rent {label}"] for label in halves] == pytest.approx([15, 15])


def test_the_draft_names_the_border_and_asks_about_nulls(tmp_path: Path) -> None:
    old = old_stream(tmp_path)
    text = old.read_text(encoding="utf-8")
    old.write_text(text.replace('dir = "old-state"', 'dir = "old-state"\nkey_file = "k"'), encoding="utf-8")
    inside = tomllib.loads(draft_successor(old, tmp_path / "inside" / "next.toml"))
    assert (inside["source"]["path"], inside["state"]["key_file"]) == ("../data/*.csv", "../k")
    assert (inside["base"]["releases"], inside["base"]["config"]) == ("../old", "../old.toml")
    assert (inside["mechanism"], inside["schema"]) == tuple(
        tomllib.loads(text)[k] for k in ("mechanism", "schema")
    )
    old.write_text(text, encoding="utf-8")
    draft = tmp_path / "next.toml"
    draft.write_text(draft_successor(old, draft), encoding="utf-8")
    config = Config.load(draft)
    assert (str(config.source_options.start), str(config.source_options.end)) == ("2026-01-19", "2026-02-01")
    assert config.schema() == Config.load(old).schema()
    facts = config.facts()["base"]
    assert facts["rule"]["map"] == {"rent": {"null": {"unknown": "1"}}}
    assert facts["composition"]["rule"] == "parallel"
    assert facts["period"] == "2026-01-12/2026-01-18"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({}, "parallel"),
        ({"late": "next-step"}, "parallel"),
        ({"time_column": "other_day"}, "sum"),
        ({"every": "month", "start": "2026-01-19"}, "parallel"),
        ({"every": None, "start": 3, "end": 9}, "sum"),
        ({"every": "files", "time_column": None, "start": None, "end": None}, "sum"),
        ({"path": "-"}, "parallel"),
        ({"kind": "duckdb", "path": (), "database": "x", "query": "SELECT ? ?", "time_column": None}, "sum"),
    ],
)
def test_a_border_is_shown_by_public_facts_and_one_that_does_not_hold_is_refused(
    change: dict[str, Any], rule: str
) -> None:
    cut = {
        "path": ("data/*.csv",),
        "time_column": "day",
        "every": "week",
        "start": "2026-01-19",
        "end": "2027-01-31",
    }
    old = SourceOptions(**{**cut, "start": "2026-01-05"}).pinned()  # type: ignore[arg-type]
    last = {"source": old, "step": 2, "period": "2026-01-12/2026-01-18"}
    new = SourceOptions(**{**cut, **change})  # type: ignore[arg-type]
    assert (border(last, new, "here")[0] is not None) == (rule == "parallel")

    if rule == "parallel":
        for start in ("2026-01-12", "2026-01-18", "2026-01-20"):
            with pytest.raises(ConfigError, match="its predecessor ends before"):
                border(last, SourceOptions(**{**cut, "start": start}), "here")  # type: ignore[arg-type]


def test_a_record_may_stay_over_the_border(tmp_path: Path) -> None:
    """Its insert lies in the first stream and its delete in the second: the budgets add up, whatever the border."""
    old_stream(tmp_path)
    config = successor(tmp_path, BASE + '[base.map.rent]\nnull = {unknown = "2/3", strange = "1/3"}\n')
    options, plan = config.base_options, config.plan()
    assert options is not None
    found = read_predecessor(options)
    found = replace(found, manifest={**found.manifest, "unit": {"name": "record", "returns": "new"}})
    kept = SimpleNamespace(unit=Record(), budget=plan.budget)
    with pytest.raises(UnitError, match="same_unit"):  # no column says that both have the same keys
        base_facts(options, found, kept, config.schema(), config.source_options)  # type: ignore[arg-type]
    source = replace(config.source_options, same_unit="the keys are those of the register")
    facts = base_facts(options, found, kept, config.schema(), source)  # type: ignore[arg-type]
    assert facts["composition"]["rule"] == "sum"
    assert facts["composition"]["together"] == PureDP.of(1000).as_dict()
    assert "a record's stay may lie on both sides" in facts["composition"]["why"]
    # With a pattern there is no delta: the columns say it.
    found = replace(found, schema=Schema([Categorical("rent", "discover", pattern=["[0-9]"], other="more")]))
    with pytest.raises(ConfigError, match="the earlier stream discovers values"):
        base_facts(options, found, kept, config.schema(), source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("earlier", "before", "rule"),
    [
        ("parallel", (), "parallel"),
        ("parallel", None, "sum"),
        ("parallel", (Broken("it goes on"),), "sum"),
        ("sum", (), "sum"),
    ],
    ids=["every border is shown", "nobody can look", "one is broken", "one never held"],
)
def test_a_third_stream_counts_all_three(
    tmp_path: Path, earlier: str, before: tuple[Broken, ...] | None, rule: str
) -> None:
    old_stream(tmp_path)
    config = successor(tmp_path, BASE + '[base.map.rent]\nnull = {unknown = "2/3", strange = "1/3"}\n')
    assert config.base_options is not None
    found = read_predecessor(config.base_options)
    first = {"stream": "first", "budget": PureDP.of(4).as_dict()}
    base = {"composition": {"rule": earlier, "periods": [first], "own": PureDP.of(1).as_dict()}}
    found = replace(found, manifest={**found.manifest, "base": base})
    plan = SimpleNamespace(unit=config.unit, budget=PureDP.of(2))
    facts = base_facts(config.base_options, found, plan, config.schema(), config.source_options, before)  # type: ignore[arg-type]
    facts = facts["composition"]
    assert [one["stream"] for one in facts["periods"]] == ["first", "old"]
    cost = PureDP.of(4 if rule == "parallel" else 7)
    assert (facts["rule"], facts["together"]) == (rule, cost.as_dict())


def test_users_and_mixed_definitions(tmp_path: Path) -> None:
    """A person may be on both sides; a rho and an epsilon are compared as rhos."""
    mixed = [PureDP.of(1), ZCDP.of("1/8"), ZCDP.of("3/4")]
    assert together(mixed, "parallel") == ZCDP.of("3/4")
    assert together(mixed, "sum") == ZCDP.of("11/8")
    user = {"stream": 'unit = "user"\nmax_events = 2'}
    path = written(tmp_path, "old", SOURCE + '\nuser_column = "who"', **user)
    rows = {"rent": [1.0], "since": ["2020-05-05"], "paid": [True]}
    with Config.load(path).open_stream() as stream:
        stream.step(Batch(rows, None, (["a"], None)), "2026-W02", "2026-01-05/2026-01-11")
    new = LATER.replace("2026-01-19", "2026-01-12") + '\nuser_column = "who"'
    rule = BASE + '[base.map.rent]\nnull = "unknown"\n'
    facts = successor(tmp_path, rule, new, **user).facts()["base"]
    assert facts["composition"]["rule"] == "sum"
    assert facts["composition"]["together"] == {"definition": "pure", "epsilon": "1000"}
    assert "each stream has its own bound" in base_words(facts)


def test_a_release_that_changed_between_look_and_start_is_refused(tmp_path: Path) -> None:
    old_stream(tmp_path)
    base = successor(tmp_path, BASE + '[base.map.rent]\nnull = "unknown"\n').base()
    assert base is not None
    config = Config.load(tmp_path / "old.toml")
    with config.open_stream() as stream:
        stream.step(Batch({"rent": [], "since": [], "paid": []}), "2026-W04", "2026-01-19/2026-01-25")
    with pytest.raises(StoreDamagedError, match="another release"):
        base.table()


def test_places_and_shares_are_read_strictly(tmp_path: Path) -> None:
    for more, words in (
        ('[base]\nreleases = "old"\n[base.fill]\nkind = {x = "1/2", y = 0.4}\n', "add up to 9/10"),
        ('[base]\nreleases = "old"\n[base.fill]\nkind = {x = "-1", y = "2"}\n', "is not a share"),
        ('[base]\nreleases = "old"\n[base.fill]\nkind = ["x", "x"]\n', "each label once"),
        ('[base]\nreleases = "old"\ndrop = "x"\n', "expected columns"),
        ("[base]\nstep = 3\n", "the key is missing"),
    ):
        with pytest.raises(ConfigError, match=words):
            Config.load(write_config(tmp_path, rest=more))
    shares = Config.load(
        write_config(
            tmp_path,
            rest='[base]\nreleases = "old"\n[base.fill]\nkind = ["x", "y", "z"]\nn = 1\nyes = true\n',
        )
    ).base_options
    assert shares is not None
    assert shares.rule()["fill"] == {
        "kind": {"x": "1/3", "y": "1/3", "z": "1/3"},
        "n": {"1": "1"},
        "yes": {"true": "1"},
    }
