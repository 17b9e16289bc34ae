"""`dpstream init` asks what the data cannot tell, and what it writes can be planned as soon as it is filled in."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from cli_stream import dpstream
from click.testing import Result

ROWS = "".join(
    f"2026-01-{5 + n % 7:02},p{n % 9},{40.5 + n / 100},{-74 + n / 100},{'ab'[n % 2]}\n" for n in range(63)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(f"day,who,lat,lon,kind\n{ROWS}")
    return path


def answered(data: Path, *answers: str, code: int = 0) -> Result:
    arguments = ["init", data, "--time-column", "day", "--interactive", "--out", data.with_suffix(".toml")]
    return dpstream(*arguments, code=code, error=False, input="\n".join([*answers, ""]))


def test_answers_become_the_draft(data: Path) -> None:
    said = answered(
        data, "nobody", "", "", "now and then", "month", "2026-01-01", "", "300", "x", "0.5"
    ).output
    for answer in ("nobody", "now and then", "x"):
        assert f"{answer!r} cannot be used (allowed: " in said
    assert "62.2 at 0.5, 73.1 at 1" in said, "what epsilon means"
    drafted = tomllib.loads(data.with_suffix(".toml").read_text())
    assert drafted["stream"]["unit"] == "event"
    assert {"every": "month", "start": "2026-01-01", "end": "today"}.items() <= drafted["source"].items()
    assert drafted["expect"] == {"records_per_step": 300}
    assert drafted["budget"]["epsilon"] == "0.5"
    assert not re.search("^[^#].*FILL IN", data.with_suffix(".toml").read_text(), re.MULTILINE)


def test_people_are_protected_where_their_column_is_named(data: Path) -> None:
    answered(data, "who", "", "", "", "4", "", "")
    text = data.with_suffix(".toml").read_text()
    drafted = tomllib.loads(text)
    assert (drafted["stream"]["unit"], drafted["stream"]["max_events"]) == ("user", 4)
    assert drafted["source"]["user_column"] == "who"
    assert "who" not in drafted["schema"]["columns"]
    assert 'start = "YYYY-MM-DD"  # FILL IN' in text, "an empty answer leaves it open"
    assert "records_per_step = 100  # FILL IN" in text


def test_coordinates_are_followed_where_the_owner_says_so(data: Path) -> None:
    said = answered(data, "", "maybe", "points", "", "", "", "50", "").output
    assert "the number of records of every step is declared public" in said
    drafted = tomllib.loads(data.with_suffix(".toml").read_text())
    assert drafted["mechanism"]["name"] == "points"
    assert (drafted["stream"]["unit"], drafted["stream"]["total"]) == ("event-replace", "public")
    assert "user_column" not in drafted["source"]


def test_questions_that_are_left_write_nothing(data: Path) -> None:
    said = answered(data, "", "", "week", code=2)
    assert "questions are open; nothing was written" in said.output
    assert not data.with_suffix(".toml").exists()


@pytest.mark.parametrize("mechanism", ["pooled", "points", "panel-window"])
def test_a_draft_has_round_guesses_so_that_its_plan_says_what_it_is_fit_for(
    data: Path, mechanism: str
) -> None:
    """Nothing of [expect] is read off the data: a round example, which the owner replaces."""
    out, people = data.with_suffix(".toml"), mechanism == "panel-window"
    who = ["--person-column", "who"] if people else []
    draft = ("init", data, "--time-column", "day", "--mechanism", mechanism, *who, "--out", out)
    dpstream(*draft)
    assert "already" in dpstream(*draft, code=2).stderr
    text = out.read_text()
    assert tomllib.loads(text)["expect"] == ({"size": 1000} if people else {"records_per_step": 100})
    assert ("size = 1000  # FILL IN" if people else "records_per_step = 100  # FILL IN") in text
    for name, value in (("start", '"2026-01-05"'), ("end", '"2026-01-11"'), ("horizon", "7")):
        text = re.sub(rf"^{name} = .*FILL IN.*", f"{name} = {value}", text, flags=re.MULTILINE)
    if people:
        text = re.sub(r"(?s)\[schema.columns.l(at|on)\].*?\n\n", "", text)
        text = text.replace("confirmed = false", 'ignore = ["lat", "lon"]\nconfirmed = false')
    out.write_text(text.replace('every = "week"', 'every = "day"'))
    told = json.loads(dpstream("plan", out, "--json").stdout)["expected_errors"]
    assert mechanism == "points" or told["verdicts"][0]["word"] != "not known"
