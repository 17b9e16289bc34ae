"""Several streams on one source: one sum, one limit, under races, kills, damage and restored copies."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import sqlite3
import stat
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fault_harness import Fault, at_once, faults_in, full_disk, in_child, lying_commit
from hypothesis import assume, given
from hypothesis import strategies as st
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream import ZCDP, DpstreamError, Event, PureDP, Stream, User
from dpstream.core.errors import BudgetError, ConfigError, StoreDamagedError, StoreError, UnitError
from dpstream.core.privacy import zcdp_to_delta
from dpstream.io.sources.calendar import CalendarPeriods, day_number, period_grid
from dpstream.stream import Account, Limit, StatePermissionWarning, open_stream, verify_ledger
from dpstream.stream.ledger.account import Span
from dpstream.stream.ledger.limit import compose, in_unit
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.store import DATABASE

HALF = ToyPlan(budget=PureDP.of("1/2"))
FILE = "account.jsonl"


def account(folder: Path, limit: str = "epsilon=1", unit: str = "event", per: str | None = None) -> Account:
    return Account.create(folder / FILE, Limit.parse(limit), unit, per)


def start(folder: Path, name: str, plan: ToyPlan = HALF, **options: object) -> Stream:
    given = {"account": folder / FILE, **options}
    return open_stream(plan, SCHEMA, folder / name, name=name, **given)


def begin(folder: Path) -> None:
    start(folder, "a").close()


def test_a_stream_is_charged_once_and_another_kind_of_limit_is_refused(tmp_path: Path) -> None:
    """Sums, and what is beyond them: ``test_cli_ledger.py``."""
    book = account(tmp_path)
    assert book.path.stat().st_mode & 0o777 == 0o600
    for number, name in enumerate("aab", start=1):
        with start(tmp_path, name) as stream:
            stream.step(batch(number), f"b{number}")
    state = book.read()
    assert [charge.stream for charge in state.charges] == ["a", "b"]
    with pytest.raises(BudgetError, match=r"all streams would cost epsilon = 1\.5"):
        start(tmp_path, "c")
    assert not (tmp_path / "c").exists()
    assert book.read() == state
    with start(tmp_path, "b") as stream:  # those inside go on
        stream.step(batch(1), "b1")
    for limit, words in (
        ("epsilon=1", "does not raise"),
        ("epsilon=1/2", "does not raise"),
        ("rho=5", "another kind"),
    ):
        with pytest.raises(ConfigError, match=words):
            book.raise_limit(Limit.parse(limit))


def test_units_that_no_column_tells_are_added_where_the_owner_says_why(tmp_path: Path) -> None:
    """A file says whose the records are. In Python one stream may mean persons, and another one households."""
    book = account(tmp_path, "epsilon=3", "user")
    plan = ToyPlan(budget=PureDP.of("1/2"), unit=User(2))

    def open_under(name: str, source: dict[str, str] | None) -> None:
        start(tmp_path, name, plan, source=source).close()

    open_under("a", None)
    open_under("a", None)  # charged once, and opened again
    for name, source in (("b", None), ("b", {"user_column": "pid"})):
        with pytest.raises(
            UnitError, match=r"identified by (no column|the column 'pid') here and by no column"
        ):
            open_under(name, source)
    open_under("b", {"same_unit": "both are the column pid"})
    open_under("c", {"user_column": "pid", "same_unit": "both are the column pid"})
    open_under("d", {"user_column": "pid"})  # as the one before
    with pytest.raises(UnitError):
        open_under("e", {"user_column": "household"})
    assert [charge.stream for charge in book.read().charges] == ["a", "b", "c", "d"]


def dated(start: str, steps: int | None, every: str = "month", **source: str | None) -> dict[str, Any]:
    """The facts of a stream of users per year, as its plan is pinned."""
    cut = {"user_column": "id", "time_column": "day", "every": every, "start": start, "late": "error"}
    return {
        "stream": start,
        "unit": "user",
        "per": "year",
        "horizon": steps,
        "budget": PureDP.of(1).as_dict(),
        "source": {**cut, "op_column": None, **source},
    }


def test_a_year_of_records_costs_what_streams_can_hold_of_it(tmp_path: Path) -> None:
    """A (2020 to 2030), B (2027) and C (2028), of which B and C also get what becomes of earlier records. By year of
    arrival at most 2 meet; a person's records of 2020 cost 3."""
    book = account(tmp_path, "epsilon=3", "user", "year")
    streams = [
        dated("2020-01-01", 132),
        *(dated(f"{year}-01-01", 12, op_column="op") for year in (2027, 2028)),
    ]
    costs = []
    for number, facts in enumerate(streams):
        book.charge(f"{number}", facts, "hash", again=False)
        costs.append(book.read().total.epsilon)
    assert costs == [1, 2, 3]
    spans = [charge.span for charge in book.read().charges]
    held = {
        year: [span.times(year) for span in spans if span is not None]
        for year in (2019, 2020, 2028, 2029, 2031)
    }
    assert held == {2019: [0, 1, 1], 2020: [1, 1, 1], 2028: [1, 0, 1], 2029: [1, 0, 0], 2031: [0, 0, 0]}
    with pytest.raises(BudgetError, match="would cost epsilon = 4"):
        book.charge("3", dated("2025-01-01", 12), "hash", again=False)
    book.charge("4", dated("2031-01-01", None), "hash", again=False)  # a year of its own: disjoint, no sum
    whole = dated("2026-01-01", 12)
    del whole["per"]
    with pytest.raises(BudgetError, match="would cost epsilon = 4"):
        book.charge("5", whole, "hash", again=False)


def test_what_cannot_be_placed_in_a_year_joins_no_account_of_years(tmp_path: Path) -> None:
    book, other = account(tmp_path, "epsilon=9", "user", "year"), tmp_path / "whole.jsonl"
    for source in (
        {"late": "next-step"},
        {"kind": "stdin"},
        {"query": "sha256:1"},
        {"time_column": None},
        {"every": None, "late": None},
    ):
        with pytest.raises(UnitError, match="own time does not give its period"):
            book.charge("1", dated("2026-01-01", 12, **source), "hash", again=False)
    with pytest.raises(UnitError, match="with deletes, a record costs each later period"):
        book.charge("1", dated("2026-01-01", None, op_column="op"), "hash", again=False)
    with pytest.raises(UnitError, match="per month, and the account a user per year"):
        book.charge("1", {**dated("2026-01-01", 12), "per": "month"}, "hash", again=False)
    whole = Account.create(other, Limit.parse("epsilon=9"), "user")
    with pytest.raises(UnitError, match=r"a user in all releases.*--per \"year\""):
        whole.charge("1", dated("2026-01-01", 12), "hash", again=False)
    limited = Account.create(
        tmp_path / "limited.jsonl", Limit.parse("epsilon=9,exceptions=1e-9"), "user", "year"
    )
    months, weeks = (
        {**dated("2026-01-01", 12, every), "exceptions": "1/1000000000"} for every in ("month", "week")
    )
    limited.charge("1", months, "hash", again=False)
    with pytest.raises(UnitError, match="a record can be in several periods"):
        limited.charge("2", weeks, "hash", again=False)
    with pytest.raises(BudgetError, match="exceptions = 2e-9"):
        limited.charge("2", months, "hash", again=False)
    for unit, per in (("event", "year"), ("user", "week")):
        with pytest.raises(ConfigError, match="per"):
            Account.create(tmp_path / "new.jsonl", Limit.parse("epsilon=1"), unit, per)


@given(
    st.sampled_from(["day", "week", "10 days", "month", "2 months", "12 months"]),
    st.dates(datetime.date(2020, 1, 1), datetime.date(2021, 12, 28)).filter(lambda day: day.day <= 28),
    st.integers(1, 60),
    st.booleans(),
    st.sampled_from([1, 4]),
)
def test_periods_of_a_stream_against_its_days(
    every: str, start: datetime.date, steps: int, deletes: bool, begins: int
) -> None:
    """Every day's step, and with deletes every later one: never fewer periods than there are, and one more at most,
    where steps cross borders."""
    grid = period_grid(every, start, "test")
    periods = CalendarPeriods("year", grid, begins)
    assume(periods.fits)
    facts = dated(start.isoformat(), steps, every, op_column="op" if deletes else None)
    span = Span.of({**facts, "per": periods.name}, "test")
    assert span is not None
    first, end = start.toordinal(), grid.period(steps)[1].toordinal()
    held: dict[int, set[int]] = {}
    for day in map(datetime.date.fromordinal, range(first, end)):
        step = grid.step(day_number(day))
        later = range(step, steps + 1) if deletes else [step]
        held.setdefault(periods.of_day(day), set()).update(map(periods.number, later))
    for year in range(span.start - 2, max(held) + 3):
        exact = len(held.get(year, ()))
        if deletes and year < span.start:
            exact = len({periods.number(step) for step in range(1, steps + 1)})
        assert exact <= span.times(year) <= exact + span.crosses


AMOUNT = st.fractions(Fraction(1, 50), Fraction(2), max_denominator=60)


@given(st.lists(st.tuples(st.booleans(), AMOUNT), max_size=6), AMOUNT)
def test_limits_against_sums_by_hand(charges: list[tuple[bool, Fraction]], amount: Fraction) -> None:
    total = compose([PureDP(value) if pure else ZCDP(value) for pure, value in charges])
    epsilons = sum((value for pure, value in charges if pure), Fraction(0))
    rho = sum((value * value / 2 if pure else value for pure, value in charges), Fraction(0))
    all_pure = all(pure for pure, _ in charges)
    assert Limit.parse(f"epsilon={amount}").admits(total) == (all_pure and epsilons <= amount)
    assert Limit.parse(f"rho={amount}").admits(total) == (rho <= amount)
    both = Limit.parse(f"epsilon={amount},delta=1e-6")
    assert both.rho is not None
    assert both.admits(total) == ((all_pure and epsilons <= amount) or rho <= both.rho)
    # What the limit was turned into is within it, and reading it back computes nothing anew.
    assert zcdp_to_delta(ZCDP(both.rho), amount) <= 1e-6
    assert Limit.from_dict(json.loads(json.dumps(both.as_dict()))) == both


def test_units_are_converted_where_that_is_proved_and_refused_elsewhere(tmp_path: Path) -> None:
    for kind in ("event", "record"):
        assert in_unit(PureDP.of(1), kind, kind) == PureDP.of(1)
        assert in_unit(PureDP.of(1), kind, f"{kind}-replace") == PureDP.of(2)
    assert in_unit(ZCDP.of("1/8"), "individual", "individual-replace") == ZCDP.of("1/2")
    refused = [("event-replace", "event"), ("record-replace", "record"), ("event", "individual")]
    for unit, wanted in [*refused, ("event", "user"), ("user", "event")]:
        with pytest.raises(UnitError, match="says nothing about"):
            in_unit(PureDP.of(1), unit, wanted)
    for other in ("event", "event-replace", "user", "individual", "individual-replace"):
        for unit in ("record", "record-replace"):
            for pair in ((unit, other), (other, unit)):
                with pytest.raises(UnitError, match=r"says nothing .*another account for the unit record"):
                    in_unit(PureDP.of(1), *pair)
    book = account(tmp_path, "epsilon=2", "event-replace")
    begin(tmp_path)
    start(tmp_path, "b", ToyPlan(budget=PureDP.of("1/2"), unit=Event("replace"))).close()
    assert [charge.charged for charge in book.read().charges] == [PureDP.of(1), PureDP.of("1/2")]
    with pytest.raises(BudgetError):
        start(tmp_path, "c")
    with pytest.raises(ConfigError, match="unknown unit"):
        account(tmp_path / "..", unit="row")


class Discovering(ToyPlan):
    """A plan that may publish a value of one unit alone."""

    @property
    def delta(self) -> Fraction:
        return Fraction(1, 10**9)


def test_exceptions_of_streams_that_discover_values_have_a_limit(tmp_path: Path) -> None:
    """Their sum, beside every kind of limit; without one such a stream is refused, and in another unit too."""
    plan, pure = Discovering(budget=PureDP.of("1/4")), ToyPlan(budget=PureDP.of("1/4"))
    for text in ("epsilon=1", "rho=1", "epsilon=1,delta=1e-6"):
        Limit.parse(text).check_definition(plan.budget)
        with pytest.raises(BudgetError, match=r"delta = 1e-9; the limit .* allows none"):
            Limit.parse(text).check_definition(plan.budget, plan.delta)
        limit = Limit.parse(f"{text},exceptions=2e-9")
        assert Limit.from_dict(json.loads(json.dumps(limit.as_dict()))) == limit
        assert str(limit).endswith("exceptions = 2e-9")
    book = account(tmp_path, "epsilon=1,exceptions=2e-9")
    for name in "ab":
        with start(tmp_path, name, plan) as stream:
            manifest = stream.step(batch(1), "b1").manifest
        guarantee = manifest["guarantee"]
        assert guarantee["exceptions"] == "1/1000000000"
        assert "approximate differential privacy with epsilon = 0.25, delta = 1e-9" in guarantee["words"]
    with pytest.raises(
        BudgetError, match=r"exceptions = 3e-9; the limit is epsilon = 1 \(pure\), exceptions = 2e-9"
    ):
        start(tmp_path, "c", plan)
    with start(tmp_path, "c", pure) as stream:
        words = stream.step(batch(1), "b1").manifest["guarantee"]
    assert "exceptions" not in words
    assert "pure differential privacy with epsilon = 0.25 (pure)" in words["words"]
    assert book.read().total.exceptions == Fraction(2, 10**9)
    book.raise_limit(Limit.parse("epsilon=1,exceptions=3e-9"))
    start(tmp_path, "d", plan).close()
    with pytest.raises(ConfigError, match="does not raise"):
        book.raise_limit(Limit.parse("epsilon=2,exceptions=1e-9"))
    (tmp_path / "replace").mkdir()
    account(tmp_path / "replace", "epsilon=9,exceptions=1e-3", "event-replace")
    with pytest.raises(UnitError, match="discovered for the unit 'event', and the account adds up another"):
        start(tmp_path / "replace", "e", plan)


def test_what_is_no_limit() -> None:
    shapes = ("", "epsilon=", "delta=1e-9", "rho=1,delta=1e-9", "rho=1,rho=2", "exceptions=1e-9")
    for text in (*shapes, "epsilon=-1", "epsilon=x", "rho=0", "epsilon=1,delta=2", "epsilon=1e999"):
        with pytest.raises(ConfigError, match="expected a limit" if text in shapes else "limit"):
            Limit.parse(text)


def test_processes_that_start_at_once_never_pass_the_limit(tmp_path: Path) -> None:
    """Real processes that wait for one instant; two of the seven fit."""
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        book = account(folder)
        instant = time.monotonic() + 0.3

        def begun(child: int, folder: Path = folder, instant: float = instant) -> None:
            time.sleep(max(0.0, instant - time.monotonic()))
            start(folder, f"s{child}").close()

        codes = at_once(*(partial(begun, child) for child in range(7)))
        assert sorted(codes) == [0, 0, 3, 3, 3, 3, 3]
        assert book.read().total.epsilon == 1
        started = {f"s{child}" for child, code in enumerate(codes) if code == 0}
        assert {charge.stream for charge in book.read().charges} == started
        assert {path.parent.name for path in folder.glob(f"s*/{DATABASE}")} == started


def test_killed_anywhere_while_starting(tmp_path: Path) -> None:
    """Never a stream without a charge; the next start goes on with the same charge, once."""
    stops = orphans = 0
    for folder, name in faults_in(tmp_path, begin, prepare=account):
        at = (folder.name, name)
        book = Account(folder / FILE)
        left = book.read()
        exists = (folder / "a" / DATABASE).exists()
        assert len(left.charges) == 1 or not exists, at
        stops, orphans = stops + 1, orphans + (len(left.charges) == 1 and not exists)
        with start(folder, "a") as stream:
            stream.step(batch(1), "b1")
            assert not (stream.path / f"{DATABASE}.charge").exists()
        after = book.read()
        assert list(folder.rglob("*.tmp")) == [], at
        assert [charge.stream for charge in after.charges] == ["a"], at
        if left.charges:
            assert after.charges == left.charges
    assert stops > 15
    assert orphans > 0, "no stop fell between charge and store, so nothing was tested"


def test_a_refused_start_does_not_forget_an_interrupted_one(tmp_path: Path) -> None:
    """The charge of plan A is there, its store is not; plan B is refused; back to plan A: the same charge."""
    book = account(tmp_path)

    def interrupted() -> None:
        charge = Account.charge

        def stop(*arguments: object, **options: object) -> None:
            charge(*arguments, **options)  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGKILL)

        Account.charge = stop  # type: ignore[assignment, method-assign]
        begin(tmp_path)

    assert in_child(interrupted) == -signal.SIGKILL
    before = book.read().charges
    assert len(before) == 1
    other = Account.create(tmp_path / "other.jsonl", Limit.parse("epsilon=1/4"))
    for plan, options in ((ToyPlan(budget=PureDP.of("3/4")), {}), (HALF, {"account": other.path})):
        with pytest.raises(BudgetError):
            start(tmp_path, "a", plan, **options)
    with start(tmp_path, "a") as stream:
        stream.step(batch(1), "b1")
    assert book.read().charges == before
    assert not (tmp_path / "a" / f"{DATABASE}.charge").exists()


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_while_starting(tmp_path: Path, fault: Fault) -> None:
    """A full disk, and commits and renames that take effect and report an error: tried again, there is one charge."""
    failed = []

    def work(folder: Path) -> None:
        try:
            begin(folder)
        except StoreError:
            failed.append(folder)

    def possible(name: str, call: Callable[..., None], arguments: tuple[object, ...]) -> None:
        effective = fault is full_disk or name in ("commit", "rename")
        return fault(name, call, arguments) if effective else call(*arguments)

    for folder, _ in faults_in(tmp_path, work, fault=possible, prepare=account):
        begin(folder)
        assert [charge.stream for charge in Account(folder / FILE).read().charges] == ["a"]
    assert len(failed) >= 2


def test_a_killed_creation_leaves_an_account_or_none(tmp_path: Path) -> None:
    for folder, _ in faults_in(tmp_path, account):
        if not (folder / FILE).exists():
            account(folder)
        assert Account(folder / FILE).read().charges == ()
        with pytest.raises(ConfigError, match="exists"):
            account(folder)


def copy(folder: Path, target: str) -> None:
    (folder / target).mkdir()
    for path in folder.glob("account.jsonl*"):
        shutil.copy(path, folder / target / path.name)


def restore(folder: Path, source: str, *names: str) -> None:
    for path in folder.glob("account.jsonl*"):
        if not names or path.name in names:
            path.unlink()
    for path in (folder / source).iterdir():
        if not names or path.name in names:
            shutil.copy(path, folder / path.name)


def test_a_restored_account_is_refused_by_its_streams(tmp_path: Path) -> None:
    book = account(tmp_path)
    begin(tmp_path)
    copy(tmp_path, "old")
    start(tmp_path, "b").close()
    copy(tmp_path, "new")
    restore(tmp_path, "old", FILE)  # the head stays: nobody may go on
    with pytest.raises(StoreDamagedError, match="rolled back"):
        book.read()
    restore(tmp_path, "old")  # with its head: those that it forgot may not go on
    with pytest.raises(StoreDamagedError, match=r"does not know the stream's charge \(entry 3\)"):
        start(tmp_path, "b")
    start(tmp_path, "c").close()  # takes the place of b
    with pytest.raises(StoreDamagedError, match="does not know the stream's charge"):
        start(tmp_path, "b")
    restore(tmp_path, "new")
    with start(tmp_path, "b") as stream:
        stream.step(batch(1), "b1")


@pytest.mark.parametrize(
    ("line", "old", "new", "said"),
    [
        (2, b'"epsilon":"1/2"', b'"epsilon":"1/4"', "line 3 does not follow line 2"),
        (2, None, b"", "line 2 does not follow line 1"),
        (3, None, b"", "rolled back"),
        (3, b"charge", b"refund", "head knows another entry 3"),
        (3, None, b"{", "the file ends within a line"),
        (1, b'"epsilon":"1"', b'"epsilon":"9"', "line 2 does not follow line 1"),
        (1, b'"format":1', b'"format":99', "newer version"),
        (1, b"dpstream account", b"other", "is cut short, or no account"),
    ],
)
def test_edits_show(tmp_path: Path, line: int, old: bytes | None, new: bytes, said: str) -> None:
    """Lines are counted from 1; without ``old`` the whole line becomes ``new``."""
    book = account(tmp_path)
    for name in "ab":
        start(tmp_path, name).close()
    lines = book.path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(old or lines[line - 1], new)
    book.path.write_bytes(b"".join(lines))
    for attempt in (book.read, lambda: start(tmp_path, "a")):
        with pytest.raises(DpstreamError, match=said) as caught:
            attempt()
        assert caught.value.exit_code == 4


def test_a_lost_head_or_file_is_no_new_account(tmp_path: Path) -> None:
    book = account(tmp_path)
    begin(tmp_path)
    book.path.rename(tmp_path / "away")
    with pytest.raises(ConfigError, match="the account is missing"):
        begin(tmp_path)
    with pytest.raises(ConfigError, match="exists"):
        account(tmp_path)
    (tmp_path / "away").rename(book.path)
    (tmp_path / f"{FILE}.head").unlink()
    with pytest.raises(StoreDamagedError, match="head is missing"):
        begin(tmp_path)
    book.path.unlink()
    account(tmp_path)
    with pytest.raises(ConfigError, match="in another account"):
        begin(tmp_path)


def test_with_and_without_an_account(tmp_path: Path) -> None:
    book = account(tmp_path)
    begin(tmp_path)
    with pytest.raises(ConfigError, match="account is missing"):
        start(tmp_path, "a", account=None)
    with start(tmp_path, "outside", account=None) as stream:
        stream.step(batch(1), "b1")
        stream_id = stream.release().manifest["stream_id"]
        facts, digest = stream._facts, stream._plan_hash
    with pytest.raises(ConfigError, match="has no charge here"):
        start(tmp_path, "outside")
    for _ in range(2):  # the owner does so, twice by mistake
        book.charge(stream_id, facts, digest, again=True)
    with pytest.raises(ConfigError, match=stream_id):  # its charge is that of its plan
        book.charge(stream_id, facts, "another plan", again=True)
    with start(tmp_path, "outside") as stream:
        stream.step(batch(2), "b2")
    assert book.read().total.epsilon == 1
    # From then on it remembers: without the account it takes no further step, nor with another one.
    other = Account.create(tmp_path / "other.jsonl", Limit.parse("epsilon=9"))
    other.charge(stream_id, facts, digest, again=True)
    for path, words in (
        (None, "account is missing"),
        (other.path, "in another account"),
    ):
        with pytest.raises(ConfigError, match=words):
            start(tmp_path, "outside", account=path)
    outside = tmp_path / "outside"
    assert verify_ledger(outside, account=book.path) == []
    assert verify_ledger(outside) == ["the stream's account is not given"]
    export_store(outside, tmp_path / "moved", move=True)
    assert import_store(tmp_path / "moved", tmp_path / "moves", facts) == 2
    outside.rename(tmp_path / "was")
    (tmp_path / "moves").rename(outside)
    with start(tmp_path, "outside") as stream:
        assert stream.step(batch(3), "b3").step == 3
    shutil.copytree(outside, tmp_path / "kept")
    for edited in (
        "UPDATE meta SET value = CAST(value || x'00' AS BLOB) WHERE key = 'account later'",
        "UPDATE meta SET value = (SELECT value FROM meta WHERE key = 'stream_id') WHERE key = 'account later'",
    ):
        with sqlite3.connect(outside / DATABASE) as db:
            db.execute(edited)
        db.close()
        with pytest.raises(StoreDamagedError, match="stream's charge was changed"):
            start(tmp_path, "outside")
        assert verify_ledger(outside, account=book.path) != []
        shutil.rmtree(outside)
        shutil.copytree(tmp_path / "kept", outside)
    with pytest.raises(ConfigError, match="lies inside the state"):
        start(tmp_path, "x", account=tmp_path / "x" / FILE)


def test_a_closed_stream_takes_no_step_stays_charged_and_stays_closed(tmp_path: Path) -> None:
    """Whatever account comes back, with its head."""
    book = account(tmp_path)
    with start(tmp_path, "a") as stream:
        stream.step(batch(1), "b1")
        copy(tmp_path, "old")
        (charge,) = book.read().charges
        for _ in range(2):
            book.close_stream(charge.stream_id)
        with pytest.raises(BudgetError, match="is closed in its account"):
            stream.step(batch(2), "b2")
        assert stream.step(batch(1), "b1").step == 1  # what is released can be read
    assert (book.read().total.epsilon, book.read().entries) == (Fraction(1, 2), 3)
    with pytest.raises(ConfigError, match="stream 'nobody' is not in"):
        book.close_stream("nobody")
    begin(tmp_path)  # opened once since: its store remembers
    copy(tmp_path, "closed")
    restore(tmp_path, "old")
    with pytest.raises(StoreDamagedError, match="does not know that the stream was closed"):
        begin(tmp_path)
    assert "lacks the stream's charge" in verify_ledger(tmp_path / "a", account=book.path)[0]
    restore(tmp_path, "closed")
    with start(tmp_path, "a") as stream, pytest.raises(BudgetError, match="is closed"):
        stream.step(batch(2), "b2")


def test_an_account_behind_a_link_is_one_account_that_others_may_not_read(tmp_path: Path) -> None:
    """Its head lies beside the file itself, so an older copy is seen under each of its names."""
    book = account(tmp_path)
    (tmp_path / "named").mkdir()
    link = tmp_path / "named" / FILE
    link.symlink_to(book.path)
    copy(tmp_path, "old")
    start(tmp_path, "a", account=link).close()
    start(tmp_path, "b").close()
    (tmp_path / "folder").symlink_to(tmp_path, target_is_directory=True)
    for path in (link, book.path, tmp_path / "folder" / FILE):
        book.path.chmod(0o666)
        with pytest.warns(StatePermissionWarning, match="0666"):
            Account(path).read()
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob(f"{FILE}*")} == {0o600}
    assert [path.name for path in link.parent.iterdir()] == [FILE]
    restore(tmp_path, "old", FILE)
    for path in (link, book.path):
        with pytest.raises(StoreDamagedError, match="rolled back"):
            start(tmp_path, "c", account=path)


def test_a_file_that_is_no_account_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("to be read by all\n" * 100)
    text.chmod(0o644)
    with pytest.raises(StoreDamagedError, match="is cut short, or no account"):
        Account(text).read()
    assert text.stat().st_mode & 0o777 == 0o644
