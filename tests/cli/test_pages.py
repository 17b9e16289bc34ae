"""Pages of the documentation are executed as they stand; what is not executed says why.

Quick pages run in every test run, all others with ``DPSTREAM_PAGES=1`` (``make docs-test``).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import notebooks
import page_blocks
import pytest

from dpstream.project import Config

#: Their blocks of TOML are whole configurations.
CONFIGURED = ("docs/guide/points.md", "docs/guide/growing.md", "docs/guide/growing-classifiers.md")
QUICK = (
    *("docs/guide/choosing-epsilon.md", "docs/guide/changing-tables.md"),
    *("docs/start/own-data.md", "docs/guide/received.md", "docs/guide/users.md"),
    *("docs/guide/asking.md", *CONFIGURED),
)
PAGES = {page.relative_to(page_blocks.ROOT).as_posix(): page for page in page_blocks.pages()}
EXECUTED = [name for name, page in PAGES.items() if any(one.executed for one in page_blocks.blocks(page))]
#: Shortest reasons that say something.
REASON = 12


LANE = pytest.mark.skipif(not os.environ.get("DPSTREAM_PAGES"), reason="make docs-test")
SOURCES = sorted((page_blocks.DOCS / "notebooks").glob("*.py"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else LANE) for name in EXECUTED]
)
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # What a page opens is closed where its page ends, as in a process of its own.
    executed = page_blocks.run_page(PAGES[name], tmp_path)
    assert executed == sum(one.executed for one in page_blocks.blocks(PAGES[name]))


@pytest.mark.parametrize("name", CONFIGURED)
def test_the_files_of_the_page_are_configurations(name: str, tmp_path: Path) -> None:
    texts = [one.text for one in page_blocks.blocks(PAGES[name]) if one.language == "toml"]
    assert texts
    for text in texts:
        (tmp_path / "dpstream.toml").write_text(text, encoding="utf-8")
        Config.load(tmp_path / "dpstream.toml").plan()


@LANE
@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.stem)
def test_the_notebook_runs(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    made = notebooks.notebook(source)
    assert sum(bool(cell.get("outputs")) for cell in made["cells"]) >= 4


def test_notebooks_are_those_of_their_sources() -> None:
    assert len(SOURCES) >= 2
    for source in SOURCES:
        kept = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
        made = notebooks.notebook(source, run=False)
        assert [one["source"] for one in kept["cells"]] == [one["source"] for one in made["cells"]], (
            f"make {source.stem} again: python docs/notebooks.py"
        )


def test_every_block_is_executed_or_says_why_not() -> None:
    wrong = []
    for name, page in PAGES.items():
        for block in page_blocks.blocks(page):
            where = f"{name}, block {block.number} ({block.language})"
            named = re.findall(r"tests/[\w/.]*\w", block.why_not or "")
            wrong += [f"{where}: there is no {one}" for one in named if not (page_blocks.ROOT / one).exists()]
            if block.executed or block.file is not None or block.language in page_blocks.SHOWN:
                continue
            if block.language in ("toml", "json"):
                unknown = None if block.why_not else page_blocks.unknown(block)
                wrong += [f"{where}: the program does not know {unknown}"] if unknown else []
            elif block.why_not is None or len(block.why_not) < REASON:
                wrong.append(f"{where}: neither executed nor explained")
    assert not wrong, "\n".join(wrong)
    assert set(QUICK) <= set(EXECUTED)


def test_fences_and_comments_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: what is wrong on a page is found."""
    monkeypatch.setattr(page_blocks, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- before python: one = 1 -->\n```python\nassert one == 1\n```\n"
        "<!-- not run: needs a server -->\n\n```sh\nfalse\n```\n"
        "* in a list\n\n  ```sh\n  echo x > here  # a comment\n  ```\n"
        "```toml\n[output]\ndyr = 1\n```\n```toml\n# a/b.toml\nanything = 1\n```\n"
    )
    found = page_blocks.blocks(page)
    assert [one.executed for one in found] == [True, False, True, False, False]
    assert found[1].why_not == "needs a server"
    assert page_blocks.unknown(found[3]) == "[output] dyr"
    assert page_blocks.run_page(page, tmp_path) == 2
    assert (tmp_path / "here").exists()
    assert (tmp_path / "a" / "b.toml").exists()
    page.write_text("```sh\ntrue\n\nfalse\n```\n")
    with pytest.raises(AssertionError, match="false"):
        page_blocks.run_page(page, tmp_path)
    page.write_text("```python\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match="Expected"):
        page_blocks.run_page(page, tmp_path)
