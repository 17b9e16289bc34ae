"""Pages of the documentation are executed as they stand; what is not executed says why.

Quick pages run in every test run, all others with ``DPSTREAM_PAGES=1`` (``make docs-test``).
"""

from __future__ import annotations

import os
from pathlib import Path

import page_blocks
import pytest

QUICK = ("docs/start/own-data.md", "docs/guide/received.md")
PAGES = {page.relative_to(page_blocks.ROOT).as_posix(): page for page in page_blocks.pages()}
EXECUTED = [name for name, page in PAGES.items() if any(one.executed for one in page_blocks.blocks(page))]
#: Shortest reasons that say something.
REASON = 12


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[]
            if name in QUICK or os.environ.get("DPSTREAM_PAGES")
            else pytest.mark.skip(reason="make docs-test"),
        )
        for name in EXECUTED
    ],
)
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # What a page opens is closed where its page ends, as in a process of its own.
    executed = page_blocks.run_page(PAGES[name], tmp_path)
    assert executed == sum(one.executed for one in page_blocks.blocks(PAGES[name]))


def test_every_block_is_executed_or_says_why_not() -> None:
    wrong = []
    for name, page in PAGES.items():
        for block in page_blocks.blocks(page):
            where = f"{name}, block {block.number} ({block.language})"
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
