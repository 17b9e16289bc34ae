"""An insert-only table's unit is a record: in plan, statement, manifest and account, though its key is a user id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream
from small_configs import PAID, rewrite, write_config, write_rows

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import InsertedRecord, PureDP, handled_as
from dpstream.io.sinks import read_manifest
from dpstream.stream import Account, Limit

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
