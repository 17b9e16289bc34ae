"""Tables that change, from the configuration file: the unit, the key, the guesses, and what contradicts what."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from small_configs import DEFAULTS, load

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import InsertedRecord, Record
from dpstream.project.planning import describe

UNIT = 'unit = "record"'
INSERTS = DEFAULTS["source"] + '\nkey_column = "id"\ninsert_only = true'
FEED = DEFAULTS["source"] + '\nkey_column = "id"\nop_column = "op"'
SNAPSHOTS = 'path = "data/*.csv"\nevery = "files"\nkey_column = "id"\nshape = "snapshots"'
STAYS = DEFAULTS["source"] + '\nkey_column = "id"\nshape = "stays"\ndelete_time_column = "until"'
DATABASE = (
    'kind = "postgres"\nurl_env = "U"\ntable = "t"\nevery = "day"\nstart = "2026-01-05"\nend = "today"\n'
)
SHOP = DATABASE + 'key_column = "id"\nshape = "snapshots"'
LOG = (
    DATABASE.replace('"postgres"', '"postgres-changes"') + 'slot = "s"\npublication = "p"\nkey_column = "id"'
)


def keyed(folder: Path, **parts: str):
    return load(folder, **{"stream": UNIT, "source": FEED} | parts)


def test_a_keyed_table_is_measured_by_the_census(tmp_path: Path) -> None:
    for source in (FEED, SNAPSHOTS, STAYS, SHOP, LOG):
        config = keyed(tmp_path, source=source)
        assert config.unit == Record()
        assert describe(config)["mechanism"] == "census"
        (used,) = [one for one in config.used if (one.section, one.key) == ("mechanism", "name")]
        assert "churn adds no error" in (used.reason or "")
    assert keyed(tmp_path, stream=UNIT + '\nreturns = "refuse"').unit == Record(returns="refuse")
    for stream in ('unit = "record-replace"', UNIT + '\ntotal = "public"'):
        assert keyed(tmp_path, stream=stream).unit == Record("replace")
    assert keyed(tmp_path, stream="", mechanism='name = "census"').unit == Record()


def test_an_insert_only_table_is_measured_by_pooled_and_counts_each_key_once(tmp_path: Path) -> None:
    config = keyed(tmp_path, source=INSERTS)
    assert config.unit == InsertedRecord()
    assert describe(config)["mechanism"] == "pooled"
    assert config.source_options.user_column == "id"
    assert not config.source_options.deletions
    told = {(one.section, one.key): one.reason or "" for one in config.used}
    assert "insert-only" in told["mechanism", "name"]
    assert "its one insert" in told["stream", "unit"]
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    (data / "1.csv").write_text("step,id,zip,paid,kind\n" + "1,7,a,true,x\n" * 3 + "2,7,b,true,x\n")
    (first, second, *_) = config.source().steps()
    assert first.users[0].to_pylist() == ["7"] * 3
    assert (first.deletes, second.inserts.num_rows) == (None, 1)


def test_the_guesses_are_published_and_give_the_turnover(tmp_path: Path) -> None:
    for rest, size, coming in (
        ("", 1000, 100),
        ("[expect]\nsize = 300\nrecords_per_step = 100", 300, 100),
        ("[expect]\nsize = 300", 300, 30),
        ("[expect]\nrecords_per_step = 3", 30, 3),
        ("[expect]\nsize = 1", 1, 1),
    ):
        config = keyed(tmp_path, rest=rest)
        expected = config.expected
        assert expected is not None
        assert (expected.size, expected.records_per_step) == (size, coming)
        assert config.recipe.turnover == Fraction(size, coming)
        words = f"size = {size} and records_per_step = {coming}"
        assert any(words in fact for fact in describe(config)["declared_public"])
    config = keyed(tmp_path, mechanism="turnover = 3")
    assert config.expected is None


def test_what_a_keyed_stream_is_pinned_to(tmp_path: Path) -> None:
    facts = keyed(tmp_path, source=STAYS).facts()["source"]
    rules = {"unknown": "error", "known": "error", "repeated": "last", "shrinks": 0.1}
    assert (
        facts.items()
        >= {"key_column": "id", "shape": "stays", "delete_time_column": "until", **rules}.items()
    )
    facts = keyed(tmp_path, source=FEED + '\nop_values = {insert = "c", update = "u", delete = "d"}').facts()
    assert facts["source"]["op_values"] == {"insert": ["c"], "update": ["u"], "delete": ["d"]}


def case(what: str, **parts: str) -> tuple[dict[str, str], str]:
    return parts, what


def source(text: str, what: str, **parts: str) -> tuple[dict[str, str], str]:
    return {"source": text, **parts}, what


PLAIN, LATE = DEFAULTS["source"], '\nlate = "drop-and-count-nothing"'
CONTRADICTIONS = [
    source(PLAIN, "unit = record needs a key"),
    case("the unit 'event' has no key column", stream=""),
    source(FEED + '\nuser_column = "who"', "has no user column"),
    source(FEED.replace('"id"', '"zip"'), "declared in the schema as well"),
    source(FEED.replace('"id"', '"op"'), "key_column and op_column name one column"),
    case("a stay is protected whole", stream=UNIT + "\nmax_events = 3"),
    case("'private' contradicts", stream='unit = "record-replace"\ntotal = "private"'),
    source(PLAIN, "returns", stream='returns = "new"'),
    case("cannot protect the unit 'record'", mechanism='name = "pooled"'),
    source(PLAIN, "nothing leaves, so size needs a horizon", stream="", rest="[expect]\nsize = 3"),
    case("turnover in", mechanism="turnover = 3", rest="[expect]\nsize = 3"),
    case("not a whole number", rest="[expect]\nsize = 0"),
    source(PLAIN + '\nshape = "snapshots"', "without key_column", stream=""),
    source(FEED + '\nunknown = "ignore"', "unknown unknown"),
    source(FEED + '\ndelete_time_column = "until"', "delete_time_column has no meaning"),
    source(FEED + '\nop_values = {insert = "c", change = "u"}', "of words: insert, update, delete, ignore"),
    source(FEED.replace('\nop_column = "op"', "") + '\nknown = "error"', "without op_column"),
    source(SNAPSHOTS + '\nop_column = "op"', 'has no meaning with shape = "snapshots"'),
    source(SNAPSHOTS.replace("data/*.csv", "-"), "standard input"),
    source(LOG + LATE, 'has no meaning with kind = "postgres-changes" and shape = "changes"'),
    source(LOG + '\nshape = "snapshots"', 'shape = "snapshots" has no meaning with kind'),
    source(FEED + "\ninsert_only = true", "op_column has no meaning with insert_only"),
    source(SNAPSHOTS + "\ninsert_only = true", 'shape = "snapshots" has no meaning with insert_only'),
    source(LOG + "\ninsert_only = true", "insert_only has no meaning with kind"),
    source(INSERTS, "contradicts", stream=UNIT + '\nreturns = "new"'),
]


@pytest.mark.parametrize(("parts", "what"), CONTRADICTIONS)
def test_what_contradicts_is_named(parts: dict[str, str], what: str, tmp_path: Path) -> None:
    with pytest.raises(DpstreamError) as caught:
        keyed(tmp_path, **parts)
    assert what in str(caught.value)
    assert caught.value.allowed


def test_what_cannot_leave_a_record_behind_is_allowed(tmp_path: Path) -> None:
    keyed(tmp_path, source=STAYS + '\nknown = "update"\nlate = "next-step"')
    keyed(tmp_path, source=INSERTS + LATE, stream="")


def test_a_word_for_updates_is_refused_without_keys_only(tmp_path: Path) -> None:
    words = '\nop_values = {insert = "c", update = "u", delete = "d"}'
    with pytest.raises(ConfigError, match="expected lists of words: insert, delete"):
        load(tmp_path, source=DEFAULTS["source"] + '\nop_column = "op"' + words)
    keyed(tmp_path, source=FEED + words)
