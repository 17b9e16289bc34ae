"""The units ``user`` and ``record``, also in several streams, from the configuration file to the release."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream
from small_configs import DEFAULTS, PAID, load, rewrite, write_config, write_rows

from dpstream.core.contracts import ends
from dpstream.core.errors import ConfigError, DataError, UnitError
from dpstream.core.privacy import InsertedRecord, PureDP, Randomness, StepPeriods, User, handled_as
from dpstream.io.sinks import read_manifest
from dpstream.project import Config, describe, taken_steps
from dpstream.project.planning import smallest_budget
from dpstream.project.statement import statement
from dpstream.project.status import ledger_facts, status_facts
from dpstream.stream import Account, Limit, read_ledger

STREAM = 'unit = "user"\nmax_events = 3'
SOURCE = DEFAULTS["source"].replace("end = 9", "end = 2") + '\nop_column = "op"\nuser_column = "person"'
EXPECT = "[expect]\nsize = 3000"
ROWS = {
    1: "".join(f"1,insert,{who},a,true,x\n" for who in "uuvw"),
    2: "2,delete,u,a,true,x\n2,insert,u,b,true,y\n",
}


def written(folder: Path, rows: dict[int, str] = ROWS, **parts: str):
    for step, lines in rows.items():
        write_rows(folder, f"{step}.csv", "step,op,person,zip,paid,kind", lines.splitlines())
    return load(folder, **{"stream": STREAM, "source": SOURCE} | parts)


def test_what_a_user_and_what_an_event_may_lose(tmp_path: Path) -> None:
    each_of = (('epsilon = "1"', {"epsilon": "49/150"}, 3), ('rho = "1"', {"rho": "49/450"}, 9))
    for budget, each, factor in each_of:
        config = written(tmp_path, budget=budget)
        facts = describe(config)
        assert config.unit == User(3)
        found = facts["contribution"]
        assert found["max_events"] == 3
        assert found["each_event"].items() >= each.items()
        assert found["user"] == config.budget.budget.as_dict()
        assert found["events_in_times"] == factor
        assert facts["sum"] == "1"
        assert "at most 3 events over the whole stream" in facts["guarantee"]
        assert config.facts()["max_events"] == 3
        assert config.facts()["source"]["user_column"] == "person"
        assert any("null or empty user id" in fact for fact in facts["declared_public"])


def test_a_user_is_protected_in_each_period(tmp_path: Path) -> None:
    config = written(tmp_path, stream=f'{STREAM}\nper = "1 step"')
    assert config.unit == User(3, StepPeriods(1))
    assert config.facts()["per"] == "1 step"
    with config.open_stream(randomness=Randomness.seeded(1)) as stream:
        release = [taken.release for taken in taken_steps(config, stream, config.source())][-1]
        assert stream.dropped_events == 0, "u has 4 events: 2 in each step"
        assert stream._store._database.execute("SELECT count(*) FROM users").fetchone() == (0,)
    assert "in one period (1 step)" in release.manifest["unit"]["words"]
    source = SOURCE.replace("end = 2", 'every = "week"\nstart = 2024-12-30\nend = 2026-12-28')
    year = written(tmp_path, stream=f'{STREAM}\nper = "year"', source=source).unit.per
    assert [step for step in range(1, 106) if ends(year, step)] == [52, 104], "the year of a week's last day"
    assert (release.manifest["unit"]["per"], release.manifest["unit"]["period"]) == ("1 step", "steps 2 to 2")
    ledger = ledger_facts(config, read_ledger(config.state_dir))
    assert [spend["unit_period"] for spend in ledger["spends"]] == ["steps 1 to 1", "steps 2 to 2"]
    assert "with records in 1, 5, 10 periods" in ledger["lives"]
    assert re.search(
        "a user's period +spent .*\n.*\n +1 .* steps 1 to 1 ", dpstream("ledger", "show", config.path).stdout
    )
    assert describe(config)["errors_are_about"].endswith("so its late steps hold fewer records.")
    with pytest.raises(ConfigError, match=r"per was \"1 step\" and is \"2 steps\""):
        written(tmp_path, stream=f'{STREAM}\nper = "2 steps"').open_stream()


@pytest.mark.parametrize(
    ("per", "budget", "words"),
    [
        (
            "year",
            'epsilon = "1"',
            "epsilon is 1, 5, 10, and a guess is right in at most 73.2, 99.4",
        ),
        (
            "month",
            'epsilon = "1/12"',
            "for a life: with records in 1, 5, 10 years, epsilon is 1, 5, 10",
        ),
        ("quarter", 'rho = "1/16"', "rho is 1, 25, 100"),
        (
            "2 steps",
            'epsilon = "1"',
            "promised for 2 steps is not promised for a life",
        ),
    ],
)
def test_what_is_promised_for_a_period_is_not_promised_for_a_life(
    tmp_path: Path, per: str, budget: str, words: str
) -> None:
    source = SOURCE.replace("end = 2", 'every = "month"\nstart = 2024-01-01\nend = 2025-12-31')
    config = load(tmp_path, stream=f'{STREAM}\nper = "{per}"', source=source, budget=budget, rest=EXPECT)
    assert words in describe(config)["words"]["lives"]
    page = statement(config, status_facts(config), date="1 May 2026").markdown()
    assert words in page
    assert "so late steps of a period hold fewer records" in page
    assert "is not promised for a life" in smallest_budget(config, ["total within 50 %"], None)["lives"]
    whole = describe(load(tmp_path, stream=STREAM, source=source))
    assert "for a life" not in json.dumps(whole), "control: the whole life is protected"


def test_a_run_takes_the_ids_from_the_source(tmp_path: Path) -> None:
    config = written(tmp_path)
    with config.open_stream(randomness=Randomness.seeded(1)) as stream:
        release = [taken.release for taken in taken_steps(config, stream, config.source())][-1]
        assert stream.last_step == 2
        # Two inserts and one of the two events of step 2: the last one is left out.
        assert stream.dropped_events == 1
        again = [taken.released for taken in taken_steps(config, stream, config.source())]
        assert again == [True, True]
    assert "person" not in release.sample(rows=5, seed=1).column_names
    text = json.dumps(release.manifest)
    assert '"max_events": 3' in text


OTHER_SOURCES = {
    "stdin": 'path = "-"\ntime_column = "step"\neof = "close"\nend = 3',
    "duckdb": """kind = "duckdb"
database = "people.duckdb"
query = "SELECT person, zip, paid, kind FROM people WHERE step >= ? AND step < ?"
end = 3""",
}


def fed(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, people: list[tuple[int, str | None]]):
    """A stream of the unit user that is fed with equal records of these people."""
    config = load(folder, stream=STREAM, source=OTHER_SOURCES[source] + '\nuser_column = "person"')
    if source == "stdin":
        rest = {"zip": "a", "paid": True, "kind": "x"}
        lines = [json.dumps({"step": step, "person": who, **rest}) + "\n" for step, who in people]
        piped = io.TextIOWrapper(io.BytesIO("".join(lines).encode()))
        monkeypatch.setattr(sys, "stdin", piped)
    else:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(folder / "people.duckdb")) as connection:
            connection.execute(
                "CREATE TABLE people (step INT, person TEXT, zip TEXT, paid BOOLEAN, kind TEXT)"
            )
            connection.executemany("INSERT INTO people VALUES (?, ?, 'a', true, 'x')", people)
    return config


@pytest.mark.parametrize("source", OTHER_SOURCES)
def test_pipes_and_queries_say_whose_records_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    # Nobody comes at step 2: then standard input knows no type of the ids.
    config = fed(tmp_path, monkeypatch, source, [(1, "u"), (1, "u"), (1, "v"), (3, "u"), (3, "u"), (3, "u")])
    with config.open_stream(randomness=Randomness.seeded(1)) as stream:
        assert len(list(taken_steps(config, stream, config.source()))) == 3
        assert stream.last_step == 3
        assert stream.dropped_events == 2
    (tmp_path / "nobody").mkdir()
    nobody = fed(tmp_path / "nobody", monkeypatch, source, [(1, None)])
    with nobody.open_stream(randomness=Randomness.seeded(1)) as stream:
        with pytest.raises(DataError, match=r"step 1 .*lacks a user id"):
            next(taken_steps(nobody, stream, nobody.source()))
        assert stream.last_step == 0


# One unit in several streams


RECORD = 'unit = "record"'
USER = 'unit = "user"\nmax_events = 1'
STEPS = 'path = "data/*.csv"\ntime_column = "step"\nend = 9'
CENSUS = {"mechanism": 'name = "census"\nturnover = 5', "budget": 'epsilon = "1"\naccount = "../account"'}
KEYED = f'{STEPS}\nop_column = "op"'
KINDS = {
    "person": {"stream": USER, "source": f'{STEPS}\nuser_column = "person"'},
    "household": {"stream": USER, "source": f'{STEPS}\nuser_column = "household"'},
    "three events": {"stream": USER.replace("1", "3"), "source": f'{STEPS}\nuser_column = "person"'},
    "key": {"stream": RECORD, "source": f'{STEPS}\nkey_column = "id"\ninsert_only = true'},
    "ticket": {"stream": RECORD, "source": f'{STEPS}\nkey_column = "ticket"\ninsert_only = true'},
    "stay": {"source": f'{KEYED}\nkey_column = "id"', **CENSUS},
    "one stay": {"stream": 'returns = "refuse"', "source": f'{KEYED}\nkey_column = "id"', **CENSUS},
}
#: What the account is in; whether both are about the same unit.
PAIRS = [
    ("user", "person", "household", False),
    ("user", "person", "three events", True),
    ("record", "key", "ticket", False),
    ("record", "key", "stay", False),
    ("record", "stay", "one stay", False),
    ("record", "stay", "stay", True),
]


def stream(folder: Path, kind: str, name: str, same: str = "") -> Config:
    (folder / name).mkdir()
    parts = {"budget": 'epsilon = "1"\naccount = "../account"', **KINDS[kind]}
    parts["stream"] = parts.get("stream", "") + (f'\nsame_unit = "{same}"' if same else "")
    return load(folder / name, **parts)


@pytest.mark.parametrize(("unit", "first", "second", "same"), PAIRS)
def test_an_account_adds_up_what_one_unit_loses(
    tmp_path: Path, unit: str, first: str, second: str, same: bool
) -> None:
    book = Account.create(tmp_path / "account", Limit.parse("epsilon=3"), unit)
    stream(tmp_path, first, "a").open_stream().close()
    if same:
        stream(tmp_path, second, "b").open_stream().close()
        assert book.read().total.epsilon == 2
        return
    with pytest.raises(UnitError, match="same_unit"):
        stream(tmp_path, second, "b").open_stream()
    assert book.read().total.epsilon == 1
    # Whoever says why they are the same says it to everybody.
    why = "every household of this table is one person"
    config = stream(tmp_path, second, "c", why)
    config.open_stream().close()
    assert book.read().total.epsilon == 2
    assert any(why in sentence for sentence in describe(config)["declared_public"])
    assert why in statement(config, status_facts(config), date="2026-11-23").markdown()
    # What was said of one column holds for it, and for no third one.
    stream(tmp_path, second, "d").open_stream().close()


def test_what_a_household_loses_is_more_than_the_sum_of_both_budgets() -> None:
    """Why: by brute force over outputs of two counts with geometric noise of epsilon 1, of persons and of households. A
    household of four persons changes the first one by 4 and the second one by 1."""

    def law(value: int, middle: int) -> float:
        return (1 - math.exp(-1)) / (1 + math.exp(-1)) * math.exp(-abs(value - middle))

    def largest(persons: int) -> float:
        return max(
            math.log(law(i, persons) * law(j, 1) / (law(i, 0) * law(j, 0)))
            for i, j in product(range(-9, 10), repeat=2)
        )

    assert largest(1) == pytest.approx(2)
    assert largest(4) == pytest.approx(5)


# Records that are only inserted


INSERTS = 'path = "data/*.csv"\ntime_column = "step"\nend = 2\nkey_column = "booking"\ninsert_only = true'
SNAPSHOTS = 'path = "data/*.csv"\nevery = "files"\nkey_column = "booking"\nshape = "snapshots"'


def made(folder: Path, source: str = INSERTS, **parts: str) -> Path:
    usual = {"stream": 'unit = "record"', "columns": PAID, "budget": 'epsilon = "1/2"'}
    path = write_config(folder, **usual | parts, name="bookings", source=source)
    for step in (1, 2):
        if source == SNAPSHOTS:
            write_rows(folder, f"{step}.csv", "booking,paid", ["7,true", f"{step}0,false"])
        else:
            write_rows(
                folder, f"{step}.csv", "step,booking,paid", [f"{step},7,true", f"{step},{step}0,false"]
            )
    return path


def plan(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(dpstream("plan", path, "--json").stdout)
    return facts


def test_plan_statement_and_manifest_tell_of_a_record_and_of_no_user(tmp_path: Path) -> None:
    path = made(tmp_path)
    facts = plan(path)
    assert facts["unit"] == "record"
    assert "contribution" not in facts
    assert any("a null or empty key, or keys of several types" in one for one in facts["declared_public"])
    statement = dpstream("statement", path).stdout
    assert "A person with k records is protected less" in statement
    dpstream("run", path)
    manifest = read_manifest(tmp_path / "releases", 2)
    assert manifest["unit"]["name"] == "record"
    assert "parallel over" in manifest["spent"]["composition"]
    assert manifest["source"]["key_column"] == "booking"
    texts = [dpstream(verb, path).stdout for verb in ("plan", "status")]
    for text in (*texts, json.dumps(facts), statement, json.dumps(manifest)):
        assert "user" not in text.lower(), text


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_record_without_a_key_is_told_of_a_key(tmp_path: Path, verb: str) -> None:
    path = made(tmp_path)
    write_rows(tmp_path, "2.csv", "step,booking,paid", ["2,,true"])
    output = dpstream(verb, path, code=2, error=verb == "run").output
    assert "lacks a key" in output
    assert "user" not in output


def test_an_account_of_users_refuses_it_and_one_of_records_takes_it(tmp_path: Path) -> None:
    for unit, code in (("user", 3), ("record", 0)):
        path = made(tmp_path / unit, budget='epsilon = "1/2"\naccount = "account"')
        Account.create(tmp_path / unit / "account", Limit.parse("epsilon=1"), unit)
        assert ("says nothing about the unit" in dpstream("run", path, code=code).output) == (code == 3)


def test_the_bound_of_one_is_enforced_as_a_users_is() -> None:
    unit = InsertedRecord()
    facts = unit.name, handled_as(unit), unit.max_events, unit.relation
    assert facts == ("record", "user", 1, "add-remove")
    assert unit.per_event(PureDP.of(1)) == PureDP.of(1)
    for bound in (2, True, 0):
        with pytest.raises(ConfigError, match="its one insert"):
            InsertedRecord(bound)


def test_guesses_are_of_a_table_that_only_grows_and_a_census_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, rest="[expect]\nrecords_per_step = 30")
    facts = plan(path)
    assert [one["size"] for one in facts["expected_errors"]["steps"]][:2] == [30, 60]
    assert any("records_per_step = 30 is published" in one for one in facts["declared_public"])
    rewrite(path, "[mechanism]", '[mechanism]\nname = "census"')
    assert "insert_only = false" in " ".join(dpstream("plan", path, code=3).stderr.split())


def test_public_presence_is_told_once_and_a_changed_export_stops_the_stream(tmp_path: Path) -> None:
    path = made(tmp_path, SNAPSHOTS, stream='total = "public"\nunit = "record"', rest="[expect]\nsize = 100")
    present = "which keys are present at the end of every step is declared public"
    again = "files of released steps are read again"
    dpstream("run", path)
    for declared in (
        plan(path)["declared_public"],
        read_manifest(tmp_path / "releases", 2)["declared_public"],
    ):
        assert declared.count(present) == 1
        assert any(again in one for one in declared)
    rewrite(tmp_path / "data" / "1.csv", "7,true", "7,false")
    dpstream("run", path, code=2)
