"""Records that cannot be taken apart, from the configuration to the release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstream.cli import check as verb
from dpstream.cli import main
from dpstream.cli.shared import ShownStream
from dpstream.core.errors import ConfigError
from dpstream.project import Config

CONFIG = (
    '[stream]\nname = "odd"\n{total}[source]\npath = "d.csv"\ntime_column = "step"\nend = 2\n{rule}'
    '[schema]\nignore = ["note"]\n'
    '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\nother = "o"\nmissing = "m"\n'
    '[schema.columns.paid]\ntype = "boolean"\nother = "o"\nmissing = "m"\n'
    "[mechanism]\n[budget]\nepsilon = 1\n"
)
DROP = 'broken = "drop-and-count-nothing"\n'


def made(folder: Path, rule: str, broken: bytes, total: str = "") -> str:
    folder.mkdir()
    (folder / "d.csv").write_bytes(b"step,zip,paid,note\n1,a,yes,\xe9\n" + broken + b"\n2,a,no,x\n")
    (folder / "dpstream.toml").write_text(CONFIG.format(rule=rule, total=total), encoding="utf-8")
    return str(folder / "dpstream.toml")


def test_a_broken_record_stops_nothing_where_the_owner_says_so(tmp_path: Path) -> None:
    for number, broken in enumerate((b"SECRET,SECRET", b'1,"SECRET', b"1,a,yes,SECRET,1")):
        path = made(tmp_path / f"e{number}", "", broken)
        stopped = CliRunner().invoke(main, ["run", path])
        assert stopped.exit_code == 2
        assert "SECRET" not in stopped.output
        assert not (tmp_path / f"e{number}" / "releases" / "catalogue.json").exists()
        path = made(tmp_path / f"d{number}", DROP, broken)
        assert CliRunner().invoke(main, ["run", path]).exit_code == 0
        checked = CliRunner().invoke(main, ["check", path])
        assert checked.exit_code == 0
        assert "Some records (--show-values counts them) cannot be taken apart" in checked.stdout
        assert "SECRET" not in checked.stdout
        config = Config.load(path)
        source = config.source(reveal=True)
        assert verb.find_problems(config, reveal=True, source=source) == (2, [])
        assert source.broken == 1
        (manifest, *_) = sorted((tmp_path / f"d{number}" / "releases").rglob("manifest.json"))
        declared = json.loads(manifest.read_text(encoding="utf-8"))["declared_public"]
        assert any("in no release" in sentence for sentence in declared)


def test_plan_and_statement_say_what_a_broken_record_does(tmp_path: Path) -> None:
    for name, rule, words in (
        ("a", "", "stop the stream, and that it stopped is visible"),
        ("b", 'broken = "missing"\n', "so it stops the stream, which is visible: it has no time"),
        ("c", DROP, "is in no release"),
        ("d", "line_breaks = true\n", "trusted to close every quote"),
    ):
        path = made(tmp_path / name, rule, b"1,a,no,x")
        plan = json.loads(CliRunner().invoke(main, ["plan", path, "--json"]).stdout)
        assert any(words in sentence for sentence in plan["declared_public"])
        statement = CliRunner().invoke(main, ["statement", path]).stdout
        assert words.split(",")[0] in " ".join(statement.replace("\\", "").split())


def test_numbers_that_are_public_do_not_change_by_a_rule(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="numbers that are public here"):
        Config.load(made(tmp_path / "a", DROP, b"1,a,no,x", 'total = "public"\n'))


def test_check_names_a_column_that_no_record_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a", "", b"")
    text = (
        Path(path)
        .read_text(encoding="utf-8")
        .replace("d.csv", "d.ndjson")
        .replace("columns.paid", "columns.payed")
    )
    Path(path).write_text(text.replace('["note"]', '["note", "paid"]'), encoding="utf-8")
    (tmp_path / "a" / "d.ndjson").write_text(
        '{"step": 1, "zip": 1, "paid": true}\n{"step": 2}\n', encoding="utf-8"
    )
    assert "payed" not in CliRunner().invoke(main, ["check", path]).stdout, "private: for a terminal"
    monkeypatch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
    checked = CliRunner().invoke(main, ["check", path])
    assert checked.exit_code == 0
    assert "column 'payed' holds nothing in any record" in checked.stdout
    assert "'zip'" not in checked.stdout


def test_a_stream_goes_on_when_line_breaks_are_declared(tmp_path: Path) -> None:
    path = made(tmp_path / "a", "", b"1,a,no,x")
    assert CliRunner().invoke(main, ["run", path, "--until", "1"]).exit_code == 0
    Path(path).write_text(CONFIG.format(rule="line_breaks = true\n", total=""), encoding="utf-8")
    status = json.loads(CliRunner().invoke(main, ["status", path, "--json"]).stdout)
    assert status["same_plan"] is True
    assert CliRunner().invoke(main, ["run", path]).exit_code == 0
    assert CliRunner().invoke(main, ["ledger", "verify", path]).exit_code == 0
