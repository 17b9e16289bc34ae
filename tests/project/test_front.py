"""The package's front: its names, and the README's Python as a newcomer pastes it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpstream

ROOT = Path(__file__).resolve().parents[2]


def readme_python() -> str:
    """The README's Python block."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    code = readme_python() + "\nprint(release.rows, read('my-releases/', step=1).num_rows, release.step)\n"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    rows, published, step = result.stdout.split()
    assert (rows, step) == (published, "1")
    # 1,200 records; the noisy total is some 6 cells' noise of scale 2 away (beyond 300 in one run of 1e30).
    assert 900 < int(rows) < 1500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my-releases", "my-state"]


def test_front_lists_its_names_and_no_others() -> None:
    assert set(dpstream.__all__) <= set(dir(dpstream))
    for name in dpstream.__all__:
        assert getattr(dpstream, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Bach'"):
        _ = dpstream.Bach  # type: ignore[attr-defined]


def test_types_of_the_front_are_known(tmp_path: Path) -> None:
    """mypy sees the lazy names' types: a wrong use is found, a right one passes."""
    right = tmp_path / "right.py"
    right.write_text(
        "from dpstream import Batch, Schema\nBatch(inserts=None)\nSchema.from_toml('x').domain\n"
    )
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from dpstream import Batch\nBatch(rows=1)\n")
    options = ["--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    for path, expected in ((right, 0), (wrong, 1)):
        result = subprocess.run(
            [sys.executable, "-m", "mypy", *options, path.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == expected, result.stdout
    assert 'Unexpected keyword argument "rows"' in result.stdout
