"""What a stream is pinned to besides its plan, what it declares public, and how far its source was read."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fault_harness import sql
from row_files import source_of
from toy_stream import SCHEMA, ToyPlan, batch, run, start

import dpstream
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import Event
from dpstream.core.schema import Categorical, Schema
from dpstream.io.sinks import read_manifest
from dpstream.io.sources import SourceOptions
from dpstream.stream import Batch, open_stream, read_status
from dpstream.stream.declared import declared_public

WEEKS = {"path": "*.csv", "time_column": "day", "every": "week", "start": "2026-01-05", "end": "2026-12-31"}


def facts(**changes: object) -> dict[str, object]:
    options = SourceOptions.parse({**WEEKS, **changes})
    return {"source": options.pinned(), "declared_public": options.declared_public()}


def test_the_cut_is_pinned_and_told_in_every_manifest(tmp_path: Path) -> None:
    with start(tmp_path, **facts()) as stream:
        manifest = stream.step(batch(1), "a").manifest
    assert manifest == read_manifest(tmp_path / "releases", 1)
    assert manifest["source"] == SourceOptions.parse(WEEKS).pinned()
    assert any('late = "error"' in sentence for sentence in manifest["declared_public"])
    assert sum("cannot be taken apart" in sentence for sentence in manifest["declared_public"]) == 1
    assert any("unreadable time stops the stream in column 'day'" in s for s in manifest["declared_public"])
    # The owner may move a public end; nothing else, and never to one that is read off the data.
    for other in ({"end": "2027-12-31"}, {"end": "today"}, {"path": "elsewhere/*"}):
        with start(tmp_path, **facts(**other)) as stream:
            assert stream.step(batch(1), "a").manifest == manifest
    for change, words in (
        ({"end": "data"}, 'source.end was "public" and is "data"'),
        ({"start": "2026-01-06"}, "source.start was"),
        ({"every": "2 weeks"}, "source.every was"),
        ({"late": "next-step"}, "source.late was"),
        ({"op_column": "op"}, "source.op_column was"),
    ):
        with pytest.raises(ConfigError, match="belongs to another plan") as caught:
            start(tmp_path, **facts(**change))
        assert words in str(caught.value), change
    with pytest.raises(ConfigError, match="belongs to another plan"):
        start(tmp_path)


def test_columns_that_can_stop_the_stream_are_named(tmp_path: Path) -> None:
    with start(tmp_path) as stream:
        declared = stream.step(batch(1), "a").manifest["declared_public"]
    values, nulls, stopped = declared
    assert stopped.startswith("that the stream stopped is visible")
    assert "stops the stream in columns 'paid', 'rent'" in values
    assert "stops the stream in columns 'zip', 'paid'" in nulls
    closed = Schema([Categorical("zip", ["94102"], other="other", missing="missing")])
    plan = ToyPlan(domain=closed.domain, unit=Event("replace"))
    with open_stream(plan, closed, tmp_path / "closed") as stream:
        sentence, last = stream.step(Batch({"zip": [None, "x"]}), "a").manifest["declared_public"]
    assert last == stopped
    assert "number of inserts and of deletes" in sentence


def test_the_position_is_committed_with_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path) as stream:
        assert stream.position is None
        stream.step(batch(1), "a", position={"x.csv": 40})
        assert stream.position == {"x.csv": 40}
        stream.step(batch(1), "a", position={"x.csv": 41})
        assert stream.position == {"x.csv": 40}, "a repetition changes nothing"
        with monkeypatch.context() as patch:
            patch.setattr(ToyPlan, "pack_state", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                stream.step(batch(2), "b", position={"x.csv": 80})
        assert stream.position == {"x.csv": 40}, "nor does a step that fails"
        stream.discard_reservation()
        stream.step(batch(2), "b", position={"x.csv": 80})
    with start(tmp_path) as stream:
        assert stream.position == {"x.csv": 80}
        stream.step(batch(3), "c")
        with pytest.raises(StoreDamagedError, match="position at step 3 is missing"):
            _ = stream.position
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == ["head.json", "stream.sqlite"]


def test_a_position_that_cannot_be_kept_is_refused_before_anything_is_reserved(tmp_path: Path) -> None:
    values = (1.5, "40", True, -1, 2**512)
    bad: list[object] = [
        *({"x.csv": value} for value in values),
        {3: 40},
        {"\udcff.csv": 40},
        [("x.csv", 40)],
    ]
    with start(tmp_path) as stream:
        for position in bad:
            with pytest.raises(ConfigError, match="position") as caught:
                stream.step(batch(1), "a", position=position)  # type: ignore[arg-type]
            assert "40" not in str(caught.value), "a number of records is private"
            assert read_status(tmp_path / "state").reserved is None
        stream.step(batch(2), "other", position={"x.csv": 2**512 - 1})
        assert stream.position == {"x.csv": 2**512 - 1}


def test_fingerprints_of_files_need_the_streams_key(tmp_path: Path) -> None:
    """Equal files of two streams have unequal fingerprints, and nobody can compare one with a guess."""
    (tmp_path / "a.csv").write_text("day,zip\n2026-01-05,94102\n")
    found = []
    for name in ("one", "two"):
        run(tmp_path / name, 1)
        with start(tmp_path / name) as stream:
            key = stream.source_key
            source = source_of({**WEEKS, "late": "next-step"}, base=tmp_path)
            list(source.steps(key=key))
            found.append(source.position)
            list(source.steps(2, seen=source.position, key=key))
        assert (key,) not in sql(tmp_path / name, "SELECT value FROM meta")
    assert found[0]["a.csv"] == found[1]["a.csv"] == 1
    assert found[0]["blake2b:a.csv"] != found[1]["blake2b:a.csv"]
    json.dumps(found)


def test_a_stream_that_continues_another_says_what_becomes_of_records_before_its_start(
    tmp_path: Path,
) -> None:
    options = replace(SourceOptions.parse({**WEEKS, "end": "2026-01-18"}), continues=True)
    (tmp_path / "a.csv").write_text("day,zip\n2026-01-05,1\n2026-01-12,2\n")
    source = source_of(options, base=tmp_path, columns=["zip"])
    assert next(iter(source.steps())).inserts.num_rows == 1
    with (tmp_path / "a.csv").open("a") as file:
        file.write("2026-01-04,3\n")
    again = source_of(options, base=tmp_path, columns=["zip"])
    assert sum(step.inserts.num_rows for step in again.steps(2, seen=source.position)) == 1
    (sentence,) = set(declared_public(ToyPlan(), SCHEMA, (), options.pinned(), begins=True)) - set(
        declared_public(ToyPlan(), SCHEMA, (), options.pinned())
    )
    assert "before the start" in sentence
    late = replace(options, late="next-step")
    assert sentence in declared_public(ToyPlan(), SCHEMA, (), late.pinned(), begins=True)
    source = source_of(late, base=tmp_path, columns=["zip"])
    assert [step.inserts.num_rows for step in source.steps(key=b"k" * 32)] == [1, 1]


@pytest.mark.parametrize(
    ("folder", "digest"),
    [
        ("stream", "5cdba78131c822f2"),
        ("families/census", "9f90c22b110bbac2"),
        ("families/growing", "6d536b27c184504e"),
        ("families/panel", "7e160b32591c29d2"),
        ("families/points", "c214a7ba178f962e"),
    ],
)
def test_sentences_that_streams_are_pinned_to_keep_their_words(folder: str, digest: str) -> None:
    """A stream goes on only with the sentences that it began with: with a new wording, none that runs would."""
    text = (Path(dpstream.__file__).parent / folder / "words.j2").read_text(encoding="utf-8")
    blocks = re.findall(r"{% block (?:declared|not_protected|stops) %}.*?{% endblock %}", text, re.DOTALL)
    assert hashlib.sha256(" ".join(" ".join(blocks).split()).encode()).hexdigest()[:16] == digest
