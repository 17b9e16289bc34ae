"""dpstream ask, from a configuration file to an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_stream import dpstream
from small_configs import PUBLIC, rewrite, write_config, write_rows

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
    # A copy goes back where the store was lost at that very question, and waits for its owner.
    dpstream("store", "export", config, "--questions", "--out", home / "q")
    (home / "state-questions" / "stream.sqlite").unlink()
    ask(config, "smoker", code=4)
    dpstream("store", "import", config, "--questions", "--from", home / "q")
    assert ask(config, "smoker", "--json") == first
    assert "discard" in ask(config, "city = 'Chur'", code=2)
    dpstream("run", config, "--discard-reserved")
    ask(config, "city = 'Chur'")


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
