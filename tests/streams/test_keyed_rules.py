"""Keyed batches that do not fit, the order of their rows, and what their streams say of themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from toy_keyed import NAMES, KeyedPlan, Values, batch, events, frame, start
from toy_stream import SCHEMA, ToyPlan, ToyState, ToySynthesis
from toy_stream import batch as plain_batch

from dpstream.core.contracts import PrivateBatch
from dpstream.core.errors import ConfigError, DataError, DpstreamError, StepError, UnconfirmedError, UnitError
from dpstream.core.privacy import Event, PureDP, Randomness, Record
from dpstream.core.tables import EncodedBatch
from dpstream.core.tables.access import BatchAccess, ReadRequest
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.stream import Batch, KeyedBatch, KeyRules, Snapshot, open_stream
from dpstream.stream.ledger.limit import in_unit

A: Values = ("94102", True, 700)
B: Values = ("94110", False, None)


def snapshot(*keys: str, rules: KeyRules | None = None, confirmed: bool = False) -> Snapshot:
    return Snapshot(frame(dict.fromkeys(keys, A)), "id", rules or KeyRules(), confirmed)


def keyed(*rows: tuple[Any, str, Values | None], **options: Any) -> KeyedBatch:
    return KeyedBatch(events(list(rows)), "id", "op", **options)


SECRET = "secret-key-7"
BAD: dict[str, tuple[KeyedBatch | Snapshot | Batch, str]] = {
    "unknown delete": (keyed((SECRET, "delete", None)), "a delete has a key that is not there"),
    "unknown update": (keyed((SECRET, "update", A)), "an update has a key that is not there"),
    "known insert": (keyed(("here", "insert", A), rules=KeyRules(known="error")), "is there already"),
    "repeated": (
        keyed((SECRET, "insert", A), (SECRET, "update", A), rules=KeyRules(repeated="error")),
        "several rows in one step",
    ),
    "repeated in a snapshot": (
        Snapshot(
            {**frame({"here": A}), "id": [SECRET, SECRET], **{n: [A[i]] * 2 for i, n in enumerate(NAMES)}},
            "id",
            KeyRules(repeated="error"),
        ),
        "several rows in one step",
    ),
    "null key": (keyed((None, "insert", A)), "a record without a key"),
    "empty key": (keyed(("", "insert", A)), "a record without a key"),
    "null key of a snapshot": (
        Snapshot({**frame({"here": A}), "id": [None]}, "id"),
        "a record without a key",
    ),
    "key of another type": (Snapshot({**frame({"here": A}), "id": [1.5]}, "id"), "keys are of the type"),
    "operation": (keyed((SECRET, "upsert", A)), "something else than operations"),
    "null operation": (
        KeyedBatch({**events([(SECRET, "insert", A)]), "op": [None]}, "id", "op"),
        "than operations",
    ),
    "value": (keyed((SECRET, "insert", ("94102", None, 7))), "'paid' holds nulls"),
    "null of a whole record": (
        keyed((SECRET, "insert", ("94102", None, 7)), changed="null-keeps"),
        "'paid' holds nulls in rows that give",
    ),
    "no key column": (Snapshot({n: [A[i]] for i, n in enumerate(NAMES)}, "id"), "there is no column 'id'"),
    "no operation column": (KeyedBatch(frame({"here": A}), "id", "op"), "there is no column 'op'"),
    "key is a column": (Snapshot(frame({"here": A}), "zip"), "declared in the schema as well"),
    "shrunken": (snapshot("here"), "has less than the declared share (shrinks)"),
    "empty": (snapshot(), "has less than the declared share (shrinks)"),
    "no rows": (Snapshot(None, "id"), "has less than the declared share (shrinks)"),
    "no keys": (plain_batch(1), "the batch has no keys"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_one_sentence_and_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """No key, value or number of the step is in the message, and nothing was reserved or spent."""
    bad, says = BAD[name]
    with start(tmp_path, publish=False) as stream:
        stream.step(snapshot("here", *(f"key-{i}" for i in range(16))), "b1")
        before = list(stream._store._db.iterdump()) if hasattr(stream._store._db, "iterdump") else None
        with pytest.raises(DpstreamError, match=re.escape(says)) as caught:
            stream.step(bad, "b2")
        assert caught.value.exit_code == 2
        text = str(caught.value)
        assert text.startswith("step 'b2': ")
        assert SECRET not in text
        assert "key-" not in text
        assert not re.search(r"\d", text.removeprefix("step 'b2'")), "no number"
        assert caught.value.__cause__ is None
        assert (stream.last_step, stream.begun) == (1, None)
        assert before is None or before == list(stream._store._db.iterdump())
        assert stream.step(keyed(("new", "insert", A)), "b2").step == 2


def test_a_shrunken_snapshot_goes_on_once_it_is_confirmed(tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(20)]
    with start(tmp_path, publish=False) as stream:
        assert stream.step(snapshot(), "empty, and nothing leaves").step == 1
        stream.step(snapshot(*keys), "b2")
        stream.step(snapshot(*keys[:2]), "a tenth is enough")
        stream.step(snapshot(*keys, rules=KeyRules(shrinks=1.0)), "b4")
        with pytest.raises(UnconfirmedError):
            stream.step(snapshot(*keys[:19], rules=KeyRules(shrinks=1.0)), "b5")
        stream.step(snapshot(*keys[:1], rules=KeyRules(shrinks=0.0)), "b5")
        with pytest.raises(UnconfirmedError):
            stream.step(snapshot(rules=KeyRules(shrinks=0.0)), "b6")
        release = stream.step(snapshot(confirmed=True), "b6")
        # Who confirmed is no part of the content.
        assert stream.step(snapshot(), "b6").manifest == release.manifest
        assert len(stream._store.present(SCHEMA.domain)) == 0


@pytest.mark.parametrize(
    "rules", [{"unknown": "drop?"}, {"known": "drop"}, {"repeated": "first"}, {"shrinks": 2}]
)
def test_rules_that_do_not_exist_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="rules of keyed records"):
        KeyRules(**rules)


def test_keyed_records_are_for_plans_that_read_present_records(tmp_path: Path) -> None:
    with open_stream(ToyPlan(), SCHEMA, tmp_path / "events") as stream:
        for given in (snapshot("a"), keyed(("a", "insert", A))):
            with pytest.raises(
                ConfigError, match="the batch holds keyed records, and the mechanism 'toy' reads"
            ):
                stream.step(given, "b1")
        assert stream.begun is None
    with pytest.raises(ConfigError, match="reads what a step brings, and the unit is 'record'"):
        open_stream(ToyPlan(unit=Record()), SCHEMA, tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="reads the records that are present, and the unit is 'event'"):
        open_stream(KeyedPlan(unit=Event()), SCHEMA, tmp_path / "b")  # type: ignore[arg-type]


def shuffled(table: dict[str, list[Any]], rng: np.random.Generator) -> dict[str, list[Any]]:
    """Rows in another order, each key's in theirs."""
    keys = table["id"]
    order = rng.permutation(len(keys))
    places = {key: iter(sorted(i for i in order.tolist() if keys[i] == key)) for key in set(keys)}
    rows = [next(places[keys[i]]) for i in order.tolist()]
    return {name: [cells[i] for i in rows] for name, cells in table.items()}


def test_the_order_of_different_keys_changes_nothing_and_that_of_one_key_is_content(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    with start(tmp_path, publish=False) as stream:
        given = [batch(step) for step in (1, 2, 3)]
        for step, one in enumerate(given, start=1):
            release = stream.step(one, f"b{step}")
            for _ in range(3):
                again = KeyedBatch(pa.table(shuffled(one.events, rng)), "id", "op", rules=one.rules)
                assert stream.step(again, f"b{step}").manifest == release.manifest
        table = given[-1].events
        pairs = list(zip(table["id"], table["op"], strict=True))
        first, second = next(
            (i, j)
            for j, (key, op) in enumerate(pairs)
            for i in range(j)
            if pairs[i][0] == key and pairs[i][1] != op
        )
        order = list(range(len(table["id"])))
        order[first], order[second] = second, first
        others = [
            {name: [cells[i] for i in order] for name, cells in table.items()},
            {name: cells[:-1] for name, cells in table.items()},
            {name: [*cells, cells[-1]] for name, cells in table.items()},
            {**table, "id": ["other", *table["id"][1:]]},
        ]
        for changed in others:
            with pytest.raises(StepError, match="for other records"):
                stream.step(KeyedBatch(changed, "id", "op", rules=KeyRules(unknown="drop")), "b3")
        whole = {"id": table["id"], **{n: [A[i]] * 40 for i, n in enumerate(NAMES)}}
        for other in (KeyedBatch(whole, "id"), Snapshot(whole, "id")):
            with pytest.raises(StepError, match="for other records"):
                stream.step(other, "b3")
        stream.step(KeyedBatch(None, "id"), "nothing happened")
        with pytest.raises(StepError):
            stream.step(Snapshot(None, "id", confirmed=True), "nothing happened")


def test_other_rules_are_other_content(tmp_path: Path) -> None:
    """After a crash the same rows under other rules are not taken for the same batch."""
    table = {"id": ["x", "y"], "op": ["insert"] * 2, **{n: [A[i]] * 2 for i, n in enumerate(NAMES)}}
    rules = ({"unknown": "drop"}, {"known": "error"}, {"repeated": "error"}, {"shrinks": 0.2})
    with start(tmp_path, publish=False) as stream:
        first = stream.step(KeyedBatch(table, "id", "op"), "b1")
        for one in rules:
            with pytest.raises(StepError, match="for other records"):
                stream.step(KeyedBatch(table, "id", "op", rules=KeyRules(**one)), "b1")
        with pytest.raises(StepError, match="for other records"):
            stream.step(KeyedBatch(table, "id", "op", "null-keeps"), "b1")
        assert stream.step(KeyedBatch(table, "id", "op"), "b1").manifest == first.manifest


class Engine:
    """Keeps its records elsewhere; here: as the frames of a batch."""

    def __init__(self, given: KeyedBatch | Snapshot, *, keyed: bool = True) -> None:
        self.given, self.keyed = given, keyed

    def grant(self, wanted: ReadRequest) -> BatchAccess:
        granted = read_keyed(self.given, wanted)
        if self.keyed:
            return granted
        return BatchAccess(EncodedBatch(wanted.schema.domain, np.zeros((0, 3), np.int32), None), granted.rows)


def test_an_engine_gives_keyed_changes_where_they_are_read(tmp_path: Path) -> None:
    with start(tmp_path, publish=False) as stream:
        release = stream.step(Engine(batch(1)), "b1")
        assert stream.step(batch(1), "b1").manifest == release.manifest
        with pytest.raises(ConfigError, match="the batch has no keys"):
            stream.step(Engine(batch(2), keyed=False), "b2")
        assert (stream.last_step, stream.begun) == (1, None)
    with (
        open_stream(ToyPlan(), SCHEMA, tmp_path / "events") as stream,
        pytest.raises(ConfigError, match="keyed rec"),
    ):
        stream.step(Engine(batch(1)), "b1")


@dataclass(frozen=True)
class FailsAtTwo(KeyedPlan):
    """Stops at its second step, once."""

    failed: list[bool] = field(default_factory=list)
    after_noise: bool = False

    def step(self, state: ToyState, given: PrivateBatch, randomness: Randomness) -> ToySynthesis:
        if state.step == 1 and not self.failed:
            self.failed.append(True)
            if self.after_noise:
                super().step(state, given, randomness)
            raise ArithmeticError
        return super().step(state, given, randomness)


@pytest.mark.parametrize("after_noise", [False, True])
def test_a_mechanism_that_stops_leaves_the_present_records_as_they_were(
    tmp_path: Path, after_noise: bool
) -> None:
    with start(tmp_path, plan=FailsAtTwo(after_noise=after_noise), publish=False) as stream:
        stream.step(batch(1), "b1")
        before = stream._store.present(SCHEMA.domain)
        with pytest.raises(ArithmeticError):
            stream.step(batch(2), "b2")
        assert stream._admission._table is None
        assert np.array_equal(stream._store.present(SCHEMA.domain).keys, before.keys)
        if after_noise:
            with pytest.raises(StepError):
                stream.step(batch(2), "b2")
            stream.discard_reservation()
        stream.step(batch(2), "b2")
        true = stream._stored_state().true
    with start(tmp_path / "undisturbed", publish=False) as stream:
        for step in (1, 2):
            stream.step(batch(step), f"b{step}")
        assert np.array_equal(stream._stored_state().true, true)


def test_what_a_stream_says_of_keyed_records(tmp_path: Path) -> None:
    for returns, words in (("new", "is a new record"), ("refuse", "no key comes back after an absence")):
        plan = KeyedPlan(unit=Record(returns=returns))  # type: ignore[arg-type]
        with start(tmp_path / returns, plan=plan) as stream:
            manifest = stream.step(batch(1), "b1").manifest
        assert manifest["unit"]["name"] == "record"
        assert manifest["unit"]["returns"] == returns
        assert "one record's whole stay" in manifest["unit"]["words"]
        assert words in manifest["unit"]["words"]
        assert "a record's whole stay" in manifest["spent"]["composition"]
        told = " ".join(manifest["declared_public"])
        assert "that a step was accepted, and when, is public" in told
        assert "until its owner has confirmed it" in told
        assert ("a key that comes back after an absence stops the stream" in told) == (returns == "refuse")
        with pytest.raises(ConfigError, match="returns was"):
            start(
                tmp_path / returns,
                plan=KeyedPlan(unit=Record(returns="refuse" if returns == "new" else "new")),
            )
    public = KeyedPlan(unit=Record("replace"))
    with start(tmp_path / "public", plan=public) as stream:
        assert any(
            "which keys are present" in text
            for text in stream.step(batch(1), "b1").manifest["declared_public"]
        )


@pytest.mark.parametrize("other", ["event", "event-replace", "user", "individual", "individual-replace"])
def test_the_unit_record_is_added_to_no_other(other: str) -> None:
    for unit, wanted in (
        ("record", other),
        (other, "record"),
        ("record-replace", other),
        (other, "record-replace"),
    ):
        with pytest.raises(UnitError, match="no bound is declared on how many events a record's stay has"):
            in_unit(PureDP.of(1), unit, wanted)
    assert in_unit(PureDP.of(1), "record", "record") == PureDP.of(1)
    assert in_unit(PureDP.of(1), "record", "record-replace") == PureDP.of(2)
    with pytest.raises(UnitError, match="cannot be added"):
        in_unit(PureDP.of(1), "record-replace", "record")


def test_a_key_that_comes_back(tmp_path: Path) -> None:
    rows = (
        keyed(("a", "insert", A), ("b", "insert", A)),
        keyed(("a", "delete", None)),
        keyed(("a", "insert", B)),
    )
    for returns in ("new", "refuse"):
        plan = KeyedPlan(unit=Record(returns=returns))  # type: ignore[arg-type]
        with start(tmp_path / returns, plan=plan, publish=False) as stream:
            stream.step(rows[0], "b1")
            within = keyed(
                ("c", "insert", A), ("c", "delete", None), ("b", "delete", None), ("b", "insert", B)
            )
            stream.step(within, "comes and goes within a step, and the reverse")
            stream.step(rows[1], "b3")
            table = stream._store.present(SCHEMA.domain)
            assert table.first.tolist() == [1], "b was there at both ends"
            if returns == "refuse":
                with pytest.raises(DataError, match="a key comes back after it was absent") as caught:
                    stream.step(rows[2], "b4")
                assert "'a'" not in str(caught.value)
                assert stream.step(keyed(("c", "insert", A)), "was never there at an end").step == 4
            else:
                stream.step(rows[2], "b4")
                assert sorted(stream._store.present(SCHEMA.domain).first.tolist()) == [1, 4]
