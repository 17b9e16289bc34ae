"""`dpstream check` names what fits the schema and is perhaps not meant; no such line stops anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_stream import COLUMNS, ROWS, dpstream, make, unfolded, write_step
from small_configs import rewrite as replace

from dpstream.cli.shared import ShownStream

MORE = '[schema.columns.{}]\ntype = "{}"\n{}\n'


PRIVATE = ("hardly repeat", "holds less than half")


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


def test_nothing_is_named_where_all_is_as_it_should_be(tmp_path: Path) -> None:
    assert hints(make(tmp_path, 6)) == []


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
    assert "end = 2026-02-10 lies within the last period, which ends on 2026-02-28" in told
    config.write_text(config.read_text().replace("2026-02-10", "2026-02-28"))
    assert hints(config) == []


def test_an_undeclared_column_leads_to_ignore(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    rewrite(tmp_path, "note", ["words"])
    assert "ignore" in dpstream("check", config, code=2, error=False).output
