"""Several streams on one source: one sum, one limit, under races, kills, damage and restored copies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import time
import traceback
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from fault_harness import Fault, faulty, full_disk, in_child, kill, lying_commit
from hypothesis import given
from hypothesis import strategies as st
from toy_stream import SCHEMA, ToyPlan, batch

from dpstream.core.errors import (
    BudgetError,
    ConfigError,
    DpstreamError,
    StoreDamagedError,
    StoreError,
    UnitError,
)
from dpstream.core.privacy import ZCDP, Event, PureDP, User, zcdp_to_delta
from dpstream.stream import StatePermissionWarning, Stream, open_stream, verify_ledger
from dpstream.stream.ledger.account import Account
from dpstream.stream.ledger.limit import Limit, compose, in_unit
from dpstream.stream.store.archive import export_store, import_store
from dpstream.stream.store.store import DATABASE

HALF = ToyPlan(budget=PureDP.of("1/2"))


def account(folder: Path, limit: str = "epsilon=1", unit: str = "event") -> Account:
    return Account.create(folder / "account.jsonl", Limit.parse(limit), unit)


def start(folder: Path, name: str, plan: ToyPlan = HALF) -> Stream:
    return open_stream(plan, SCHEMA, folder / name, name=name, account=folder / "account.jsonl")


def test_streams_add_up_to_the_limit_and_not_beyond(tmp_path: Path) -> None:
    book = account(tmp_path)
    assert (tmp_path / "account.jsonl").stat().st_mode & 0o777 == 0o600
    with start(tmp_path, "a") as stream:
        stream.step(batch(1), "b1")
    with start(tmp_path, "a") as stream:  # charged once, not at every opening
        stream.step(batch(2), "b2")
    with start(tmp_path, "b"):
        pass
    state = book.read()
    assert [charge.stream for charge in state.charges] == ["a", "b"]
    assert state.total.epsilon == 1
    with pytest.raises(BudgetError, match=r"all streams together would cost epsilon = 1\.5"):
        start(tmp_path, "c")
    assert not (tmp_path / "c").exists()
    assert book.read() == state
    with start(tmp_path, "b") as stream:  # those inside go on
        stream.step(batch(1), "b1")
    with pytest.raises(ConfigError, match="does not raise"):
        book.raise_limit(Limit.parse("epsilon=1"))
    with pytest.raises(ConfigError, match="another kind"):
        book.raise_limit(Limit.parse("rho=5"))
    book.raise_limit(Limit.parse("epsilon=3/2"))
    with start(tmp_path, "c"):
        pass
    kinds = [json.loads(line)["kind"] for line in book.path.read_bytes().splitlines()]
    assert kinds == ["dpstream account", "charge", "charge", "raise", "charge"]


def test_units_that_no_column_tells_are_added_where_the_owner_says_why(tmp_path: Path) -> None:
    """A file says whose the records are. In Python one stream may mean persons, and another one households."""
    book = account(tmp_path, "epsilon=3", "user")
    plan = ToyPlan(budget=PureDP.of("1/2"), unit=User(2))

    def begin(name: str, source: dict[str, str] | None) -> None:
        folder = tmp_path / name
        open_stream(plan, SCHEMA, folder, name=name, account=book.path, source=source).close()

    begin("a", None)
    begin("a", None)  # charged once, and opened again
    for name, source in (("b", None), ("b", {"user_column": "pid"})):
        with pytest.raises(UnitError, match=r"told by (no column|the column 'pid') here and by no column"):
            begin(name, source)
    begin("b", {"same_unit": "both are the column pid"})
    begin("c", {"user_column": "pid", "same_unit": "both are the column pid"})
    begin("d", {"user_column": "pid"})  # as the one before
    with pytest.raises(UnitError):
        begin("e", {"user_column": "household"})
    assert [charge.stream for charge in book.read().charges] == ["a", "b", "c", "d"]
    # Events are told by nothing.
    Account.create(tmp_path / "events.jsonl", Limit.parse("epsilon=3"), "event")
    for name in ("f", "g"):
        open_stream(HALF, SCHEMA, tmp_path / name, name=name, account=tmp_path / "events.jsonl").close()


AMOUNT = st.fractions(Fraction(1, 50), Fraction(2), max_denominator=60)


def test_an_account_that_others_may_read_is_repaired_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    real = tmp_path / "disk" / "account.jsonl"
    Account.create(real, Limit.parse("epsilon=3"))
    (tmp_path / "link").symlink_to(tmp_path / "disk", target_is_directory=True)
    for path in (real, tmp_path / "link" / "account.jsonl"):
        real.chmod(0o666)
        with pytest.warns(StatePermissionWarning, match="0666"):
            assert Account(path).read().charges == ()
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in real.parent.iterdir()} == {0o600}


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
    assert in_unit(PureDP.of(1), "event", "event-replace") == PureDP.of(2)
    assert in_unit(ZCDP.of("1/8"), "individual", "individual-replace") == ZCDP.of("1/2")
    for unit, wanted in [
        ("event-replace", "event"),
        ("event", "individual"),
        ("event", "user"),
        ("user", "event"),
    ]:
        with pytest.raises(UnitError, match="cannot be added"):
            in_unit(PureDP.of(1), unit, wanted)
    book = account(tmp_path, "epsilon=2", "event-replace")
    with start(tmp_path, "a"):
        pass
    with start(tmp_path, "b", ToyPlan(budget=PureDP.of("1/2"), unit=Event("replace"))):
        pass
    assert [charge.charged for charge in book.read().charges] == [PureDP.of(1), PureDP.of("1/2")]
    with pytest.raises(BudgetError):
        start(tmp_path, "c")
    with pytest.raises(ConfigError, match="unknown unit"):
        account(tmp_path / "..", unit="row")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (text, "is not a limit")
            for text in ("", "epsilon=", "delta=1e-9", "rho=1,delta=1e-9", "rho=1,rho=2")
        ),
        *(
            (text, "limit")
            for text in ("epsilon=-1", "epsilon=x", "rho=0", "epsilon=1,delta=2", "epsilon=1e999")
        ),
    ],
)
def test_what_is_no_limit(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Limit.parse(text)
    assert caught.value.exit_code == 2


def test_processes_that_start_at_once_never_pass_the_limit(tmp_path: Path) -> None:
    """Real processes that wait for one instant; two of the seven fit."""
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        book = account(folder)
        instant = time.monotonic() + 0.3
        children = []
        for child in range(7):
            process = os.fork()
            if process == 0:
                status = 1
                try:
                    time.sleep(max(0.0, instant - time.monotonic()))
                    start(folder, f"s{child}").close()
                    status = 0
                except BudgetError:
                    status = 3
                except BaseException:  # noqa: BLE001  (a child must never return into the test runner)
                    traceback.print_exc()
                finally:
                    os._exit(status)
            children.append(process)
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in children]
        assert sorted(codes) == [0, 0, 3, 3, 3, 3, 3]
        assert book.read().total.epsilon == 1
        started = {f"s{child}" for child, code in enumerate(codes) if code == 0}
        assert {charge.stream for charge in book.read().charges} == started
        assert {path.parent.name for path in folder.glob(f"s*/{DATABASE}")} == started


def test_killed_anywhere_while_starting(tmp_path: Path) -> None:
    """Never a stream without a charge; the next start goes on with the same charge, once."""

    def begin(folder: Path) -> None:
        start(folder, "a").close()

    quiet = tmp_path / "quiet"
    quiet.mkdir()
    account(quiet)
    with faulty(None, kill) as calls:
        begin(quiet)
    orphans = 0
    assert len(calls) > 15
    for at in range(1, len(calls) + 1):
        folder = tmp_path / str(at)
        folder.mkdir()
        book = account(folder)

        def disturbed(folder: Path = folder, at: int = at) -> None:
            with faulty(at, kill):
                begin(folder)

        assert in_child(disturbed) == -signal.SIGKILL
        left = book.read()
        exists = (folder / "a" / DATABASE).exists()
        assert len(left.charges) == 1 or not exists, (at, calls[at - 1])
        orphans += len(left.charges) == 1 and not exists
        with start(folder, "a") as stream:
            stream.step(batch(1), "b1")
            assert stream.path.joinpath(f"{DATABASE}.charge").exists() is False
        after = book.read()
        assert [path.name for path in folder.rglob("*.tmp")] == [], (at, calls[at - 1])
        assert [charge.stream for charge in after.charges] == ["a"], (at, calls[at - 1])
        if left.charges:
            assert after.charges == left.charges
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
        start(tmp_path, "a")

    assert in_child(interrupted) == -signal.SIGKILL
    before = book.read().charges
    assert len(before) == 1
    with pytest.raises(BudgetError):
        start(tmp_path, "a", ToyPlan(budget=PureDP.of("3/4")))
    Account.create(tmp_path / "other.jsonl", Limit.parse("epsilon=1/4"))
    with pytest.raises(BudgetError):
        open_stream(HALF, SCHEMA, tmp_path / "a", name="a", account=tmp_path / "other.jsonl")
    with start(tmp_path, "a") as stream:
        stream.step(batch(1), "b1")
    assert book.read().charges == before
    assert not (tmp_path / "a" / f"{DATABASE}.charge").exists()


@pytest.mark.parametrize("fault", [full_disk, lying_commit])
def test_failing_calls_while_starting(tmp_path: Path, fault: Fault) -> None:
    """A full disk, and commits and renames that take effect and report an error: tried again, there is one charge."""
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    account(quiet)
    with faulty(None, kill) as calls:
        start(quiet, "a").close()
    failed = 0
    for at, name in enumerate(calls, start=1):
        if fault is lying_commit and name not in ("commit", "rename"):
            continue
        folder = tmp_path / str(at)
        folder.mkdir()
        book = account(folder)
        with faulty(at, fault):
            try:
                start(folder, "a").close()
            except StoreError:
                failed += 1
        start(folder, "a").close()
        (charge,) = book.read().charges
        assert charge.stream == "a"
    assert failed >= 2


def test_a_killed_creation_leaves_an_account_or_none(tmp_path: Path) -> None:
    with faulty(None, kill) as calls:
        account(tmp_path)
    for at in range(1, len(calls) + 1):
        folder = tmp_path / str(at)
        folder.mkdir()

        def disturbed(folder: Path = folder, at: int = at) -> None:
            with faulty(at, kill):
                account(folder)

        assert in_child(disturbed) == -signal.SIGKILL
        if not (folder / "account.jsonl").exists():
            account(folder)
        assert Account(folder / "account.jsonl").read().charges == ()
        with pytest.raises(ConfigError, match="never replaced"):
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


def edit(folder: Path, line: int, change: Callable[[bytes], bytes]) -> None:
    """Change a line (from 1), or with an empty answer remove it."""
    path = folder / "account.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    path.write_bytes(b"".join(lines))


def test_a_restored_account_is_refused_by_its_streams(tmp_path: Path) -> None:
    book = account(tmp_path)
    with start(tmp_path, "a"):
        pass
    copy(tmp_path, "old")
    with start(tmp_path, "b"):
        pass
    copy(tmp_path, "new")
    restore(tmp_path, "old", "account.jsonl")  # the head stays: nobody may go on
    with pytest.raises(StoreDamagedError, match="rolled back"):
        book.read()
    restore(tmp_path, "old")  # with its head: those that it forgot may not go on
    with pytest.raises(StoreDamagedError, match=r"does not know the stream's charge \(entry 3\)"):
        start(tmp_path, "b")
    with start(tmp_path, "c"):  # takes the place of b
        pass
    with pytest.raises(StoreDamagedError, match="does not know the stream's charge"):
        start(tmp_path, "b")
    restore(tmp_path, "new")
    with start(tmp_path, "b") as stream:
        stream.step(batch(1), "b1")


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        (
            2,
            lambda line: line.replace(b'"epsilon":"1/2"', b'"epsilon":"1/4"'),
            "line 3 does not follow line 2",
        ),
        (2, lambda _: b"", "line 2 does not follow line 1"),
        (3, lambda _: b"", "rolled back"),
        (3, lambda line: line.replace(b"charge", b"refund"), "head knows another entry 3"),
        (3, lambda line: line[:-9], "the file ends in the middle of a line"),
        (1, lambda line: line.replace(b'"epsilon":"1"', b'"epsilon":"9"'), "line 2 does not follow line 1"),
        (1, lambda line: line.replace(b'"format":1', b'"format":99'), "newer version"),
        (1, lambda line: line.replace(b"dpstream account", b"other"), "is not an account"),
    ],
)
def test_edits_show(tmp_path: Path, line: int, change: Callable[[bytes], bytes], said: str) -> None:
    account(tmp_path)
    for name in "ab":
        start(tmp_path, name).close()
    edit(tmp_path, line, change)
    for attempt in (Account(tmp_path / "account.jsonl").read, lambda: start(tmp_path, "a")):
        with pytest.raises(DpstreamError, match=said) as caught:
            attempt()
        assert caught.value.exit_code == 4


def test_a_lost_head_or_file_is_no_new_account(tmp_path: Path) -> None:
    account(tmp_path)
    for name in "ab":
        start(tmp_path, name).close()
    (tmp_path / "account.jsonl").rename(tmp_path / "away")
    with pytest.raises(ConfigError, match="there is no account here"):
        start(tmp_path, "a")
    with pytest.raises(ConfigError, match="never replaced"):
        account(tmp_path)
    (tmp_path / "away").rename(tmp_path / "account.jsonl")
    (tmp_path / "account.jsonl.head").unlink()
    with pytest.raises(StoreDamagedError, match="head is missing"):
        start(tmp_path, "a")
    shutil.move(tmp_path / "account.jsonl", tmp_path / "gone")
    account(tmp_path)
    with pytest.raises(ConfigError, match="in another account"):
        start(tmp_path, "a")


def test_with_and_without_an_account(tmp_path: Path) -> None:
    book = account(tmp_path)
    start(tmp_path, "inside").close()
    with pytest.raises(ConfigError, match="charged in an account, and none is given"):
        open_stream(HALF, SCHEMA, tmp_path / "inside", name="inside")
    with open_stream(HALF, SCHEMA, tmp_path / "outside", name="outside") as stream:
        stream.step(batch(1), "b1")
        stream_id = stream.release().manifest["stream_id"]
        facts, digest = stream._facts, stream._plan_hash
    with pytest.raises(ConfigError, match="was not charged in this one"):
        start(tmp_path, "outside")
    for _ in range(2):  # the owner does so, twice by mistake
        book.charge(stream_id, facts, digest, again=True)
    with start(tmp_path, "outside") as stream:
        stream.step(batch(2), "b2")
    assert book.read().total.epsilon == 1
    # From then on it remembers: without the account it takes no further step, nor with another one.
    with pytest.raises(ConfigError, match="charged in an account, and none is given"):
        open_stream(HALF, SCHEMA, tmp_path / "outside", name="outside")
    other = Account.create(tmp_path / "other.jsonl", Limit.parse("epsilon=9"))
    other.charge(stream_id, facts, digest, again=True)
    with pytest.raises(ConfigError, match="in another account"):
        open_stream(HALF, SCHEMA, tmp_path / "outside", name="outside", account=other.path)
    assert verify_ledger(tmp_path / "outside", account=book.path) == []
    assert verify_ledger(tmp_path / "outside") == ["the stream is charged in an account, and none is given"]
    export_store(tmp_path / "outside", tmp_path / "moved", move=True)
    assert import_store(tmp_path / "moved", tmp_path / "moves", facts) == 2
    (tmp_path / "outside").rename(tmp_path / "was")
    (tmp_path / "moves").rename(tmp_path / "outside")
    with start(tmp_path, "outside") as stream:
        assert stream.step(batch(3), "b3").step == 3
    for edited in (
        "UPDATE meta SET value = CAST(value || x'00' AS BLOB) WHERE key = 'account later'",
        "UPDATE meta SET value = (SELECT value FROM meta WHERE key = 'stream_id') WHERE key = 'account later'",
    ):
        shutil.copytree(tmp_path / "outside", tmp_path / "kept", dirs_exist_ok=True)
        db = sqlite3.connect(tmp_path / "outside" / DATABASE)
        db.execute(edited)
        db.commit()
        db.close()
        with pytest.raises(StoreDamagedError, match="record of its charge in an account was changed"):
            start(tmp_path, "outside")
        assert verify_ledger(tmp_path / "outside", account=book.path) != []
        shutil.rmtree(tmp_path / "outside")
        (tmp_path / "kept").rename(tmp_path / "outside")
    with pytest.raises(ConfigError, match="lies inside the state"):
        open_stream(HALF, SCHEMA, tmp_path / "x", account=tmp_path / "x" / "account.jsonl")


def test_a_closed_stream_takes_no_step_and_stays_charged(tmp_path: Path) -> None:
    book = account(tmp_path)
    with start(tmp_path, "a") as stream:
        stream.step(batch(1), "b1")
        (charge,) = book.read().charges
        for _ in range(2):
            book.close_stream(charge.stream_id)
        with pytest.raises(BudgetError, match="was closed in its account"):
            stream.step(batch(2), "b2")
        assert stream.step(batch(1), "b1").step == 1  # what is released can be read
    assert book.read().total.epsilon == Fraction(1, 2)
    assert book.read().entries == 3
    with pytest.raises(ConfigError, match="there is no stream 'nobody'"):
        book.close_stream("nobody")


def test_a_stream_that_has_seen_its_closing_stays_closed(tmp_path: Path) -> None:
    """Whatever account comes back, with its head."""
    book = account(tmp_path)
    with start(tmp_path, "a") as stream:
        stream.step(batch(1), "b1")
    copy(tmp_path, "old")
    book.close_stream(book.read().charges[0].stream_id)
    start(tmp_path, "a").close()  # opened once since: its store remembers
    copy(tmp_path, "closed")
    restore(tmp_path, "old")
    with pytest.raises(StoreDamagedError, match="does not know that the stream was closed"):
        start(tmp_path, "a")
    assert (
        "does not know the stream's charge"
        in verify_ledger(tmp_path / "a", account=tmp_path / "account.jsonl")[0]
    )
    restore(tmp_path, "closed")
    with start(tmp_path, "a") as stream, pytest.raises(BudgetError, match="was closed"):
        stream.step(batch(2), "b2")


def test_an_account_behind_a_link_is_one_account(tmp_path: Path) -> None:
    """Its head lies beside the file itself, so an older copy is seen under each of its names."""
    account(tmp_path)
    (tmp_path / "named").mkdir()
    link = tmp_path / "named" / "account.jsonl"
    link.symlink_to(tmp_path / "account.jsonl")
    copy(tmp_path, "old")
    open_stream(HALF, SCHEMA, tmp_path / "a", name="a", account=link).close()
    start(tmp_path, "b").close()
    assert sorted(path.name for path in link.parent.iterdir()) == ["account.jsonl"]
    restore(tmp_path, "old", "account.jsonl")
    for path in (link, tmp_path / "account.jsonl"):
        with pytest.raises(StoreDamagedError, match="rolled back"):
            open_stream(HALF, SCHEMA, tmp_path / "c", name="c", account=path)


def test_a_file_that_is_no_account_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("to be read by all\n" * 100)
    for path in (other, text):
        path.chmod(0o644)
        with pytest.raises(StoreDamagedError, match="is not an account"):
            Account(path).read()
        assert path.stat().st_mode & 0o777 == 0o644
