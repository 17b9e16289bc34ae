"""Public files that are gone: verbs that look at releases say so and go on; whatever takes a step refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dpstream.cli.main import main
from dpstream.core.errors import ConfigError
from dpstream.project import Config

CONFIG = """
format = 1
[stream]
name = "homes"
[source]
path = "data.csv"
time_column = "day"
every = "day"
start = "2026-01-01"
end = "2026-01-02"
[prior]
file = "register.csv"
public = true
[budget]
epsilon = 1
[output]
dir = "releases"
[state]
dir = "state"
[schema]
ignore = ["note"]
[schema.columns.zip]
type = "categorical"
values = ["94102", "94103", "94104"]
other = "other"
[schema.columns.district]
type = "categorical"
values = ["5", "6"]
other = "elsewhere"
[schema.columns.kind]
type = "categorical"
values = ["flat", "house"]
[schema.constraints]
forbidden = ["zip = 94104 and kind = 'house'"]
allowed = [{ columns = ["zip", "kind"], file = "kinds.csv" }]
violations = { zip = "other" }
[schema.constraints.derived]
district = { from = "zip", file = "districts.csv" }
"""
FILES = {
    "districts.csv": "zip,district\n94102,5\n94103,6\n94104,5\n",
    "kinds.csv": "zip,kind\n94102,flat\n94103,flat\n94103,house\n94104,flat\n",
    "register.csv": "zip,kind\n94102,flat\n94103,house\n",
}


def dpstream(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("homes")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    rows = [f"2026-01-0{day},941{2 + n % 3:02d},{5 + n % 2},flat,x" for day in (1, 2) for n in range(40)]
    (folder / "data.csv").write_text("\n".join(["day,zip,district,kind,note", *rows]) + "\n")
    (folder / "dpstream.toml").write_text(CONFIG)
    dpstream("run", folder / "dpstream.toml", "--until", 1, "--test-seed", 4)
    return folder


@pytest.mark.parametrize("gone", [["register.csv"], ["districts.csv"], list(FILES)])
def test_who_only_looks_is_told_and_goes_on(stream: Path, tmp_path: Path, gone: list[str]) -> None:
    path = stream / "dpstream.toml"
    sample = ["sample", path, "--step", 1, "--seed", 3, "--force", "--out"]
    dpstream(*sample, tmp_path / "before.csv")
    facts = Config.load(path).facts()
    for name in gone:
        (stream / name).unlink()
    try:
        status = dpstream("status", path, "--json")
        assert json.loads(status.stdout)["same_plan"]
        if "register.csv" not in gone:  # another file than the one that is gone is read as it is
            (stream / "register.csv").write_text("zip,kind\n94102,house\n")
            assert not json.loads(dpstream("status", path, "--json").stdout)["same_plan"]
            (stream / "register.csv").write_text(FILES["register.csv"])
        report = dpstream("report", path, "--out", tmp_path / "report.html")
        for told in (status, report, dpstream(*sample, tmp_path / "after.csv")):
            assert all(repr(name) in told.stderr for name in gone)
            assert "the next step needs" in told.stderr
        assert (tmp_path / "before.csv").read_bytes() == (tmp_path / "after.csv").read_bytes()
        assert Config.load(path, looks_only=True).facts() == facts
        for verb in ("run", "plan", "check"):
            assert gone[0] in dpstream(verb, path, code=2).output or len(gone) > 1
        with pytest.raises(ConfigError, match=r"\.csv"):
            Config.load(path)
    finally:
        for name in gone:
            (stream / name).write_text(FILES[name])
    assert Config.load(path, looks_only=True).absent is None


def test_where_nothing_was_started_nothing_stands_in(tmp_path: Path) -> None:
    (tmp_path / "dpstream.toml").write_text(CONFIG)
    assert "districts.csv" in dpstream("status", tmp_path / "dpstream.toml", code=2).output
