"""Pages of the documentation are executed as they stand: every command and every block of Python, in order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstream.cli import main

ROOT = Path(__file__).resolve().parents[2]
#: How many blocks a page has, so that none is lost by a change of its fences.
PAGES = {"guide/quickstart.md": 6, "guide/received.md": 3}
_BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(blocks) == PAGES[page]
    for language, text in blocks:
        if language == "python":
            code = [sys.executable, "-W", "error", "-c", text]
            done = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            continue
        for command in text.splitlines():
            name, *args = shlex.split(command)
            assert name == "dpstream"
            called = CliRunner().invoke(main, args)
            assert called.exit_code == 0, called.output
