"""The worker: tasks and due steps of a service, what it tells, and what it never tells."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from desks import ANNA, OWNER, QUESTIONS, ROWS, make_service, work
from small_configs import rewrite

from dpstream.core.errors import ConfigError, StoreError, StoreLockedError
from dpstream.io.sinks import read_catalogue, read_manifest, read_table
from dpstream.project import Config
from dpstream.service.desk import Desk
from dpstream.service.desk import worker as working
from dpstream.service.desk.worker import Worker, _kept
from dpstream.stream import Stream
from dpstream.stream.store.store_database import StoreDatabase


@pytest.fixture
def approved(tmp_path: Path) -> Desk:
    """Step 1 is held, and its approval waits for the worker."""
    desk = Desk.open(make_service(tmp_path / "service", steps=1))
    work(desk)
    desk.decide(ANNA, "test", 1, "approve")
    return desk


def states(desk: Desk) -> list[str]:
    return [one.state for one in desk.tasks(OWNER, "test")]


def test_steps_are_taken_and_decisions_followed(tmp_path: Path) -> None:
    folder = make_service(tmp_path / "service")
    desk = Desk.open(folder)
    log = work(desk)
    assert [(one["event"], one.get("step")) for one in log] == [("step", 1), ("step", 2), ("step", 3)]
    card = desk.card(OWNER, "test")
    assert (card.steps, card.held, card.health, card.steps_left) == (3, (1, 2, 3), "held", None)
    held = desk.held(OWNER, "test", 2)
    assert held.table is not None
    assert held.whole
    assert held.last is None
    desk.decide(ANNA, "test", [1, 2], "approve")
    desk.decide(ANNA, "test", 3, "reject", "the file was cut: inside only")
    work(desk)
    desk.decide(ANNA, "test", 1, "withdraw", "week 1 came twice")
    work(desk)
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["done"] * 4
    assert held.table.equals(read_table(folder / "releases", 2))
    assert read_manifest(folder / "releases", 1)["withdrawn"] == {"reason": "week 1 came twice"}
    assert [one["step"] for one in read_catalogue(folder / "releases")["steps"]] == [1, 2]
    released = "".join(p.read_text() for p in (folder / "releases").rglob("*.json"))
    assert "inside only" not in released
    with Config.load(folder / "dpstream.toml").open_stream() as stream:
        told = [(one.step, one.kind, one.by) for one in stream.decisions()]
    assert told == [
        (1, "approved", "Anna (service, decision 1)"),
        (2, "approved", "Anna (service, decision 1)"),
        (3, "rejected", "Anna (service, decision 2)"),
        (1, "withdrawn", "Anna (service, decision 3)"),
    ]
    card = desk.card(OWNER, "test")
    assert (card.held, card.withdrawn, card.pending) == ((), (1,), ())
    assert card.last_step == 2
    desk.decide(ANNA, "test", 2, "withdraw", "week 2 came twice")
    work(desk)
    card = desk.card(OWNER, "test")
    assert (card.last_step, card.last_period, card.released_at) == (None, None, None), "nobody can read these"
    assert len(desk.ledger(OWNER, "test")["spends"]) == 3
    metrics = desk.metrics()
    assert 'dpstream_steps{stream="test"} 3' in metrics
    assert "dpstream_told_time_seconds{" in metrics
    assert desk.health() == {"test": card.health}
    assert desk.accounts(OWNER) == []


def test_a_decision_says_which_discovered_values_stay() -> None:
    stream = SimpleNamespace(discovered=lambda: {2})
    assert "the stream has to end" in _kept(stream, 2, held=True)  # type: ignore[arg-type]
    assert "later tables keep the values" in _kept(stream, 2, held=False)  # type: ignore[arg-type]
    assert _kept(stream, 3, held=False) == ""  # type: ignore[arg-type]


def test_errors_are_simulated_as_after_a_run_of_the_command(tmp_path: Path) -> None:
    def log_of(folder: Path) -> list[dict[str, object]]:
        path = make_service(folder, approve=False) / "dpstream.toml"
        path.write_text(path.read_text(encoding="utf-8") + "[accuracy]\nsimulate = 2\n", encoding="utf-8")
        return work(Desk.open(folder))

    assert [line["event"] for line in log_of(tmp_path / "simulates")] == ["step"] * 3
    assert (tmp_path / "simulates" / "releases" / "errors" / "step-000002.json").is_file()
    with mock.patch("dpstream.tools.errors.simulate_errors", side_effect=ValueError("private")):
        (failed,) = [line for line in log_of(tmp_path / "fails") if line["event"] == "errors"]
    assert failed["state"] == "not simulated"
    assert "private" not in json.dumps(failed)


def test_a_stream_that_catches_up_is_kept_open_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One opening takes steps for a few seconds; then whoever waits for the lock has it before the next step."""
    opened: list[int] = []
    true = Config.open_stream

    def counted(config: Config, **more: bool) -> Stream:
        opened.append(1)
        return true(config, **more)

    monkeypatch.setattr(Config, "open_stream", counted)
    for name, span in (("kept", 3600.0), ("let go", 0.0)):
        monkeypatch.setattr(working, "_SPAN", span)
        opened.clear()
        desk = Desk.open(make_service(tmp_path / name, steps=6, approve=False))
        log = work(desk)
        assert [one["step"] for one in log if one["event"] == "step"] == [1, 2, 3, 4, 5, 6]
        assert desk.card(OWNER, "test").steps == 6
        assert len(opened) == (1 if span else 6)


def test_no_name_of_a_batch_and_no_exact_number_is_told(tmp_path: Path) -> None:
    """Nor a value outside the public domain. Batches are files here, so that their names are those of files; and the
    numbers of records are odd ones."""
    folder = make_service(tmp_path / "numbers", steps=3, private="PLANTED-")
    rewrite(folder / "dpstream.toml", 'time_column = "step"\nend = 3', 'every = "files"')
    planted = ("731", "1913", "2644", "SECRET-9317", "PLANTED")
    for step, rows in ((1, 731), (2, 1913), (3, 0)):
        lines = [ROWS[row % 5] for row in range(rows)] or [f"{planted[3]},true"]
        file = folder / "data" / f"PLANTED-{step}.csv"
        file.write_text("\n".join(["zip,paid", *lines, ""]), encoding="utf-8")
    desk = Desk.open(folder)
    log = json.dumps(work(desk))
    card = desk.card(OWNER, "test")
    assert (card.steps, card.trouble is None) == (2, False)
    words = "DataError: the records do not fit: see dpstream check"
    assert (card.trouble or "").startswith(words)
    desk.decide(ANNA, "test", 1, "approve")
    log += json.dumps(work(desk))
    db = sqlite3.connect(folder / "service.sqlite")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    texts = [
        repr([v for v in row if not isinstance(v, bytes)])
        for t in tables
        for row in db.execute(f"SELECT * FROM {t}")
    ]
    db.close()
    for told in (log, desk.metrics(), *texts):
        assert not re.search(rf"\b({'|'.join(planted[:3])})\b|{'|'.join(planted[3:])}", told)
    data = b"".join(path.read_bytes() for path in folder.glob("service.sqlite*"))
    assert not any(private.encode() in data for private in planted[3:])
    # The controls: what is told can be found in that way, and the state, which nobody reads, has the names.
    assert b"the records do not fit" in data
    state = b"".join(path.read_bytes() for path in (folder / "state").glob("stream.sqlite*"))
    assert b"PLANTED-1" in state


def test_a_source_that_cannot_be_read_is_tried_again_later(tmp_path: Path) -> None:
    folder = make_service(tmp_path / "unreadable", steps=1, more='look_every = "10m"')
    file = folder / "data" / "1.csv"
    content = file.read_bytes()
    file.unlink()
    desk = Desk.open(folder)
    clock = [2e9]
    worker = Worker(desk, lambda: clock[0], lambda line: None)
    try:
        tries = []
        for _ in range(100):
            before = desk.card(OWNER, "test").trouble
            worker.round()
            if desk.card(OWNER, "test").trouble != before:
                tries.append(int(clock[0] - 2e9) // 60)
            clock[0] += 600
        assert tries == [0, 10, 30, 70, 150, 310, 470, 630, 790, 950]
        trouble = desk.card(OWNER, "test").trouble or ""
        assert trouble.startswith("UnreadableError: the source cannot be read yet; next try at 2033-05-1")
        clock[0] = 1e9  # a clock that is set back stops nothing
        worker.round()
        clock[0] += 16 * 600
        worker.round()
        assert desk.card(OWNER, "test").trouble != trouble
        file.write_bytes(content)
        desk.run_now(OWNER, "test")  # does not wait
        worker.round()
        assert (desk.card(OWNER, "test").steps, desk.card(OWNER, "test").trouble) == (1, None)
    finally:
        worker.close()


def test_it_goes_on_after_the_services_database_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a task, after one, and after a step: what was done is told later, and done once."""
    desk = Desk.open(make_service(tmp_path / "failing", steps=1))
    real, fails, lines = desk.database.writing, [True], []

    @contextlib.contextmanager
    def writing() -> Iterator[StoreDatabase]:
        with real() as db:
            yield db
            if fails and fails.pop(0):
                raise StoreError("the disk is full: SECRET")

    worker = Worker(desk, lambda: 2e9, lambda line: lines.append(json.loads(line)))
    # Does not wait after a failure, and ends where there is nothing to do.
    monkeypatch.setattr(worker._stop, "wait", lambda seconds: worker.stop() if seconds == 1 else None)
    with monkeypatch.context() as patched:
        patched.setattr(desk.database, "writing", writing)
        worker.run()  # the step is taken, and cannot be told
    assert desk.card(OWNER, "test").held == (1,)
    desk.decide(ANNA, "test", 1, "approve")
    fails += [False, True]
    worker._stop.clear()
    with monkeypatch.context() as patched:
        patched.setattr(desk.database, "writing", writing)
        worker.run()  # the task is begun and done, and cannot be told
    worker.close()
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["done"]
    assert desk.card(OWNER, "test").held == ()
    assert [(one["event"], one["state"], one.get("error")) for one in lines] == [
        ("step", "taken", None),
        ("service", "waits", "StoreError"),
        ("service", "waits", "StoreError"),
        ("approve", "done", None),
    ]


def test_the_worker_owns_a_stream_only_while_it_works(tmp_path: Path, approved: Desk) -> None:
    desk, worker = approved, Worker(approved, lambda: 2e9, lambda line: None)
    with pytest.raises(StoreLockedError, match="another worker"):
        Worker(desk)
    with Config.load(tmp_path / "service" / "dpstream.toml").open_stream() as stream:
        assert not worker._task(worker._places[0])
        # Nobody has begun: a rejection still wins.
        assert desk.tasks(OWNER, "test")[0].state == "waiting"
        desk.decide(OWNER, "test", 1, "reject", "no")
        assert stream.held() == [1]
    worker.close()
    work(desk)
    assert states(desk) == ["cancelled", "done"]


def test_a_signal_ends_it_after_the_step(tmp_path: Path) -> None:
    desk = Desk.open(make_service(tmp_path / "signal"))
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        worker.stop()  # what the signal's handler does

    worker = Worker(desk, lambda: 2e9, log)
    worker.run()
    worker.close()
    assert [json.loads(line)["step"] for line in lines] == [1]
    card = desk.card(OWNER, "test")
    assert (card.steps, card.held) == (1, (1,)), "the step is whole, and told"


def test_nothing_is_answered_while_steps_are_held(tmp_path: Path) -> None:
    """An answer would tell of the held step: the desk refuses it, and the worker where the desk did not know yet."""
    folder = make_service(
        tmp_path / "asked", steps=2, mechanism=QUESTIONS, times=3, stream='total = "public"'
    )
    desk = Desk.open(folder)
    work(desk)
    for call in (desk.price, desk.ask):
        with pytest.raises(ConfigError, match="would reveal held steps"):
            call(OWNER, "test", "zip = 'a'")
    desk.decide(ANNA, "test", [1, 2], "approve")
    work(desk)
    desk.ask(OWNER, "test", "zip = 'a'")
    work(desk)
    desk.ask(OWNER, "test", "zip = 'b'")  # the worker has told of no held step
    with mock.patch.object(Stream, "held", return_value=[2]):
        work(desk)
    answered, refused = (one for one in desk.tasks(OWNER, "test") if one.kind == "ask")
    assert (answered.state, refused.state) == ("done", "failed")
    assert "steps are held" in (refused.why or "")


def test_what_is_not_due_is_not_taken(tmp_path: Path) -> None:
    folder = make_service(tmp_path / "calendar", steps=1)
    last = datetime.date.today() + datetime.timedelta(days=400)
    calendar = f'every = "week"\nstart = "{last}"\nend = "today"'
    rewrite(folder / "dpstream.toml", "end = 1", calendar, '"step"', '"day"')
    desk = Desk.open(folder)
    assert work(desk) == []
    card = desk.card(OWNER, "test")
    assert card.next_due == f"{last + datetime.timedelta(days=7)}T00:00+00:00"
    assert (card.steps, card.health) == (0, "not-started")


def test_names_and_reasons_are_data_and_nothing_else(tmp_path: Path) -> None:
    """Quotes, markup and other scripts go through and come back; what breaks lines or hides is refused."""
    hostile = [
        *("'; DROP TABLE people; --", "<script>alert(1)</script>"),
        *("{{ 7 * 7 }}", "../../etc", "Ана Мейер"),
    ]
    desk = Desk.open(make_service(tmp_path / "names", steps=1))
    work(desk)
    for name in hostile:
        desk.add_person(OWNER, name, ["approver"])
        found = desk.person(desk.sign_in(desk.make_sign_in_token(desk.operator("root"), name)) or "")
        assert found is not None
        assert found.name == name
        desk.decide(found, "test", 1, "approve", name)
    assert sorted(one.name for one in desk.people(OWNER)) == sorted(hostile)
    assert [one.reason for one in desk.decisions(OWNER) if one.kind == "approve"] == hostile
    assert desk.check_log()[0] == []
    work(desk)
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["done"]
    for name in ("two\nlines", "hidden\u202eright", "", " ", "x" * 101, "nul\x00"):
        with pytest.raises(ConfigError):
            desk.add_person(OWNER, name, ["approver"])
        if name.strip() and len(name) < 100:
            with pytest.raises(ConfigError):
                desk.decide(ANNA, "test", 1, "approve", name)


def test_rejecting_wins_until_the_table_is_out(tmp_path: Path, approved: Desk) -> None:
    """Also over an approval that has begun, has failed, and is to be done again."""
    desk = approved
    with mock.patch.object(Stream, "approve", side_effect=OSError(errno.ENOSPC, "no space left")):
        work(desk)
    assert states(desk) == ["begun"]
    desk.decide(OWNER, "test", 1, "reject", "the wrong table")
    work(desk)
    approval, rejection = desk.tasks(OWNER, "test")
    assert (approval.state, approval.why) == ("failed", "step 1 is rejected already")
    assert rejection.state == "done"
    assert desk.card(OWNER, "test").held == ()
    assert not (tmp_path / "service" / "releases" / "step-000001").exists()


def test_a_step_that_was_rejected_late_is_not_withdrawn(tmp_path: Path, approved: Desk) -> None:
    """The rejection came when the table was out: its reason, which is for inside, is not published."""
    desk, worker = approved, Worker(approved, lambda: 2e9, lambda line: None)
    real = worker._do
    with mock.patch.object(worker, "_do", side_effect=lambda *given: (real(*given), rejected())[0]):

        def rejected() -> None:
            with contextlib.suppress(ConfigError):
                desk.decide(OWNER, "test", 1, "reject", "inside only")

        while worker.round():
            pass
    worker.close()
    work(desk)
    assert states(desk) == ["done", "failed"]
    why = "step 1 is published: withdraw it"
    assert desk.tasks(OWNER, "test")[1].why == why
    released = (tmp_path / "service" / "releases").rglob("*.json")
    assert "inside only" not in "".join(path.read_text() for path in released)
    assert desk.card(OWNER, "test").withdrawn == ()


def test_what_was_looked_at_is_what_is_decided_about(approved: Desk) -> None:
    desk = approved
    with desk.database.writing() as db:
        db.execute("UPDATE tasks SET what = replace(what, 'manifest_sha256\":\"', 'manifest_sha256\":\"0')")
    work(desk)
    (task,) = desk.tasks(OWNER, "test")
    assert (task.state, task.why) == ("failed", "step 1 has changed since that look")
    assert desk.card(OWNER, "test").held == (1,)
