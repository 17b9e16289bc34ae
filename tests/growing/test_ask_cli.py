"""dpstream ask, from a configuration file to an answer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstream.cli.main import main

CONFIG = """
[stream]
name = "clinic"
total = "public"
[source]
path = "visits/*.csv"
every = "files"
[schema.columns.city]
type = "categorical"
values = ["Bern", "Basel", "Chur"]
[schema.columns.smoker]
type = "boolean"
[schema.columns.age]
type = "integer"
edges = [0, 18, 65, 120]
[mechanism]
name = "pmwg"
alpha = "0.05"
start = 100
hard_questions = 20
[budget]
epsilon = 1
[output]
format = "csv"
"""


def ask(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["ask", *arguments])
    return done.exit_code, done.stdout, done.stderr


def at_store(config: Path, verb: str, *arguments: str) -> int:
    return CliRunner().invoke(main, ["store", verb, str(config), *arguments]).exit_code


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "visits").mkdir()
    file = tmp_path / "dpstream.toml"
    file.write_text(CONFIG)
    return file


def visits(config: Path, number: int, rows: int) -> None:
    lines = ["city,smoker,age", *(f"{'Bern' if i % 5 else 'Chur'},true,{i % 90}" for i in range(rows))]
    (config.parent / "visits" / f"{number}.csv").write_text("\n".join(lines) + "\n")
    assert CliRunner().invoke(main, ["run", str(config)]).exit_code == 0


def test_from_the_configuration_to_answers(config: Path) -> None:
    assert ask(str(config), "smoker")[0] == 2  # nothing has run
    visits(config, 1, 60)
    code, _, error = ask(str(config), "smoker")
    assert code == 3
    assert "begin with 100" in error
    visits(config, 2, 5000)
    code, out, _ = ask(str(config), "age >= 65 and smoker", "--json")
    first = json.loads(out)
    assert code == 0
    assert first["kind"] in ("easy", "hard")
    assert first["t"] == 5060
    assert first["step"] == 2
    # The same at the same step: the stored answer, in words.
    code, out, _ = ask(str(config), "age >= 65 and smoker")
    assert code == 0
    assert out.splitlines()[1].strip().startswith(f"{first['value']:.6g}")
    (config.parent / "q.txt").write_text("# two questions\n\nsmoker\ncity = 'Chur'\n")
    code, out, _ = ask(str(config), "--file", str(config.parent / "q.txt"), "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["question"] for one in told] == ["smoker", "city = 'Chur'"]
    assert [one["number"] for one in told] == [2, 3]
    # In other words, and twice in one call: one answer, and the words of both.
    (config.parent / "q.txt").write_text("not not smoker\nsmoker != false\nnot smoker\n")
    code, out, _ = ask(str(config), "--file", str(config.parent / "q.txt"), "--json")
    again = [json.loads(line) for line in out.splitlines()]
    assert [one.pop("asked_as", None) for one in again] == ["not not smoker", "smoker != false", None]
    assert again[0] == again[1] == told[0]
    assert (again[2]["value"], again[2]["spent"]) == (1 - told[0]["value"], told[1]["spent"])
    assert "the same question as: smoker" in ask(str(config), "smoker != false")[1]
    assert len(ask(str(config), "--list", "--json")[1].splitlines()) == 4
    plan = CliRunner().invoke(main, ["plan", str(config), "--all", "--quick"])
    assert plan.exit_code == 0
    assert "20 hard questions" in " ".join(plan.stdout.split())
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
    code, out, error = ask(str(config), *arguments)
    assert (code, out) == (2, "")
    assert words in error
    assert len(error.splitlines()) == 1
    assert ask(str(config), "--list")[1] == ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('total = "public"\n', "", 'total = "public"'),
        ('alpha = "0.05"', "", "alpha"),
        ("hard_questions = 20", 'hard_questions = 20\nnoise = "published"', "noise"),
        ("hard_questions = 20", "k = 3", "k"),
        ("start = 100", "start = 1", "from 2"),
        ('every = "files"', 'every = "files"\nop_column = "op"', "only grows"),
    ],
    ids=["total", "alpha", "twice", "option", "start", "deletes"],
)
def test_wrong_configurations(config: Path, old: str, new: str, words: str) -> None:
    config.write_text(CONFIG.replace(old, new))
    code, _, error = ask(str(config), "smoker")
    assert code in (2, 3)
    assert words in error


def test_a_stream_of_answers_is_not_sent_to_errors_or_to_a_guess_that_is_there(config: Path) -> None:
    visits(config, 1, 5000)
    out = ask(str(config), "smoker or not smoker")[1]
    assert out.splitlines()[1].startswith("  1: exact")
    for command in ("status", "statement"):
        said = CliRunner().invoke(main, [command, str(config)]).stdout
        assert "dpstream errors" not in said
    refused = CliRunner().invoke(main, ["errors", str(config)])
    assert (refused.exit_code, "the stream gives answers" in refused.stderr) == (2, True)
    config.write_text(CONFIG + "[expect]\nrecords_per_step = 1000\n")
    plan = CliRunner().invoke(main, ["plan", str(config), "--all", "--quick"]).stdout
    assert "predicts no errors of tables" in " ".join(plan.split())
    config.write_text(CONFIG.replace('total = "public"', 'unit = "individual"'))
    unit = CliRunner().invoke(main, ["plan", str(config), "--all", "--quick"])
    assert (unit.exit_code, "allowed: event-replace; or" in unit.stderr) == (3, True)


def test_both_stores_move_together(config: Path) -> None:
    visits(config, 1, 3000)
    first = ask(str(config), "smoker", "--json")[1]
    store, home, questions = partial(at_store, config), config.parent, ("--questions",)
    for which, name in (((), "a"), (questions, "q")):
        assert store("check") == 0
        assert store("export", *which, "--move", "--out", str(home / name)) == 0
    assert ask(str(config), "smoker")[0] == 4  # moved away
    for which, name in (((), "a"), (questions, "q")):
        assert store("import", *which, "--from", str(home / name), "--state", str(home / "new")) == 0
    assert (home / "new-questions").is_dir()
    assert ask(str(config), "smoker", "--json", "--state", str(home / "new"))[1] == first
    # Another stream's questions are none of this one's.
    assert store("import", "--from", str(home / "q"), "--state", str(home / "wrong")) != 0


def test_both_stores_get_another_key(config: Path) -> None:
    """In whichever order, and stopped in between: what is encrypted with another key is refused, not lost."""
    visits(config, 1, 3000)
    first = ask(str(config), "smoker", "--json")[1]
    store, home, plain = partial(at_store, config), config.parent, CONFIG

    def with_key(name: str) -> None:
        config.write_text(f'{plain}[state]\nkey_file = "{name}"\n')

    for name in ("k1", "k2"):
        made = CliRunner().invoke(main, ["store", "key", "--out", str(home / name)])
        assert made.exit_code == 0
    assert store("rekey", "--questions", "--to", str(home / "k1")) == 0
    code, _, error = ask(str(config), "smoker")
    assert code == 4
    assert "key" in error
    assert store("rekey", "--to", str(home / "k1")) == 0
    with_key("k1")
    assert ask(str(config), "smoker", "--json")[1] == first
    assert store("check") == 0
    assert store("rekey", "--to", str(home / "k2")) == 0
    assert store("rekey", "--questions", "--to", str(home / "k2")) == 0
    assert ask(str(config), "smoker")[0] == 4
    with_key("k2")
    assert ask(str(config), "smoker", "--json")[1] == first
    # A copy goes back where the store was lost at that very question, and waits for its owner.
    assert store("export", "--questions", "--out", str(home / "q")) == 0
    (home / "state-questions" / "stream.sqlite").unlink()
    assert ask(str(config), "smoker")[0] == 4
    assert store("import", "--questions", "--from", str(home / "q")) == 0
    assert ask(str(config), "smoker", "--json")[1] == first
    code, _, error = ask(str(config), "city = 'Chur'")
    assert (code, "discard" in error) == (2, True)
    assert CliRunner().invoke(main, ["run", str(config), "--discard-reserved"]).exit_code == 0
    assert ask(str(config), "city = 'Chur'")[0] == 0


def test_another_mechanism_is_not_asked(config: Path) -> None:
    config.write_text(CONFIG[: CONFIG.index("[mechanism]")] + "[budget]\nepsilon = 1\n")
    code, _, error = ask(str(config), "smoker")
    assert code == 2
    assert "answer questions already" in error


def test_a_question_alone_is_asked_of_the_usual_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visits(config, 1, 5000)
    monkeypatch.chdir(config.parent)
    code, alone, _ = ask("age >= 65 and smoker")
    assert code == 0
    assert ask(str(config), "age >= 65 and smoker")[1] == alone
    assert ask("age >= 65 and smoker", str(config))[1] == alone, "in the other order"
    monkeypatch.chdir("/")
    code, _, error = ask("age >= 65 and smoker")
    assert code == 2
    assert "dpstream.toml is missing" in error
    assert "dpstream ask CONFIG QUESTION" in error
    assert "none.toml" in ask("none.toml", "smoker")[2], "a file that is not there is told as one"
