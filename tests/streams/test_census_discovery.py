"""Values that nobody can list, of keyed records: a stay is counted once, pays once, and its text stays no longer."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import fault_harness
import numpy as np
import pytest
from discovering import files
from fault_harness import sql
from toy_stream import start

import dpstream as dp
from dpstream.core.contracts import PrivateBatch, PublicPrior
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, UnitError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness, Record, User
from dpstream.core.schema import Boolean, Categorical, Found, Schema
from dpstream.core.tables import KeyedBatch, PresentTable, ReadRequest, Workload
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.core.tables.undiscovered import PresentTexts
from dpstream.families.census import Census, CensusPlan
from dpstream.mechanisms.discovery import Rule
from dpstream.mechanisms.discovery_plan import Discovery, OpenColumn
from dpstream.stream import Account, Limit, Stream
from dpstream.stream.admission import Admission
from dpstream.stream.identity import spent_per_step
from dpstream.stream.inspection import check_store
from dpstream.stream.store.store import Store
from dpstream.tools.audit.door import Run, record, released_arrays, replay, transcript_loss

KIND = Categorical("kind", "discover", known=["a"], other="other", missing="missing")
SCHEMA = Schema((Boolean("paid"), KIND))
STEPS = 9
#: A record: step -> what is true from its end on; None: it is absent.
Stay = Mapping[int, str | None]


def plan_of(budget: Any = "2", unit: Any = None, share: str = "1/4", **options: Any) -> CensusPlan:
    """Censuses at every step, of level 1 at steps 8 and 16; discovery epochs end at steps 1, 3, 9."""
    given = {"discovery": Discovery((OpenColumn.of(KIND),), Fraction(share), Fraction(1, 100)), "turnover": 4}
    recipe = Census(Workload.all_k_way(SCHEMA.domain, 2), iterations=5, **{**given, **options})
    return recipe.calibrate(PureDP.of(budget) if isinstance(budget, str) else budget, unit or Record())


def at(stay: Stay, step: int) -> str | None:
    return stay[max(when for when in stay if when <= step)] if min(stay) <= step else None


def events(stays: Mapping[str, Stay], step: int) -> KeyedBatch:
    """What happens at a step."""
    now = {key: at(stay, step) for key, stay in stays.items() if at(stay, step) != at(stay, step - 1)}
    kind = [
        "delete" if value is None else "update" if at(stays[key], step - 1) else "insert"
        for key, value in now.items()
    ]
    rows = {"key": list(now), "op": kind, "kind": list(now.values())}
    rows["paid"] = [value != "v1" for value in now.values()]
    return KeyedBatch(rows, "key", "op")


def batches(plan: CensusPlan, stays: Mapping[str, Stay], schema: list[Schema]) -> Iterator[PrivateBatch]:
    """What a plan sees of these stays, as a stream admits them; ``schema`` is the newest one."""
    empty = PresentTable.empty(SCHEMA.domain, PresentTexts.stored(SCHEMA, [()]))
    store = SimpleNamespace(present=lambda schema: empty, last_step=0)
    admission = Admission(SCHEMA, plan.unit, cast(Any, store))
    for step in range(1, STEPS + 1):
        admission.schema = schema[-1]
        wanted = ReadRequest("present", schema[-1], "record", None, b"k" * 32, "test")
        taken = admission.admit(read_keyed(events(stays, step), wanted), "test")
        yield taken.view
        store.last_step = step
        admission.committed(taken.keyed)


class AllTime:
    """BROKEN: a discovery epoch counts whoever is present, so that a stay is in several."""

    def __init__(self, batch: PrivateBatch) -> None:
        self.present, self.own = batch.present, batch.undiscovered
        self.undiscovered = self

    def of(self, column: str, after: int) -> Any:
        assert self.own is not None
        return self.own.of(column, 0)


def run_of(root: CensusPlan, stays: Mapping[str, Stay], view: Any = lambda batch: batch) -> Run:
    def run(randomness: Randomness) -> Iterator[list[Any]]:
        state, schema = root.start(), [SCHEMA]
        for batch in batches(root, stays, schema):
            plan = root.grown(state.found)
            yield released_arrays(plan.step(state, view(batch), randomness))
            schema.append(SCHEMA.grown(plan.found(state)))

    return run


def others(seed: int) -> dict[str, Stay]:
    """Records with some frequent values, which come, change and leave."""
    drawn, stays = np.random.default_rng(seed), {}
    for number in range(60):
        comes, value = 1 if number < 40 else int(drawn.integers(2, 9)), f"v{drawn.zipf(1.6) % 5}"
        stays[f"k{number}"] = {comes: value, comes + 2: "a" if number % 9 == 0 else value, comes + 5: None}
    return stays


def losses(
    plan: CensusPlan, stay: Stay, view: Any = lambda batch: batch, instead: Stay | None = None
) -> list[float]:
    """Of a stay whose values others have, too, in both directions; ``instead``: of its values against others."""
    # The values of the stay are always held by somebody else: those that it holds alone are below.
    known = {**others(3), "x1": {1: "v9"}, "x2": {2: "v9"}, "x3": {3: "v9"}, "x5": {5: "v9"}, "x9": {7: "v9"}}
    beside = known if instead is None else {**known, "z": instead}
    streams, found = (run_of(plan, beside, view), run_of(plan, {**known, "z": stay}, view)), []
    for one, other in (streams, streams[::-1]):
        first = record(one, Randomness.seeded("stays"))
        second, words = replay(other, first)
        assert not words
        found.append(transcript_loss(first, second, pure=isinstance(plan.budget, PureDP)).total)
    return found


STAYS: Sequence[Stay] = (
    {1: "v9", 9: None},
    {1: "v9", 4: "a"},
    {3: "v9"},
    {5: "v9", 7: None},
    {2: "v1", 6: "v9"},
)


@pytest.mark.parametrize("budget", [PureDP.of("2"), ZCDP.of("1/2")])
def test_a_stay_pays_for_discovery_once_and_within_its_budget(budget: Any) -> None:
    plan = plan_of(budget)
    amount = float(budget.amount)
    assert sum((part.budget.amount for part in plan.parts()), Fraction(0)) == budget.amount
    found = [max(losses(plan, stay)) for stay in STAYS]
    assert max(found) <= amount * (1 + 1e-9)
    assert found[0] > 0.8 * amount  # counted at both levels, by its departure, and for discovery
    # Controls: counted in every epoch; and not paid for.
    assert max(losses(plan, STAYS[0], AllTime)) > amount
    unpaid = replace(plan, amounts=replace(plan.amounts, budget=plan.budget))
    assert max(losses(unpaid, STAYS[0])) > amount


REPLACED: Sequence[tuple[Stay, Stay]] = (
    ({1: "v9", 9: None}, {1: "v1", 9: None}),
    ({1: "v1", 4: "a"}, {1: "v9", 6: "v1"}),
    ({3: "a", 7: None}, {3: "v9", 4: "v1", 7: None}),
)


@pytest.mark.parametrize("budget", [PureDP.of("2"), ZCDP.of("1/2")])
def test_a_replaced_stay_pays_for_both_of_its_values(budget: Any) -> None:
    """Whoever is present is public: a stay's values are replaced, so a value that leaves one count enters another."""
    plan = plan_of(budget, Record("replace"))
    amount = float(budget.amount)
    found = [max(losses(plan, stay, instead=other)) for stay, other in REPLACED]
    assert max(found) <= amount * (1 + 1e-9)
    assert found[0] > 0.8 * amount
    stay, other = REPLACED[0]
    assert max(losses(plan, stay, AllTime, other)) > amount
    # Control: with the noise of a record that is added or removed.
    assert plan.discovery is not None
    half = replace(plan, discovery=replace(plan.discovery, unit=Event()))
    assert max(losses(half, stay, instead=other)) > amount


def test_a_value_that_a_stay_holds_alone_passes_with_probability_delta_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every stay of up to nine steps, with every step of a change to another value that nobody else has."""
    plan, seen = plan_of(), list[dict[str, int]]()
    monkeypatch.setattr(Rule, "publish", lambda rule, counts, randomness: seen.append(dict(counts)) or [])
    law = plan.discovery.thresholds["kind"]  # type: ignore[union-attr]
    rate = 1.0 / float(law.noise.scale)  # type: ignore[union-attr]
    passes = math.exp(-rate * law.tau) / (1.0 + math.exp(-rate))  # Pr[1 + Z > tau]
    delta = float(plan.delta)
    assert delta / 3 < passes <= delta == 0.01

    def counted(stays: Mapping[str, Stay], view: Any = lambda batch: batch) -> list[dict[str, int]]:
        seen.clear()
        state = plan.start()
        for step, batch in enumerate(batches(plan, stays, [SCHEMA]), start=1):
            state.step = step
            plan._discover(state, plan.discovery, view(batch), Randomness.seeded(0))  # type: ignore[arg-type]
        return list(seen)

    known = dict(list(others(1).items())[:9])
    without = counted(known)
    assert len(without) == 3
    times = Counter[int]()
    for comes in range(1, STEPS + 1):
        for leaves in range(comes + 1, STEPS + 2):
            for change in range(comes, leaves):
                stay = {comes: "only", **({} if change == comes else {change: "then"}), leaves: None}
                counts = counted({**known, "z": stay})
                more = [(Counter(b) - Counter(a)).items() for a, b in zip(without, counts, strict=True)]
                moved = [(end, entry) for end, one in zip((1, 3, 9), more, strict=True) for entry in one]
                times[len(moved)] += 1
                assert len(moved) * passes <= delta
                assert all(entry == (at(stay, end), 1) for end, entry in moved)
    assert set(times) == {0, 1}
    several = counted({"z": {1: "only"}}, AllTime)
    assert sum(map(len, several)) * passes > delta


# Whole streams.


def opened(home: Path, step: int, plan: CensusPlan) -> Stream:
    return start(home, plan=plan, schema=SCHEMA, randomness=Randomness.seeded(step))


def many(last: str = "") -> dict[str, Stay]:
    """As ``others``, with more records; ``last`` names what is rare."""
    drawn, stays = np.random.default_rng(5), {}
    for number in range(900):
        comes = 1 if number < 500 else int(drawn.integers(2, 19))
        value = f"v{drawn.zipf(1.6) % 6}" if drawn.random() < 0.9 else f"{last}rare{number % 80}"
        then = f"{last}late{number % 40}" if number % 11 == 0 else value
        stays[f"k{number}"] = {comes: value, comes + 3: then, comes + int(drawn.integers(4, 20)): None}
    return stays


def prior_of(columns: tuple[int, ...]) -> PublicPrior:
    """A public table whose paid records are as many as here."""
    codes = np.array([[0, 0], [1, 0]], np.int32)[:, list(columns)]
    return PublicPrior(SCHEMA.domain, columns, codes, np.array([200.0, 700.0]), {"sha256": ""})


def test_a_prior_of_other_columns_goes_on_when_values_enter(tmp_path: Path) -> None:
    plan, stays = plan_of("8", prior=prior_of((0,))), many()
    for step in range(1, 12):
        with opened(tmp_path, step, plan) as stream:
            stream.step(events(stays, step), f"b{step}")
            state = plan.unpack_state(stream._store.state())
    assert state.seen is not None
    release, labels = dp.read(tmp_path / "releases"), stream._schema["kind"].labels()
    assert "v2" in labels
    assert state.seen.cells.workload.domain.sizes == (2, len(labels))
    table = release.table(11)
    present = [value for stay in stays.values() if (value := at(stay, 11)) is not None]
    for column, value, many_there in (
        ("kind", "v2", present.count("v2")),
        ("paid", False, present.count("v1")),
    ):
        assert 0.6 < table.column(column).to_pylist().count(value) / many_there < 1.6, column


def state_of(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (home / "state").iterdir() if path.is_file())


def test_columns_that_grow_change_no_amount_and_nothing_that_is_measured_above() -> None:
    """Anew, the plan would measure no columns at level 1: with so many values they are noise."""
    plan = plan_of("2", records_per_step=200)
    grown = plan.grown({"kind": [Found(f"v{number}", 5, 9) for number in range(60)]})
    assert (grown.amounts, grown.upper) == (plan.amounts, ((0,), (1,)))
    anew = grown.recipe.calibrate(plan.budget, plan.unit)
    assert (anew.amounts, anew.upper) != (grown.amounts, grown.upper)
    assert spent_per_step(grown) == spent_per_step(plan) == 2


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_present_records_are_counted_in_the_codes_of_the_step_and_texts_leave_with_them(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    if place == "postgres":
        request.getfixturevalue("on_postgres")
    plan, stays = plan_of("8", records_per_step=100_000), many()
    for step in range(1, 18):
        with opened(tmp_path, step, plan) as stream:
            for _ in range(2):
                stream.step(events(stays, step), f"b{step}")
            schema = stream._schema
            table = stream._store.present(schema)
        now = Counter(value for stay in stays.values() if (value := at(stay, step)) is not None)
        labels = schema["kind"].labels()
        truth = [now[label] for label in labels]
        truth[1] = sum(now.values()) - sum(truth)
        assert table.count([(1,)], 0)[0].tolist() == truth
        # Of rare texts, only those that a present record has are anywhere.
        assert table.texts is not None
        held = [text for text in table.texts.texts[0].to_pylist() if text is not None]
        assert len(set(held)) == len(held)
        assert {one for one in now if one not in labels} <= set(held) <= set(now)
        with contextlib.closing(fault_harness.open_database(tmp_path)) as db:
            stored = db.execute("SELECT value FROM undiscovered").fetchall()
        assert sorted(bytes(value)[8:].decode() for (value,) in stored) == sorted(held)
        data = state_of(tmp_path)
        assert all((f"rare{n}".encode() + b"\0" in data) <= (f"rare{n}" in now) for n in range(80))
    assert set(labels[3:]) <= {f"v{number}" for number in range(6)}
    assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()
    # The census of all records at step 16 holds records of every step in the new codes.
    release = dp.read(tmp_path / "releases")
    measured = release.measured(["kind"])
    assert measured is not None
    low, high = measured.interval(0.999999)  # type: ignore[misc]
    there = Counter(value for stay in stays.values() if (value := at(stay, measured.as_of)) is not None)
    code = labels.index("v2")
    assert low[code] <= there["v2"] <= high[code]
    assert "v2" in release.table(17).column("kind").to_pylist()
    assert set(release.table(1).column("kind").to_pylist()) <= {"a", "other", None}


def test_neither_stops_nor_names_of_what_is_rare_change_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run; the same, killed before and after each commit; and one with other names for all that is rare."""
    plan, commit = plan_of("8"), Store.commit_step

    def step_of(name: str, stays: Mapping[str, Stay], step: int) -> None:
        with opened(tmp_path / name, step, plan) as stream:
            stream.step(events(stays, step), f"b{step}")

    def stopped(store: Any, prepared: Any, *, committed: bool) -> None:
        if committed:
            commit(store, prepared)
        raise KeyboardInterrupt

    runs = {"a": many(), "b": many(), "c": many("other-")}
    for name, stays in runs.items():
        opened(tmp_path / name, 0, plan).close()
        for step in range(1, 10):
            for committed in (False, True) if name == "b" else ():
                with monkeypatch.context() as patched:
                    patched.setattr(Store, "commit_step", partialmethod(stopped, committed=committed))
                    with pytest.raises(KeyboardInterrupt):
                        step_of(name, stays, step)
            step_of(name, stays, step)
    first, *same = (files(tmp_path / name) for name in runs)
    for second in same:
        assert first.keys() == second.keys()
        assert [name for name in first if first[name] != second[name] and "head" not in name] == []


def test_what_cannot_be_discovered_is_refused() -> None:
    with pytest.raises(UnitError, match="a census cannot protect the unit 'user'"):
        plan_of(unit=User(3))
    with pytest.raises(ConfigError, match="the prior has the column 'kind', whose values are discovered"):
        plan_of(prior=prior_of((0, 1)))
    replaced = plan_of(unit=Record("replace"))
    assert replaced.discovery is not None
    assert replaced.discovery.unit == Event("replace")


@pytest.mark.parametrize("closed", [False, True])
def test_records_and_texts_leave_when_the_stream_ends(tmp_path: Path, closed: bool) -> None:
    """At its last step, or when it is opened after its account closed it; its steps can be asked for again."""
    book = Account.create(tmp_path / "account.json", Limit.parse("epsilon=9,exceptions=1e-1"), "record")
    plan, stays = replace(plan_of("8"), horizon=None if closed else 3), many()

    def opened() -> Stream:
        own = {"account": book.path} if closed else {}
        return start(tmp_path, plan=plan, schema=SCHEMA, randomness=Randomness.seeded(1), **own)

    def left() -> list[int]:
        assert check_store(tmp_path / "state", tmp_path / "releases").problems == ()
        tables = ("present", "departed", "undiscovered")
        return [sql(tmp_path, f"SELECT count(*) FROM {name}")[0][0] for name in tables]

    for step in (1, 2, 3):
        with opened() as stream:
            stream.step(events(stays, step), f"b{step}")
        assert (left()[0] > 0) == (closed or step < 3)
    if closed:
        (charge,) = book.read().charges
        book.close_stream(charge.stream_id)
    with opened() as stream:
        assert stream.step(events(stays, 2), "b2").step == 2
        with pytest.raises(BudgetError if closed else HorizonError):
            stream.step(events(stays, 4), "b4")
    assert left() == [0, 0, 0]
    assert b"rare7" not in state_of(tmp_path)


def test_a_count_of_other_values_from_before_a_discovery_answers_no_question_since(tmp_path: Path) -> None:
    """The bin held what is apart now: the number of that day is not the one that the newer table is asked for."""
    stays: dict[str, Stay] = {f"k{number}": {1: f"v{number % 3}"} for number in range(300)}
    with start(tmp_path, plan=plan_of("8"), schema=SCHEMA, randomness=Randomness.seeded(1)) as stream:
        for step in (1, 2):
            stream.step(events(stays, step), step)
        release, own = dp.read(tmp_path / "releases"), stream.release()
        assert {one.value for one in stream._found["kind"]} == {"v0", "v1", "v2"}
        for asked in ("kind = 'other'", "kind in ('a', 'v1')", "not kind = 'v2'"):
            for answer in (release.answer(asked), own.answer(asked)):
                assert (answer.measured_value, answer.as_of, answer.interval()) == (None, None, None)
                assert "such was counted as of step 1. Counted: v0 from step 2" in answer.note
        for asked, measured in (
            ("not kind = 'a'", 300),
            ("kind in ('other', 'v0', 'v1', 'v2')", 300),
            ("paid", 200),
        ):
            for answer in (release.answer(asked), own.answer(asked)):
                assert answer.as_of == 1
                assert answer.measured_value == pytest.approx(measured, abs=5)
        assert release.answer("kind = 'other'", as_of=1).measured_value == pytest.approx(300, abs=5)
