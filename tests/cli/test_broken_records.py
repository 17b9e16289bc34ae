"""Records that cannot be taken apart, from the configuration to the release."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.cli.shared import ShownStream

CONFIG = (
    '[stream]\nname = "odd"\n[source]\npath = "d.csv"\ntime_column = "step"\nend = 2\n'
    '[schema]\nignore = ["note"]\n'
    '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\nother = "o"\nmissing = "m"\n'
    '[schema.columns.paid]\ntype = "boolean"\nother = "o"\nmissing = "m"\n'
    "[mechanism]\n[budget]\nepsilon = 1\n"
)


def made(folder: Path, broken: bytes) -> str:
    folder.mkdir()
    (folder / "d.csv").write_bytes(b"step,zip,paid,note\n1,a,yes,x\n" + broken + b"\n2,a,no,x\n")
    (folder / "dpstream.toml").write_text(CONFIG, encoding="utf-8")
    return str(folder / "dpstream.toml")


def test_a_broken_record_stops_the_run_and_the_owner_is_told_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (broken, why) in enumerate(
        (
            (b"SECRET,SECRET", "a line has 2 columns and the first line 4"),
            (b'1,"SECRET', "a quote is not closed at the end of its line"),
            (b"1,a,yes,SECRET,1", "a line has 5 columns and the first line 4"),
        )
    ):
        path = made(tmp_path / f"e{number}", broken)
        for verb in (["run"], ["check"]):
            stopped = CliRunner().invoke(main, [*verb, path])
            assert stopped.exit_code == 2
            assert "SECRET" not in stopped.output
            assert "line 3" not in stopped.output
        assert not (tmp_path / f"e{number}" / "releases" / "catalogue.json").exists()
        with monkeypatch.context() as patch:
            patch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
            shown = CliRunner().invoke(main, ["check", path, "--show-values"])
        assert shown.exit_code == 2
        told = " ".join(shown.output.split())
        assert "d.csv, line 3" in told
        assert why in told
        assert "SECRET" not in told


def test_check_names_a_column_that_no_record_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a", b"")
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
