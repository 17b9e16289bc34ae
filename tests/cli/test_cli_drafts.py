"""What ``dpstream init`` drafts runs, for every shape of a table that changes; its questions, and hints of check."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyed_history as told
import pytest
from cli_stream import COLUMNS, ROWS, dpstream, make, unfolded, write_step
from click.testing import Result
from row_files import write_rows
from small_configs import rewrite as replace

from dpstream.cli.shared import ShownStream
from dpstream.io.sinks import read_manifest
from dpstream.project import Config
from dpstream.project.config_draft import draft_config

Rows = list[dict[str, Any]]
FORMATS = ("csv", "parquet", "ndjson", "duckdb")
KEYS = 8


def write(rows: Rows, path: Path) -> Path:
    """In Parquet as a writer that knows no missing whole numbers has them."""
    if path.suffix == ".parquet":
        holes = {name for row in rows for name in row if row[name] is None}
        whole = {name for row in rows for name in holes if isinstance(row[name], int)}
        rows = [{**row, **{name: row[name] and float(row[name]) for name in whole}} for row in rows]
    return write_rows(path, rows, list(rows[0]))


def history() -> told.History:
    """One stay of each key: later ones need an order of rows that have the same step."""
    known = {stay.key: stay for stay in told.history(14, keys=60, updates=False).stays}
    return told.History(list(known.values()))


def day(step: int | None) -> str | None:
    return None if step is None else f"2026-01-{step + 4:02}"


def year(step: int | None) -> int | None:
    return None if step is None else 1996 + step


def feed(folder: Path, ending: str) -> tuple[Path, list[str]]:
    rows = told.feed_rows(history())
    return write([{**row, "when": day(row["when"])} for row in rows], folder / f"feed.{ending}"), []


def snapshots(folder: Path, ending: str) -> tuple[Path, list[str]]:
    tables = [
        [{"id": k, "group": g, "size": s} for k, (g, s) in history().table(step).items()] for step in (4, 5)
    ]
    if ending == "duckdb":  # it holds the table as it is now
        return write(tables[1], folder / "now.duckdb"), ["--key-column", "id"]
    for number, rows in enumerate(tables):
        write(rows, folder / f"table-{number}.{ending}")
    return folder / f"table-*.{ending}", []


def stays(folder: Path, ending: str, when: Callable[[int | None], Any] = day) -> tuple[Path, list[str]]:
    rows = [
        {"id": stay.key, "since": when(stay.first), "until": when(stay.gone), "group": g, "size": s}
        for stay in history().stays
        for _, g, s in stay.values
    ]
    return write(rows, folder / f"stays.{ending}"), []


def stays_by_number(folder: Path, ending: str) -> tuple[Path, list[str]]:
    return stays(folder, ending, year)


SHAPES: dict[str, tuple[str, Callable[[Path, str], tuple[Path, list[str]]]]] = {
    "feed": ("changes", feed),
    "snapshots": ("snapshots", snapshots),
    "stays": ("stays", stays),
    "years": ("stays", stays_by_number),
}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_draft_runs_as_soon_as_its_owner_has_filled_it_in(name: str, ending: str, tmp_path: Path) -> None:
    shape, make = SHAPES[name]
    data, more = make(tmp_path, ending)
    config = tmp_path / "dpstream.toml"
    dpstream("init", data, "--public", "*", *more, "--out", config)
    text = config.read_text()
    asked = re.findall(r"^(\w+) = .*# FILL IN", text, re.MULTILINE)
    numbered = name == "years"
    calendar = [] if name == "snapshots" and ending != "duckdb" else ["start", "end"]
    assert sorted(asked) == sorted([*calendar, "epsilon", "size", "records_per_step"])
    assert re.search(r'^key_column = "id"  # CONFIRM', text, re.MULTILINE)
    assert "\nsize = 1000  # FILL IN" in text  # an example, whatever the data hold
    assert "departures_every" not in text
    for key, value in (
        ("start", 1997 if numbered else "2026-01-05"),
        ("end", 1999 if numbered else "2026-01-07"),
        ("epsilon", "1"),
    ):
        text = re.sub(rf"^{key} = .*# FILL IN.*", f"{key} = {json.dumps(value)}", text, flags=re.MULTILINE)
    text = text.replace('every = "week"', 'every = "day"').replace("confirmed = false", "confirmed = true")
    config.write_text(text)
    assert "size, records_per_step are marked FILL IN" in dpstream("run", config, code=2).stderr
    config.write_text(text.replace("  # FILL IN", ""))
    loaded = Config.load(config)
    assert loaded.source_options.shape == shape
    assert loaded.schema().names == ("group", "size")
    steps = 3 if calendar else 2
    said = dpstream("check", config).stdout
    assert f"{steps} steps read: all rows fit the schema" in said
    assert f"(shape = \"{shape}\"); column 'id' names the record." in said.replace("\n  ", " ")
    plan = dpstream("plan", config, "--all", "--quick").stdout
    assert "· census ·" in plan
    assert "number of records" in plan
    assert "1 new step, 1 in all" in dpstream("run", config, "--steps", 1).stdout


def test_numbers_are_times_only_where_their_columns_say_so(tmp_path: Path) -> None:
    rows = [{"id": n, "height": n % 7, "weight": n % 7 + (n % 3), "since": 1990 + n % 9} for n in range(40)]
    dpstream("init", write(rows, tmp_path / "people.csv"), "--out", tmp_path / "one.toml")
    assert 'unit = "event"' in (tmp_path / "one.toml").read_text()
    named = [{**row, "endYear": row["since"] + 2 if row["id"] % 2 else None} for row in rows]
    dpstream("init", write(named, tmp_path / "stays.csv"), "--out", tmp_path / "two.toml")
    text = (tmp_path / "two.toml").read_text()
    assert 'delete_time_column = "endYear"' in text
    assert 'time_column = "since"' in text
    assert "never read it off the data" in text


def test_a_table_of_a_database_is_named_where_there_are_several(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path, _ = stays(tmp_path, "duckdb")
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE VIEW v AS FROM t; CREATE VIEW bad AS SELECT error('Q7731') AS x")
        db.execute("CREATE TABLE plain AS SELECT DATE '2026-01-05' AS d, 'x' AS zip")
    for more, what in (
        ([], "4 tables"),
        (["--table", "bad"], "the table cannot be read"),
        (["--table", "w"], "unknown table 'w'"),
        (["--table", "plain"], "nothing says which rows are in a step"),
    ):
        assert what in dpstream("init", path, *more, "--out", tmp_path / "a.toml", code=2).stderr
    dpstream("init", path, "--table", "v", "--out", tmp_path / "v.toml")
    assert 'shape = "stays"' in (tmp_path / "v.toml").read_text()
    dpstream("init", path, "--table", "plain", "--time-column", "d", "--out", tmp_path / "d.toml")
    assert 'unit = "event"' in (tmp_path / "d.toml").read_text()
    drafted = tomllib.loads((tmp_path / "d.toml").read_text())["source"]
    assert drafted["query"] == 'SELECT "zip" FROM "plain" WHERE "d" >= $1 AND "d" < $2'
    assert "time_column" not in drafted


# Questions of init


PLACES = "".join(
    f"2026-01-{5 + n % 7:02},p{n % 9},{40.5 + n / 100},{-74 + n / 100},{'ab'[n % 2]}\n" for n in range(63)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(f"day,who,lat,lon,kind\n{PLACES}")
    return path


def answered(data: Path, *answers: str, code: int = 0) -> Result:
    arguments = ["init", data, "--time-column", "day", "--interactive", "--out", data.with_suffix(".toml")]
    return dpstream(*arguments, code=code, error=False, input="\n".join([*answers, ""]))


def test_answers_become_the_draft(data: Path) -> None:
    said = answered(
        data, "nobody", "", "", "hair", "*", "now and then", "month", "2026-01-01", "today", "300", "x", "0.5"
    ).output
    for answer in ("nobody", "hair", "now and then", "x"):
        assert f"{answer!r} cannot be used (allowed: " in said
    assert "62.2 at 0.5, 73.1 at 1" in said, "what epsilon means"
    drafted = tomllib.loads(data.with_suffix(".toml").read_text())
    assert drafted["stream"]["unit"] == "event"
    assert {"every": "month", "start": "2026-01-01", "end": "today"}.items() <= drafted["source"].items()
    assert drafted["expect"] == {"records_per_step": 300}
    assert drafted["budget"]["epsilon"] == "0.5"
    assert not re.search("^[^#].*FILL IN", data.with_suffix(".toml").read_text(), re.MULTILINE)


def test_people_are_protected_where_their_column_is_named(data: Path) -> None:
    answered(data, "who", "kind", "", "", "", "4", "", "")
    text = data.with_suffix(".toml").read_text()
    drafted = tomllib.loads(text)
    assert (drafted["stream"]["unit"], drafted["stream"]["max_events"]) == ("user", 4)
    assert drafted["source"]["user_column"] == "who"
    assert "who" not in drafted["schema"]["columns"]
    for key in ("start", "end"):
        assert f'{key} = "YYYY-MM-DD"  # FILL IN' in text, "an empty answer leaves it open"
    assert "records_per_step = 100  # FILL IN" in text
    assert drafted["schema"]["columns"]["kind"]["values"] == ["a", "b"]
    assert drafted["schema"]["columns"]["lat"]["edges"] == "FILL IN"


def test_coordinates_are_followed_where_the_owner_says_so(data: Path) -> None:
    said = answered(data, "", "maybe", "points", "*", "", "", "", "50", "").output
    assert "numbers of records become public" in said
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
    draft = (
        "init",
        data,
        "--public",
        "*",
        "--time-column",
        "day",
        "--mechanism",
        mechanism,
        *who,
        "--out",
        out,
    )
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


# Hints of check


MORE = '[schema.columns.{}]\ntype = "{}"\n{}\n'


PRIVATE = ("hardly repeat", "holds less than half", "a bound")


def hints(config: Path) -> list[str]:
    """What a terminal shows; programs, pipes and files get what the configuration alone tells."""
    with pytest.MonkeyPatch.context() as terminal:
        piped = dpstream("check", config).stdout
        terminal.setattr(ShownStream, "isatty", lambda self: True, raising=False)
        shown = dpstream("check", config).stdout
        told = json.loads(dpstream("check", config, "--json").stdout)["hints"]
    found = [line.removeprefix("look: ") for line in unfolded(shown) if line.startswith("look: ")]
    public = [one for one in found if not any(words in one for words in PRIVATE)]
    assert told == public == [x.removeprefix("look: ") for x in unfolded(piped) if x.startswith("look: ")]
    return found


def rewrite(folder: Path, header: str, cells: list[str]) -> None:
    for path in sorted((folder / "data").glob("*.csv")):
        lines = path.read_text().splitlines()
        rows = [f"{line},{cells[n % len(cells)]}" for n, line in enumerate(lines[1:])]
        path.write_text("\n".join([f"{lines[0]},{header}", *rows, ""]))


@pytest.mark.parametrize(
    ("name", "values", "named"),
    [
        ("op", '["I", "U", "D"]', True),
        ("change_type", '["insert"]', True),
        ("grade", '["c", "d"]', True),  # perhaps Debezium's words
        ("grade", '["a", "b", "c", "d"]', False),
    ],
)
def test_words_of_operations_among_the_attributes(
    tmp_path: Path, name: str, values: str, named: bool
) -> None:
    config = make(tmp_path, 2, columns=COLUMNS + MORE.format(name, "categorical", f"values = {values}"))
    rewrite(tmp_path, name, json.loads(values))
    told = hints(config)
    assert [f"column {name!r} looks like the operations" in one for one in told] == [True] * named
    assert all("op_column" in one for one in told)


def test_an_attribute_that_is_nearly_unique(tmp_path: Path) -> None:
    config = make(tmp_path, 1, columns=COLUMNS + MORE.format("number", "integer", "edges = [0, 100, 1000]"))
    write_step(tmp_path, 1, ROWS * 40)
    rewrite(tmp_path, "number", [str(n) for n in range(200)])
    (told,) = hints(config)
    assert told.startswith("values of column 'number' hardly repeat")
    assert "to ignore in [schema]" in told
    rewrite(tmp_path, "paid2", ["1"])
    ignored = '[schema]\nignore = ["number"]\n[schema.columns.zip]'
    replace(config, "columns.number]", "columns.paid2]", "[schema.columns.zip]", ignored)
    assert hints(config) == []


def test_a_last_period_that_is_cut_off(tmp_path: Path) -> None:
    config = make(tmp_path, 6)
    assert hints(config) == []
    for step in range(1, 6):
        write_step(tmp_path, step, ROWS * 6)
    write_step(tmp_path, 6, ROWS)
    (told,) = hints(config)
    assert told.startswith("the last step, 6 (step-6), holds less than half")
    # A public end within a period says so itself.
    calendar = {"time_column": '"day"', "every": '"month"', "start": '"2026-01-01"', "end": '"2026-02-10"'}
    config = make(tmp_path / "b", 0, **calendar)
    rows = "".join(f"2026-0{month}-03,{row}\n" for month in (1, 2) for row in ROWS)
    (tmp_path / "b" / "data" / "a.csv").write_text(f"day,zip,paid,kind\n{rows}")
    (told,) = hints(config)
    assert "end = 2026-02-10 cuts off step" in told
    config.write_text(config.read_text().replace("2026-02-10", "2026-02-28"))
    assert hints(config) == []


def test_bounds_are_weighed_for_the_owner_and_one_read_off_the_data_is_said_to_be(tmp_path: Path) -> None:
    """Of a hundred persons 88 have two records and twelve have 4, 8, ..., 48: 312 beside 176."""
    persons = [f"p{n}" for n in range(100) for _ in range(max(2, 4 * (n - 87)))]
    config = make(tmp_path, 1, user_column='"person"')
    replace(config, 'name = "test"', 'name = "test"\nunit = "user"\nmax_events = 2')
    rows = [f"1,{person},a,true,x" for person in persons]
    (tmp_path / "data" / "001.csv").write_text("\n".join(["step,person,zip,paid,kind", *rows, ""]))
    *bounds, outside = hints(config)
    found = [re.findall("[0-9.]+", one.replace("th percentile", "")) for one in bounds]
    for bound, *_, lost, times in found:
        left_out = sum(max(0, persons.count(one) - int(bound)) for one in set(persons))
        assert float(lost) == pytest.approx(100 * left_out / len(persons), rel=5e-3)
        assert times == bound
    assert [int(bound) for bound, *_ in found] == [2, 8, 28, 44]
    assert outside == 'a bound read off these lines is outside the guarantee: write max_events_from = "data"'

    said = list[str]()
    text = draft_config(tmp_path / "data" / "001.csv", "step", name="n", mechanism="pooled", tell=said.append)
    assert any(
        sentence.startswith("a bound of 28 (95th percentile of users) leaves out ") for sentence in said
    )
    assert "percentile" not in text
    assert "per =" not in text, "steps without a calendar"
    assert tomllib.loads(text)["stream"]["max_events_from"] == "data"
    # Forty persons with three records in each of two years, and one with ten in one year: 7 of 250.
    days = [f"{year}-03-0{n},p{person},a" for year in (2025, 2026) for person in range(40) for n in (1, 2, 3)]
    days += [f"2026-05-{n},p40,b" for n in range(11, 21)]
    (tmp_path / "data" / "days.csv").write_text("\n".join(["day,person,zip", *days, ""]))
    yearly = make(
        tmp_path / "years",
        1,
        user_column='"person"',
        every='"month"',
        start='"2025-01-01"',
        end='"2026-12-31"',
    )
    replace(yearly, 'name = "test"', 'name = "test"\nunit = "user"\nmax_events = 2\nper = "year"')
    replace(yearly, 'time_column = "step"', 'time_column = "day"')
    rows = [f"{row},true,x" for row in days]
    (tmp_path / "years" / "data" / "001.csv").write_text("\n".join(["day,person,zip,paid,kind", *rows, ""]))
    assert hints(yearly)[:2] == [
        "a bound of 2 (this file) leaves out 35.2 % of the events, at 2 times the noise",
        "a bound of 3 (90th percentile of users in a period (year), 95th percentile of users in a period (year)) "
        "leaves out 2.8 % of the events, at 3 times the noise",
    ], "not of a life"
    said.clear()
    text = draft_config(tmp_path / "data" / "days.csv", "day", name="n", mechanism="pooled", tell=said.append)
    assert said[-2] == (
        'with per = "year", a bound of 3 (95th percentile of users in a year) leaves out 2.8 % of the events, at 3 '
        "times the noise"
    )
    assert (said[-1], '\n# per = "year"\n' in text, "percentile" in text) == (outside, True, False)
    words = "max_events = 2 was read off private records, which the guarantee does not cover"
    for origin, there in (("public", False), ("data", True)):
        config = make(tmp_path / origin, 1, user_column='"person"')
        replace(
            config,
            'name = "test"',
            f'name = "test"\nunit = "user"\nmax_events = 2\nmax_events_from = "{origin}"',
        )
        (tmp_path / origin / "data" / "001.csv").write_text((tmp_path / "data" / "001.csv").read_text())
        dpstream("run", config)
        assert (words in read_manifest(tmp_path / origin / "releases", 1)["declared_public"]) == there
        assert "had more than 2 events" in (tmp_path / origin / "releases" / "index.html").read_text()
        assert (
            "Look          max_events = 2 was read off" in dpstream("plan", config, "--quick").stdout
        ) == there


def test_an_undeclared_column_leads_to_ignore(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    rewrite(tmp_path, "note", ["words"])
    assert "ignore" in dpstream("check", config, code=2, error=False).output
