"""What each verb prints for the five invented streams: 24 lines of 100 columns, compared with golden files.

Numbers are replaced by ``#``, runs of blanks by one. DPSTREAM_SCREENS=1 writes the files anew: read them then.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.tools.simulate import Stock, simulate

GOLDEN = Path(__file__).with_name("screens")
LINES, COLUMNS = 24, 100
#: Before the run, after it, and when a step is gone.
SCREENS = [
    line.split()
    for line in """
    check
    plan --quick
    status
    run --test-seed 1
    status
    status --health
    ledger show
    ledger verify
    evaluate
    errors --runs 2
    measured releases
    store check
    advisory check releases
    withdraw --step 2 --reason wrong
    status
    """.strip().split("\n")
]


def screens(folder: Path, name: str) -> list[tuple[str, str]]:
    """Commands and what they print."""
    options = {"stock": Stock(records=100, columns=4)} if name == "stock" else {"rows_per_step": 100}
    simulate(name, 4, folder, **options)
    found = []
    for words in SCREENS:
        done = CliRunner().invoke(main, words)
        assert done.exit_code in (0, 6, 7), (words, done.output)
        found.append((" ".join(words), done.stdout.replace(str(folder), "FOLDER")))
    return found


#: Of a stream whose steps are held, with an account; another file has another plan.
HELD = """
    init data --time-column file_date --out drafted.toml
    ledger account create account.jsonl --limit epsilon=2
    run
    status
    status --health
    approve --step 1
    approve --all
    ledger show
    ledger account show account.jsonl
    ledger export --out ledger.jsonl
    run other.toml
    plan --compare-epsilon 0.5,1,2
"""


def held_screens(folder: Path) -> list[tuple[str, str]]:
    """Commands about held steps and an account, and what they print."""
    simulate("evictions", 2, folder, rows_per_step=100)
    path = folder / "dpstream.toml"
    text = path.read_text(encoding="utf-8").replace("[output]", "[output]\napprove = true")
    path.write_text(text.replace("[budget]", '[budget]\naccount = "account.jsonl"'), encoding="utf-8")
    path.with_name("other.toml").write_text(
        path.read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "2"'), encoding="utf-8"
    )
    found = []
    for words in HELD.strip().split("\n"):
        done = CliRunner().invoke(main, words.split())
        assert done.exit_code in (0, 2, 6, 7), (words, done.output)
        found.append((words.strip(), done.output.replace(str(folder), "FOLDER")))
    return found


@pytest.mark.parametrize("name", ["evictions", "stock", "panel", "points", "census", "held"])
def test_screens_are_short_and_as_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    parts = []
    shown = held_screens(tmp_path / name) if name == "held" else screens(tmp_path / name, name)
    for words, text in shown:
        lines = text.rstrip("\n").split("\n")
        assert len(lines) <= LINES, (words, text)
        wide = [line for line in lines if len(line) > (220 if line.startswith("error: ") else COLUMNS)]
        assert not wide, words  # an error is one line, which logs keep together
        parts += [f"$ dpstream {words}", re.sub(r"[0-9a-f]{12,}|[-+]?\d[\d,.]*(e[-+]?\d+)?", "#", text)]
    text = re.sub(r"[ ─]{2,}", "  ", "\n".join(parts))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("DPSTREAM_SCREENS"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
