"""The blocks of code on the pages of the documentation: which there are, and how each is executed.

A block is executed as it stands, after those above it, in one folder a page:

* ``sh``: line by line. ``python``: all blocks of a page share their names; those with prompts are doctests.
* A block whose first line is ``# NAME.ext`` is a file: it is written, and not executed.
* ``toml``: without a name it is part of a ``dpstream.toml``, whose keys the program has to know.

A comment before a block says what a reader is not to see::

    <!-- before: dpstream simulate evictions --steps 3 --out . -->
    <!-- before python: frame = ... -->
    <!-- not run: needs a PostgreSQL server -->
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from dpstream.cli import main
from dpstream.core.errors import DpstreamError
from dpstream.project.keys import SECTIONS, keys_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"(?P<notes>(?:^ *<!-- (?:before|before python|not run): (?:(?!-->)[\s\S])*-->\n+)*)"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```",
    re.DOTALL | re.MULTILINE,
)
_NOTE = re.compile(r"<!-- (before|before python|not run): (.*?) *-->", re.DOTALL)
_FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
_PLAIN = re.compile(r"dpstream [^|&;<>$`*~]*")
#: What is only shown.
SHOWN = ("", "text", "sql")


@dataclass(frozen=True)
class Block:
    """One block with the comments before it."""

    page: str
    number: int
    language: str
    text: str
    notes: tuple[tuple[str, str], ...]

    @property
    def why_not(self) -> str | None:
        """Why it is not executed."""
        return next((text for kind, text in self.notes if kind == "not run"), None)

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        found = _FILE.match(self.text)
        return found["name"] if found else None

    @property
    def executed(self) -> bool:
        """Whether it is code that is executed (files, tables and shown output are not)."""
        return self.language in ("sh", "python", "py", "pycon") and self.file is None and self.why_not is None


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found = []
    for number, match in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        notes = tuple(
            (kind, " ".join(what.split()) if kind == "not run" else what)
            for kind, what in _NOTE.findall(match["notes"])
        )
        found.append(Block(page.relative_to(ROOT).as_posix(), number, match["language"], text, notes))
    return found


def pages() -> list[Path]:
    """Every page with code: those of docs/, and the README."""
    named = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in named if blocks(page)]


def commands(text: str) -> list[str]:
    """The commands of a block for the shell, a line each, without comments; a backslash joins two lines."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def shell(command: str, folder: Path, programs: Path) -> None:
    """One command in a folder, which has to be the current one; ``dpstream`` and ``python`` are those of ``programs``.

    A call of dpstream that needs nothing of a shell is made in this process, which saves its start.

    Errors:
        AssertionError: it failed; with all it said.
    """
    if _PLAIN.fullmatch(command):
        called = CliRunner().invoke(main, shlex.split(command, comments=True)[1:])
        assert called.exit_code == 0, f"{command}\n{called.output}"
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    words = ["bash", "-e", "-o", "pipefail", "-c", command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def run_page(page: Path, folder: Path) -> int:
    """Execute a page in a folder, which has to be the current one; how many blocks were executed.

    Errors:
        AssertionError: a block failed.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    executed = 0
    for block in blocks(page):
        where = f"{block.page}, block {block.number}"
        if block.why_not is None:
            for kind, text in block.notes:
                if kind == "before":
                    shell(text, folder, Path(sys.executable).parent)
                else:
                    exec(compile(text, f"{where}, before", "exec"), names)
        if block.file is not None and block.why_not is None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")
        if not block.executed:
            continue
        executed += 1
        if block.language == "sh":
            for command in commands(block.text):
                shell(command, folder, Path(sys.executable).parent)
        elif ">>> " in block.text:
            told: list[str] = []
            test = doctest.DocTestParser().get_doctest(block.text, names, where, block.page, 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, out=told.append, clear_globs=False)
            assert not told, "".join(told)
            names.update(test.globs)
        else:
            exec(compile(block.text, where, "exec"), names)
    return executed


def unknown(block: Block) -> str | None:
    """What a block of TOML or JSON has that the program does not know."""
    if block.language == "json":
        whole = block.text if block.text.startswith("{\n") else f"{{{block.text}}}"
        for text in block.text.splitlines() if block.text.startswith('{"') else [whole]:
            json.loads(text)
        return None
    alone = {"format", *keys_of("source")}
    for section, keys in tomllib.loads(block.text).items():
        if not isinstance(keys, dict) or section in alone:
            if section not in alone:
                return section
        elif section not in SECTIONS:
            return f"[{section}]"
        elif section != "schema":
            try:
                known = keys_of(section)
            except DpstreamError:
                continue
            wrong = sorted(set(keys) - set(known))
            if wrong:
                return f"[{section}] {wrong[0]}"
    return None
