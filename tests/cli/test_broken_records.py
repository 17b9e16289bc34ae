"""Records that cannot be taken apart, from the configuration to the release."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_stream import dpstream, make
from small_configs import PAID, ZIP, rewrite

from dpstream.cli.shared import ShownStream

ODD = ZIP.replace('"b", "c"]', '"d"]\nother = "o"\nmissing = "m"') + PAID + 'other = "o"\nmissing = "m"\n'


def made(folder: Path, broken: bytes, ignore: str = '["note"]') -> Path:
    config = make(folder, 2, path='"data/d.*"', columns=f"[schema]\nignore = {ignore}\n{ODD}")
    (folder / "data" / "d.csv").write_bytes(b"step,zip,paid,note\n1,a,yes,x\n" + broken + b"\n2,a,no,x\n")
    return config


def test_a_broken_record_stops_the_run_and_the_owner_is_told_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (broken, why) in enumerate(
        (
            (b"SECRET,SECRET", "a line has 2 columns, the first line 4"),
            (b'1,"SECRET', "a line ends inside a quote"),
            (b"1,a,yes,SECRET,1", "a line has 5 columns, the first line 4"),
        )
    ):
        path = made(tmp_path / f"e{number}", broken)
        for verb in ("run", "check"):
            output = dpstream(verb, path, code=2).output
            assert "SECRET" not in output
            assert "line 3" not in output
        assert not (tmp_path / f"e{number}" / "releases" / "catalogue.json").exists()
        with monkeypatch.context() as patch:
            patch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
            told = " ".join(dpstream("check", path, "--show-values", code=2).output.split())
        assert "d.csv, line 3" in told
        assert why in told
        assert "SECRET" not in told


def test_check_names_a_column_that_no_record_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rewrite(made(tmp_path, b"", '["note", "paid"]'), "columns.paid", "columns.payed")
    (tmp_path / "data" / "d.csv").unlink()
    lines = '{"step": 1, "zip": 1, "paid": true}\n{"step": 2}\n'
    (tmp_path / "data" / "d.ndjson").write_text(lines, encoding="utf-8")
    assert "payed" not in dpstream("check", path).stdout, "private: for a terminal"
    monkeypatch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
    shown = dpstream("check", path).stdout
    assert "column 'payed' holds nothing in any record" in shown
    assert "'zip'" not in shown
