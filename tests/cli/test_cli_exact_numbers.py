"""Declared whole numbers from 2^53 on: no stream takes them."""

from __future__ import annotations

import shutil
from pathlib import Path

from cli_stream import dpstream, make
from small_configs import DEFAULTS

LONG = 2**53 + 1
COLUMNS = DEFAULTS["columns"].replace('"a", "b", "c"]', f'7, {LONG}]\nother = "other"')


def test_a_new_stream_is_refused_before_data_are_read(tmp_path: Path) -> None:
    config = make(tmp_path, 2, columns=COLUMNS)
    shutil.rmtree(tmp_path / "data")
    for verb in (["plan"], ["check"], ["run"], ["run", "--dry-run"]):
        told = dpstream(*verb, config, code=2).stderr
        assert "'zip'" in told
        assert str(LONG) in told
        assert "as texts" in told
    assert not list(tmp_path.rglob("*.sqlite"))
