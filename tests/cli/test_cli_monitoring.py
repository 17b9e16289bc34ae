"""Metrics for Prometheus and events for OpenLineage: well-formed, and public numbers only."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream
from small_configs import ZIP, load, write_config, write_rows

from dpstream.cli.logs import _inputs
from dpstream.project import status

#: The number of records of a step, and a value: neither may be anywhere.
ROWS, VALUE = 4711, "hunter2"
PARTS = {
    "name": r"a \"shop\" \\ of",
    "source": 'path = "data/*.csv"\ntime_column = "step"\nend = 2',
    "columns": ZIP.replace('"a", "b", "c"]', '"101", "102"]\nother = "other"'),
    "mechanism": 'name = "baseline"',
    "budget": 'epsilon = "2"\nhorizon = 9',
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("shop")
    rows = (f"{1 + i % 2},{VALUE if i % 7 == 0 else '101'}" for i in range(2 * ROWS))
    write_rows(folder, "1.csv", "step,zip", rows)
    return write_config(folder, **PARTS)


def said(config: Path, verb: str, *words: object, code: int = 0) -> str:
    return dpstream(verb, config, *words, code=code).output


def samples(text: str) -> dict[tuple[str, str], float]:
    """The text format of Prometheus, 0.0.4: every metric with its help and type before it, none twice."""
    found: dict[tuple[str, str], float] = {}
    told: dict[str, list[str]] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            told.setdefault(name, []).append(what)
            assert rest
            continue
        match = re.fullmatch(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (\S+)', line)
        assert match is not None, line
        assert told[match[1]] == ["HELP", "TYPE"]
        labels = match[2].replace('stream="a \\"shop\\" \\\\ of"', "").strip(",")
        assert (match[1], labels) not in found
        found[match[1], labels] = float(match[3])
    return found


def test_metrics_and_lineage_of_a_stream(project: Path) -> None:
    before = samples(said(project, "status", "--prometheus"))
    assert before["dpstream_health", 'word="not-started"'] == 1
    assert ("dpstream_release_time_seconds", "") not in before
    place = project.with_name("lineage.json")
    said(project, "run", "--until", "1", "--lineage", place, "--log-json", project.with_name("log.json"))
    said(project, "run", "--lineage", place)
    text = said(project, "status", "--prometheus", "--max-age", "1d")
    found = samples(text)
    assert found["dpstream_steps", ""] == 2
    assert found["dpstream_steps_left", ""] == 7
    assert found["dpstream_planned", 'loss="epsilon"'] == 2.0
    assert 0 < found["dpstream_spent", 'loss="epsilon"'] <= 2.0
    words = {labels: value for (name, labels), value in found.items() if name == "dpstream_health"}
    assert sum(words.values()) == 1
    events = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    assert [one["eventType"] for one in events] == ["START", "COMPLETE"] * 2
    check_events(events)
    assert [len(one["outputs"]) for one in events] == [0, 1, 0, 1]
    facets = events[3]["outputs"][0]["facets"]
    assert facets["version"]["datasetVersion"] == "2"
    assert facets["schema"]["fields"] == [{"name": "zip", "type": "categorical"}]
    for public in (text, json.dumps(events)):
        assert VALUE not in public
        assert not re.search(rf"\b({ROWS}|{2 * ROWS})\b", public)
    assert place.stat().st_mode & 0o077 == 0


def test_a_run_that_stops_says_so_without_its_message(tmp_path: Path) -> None:
    write_rows(tmp_path, "1.csv", "step,zip", ["1,101", f"{VALUE},101"])
    place = tmp_path / "lineage.json"
    said(write_config(tmp_path, **PARTS), "run", "--lineage", place, code=2)
    events = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    check_events(events)
    assert [(one["eventType"], one["outputs"]) for one in events] == [("START", []), ("FAIL", [])]
    assert VALUE not in json.dumps(events)


def check_events(events: list[dict[str, Any]]) -> None:
    """What OpenLineage 2-0-2 requires of a RunEvent, its data sets and their facets."""
    for event in events:
        wanted = {*("eventType", "eventTime", "run", "job"), *("inputs", "outputs", "producer", "schemaURL")}
        assert set(event) == wanted
        assert datetime.datetime.fromisoformat(event["eventTime"]).tzinfo is not None
        uuid.UUID(event["run"]["runId"])
        assert re.match("[a-z]+:", event["producer"])
        for one in (event["job"], *event["inputs"], *event["outputs"]):
            assert all(isinstance(one[key], str) and one[key] for key in ("namespace", "name"))
            for facet in one.get("facets", {}).values():
                assert {"_producer", "_schemaURL"} < set(facet)
    runs = [event["run"]["runId"] for event in events]
    assert runs[::2] == runs[1::2]
    assert len(set(runs)) == len(events) // 2


OBJECTS = 'path = ["in/*.csv", "s3://b/x/*.csv?region=e"]\nevery = "files"'
SERVER = 'kind = "mysql"\nurl = "mysql://me@db:3307/shop"\ntable = "t"\ntime_column = "d"\nend = 3'


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        (OBJECTS, [("file", "/in/*.csv"), ("s3://b", "x/*.csv")]),
        ('path = "-"\ntime_column = "step"\nend = 3', []),
        ('kind = "duckdb"\ndatabase = "a.duckdb"\nquery = "SELECT ?, ?"\nend = 3', [("file", "/a.duckdb")]),
        (SERVER, [("mysql://db:3307", "shop.t")]),
        ('kind = "mysql"\nurl_env = "SECRET"\nquery = "SELECT ?, ?"\nend = 3', [("mysql", "query")]),
    ],
)
def test_inputs_are_named_as_the_public_file_names_them(
    source: str, inputs: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", f"mysql://me:{VALUE}@db/shop")
    found = _inputs(load(tmp_path, **{**PARTS, "source": source}))
    assert [(space, name.removeprefix(str(tmp_path))) for space, name in found] == inputs


def test_the_words_are_those_of_health(project: Path) -> None:
    text = Path(status.__file__).with_name("words.j2").read_text(encoding="utf-8")
    words = {word.replace("_", "-") for word in re.findall("block health_([a-z_]+)", text)}
    assert words == set(status.WORDS)
    assert "cannot be combined" in said(project, "status", "--prometheus", "--json", code=2)
