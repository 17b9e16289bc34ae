"""Where each file is a step: a file that sorts before released ones is refused, and never the newest step."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_stream import dpstream, make, released, status

KEYS = 'key_column = "id"\nshape = "snapshots"\n'


def stream(folder: Path, unit: str) -> Path:
    config = make(folder, 0, time_column=None, end=None, every='"files"')
    if unit == "record":
        text = config.read_text().replace("[source]\n", f'unit = "record"\n[source]\n{KEYS}')
        config.write_text(f"{text}[expect]\nsize = 40\nrecords_per_step = 10\n")
    return config


def write(folder: Path, name: str, unit: str) -> Path:
    rows = "".join(f"{'' if unit == 'event' else f'{key},'}a,true,x\n" for key in range(40))
    path = folder / "data" / name
    path.write_text(f"{'' if unit == 'event' else 'id,'}zip,paid,kind\n{rows}")
    return path


@pytest.mark.parametrize("unit", ["event", "record"])
def test_a_late_file_is_refused_and_nothing_is_spent(tmp_path: Path, unit: str) -> None:
    config = stream(tmp_path, unit)
    for name in ("2026-02.csv", "2026-03.csv"):
        write(tmp_path, name, unit)
    assert "2 new steps, 2 in all" in dpstream("run", config).stdout
    before, known = released(tmp_path), status(config)
    late = write(tmp_path, "2026-01.csv", unit)
    for more in ((), ("--no-recheck",), ("--until", 9)):
        error = dpstream("run", config, *more, code=2).stderr
        assert "data/2026-01.csv: the file sorts before released files" in error
        assert "a name that sorts last" in error
    # What a run refuses, a look before it refuses, too.
    for verb in (("check", config), ("run", config, "--dry-run")):
        assert "data/2026-01.csv: the file sorts before released files" in dpstream(*verb, code=2).stderr
    assert (released(tmp_path), status(config)) == (before, known)
    late.rename(late.with_name("2026-04.csv"))
    out = dpstream("run", config).stdout
    assert "step 3 (data/2026-04.csv) released" in out
    assert "in all" in out
