"""Streams of questions: what an answer costs, what survives a stop, the command, and their audit."""

from __future__ import annotations

import json
import math
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
from cli_stream import dpstream
from door_runs import run_loss
from fault_harness import Fault, faults_in, full_disk, lying_commit
from pmwg_cases import SCHEMA, plan
from postgres_server import Cluster, programs
from small_configs import PUBLIC, rewrite, write_config, write_rows

from dpstream.core.errors import BudgetError, ConfigError, StepError, StoreDamagedError, StoreError
from dpstream.core.privacy import DiscreteLaplace, Noise, Randomness
from dpstream.families.growing.pmwg_facts import WEIGHT_BITS, linear_query
from dpstream.families.growing.pmwg_plan import PMWGPlan, grid_values
from dpstream.io.sinks import Publisher
from dpstream.stream import Account, AskingStream, Batch, PostgresServer, StateKey, open_stream, verify_ledger
from dpstream.stream.inspection import check_store, wrong_state
from dpstream.stream.ledger.limit import Limit
from dpstream.stream.store.step_rows import Prepared
from dpstream.tools.audit import AuditFinding, door
from dpstream.tools.audit.door import record
from dpstream_lab.audits.asking_audit import audit_asking, conversation, conversing_plan, talk
from dpstream_lab.audits.erm_audit import audit_classifiers

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


# dpstream ask, from a configuration file to an answer


COLUMNS = """[schema.columns.city]\ntype = "categorical"\nvalues = ["Bern", "Basel", "Chur"]
[schema.columns.smoker]\ntype = "boolean"\n[schema.columns.age]\ntype = "integer"\nedges = [0, 18, 65, 120]
"""


def ask(*arguments: object, code: int = 0) -> str:
    """What is printed; of a refusal, its error."""
    done = dpstream("ask", *arguments, code=code)
    return done.stderr if code else done.stdout


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(
        tmp_path,
        stream=PUBLIC,
        source='path = "data/*.csv"\nevery = "files"',
        columns=COLUMNS,
        mechanism='name = "pmwg"\nalpha = "0.05"\nstart = 100\nhard_questions = 20',
        rest='[output]\nformat = "csv"',
    )


def visits(config: Path, number: int, rows: int) -> None:
    lines = (f"{'Bern' if i % 5 else 'Chur'},true,{i % 90}" for i in range(rows))
    write_rows(config.parent, f"{number}.csv", "city,smoker,age", lines)
    dpstream("run", config)


def test_from_the_configuration_to_answers(config: Path) -> None:
    ask(config, "smoker", code=2)  # nothing has run
    visits(config, 1, 60)
    assert "begin with 100" in ask(config, "smoker", code=3)
    visits(config, 2, 5000)
    first = json.loads(ask(config, "age >= 65 and smoker", "--json"))
    assert first["kind"] in ("easy", "hard")
    assert (first["t"], first["step"]) == (5060, 2)
    # The same at the same step: the stored answer, in words.
    out = ask(config, "age >= 65 and smoker")
    assert out.splitlines()[1].strip().startswith(f"{first['value']:.6g}")
    questions = config.with_name("q.txt")
    questions.write_text("# two questions\n\nsmoker\ncity = 'Chur'\n")
    told = [json.loads(line) for line in ask(config, "--file", questions, "--json").splitlines()]
    assert [one["question"] for one in told] == ["smoker", "city = 'Chur'"]
    assert [one["number"] for one in told] == [2, 3]
    # In other words, and twice in one call: one answer, and the words of both.
    questions.write_text("not not smoker\nsmoker != false\nnot smoker\n")
    again = [json.loads(line) for line in ask(config, "--file", questions, "--json").splitlines()]
    assert [one.pop("asked_as", None) for one in again] == ["not not smoker", "smoker != false", None]
    assert again[0] == again[1] == told[0]
    assert (again[2]["value"], again[2]["spent"]) == (1 - told[0]["value"], told[1]["spent"])
    assert "the same question as: smoker" in ask(config, "smoker != false")
    assert len(ask(config, "--list", "--json").splitlines()) == 4
    plan = dpstream("plan", config, "--all", "--quick").stdout
    assert "20 hard questions" in " ".join(plan.split())
    # The tables are drawn from the public histogram, of the public size.
    visits(config, 3, 40)
    tables = sorted((config.parent / "releases").glob("step-*/table.csv"))
    assert [len(table.read_text().splitlines()) - 1 for table in tables] == [60, 5060, 5100]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("smoker and",), "unexpected 'the end'"),
        ((), "expected one thing to ask"),
        (("smoker", "--list"), "expected one thing to ask"),
        (("--list", "--id", "x"), "an id names one question"),
    ],
    ids=["grammar", "nothing", "two", "id"],
)
def test_wrong_questions_are_one_line_and_cost_nothing(
    config: Path, arguments: tuple[str, ...], words: str
) -> None:
    visits(config, 1, 200)
    error = ask(config, *arguments, code=2)
    assert words in error
    assert len(error.splitlines()) == 1
    assert ask(config, "--list") == "no question was asked yet\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('total = "public"\n', "", 'total = "public"'),
        ("hard_questions = 20", 'hard_questions = 20\nnoise = "published"', "noise"),
        ('every = "files"', 'every = "files"\nop_column = "op"', "only grows"),
    ],
    ids=["total", "twice", "deletes"],
)
def test_wrong_configurations(config: Path, old: str, new: str, words: str) -> None:
    rewrite(config, old, new)
    assert words in ask(config, "smoker", code=2)


def test_a_stream_of_answers_is_not_sent_to_errors_or_to_a_guess_that_is_there(config: Path) -> None:
    visits(config, 1, 5000)
    assert ask(config, "smoker or not smoker").splitlines()[1].startswith("  1 as a share")
    for command in ("status", "statement"):
        assert "dpstream errors" not in dpstream(command, config).stdout
    assert "the stream gives answers" in dpstream("errors", config, code=2).stderr
    text = config.read_text()
    config.write_text(text + "[expect]\nrecords_per_step = 1000\n")
    plan = dpstream("plan", config, "--all", "--quick").stdout
    assert "predicts no errors of tables" in " ".join(plan.split())
    config.write_text(text.replace(PUBLIC, 'unit = "individual"'))
    assert "allowed: event-replace; or" in dpstream("plan", config, code=3).stderr


def test_both_stores_move_together(config: Path) -> None:
    visits(config, 1, 3000)
    first = ask(config, "smoker", "--json")
    home = config.parent
    for which, name in (((), "a"), (("--questions",), "q")):
        dpstream("store", "check", config)
        dpstream("store", "export", config, *which, "--move", "--out", home / name)
    ask(config, "smoker", code=4)  # moved away
    for which, name in (((), "a"), (("--questions",), "q")):
        dpstream("store", "import", config, *which, "--from", home / name, "--state", home / "new")
    assert (home / "new-questions").is_dir()
    assert ask(config, "smoker", "--json", "--state", home / "new") == first
    # Another stream's questions are none of this one's.
    dpstream("store", "import", config, "--from", home / "q", "--state", home / "wrong", code=2)


def test_both_stores_get_another_key(config: Path) -> None:
    """In whichever order, and stopped in between: what is encrypted with another key is refused, not lost."""
    visits(config, 1, 3000)
    first, home, plain = ask(config, "smoker", "--json"), config.parent, config.read_text()

    def rekey(name: str, *which: str) -> None:
        dpstream("store", "rekey", config, *which, "--to", home / name)

    def with_key(name: str) -> None:
        config.write_text(f'{plain}[state]\nkey_file = "{name}"\n')

    for name in ("k1", "k2"):
        dpstream("store", "key", "--out", home / name)
    rekey("k1", "--questions")
    assert "key" in ask(config, "smoker", code=4)
    rekey("k1")
    with_key("k1")
    assert ask(config, "smoker", "--json") == first
    dpstream("store", "check", config)
    rekey("k2")
    rekey("k2", "--questions")
    ask(config, "smoker", code=4)
    with_key("k2")
    assert ask(config, "smoker", "--json") == first


def test_another_mechanism_is_not_asked(tmp_path: Path) -> None:
    assert "answer questions already" in ask(write_config(tmp_path, columns=COLUMNS), "smoker", code=2)


def test_a_question_alone_is_asked_of_the_usual_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visits(config, 1, 5000)
    monkeypatch.chdir(config.parent)
    alone = ask("age >= 65 and smoker")
    assert ask(config, "age >= 65 and smoker") == alone
    assert ask("age >= 65 and smoker", config) == alone, "in the other order"
    monkeypatch.chdir("/")
    error = ask("age >= 65 and smoker", code=2)
    assert "dpstream.toml is missing" in error
    assert "dpstream ask CONFIG QUESTION" in error
    assert "none.toml" in ask("none.toml", "smoker", code=2), "a file that is not there is told as one"


# The audits of questions and of classifiers: honest ones pass, and every broken one is caught


def test_honest_questions_pass_and_broken_ones_are_caught() -> None:
    told: list[str] = []
    findings: dict[str, AuditFinding] = {
        one.subject: one for one in audit_asking("short", Randomness.seeded(1), told.append)
    }
    assert [one.subject for one in findings.values() if not one.passed] == []
    assert told
    honest = findings["run of tests at 2, all noise"]
    # The charge is what it really costs: not a hair less is needed.
    assert 0.999 * honest.claimed < honest.found <= honest.claimed
    broken = [one for one in findings.values() if one.control]
    assert {one.subject for one in broken} == {
        "run of tests, threshold noise anew at each test (as listed), all noise",
        "run of tests, 2/3 of the noise, all noise",
        "run of tests, half of it charged, all noise",
        "analyst who repeats, runs without end",
        "conversation, the exact share as easy, transcripts",
        "conversation, a bit where nothing was checked, transcripts",
        "conversation, a run forgotten on reopening, transcripts",
        "conversation, a number without its noise, transcripts",
        "conversation, a limit without its noise, transcripts",
        "conversation, threshold noise kept between runs, transcripts",
    }
    talks = [one for one in findings.values() if one.subject.startswith("conversation, ") and not one.control]
    assert len(talks) == 4
    assert all(one.found > 1.1 * one.claimed for one in broken)


def test_conversations_have_answers_of_every_kind_and_a_loss() -> None:
    plan, text = conversing_plan("text", {"epsilon": 20}), ""
    losses = []
    for number in range(4):
        base, other = conversation(number, early=number % 2 == 0)
        losses.append(run_loss(talk(plan, base), talk(plan, other), Randomness.seeded(number), pure=True))
        spoken = record(talk(plan, base), Randomness.seeded(number))
        text += "".join(part[0].tobytes().decode() for part in spoken.released[:-1])
    assert all(f"kind='{kind}'" in text for kind in ("easy", "hard", "unchecked"))
    assert all(loss.total <= 20 for loss in losses)
    assert any(loss.tested > 0 for loss in losses)
    assert any(loss.measured > 0 for loss in losses)


@pytest.mark.parametrize("limit", ["fresh", "none", "older", "must be a code of"])
def test_a_limit_holds_the_noise_that_was_drawn_for_it(limit: str) -> None:
    def run(number: int) -> door.Run:
        def tested(randomness: Randomness) -> Any:
            older = randomness.draw(LIMIT, 1)[0]
            fresh = randomness.draw(LIMIT, 2 if limit == "must be a code of" else 1)[0]
            noise = {"none": 0, "older": older}.get(limit, fresh)
            yield [np.array([randomness.test(number, 9 + int(noise), LAW)])]

        return tested

    loss = run_loss(run(0), run(1), Randomness.seeded(3), pure=True).total
    assert (loss <= 1 / 2) if limit == "fresh" else math.isinf(loss)


LAW, LIMIT = DiscreteLaplace(Fraction(4)), DiscreteLaplace(Fraction(2))


@pytest.mark.parametrize(
    ("moved", "said", "loss"),
    [
        ([1, 1], [False, True], 1 / 2),  # the limit rises with the numbers
        ([1, -1], [False, True], 1 / 2 + 2 / 4),  # and the yes against it
        ([-1, 1], [False, True], 0),  # noes stay noes, and a yes stays a yes
        ([0, -1], [False, True], 1 / 4),
        ([-3, -3], [False, False], 0),
        ([2, -3], [False, False], 2 / 2),
        ([0, 0], [True, True], math.inf),  # a second yes of one limit
    ],
)
def test_tests_that_share_a_limit_have_the_loss_of_their_moves(moved: Any, said: Any, loss: float) -> None:
    values = np.zeros(1, np.int64)
    one, other = (
        door.Drawn(LIMIT, values, [door.Tested(LAW, by, 9, yes) for by, yes in zip(moves, said, strict=True)])
        for moves in ([0] * len(said), moved)
    )
    assert door.tests_loss(one, other, pure=True) == loss
    assert door.tests_loss(one, other, pure=False) == loss**2 / 2


def test_classifiers_are_near_their_claim_and_broken_ones_are_caught() -> None:
    findings = list(audit_classifiers("short", Randomness.seeded(1), lambda text: None))
    assert [one.subject for one in findings if not one.passed] == []
    honest = [one for one in findings if not one.control]
    assert len(honest) == 14
    assert {one.unit for one in honest} == {"epsilon", "rho"}
    # The claim is nearly reached: nothing is added to the sensitivity that is not needed.
    assert max(one.found / one.claimed for one in honest) > 0.99
    controls = [one for one in findings if one.control]
    assert len(controls) == 7
    assert all(one.found < 5 * one.claimed for one in controls if "parity" not in one.subject)
