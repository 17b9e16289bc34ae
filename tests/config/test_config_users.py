"""The unit ``user`` from the configuration file to the released table."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from small_configs import DEFAULTS, load, write_rows

from dpstream.core.errors import DataError, UnitError
from dpstream.core.privacy import Randomness, User
from dpstream.project import describe, taken_steps
from dpstream_lab.experiments import replayed_streams as streams

STREAM = 'unit = "user"\nmax_events = 3'
SOURCE = DEFAULTS["source"].replace("end = 9", "end = 2") + '\nop_column = "op"\nuser_column = "person"'
ROWS = {
    1: "".join(f"1,insert,{who},a,true,x\n" for who in "uuvw"),
    2: "2,delete,u,a,true,x\n2,insert,u,b,true,y\n",
}


def written(folder: Path, rows: dict[int, str] = ROWS, **parts: str):
    for step, lines in rows.items():
        write_rows(folder, f"{step}.csv", "step,op,person,zip,paid,kind", lines.splitlines())
    return load(folder, **{"stream": STREAM, "source": SOURCE} | parts)


def test_what_a_user_and_what_an_event_may_lose(tmp_path: Path) -> None:
    for budget, each, factor in (('epsilon = "1"', {"epsilon": "1/3"}, 3), ('rho = "1"', {"rho": "1/9"}, 9)):
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


def test_a_query_without_the_column_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = fed(tmp_path, monkeypatch, "duckdb", [(1, "u")])
    text = config.path.read_text().replace("SELECT person, zip", "SELECT zip")
    config.path.write_text(text)
    with pytest.raises(DataError, match="unknown column 'person'"):
        next(type(config).load(config.path).source().steps())


def test_a_source_without_the_column_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, source=SOURCE.replace('"person"', '"who"'))
    with pytest.raises(DataError, match="unknown column 'who'"):
        next(config.source().steps())


def test_comparisons_do_not_pass_over_the_bound(tmp_path: Path) -> None:
    config = written(tmp_path)
    with pytest.raises(UnitError, match="user"):
        streams._config_stream("x", config.path)
