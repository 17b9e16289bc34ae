"""An insert-only table's unit is a record: in plan, statement, manifest and account, though its key is a user id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dpstream.cli import main
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import InsertedRecord, PureDP, handled_as
from dpstream.stream.ledger.account import Account
from dpstream.stream.ledger.limit import Limit

CONFIG = """\
[stream]
name = "{name}"
unit = "record"
{stream}
[source]
path = "data/*.csv"
{source}
[schema.columns.paid]
type = "boolean"
{rest}
[mechanism]
[budget]
epsilon = "1/2"
{account}
"""
INSERTS = 'time_column = "step"\nend = 2\nkey_column = "booking"\ninsert_only = true'
SNAPSHOTS = 'every = "files"\nkey_column = "booking"\nshape = "snapshots"'


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def made(folder: Path, source: str = INSERTS, **parts: str) -> Path:
    text = {"name": "bookings", "stream": "", "rest": "", "account": ""} | parts
    (folder / "data").mkdir(exist_ok=True)
    for step in (1, 2):
        rows = f"{step},7,true\n{step},{step}0,false\n"
        head = "step,booking,paid\n"
        if source == SNAPSHOTS:
            head, rows = "booking,paid\n", f"7,true\n{step}0,false\n"
        (folder / "data" / f"{step}.csv").write_text(head + rows, encoding="utf-8")
    path = folder / "dpstream.toml"
    path.write_text(CONFIG.format(source=source, **text), encoding="utf-8")
    return path


def plan(path: Path) -> dict[str, Any]:
    done = call("plan", path, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def manifest(folder: Path) -> dict[str, Any]:
    newest = sorted((folder / "releases").rglob("manifest.json"))[-1]
    return json.loads(newest.read_text(encoding="utf-8"))


def test_plan_statement_and_manifest_tell_of_a_record_and_of_no_user(tmp_path: Path) -> None:
    path = made(tmp_path)
    facts = plan(path)
    assert facts["unit"] == "record"
    assert "contribution" not in facts
    assert any("a null or empty key, or keys of several types" in one for one in facts["declared_public"])
    shown = call("plan", path).stdout
    statement = call("statement", path).stdout
    assert "A person with many records is protected less" in statement
    assert "A person with 2 such records has" in " ".join(statement.split())
    assert call("run", path).exit_code == 0
    told = manifest(tmp_path)
    assert told["unit"] == {
        "name": "record",
        "words": "one record: its one insert (a key that comes again is left out)",
    }
    assert "parallel over" in told["spent"]["composition"]
    assert told["source"]["key_column"] == "booking"
    for text in (json.dumps(facts), shown, statement, json.dumps(told), call("status", path).stdout):
        assert "user" not in text.lower(), text


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_record_without_a_key_is_told_of_a_key(tmp_path: Path, verb: str) -> None:
    path = made(tmp_path)
    (tmp_path / "data" / "2.csv").write_text("step,booking,paid\n2,,true\n", encoding="utf-8")
    done = call(verb, path)
    assert done.exit_code == 2
    assert "without a key" in done.output
    assert "user" not in done.output


def test_a_person_with_many_records_is_told_of_in_the_report(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert call("run", path).exit_code == 0
    assert call("report", path, "--out", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    words = (
        "A person with several records is protected less, in proportion: ten of them, ten times the epsilon"
    )
    assert words in page
    assert "with k of them epsilon is k times as large" in call("statement", path).stdout


def test_an_account_of_users_refuses_it_and_one_of_records_takes_it(tmp_path: Path) -> None:
    for unit, code in (("user", 3), ("record", 0)):
        folder = tmp_path / unit
        folder.mkdir()
        path = made(folder, account='account = "account"')
        Account.create(folder / "account", Limit.parse("epsilon=1"), unit)
        done = call("run", path)
        assert done.exit_code == code, done.output
        assert ("says nothing about the unit" in done.output) == (code == 3)


def test_the_bound_of_one_is_enforced_as_a_users_is() -> None:
    unit = InsertedRecord()
    assert (unit.name, handled_as(unit), unit.max_events, unit.relation) == (
        "record",
        "user",
        1,
        "add-remove",
    )
    assert unit.per_event(PureDP.of(1)) == PureDP.of(1)
    for bound in (2, True, 0):
        with pytest.raises(ConfigError, match="its one insert"):
            InsertedRecord(bound)


def test_guesses_beside_insert_only_are_of_a_table_that_only_grows(tmp_path: Path) -> None:
    path = made(tmp_path, rest="[expect]\nrecords_per_step = 30")
    facts = plan(path)
    assert [one["size"] for one in facts["expected_errors"]["steps"]][:2] == [30, 60]
    assert any("records_per_step = 30 is published" in one for one in facts["declared_public"])


def test_a_mechanism_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.write_text(path.read_text().replace("[mechanism]", '[mechanism]\nname = "census"'), encoding="utf-8")
    done = call("plan", path)
    assert done.exit_code == 3
    assert "insert_only = false" in " ".join(done.output.split())


def test_public_presence_is_told_once_and_its_numbers_are_exact(tmp_path: Path) -> None:
    path = made(tmp_path, SNAPSHOTS, stream='total = "public"', rest="[expect]\nsize = 100")
    present = "which keys are present at the end of every step is declared public"
    assert plan(path)["declared_public"].count(present) == 1
    assert " ".join(call("statement", path).stdout.lower().split()).count(present) == 1
    assert call("run", path).exit_code == 0
    assert manifest(tmp_path)["declared_public"].count(present) == 1


def test_a_changed_export_stops_the_stream_and_the_plan_says_so(tmp_path: Path) -> None:
    path = made(tmp_path, SNAPSHOTS)
    assert any("files of released steps are read again" in one for one in plan(path)["declared_public"])
    assert call("run", path).exit_code == 0
    first = tmp_path / "data" / "1.csv"
    first.write_text(first.read_text().replace("7,true", "7,false"), encoding="utf-8")
    assert call("run", path).exit_code != 0
