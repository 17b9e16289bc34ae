"""Questions to a durable stream: answered once, charged exactly, killed anywhere."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_harness import Fault, faults_in, full_disk, lying_commit
from pmwg_cases import SCHEMA, plan
from postgres_server import Cluster, programs

from dpstream.core.errors import BudgetError, ConfigError, StepError, StoreDamagedError, StoreError
from dpstream.core.privacy import Noise, Randomness
from dpstream.families.growing.pmwg_facts import WEIGHT_BITS, linear_query
from dpstream.families.growing.pmwg_plan import PMWGPlan, grid_values
from dpstream.io.sinks import Publisher
from dpstream.stream import Account, AskingStream, Batch, PostgresServer, StateKey, open_stream, verify_ledger
from dpstream.stream.inspection import check_store, wrong_state
from dpstream.stream.ledger.limit import Limit
from dpstream.stream.store.step_rows import Prepared

QUESTIONS = ("smoker", "city = 'Bern'", "age >= 65 and smoker")
KEY = StateKey.generate()


@cache
def small_plan() -> PMWGPlan:
    """Calibrated by the first test that needs it: its compiled parts would slow down the collection of all tests."""
    return plan(start=100, hard_questions=4, learning="matching")


def arrivals(rows: int = 120) -> Batch:
    return Batch({"city": ["Bern"] * rows, "smoker": [True] * rows, "age": [70] * rows})


def started(home: Path, which: PMWGPlan | None = None, **options: object) -> AskingStream:
    stream = open_stream(which or small_plan(), SCHEMA, home / "state", **options)  # type: ignore[arg-type]
    assert isinstance(stream, AskingStream)
    return stream


# Under faults.


class AnswersFirst(AskingStream):
    """The wrong order, as a negative control: an answer is given before it is committed."""

    home: Path

    def _prepared_question(self, *arguments: object) -> Prepared:
        prepared = super()._prepared_question(*arguments)  # type: ignore[arg-type]
        give(self.home, prepared.manifest.decode())
        return prepared


def give(home: Path, text: str) -> None:
    """What a reader has seen stays seen."""
    with (home / "given.ndjson").open("a") as file:
        file.write(text + "\n")


def life(home: Path, *, wrong_order: bool = False, key: StateKey | None = None) -> None:
    """Two steps and five questions, one of them a repetition, in two openings; and two that follow from others."""
    for step in (1, 2):
        with started(home, key=key) as stream:
            stream.step(arrivals(), f"b{step}")
            if wrong_order:
                stream.__class__ = AnswersFirst
                stream.home = home  # type: ignore[attr-defined]
            for name in (f"{step}-0", f"{step}-{step}", "1-0")[: step + 1]:
                asked = stream.ask(QUESTIONS[int(name[-1])], name)
                give(home, json.dumps(asked.as_dict()))
            # Follows from the first question of this step: it draws and costs nothing, but is stored.
            asked = stream.ask("smoker = false", f"{step}-not")
            give(home, json.dumps(asked.as_dict()))


def violations(home: Path, key: StateKey | None = None) -> list[str]:
    """What readers saw against what the stores hold."""
    lines = (home / "given.ndjson").read_text().splitlines() if (home / "given.ndjson").exists() else []
    given = [json.loads(line) for line in lines]
    by_id: dict[str, object] = {}
    found = ["two answers to one question" for told in given if by_id.setdefault(told["id"], told) != told]
    with started(home, key=key) as stream:
        stored = {asked.question_id: asked.as_dict() for asked in stream.asked()}
        charged = sum((entry for entry in _charges(home)), Fraction(0))
        found += ["given and not stored" for told in given if stored.get(told["id"]) != told]
        found += [] if charged == stream.standing.spent else ["the charges do not add up"]
        found += [] if charged <= small_plan().budget.amount else ["more is charged than the budget"]
        implied = [name for name in stored if name.endswith("-not")]
        found += [] if stream.standing.asked == len(stored) - len(implied) else ["questions are lost"]
        for name in implied:
            pair = (stored[name]["value"], stored[name.replace("-not", "-0")]["value"])
            found += [] if pair[0] == 1 - pair[1] else ["an answer and its opposite contradict each other"]
    return found


def _charges(home: Path) -> list[Fraction]:
    db = sqlite3.connect(home / "state-questions" / "stream.sqlite")
    try:
        return [Fraction(spent) for (spent,) in db.execute("SELECT spent FROM steps")]
    finally:
        db.close()


@pytest.mark.parametrize(("key", "stride"), [(None, 5), (KEY, 30)], ids=["plain", "encrypted"])
def test_killed_before_every_durability_call(tmp_path: Path, key: StateKey | None, stride: int) -> None:
    """Noise of the operating system: a second draw for a question that was answered would show."""
    for home, name in faults_in(tmp_path, partial(life, key=key), calls=slice(1, None, stride)):
        assert violations(home, key) == [], (home.name, name)
        life(home, key=key)
        assert violations(home, key) == [], (home.name, name)
    assert violations(tmp_path / "undisturbed", key) == []


@pytest.mark.parametrize("fault", [full_disk, lying_commit], ids=["full disk", "lying commit"])
def test_a_disk_that_fails(tmp_path: Path, fault: Fault) -> None:
    failed = []

    def work(home: Path) -> None:
        try:
            life(home)
        except StoreError:
            failed.append(home)

    for home, name in faults_in(tmp_path, work, fault=fault, calls=slice(2, None, 4)):
        # A failure after noise was drawn waits for its owner; what was answered stays answered.
        assert (failed[-1:], violations(home)) == ([home], []), name
        with started(home) as stream:
            stream.discard_reservation()
        life(home)
        assert violations(home) == [], (home.name, name)


def test_the_harness_catches_answers_before_the_commit(tmp_path: Path) -> None:
    """Negative control."""
    stopped = faults_in(tmp_path, partial(life, wrong_order=True), calls=slice(25, None, 2))
    assert any(violations(home) for home, _ in stopped)


class Failing(Randomness):
    """Fails after it has drawn."""

    def __init__(self) -> None:
        super().__init__(os.urandom, secure=True)
        self.fails = False

    def draw(self, noise: Noise, size: int) -> object:  # type: ignore[override]
        drawn = super().draw(noise, size)
        if self.fails:
            raise MemoryError
        return drawn


def test_a_question_that_failed_after_drawing_noise_waits_for_its_owner(tmp_path: Path) -> None:
    random = Failing()
    with started(tmp_path, randomness=random) as stream:
        stream.step(arrivals(), "b1")
        random.fails = True
        with pytest.raises(MemoryError):
            stream.ask("smoker", "q")
        random.fails = False
        for _ in range(2):
            with pytest.raises(StepError, match="MemoryError"):
                stream.ask("smoker", "q")
    with started(tmp_path) as stream:
        with pytest.raises(StepError, match="discard"):
            stream.ask("city = 'Bern'", "other")
        assert stream.standing.asked == 0
        stream.step(arrivals(), "b2")
        stream.discard_reservation()
        assert stream.ask("smoker", "q").number == 1


# What the stores hold.


def test_an_id_is_answered_once_and_for_one_question(tmp_path: Path) -> None:
    with started(tmp_path) as stream:
        stream.step(arrivals(), "b1")
        first = stream.ask("smoker", "q")
        # Other words for the same query are the same question; another query is not.
        assert stream.ask("smoker = true", "q") == first
        with pytest.raises(StepError, match="another question"):
            stream.ask("city = 'Bern'", "q")
        by_default = stream.ask("city = 'Bern'")
        assert by_default.question_id == "step 1: city = 'Bern'"
        assert stream.ask("city = 'Bern'") == by_default
    with started(tmp_path) as stream:
        assert stream.asked() == (first, by_default)
        stream.step(arrivals(), "b2")
        assert stream.ask("city = 'Bern'").number == 3
        assert {asked.answer.t for asked in stream.asked()} == {120, 240}


#: The same quantity in other words, and its opposites.
SAME = ("city = 'Bern'", "not (city = 'Basel' or city = 'Chur')", "city = 'Bern' and (smoker or not smoker)")
OPPOSITE = ("city != 'Bern'", "city in ('Basel', 'Chur')")


def in_numbers(words: str) -> Any:
    weights = grid_values(linear_query(words, SCHEMA), SCHEMA.domain)
    return weights / 2**WEIGHT_BITS


def test_equal_questions_have_one_answer_and_are_charged_once(tmp_path: Path) -> None:
    """In words or numbers, under ids of their own, after a reopening: one draw, one number."""
    counted = 0
    with started(tmp_path) as stream:
        for step in (1, 2):
            stream.step(arrivals(), f"b{step}")
            first = stream.ask(SAME[0])
            counted += 1
            once = sum(_charges(tmp_path), Fraction(0))
            for question in (*SAME, in_numbers(SAME[1])):
                assert stream.ask(question) == first
            named = stream.ask(SAME[1], f"own-{step}")
            assert (named.question_id, named.answer) == (f"own-{step}", first.answer)
            assert named.number == first.number + 1
            opposite = stream.ask(OPPOSITE[0])
            assert opposite.answer.value == 1 - first.answer.value
            assert "complement" in opposite.answer.reason
            assert stream.ask(OPPOSITE[1]) == opposite
            assert stream.ask(in_numbers(OPPOSITE[1])) == opposite
            assert sum(_charges(tmp_path), Fraction(0)) == once == stream.standing.spent
            assert stream.standing.asked == counted
            stream.close()
            stream = started(tmp_path)
            assert stream.ask(SAME[2]) == first
            assert stream.ask(OPPOSITE[1]) == opposite
            # The opposite's name stands for the opposite.
            with pytest.raises(StepError, match="another question"):
                stream.ask(SAME[0], opposite.question_id)
        assert stream.ask(SAME[1], "own-1").step == 1
        # The histogram that a hard question taught comes back, also where an implied answer was the last one.
        assert stream.ask("smoker").number == 7
        stream.close()


def test_an_implied_answer_has_the_books_of_now(tmp_path: Path) -> None:
    """Hard questions were asked since the answer that it follows from."""
    with started(tmp_path) as stream:
        stream.step(arrivals(), "b1")
        stored = stream.ask("smoker").answer
        for question in ("city = 'Bern'", "age >= 65"):
            stream.ask(question)
        now = stream.standing
        assert now.spent > stored.spent
        for told in (stream.ask("not smoker").answer, stream.ask("smoker", "again").answer):
            assert (told.spent, told.left, told.hard_asked) == (now.spent, now.left, now.hard)
        assert stream.ask("smoker").answer == stored, "the stored answer stays what it was"


def test_it_goes_on_as_if_it_had_not_been_closed(tmp_path: Path) -> None:
    """The histogram, the run under way and the books come back: bit by bit the answers of one long life."""
    answers, large = [], plan(start=1000, hard_questions=10, learning="matching")
    for closing in (False, True):
        home, random = tmp_path / str(closing), Randomness.seeded(4)
        stream = started(home, large, randomness=random)
        found = []
        for step in range(1, 4):
            stream.step(arrivals(1000 * step), f"b{step}")
            for question in (*QUESTIONS, np.linspace(0.49, 0.5, 18)) if step > 1 else ():
                if closing:
                    stream.close()
                    stream = started(home, large, randomness=random)
                found.append(stream.ask(question).as_dict())
        answers.append(found)
        stream.close()
    assert answers[0] == answers[1]
    assert {told["kind"] for told in answers[0]} >= {"easy", "hard"}
    assert all(told["made_with_test_seed"] for told in answers[0])


def restore(old: Path, path: Path) -> None:
    if old.is_dir():
        shutil.rmtree(path)
        shutil.copytree(old, path)
    else:
        shutil.copy(old, path)


@pytest.mark.parametrize(
    ("what", "lost", "words"),
    [
        ("state", "nothing", "rolled back"),
        ("state", "state-questions", "the questions' store is gone"),
        # With an older copy of what was spent, it could be spent again; without the witness, the step knows.
        ("state-questions", "state/questions.json", "the questions' store was rolled back"),
    ],
)
def test_a_store_that_was_rolled_back_is_refused(tmp_path: Path, what: str, lost: str, words: str) -> None:
    with started(tmp_path) as stream:
        stream.step(arrivals(), "b1")
        stream.ask("smoker")
    shutil.copytree(tmp_path / what, tmp_path / "old")
    with started(tmp_path) as stream:
        stream.ask("city = 'Bern'")
        stream.step(arrivals(), "b2")
        stream.ask("smoker")
    restore(tmp_path / "old", tmp_path / what)
    if (tmp_path / lost).is_dir():
        shutil.rmtree(tmp_path / lost)
    (tmp_path / lost).unlink(missing_ok=True)
    with pytest.raises(StoreDamagedError, match=words):
        started(tmp_path)


@pytest.mark.parametrize("releases", [False, True])
@pytest.mark.parametrize(
    "what", ["state-questions/stream.sqlite", "state-questions", "state and state-questions"]
)
def test_questions_restored_at_the_same_step_are_seen_by_everybody(
    tmp_path: Path, what: str, releases: bool
) -> None:
    """The same question would be answered anew, with fresh noise: its last seal also stands outside of the store."""
    sink = Publisher(tmp_path / "releases") if releases else None

    def opened() -> AskingStream:
        return started(tmp_path, publish_to=sink)

    def everybody() -> list[str]:
        found = []
        try:
            opened().close()
        except StoreDamagedError as error:
            found += ["run"] if "rolled back" in str(error) else [str(error)]
        folder = tmp_path / "releases" if releases else None
        told: dict[str, Sequence[str]] = {
            "check": check_store(tmp_path / "state", folder).problems,
            "verify": verify_ledger(tmp_path / "state", releases=folder),
            "health": [
                wrong_state(tmp_path / "state", (sink or Publisher(tmp_path / "none")).directory) or ""
            ],
        }
        return found + [who for who, words in told.items() if any("rolled back" in text for text in words)]

    with opened() as stream:
        stream.step(arrivals(), "b1")
        stream.ask("smoker")
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
    with opened() as stream:
        stream.ask("city = 'Bern'")
    assert everybody() == []
    for path in what.split(" and "):
        restore(tmp_path.parent / f"{tmp_path.name}-copy" / path, tmp_path / path)
    for _ in range(2):  # nobody makes it good by trying
        # Restored together, where nothing is published, the two folders agree: nothing outside knows of it.
        unseen = what.startswith("state and") and not releases
        assert everybody() == ([] if unseen else ["run", "check", "verify", "health"])


def test_an_answer_leaves_only_after_its_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path) as stream:
        stream.step(arrivals(), "b1")
        stream.ask("smoker")

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "full")

        with monkeypatch.context() as patch:
            patch.setattr("dpstream.core.durable.replace_file", full)
            for look in (lambda: stream.ask("city = 'Bern'"), lambda: stream.ask("smoker"), stream.asked):
                with pytest.raises(StoreError, match="full"):
                    look()
        known = (tmp_path / "state" / "questions.json").read_bytes()
        stream.ask("city = 'Bern'")
        assert (tmp_path / "state" / "questions.json").read_bytes() != known
        assert len(stream.asked()) == 2


@pytest.mark.parametrize(
    ("key", "words"), [(None, "the state was changed"), (KEY, "changed or moved")], ids=["plain", "encrypted"]
)
def test_the_state_of_one_store_is_none_in_the_other(
    tmp_path: Path, key: StateKey | None, words: str
) -> None:
    with started(tmp_path, key=key) as stream:
        stream.step(arrivals(), "b1")
        stream.ask("smoker")
    with sqlite3.connect(tmp_path / "state" / "stream.sqlite") as db:
        (packed,) = db.execute("SELECT value FROM latest WHERE name = 'state'").fetchone()
    with sqlite3.connect(tmp_path / "state-questions" / "stream.sqlite") as db:
        db.execute("UPDATE latest SET value = ? WHERE name = 'state'", (packed,))
    with pytest.raises(StoreDamagedError, match=words):
        started(tmp_path, key=key)


def test_a_stream_that_was_closed_in_its_account_answers_nothing_new(tmp_path: Path) -> None:
    account = Account.create(tmp_path / "account", Limit.parse("epsilon=1"), unit="event-replace")
    with started(tmp_path, account=account.path) as stream:
        stream.step(arrivals(), "b1")
        first = stream.ask("smoker")
        (charge,) = account.read().charges
        account.close_stream(charge.stream_id)
        assert stream.ask("smoker") == first
        with pytest.raises(BudgetError, match="closed"):
            stream.ask("city = 'Bern'")
        assert stream.standing.asked == 1


def test_questions_live_on_a_server_beside_their_stream(tmp_path: Path) -> None:
    tools = programs()
    if tools is None:
        pytest.skip("there is no PostgreSQL server on this machine (make postgres installs one)")
    cluster = Cluster(tools)
    try:
        server = PostgresServer(cluster.url, "t_asked")
        with started(tmp_path, server=server, key=KEY) as stream:
            stream.step(arrivals(), "b1")
            first = stream.ask("smoker")
        with started(tmp_path, server=server, key=KEY) as stream:
            assert stream.ask("smoker") == first
            assert stream.ask("city = 'Bern'").number == 2
    finally:
        cluster.remove()
    # Only witnesses are left here.
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"head.json", "questions.json"}


def test_what_cannot_be_asked_costs_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as stream:
        stream.step(arrivals(99), "b1")
        with pytest.raises(BudgetError, match="there are 99"):
            stream.ask("smoker")
        stream.step(arrivals(1), "b2")
        for question, words in (
            ("shoe = 3", "unknown column 'shoe'"),
            ("age >= 20", "cuts through the bin"),
            ({"city": "Bern"}, "unreadable question"),
            ([0.5] * 3, "18, one per cell"),
            ([2.0] * 18, "outside"),
        ):
            with pytest.raises(Exception, match=words) as error:
                stream.ask(question)  # type: ignore[arg-type]
            assert error.value.exit_code == 2  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="1 to 200 printable"):
            stream.ask("smoker", "")
        assert stream.standing.asked == 0
        assert stream.standing.spent == 0
        with pytest.raises(ConfigError, match="a growing database takes no deletes"):
            stream.step(Batch(None, {"city": ["Bern"], "smoker": [True], "age": [70]}), "b3")
