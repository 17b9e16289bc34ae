"""What a result file says about itself: the command and the commit that made it, in one line near its beginning.

``write_result`` writes that line. ``tests/project/test_benchmarks.py`` reads it, and finds the results whose code has
changed since: the script, the scripts it imports, and the parts of dpstream that they import by name.
"""

from __future__ import annotations

import ast
import datetime
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_LINE = re.compile(
    r"^Made by `(?P<command>[^`]+)` at commit (?P<commit>[0-9a-f]{7,40})(?: with changes)?, \d{4}-\d\d-\d\d\.$"
)
#: Folders of the program that hold other parts.
_HALLS = ("core", "families", "io", "service", "tools")
#: Where packages are.
_PLACES = {"dpstream": "src/dpstream", "dpstream_lab": "lab/src/dpstream_lab"}
_TABLES = ("families/tabular", "mechanisms", "core/graphical", "core/counters")
#: What the verbs of the laboratory, and planted faults, measure beside its experiments, where no script does.
_VERBS = {
    "reproduce kumar": _TABLES,
    "reproduce bun": ("families/panel", "core/counters"),
    "compare benchmarks": _TABLES,
    "faults/audited.py": ("tools/audit",),
}


@dataclass(frozen=True)
class MadeBy:
    """Where a result comes from."""

    command: str
    commit: str


def write_result(path: Path, text: str) -> None:
    """Write a result with its line; called by the script that made it."""
    words = [Path(sys.argv[0]).resolve().relative_to(ROOT).as_posix(), *sys.argv[1:]]
    path.write_text(f"{line(f'python {shlex.join(words)}')}\n\n{text}", encoding="utf-8")


def line(command: str) -> str:
    """``Made by ... at commit ..., DATE.``; ``with changes`` where files differ from the commit's, and commit 0000000
    where git cannot tell it."""
    try:
        commit = git("rev-parse", "--short=10", "HEAD").strip()
        changed = " with changes" if git("status", "--porcelain", "--untracked-files=no").strip() else ""
    except (OSError, subprocess.CalledProcessError):
        commit, changed = "0000000", ""
    return f"Made by `{command}` at commit {commit}{changed}, {datetime.date.today().isoformat()}."


def read_line(path: Path) -> MadeBy | None:
    """What a file says in its first lines; None where it does not say."""
    for text in path.read_text(encoding="utf-8").splitlines()[:5]:
        if found := _LINE.match(text):
            return MadeBy(found["command"], found["commit"])
    return None


def measured(command: str) -> set[str]:
    """The files and folders that a command measures, from the top of the repository.

    >>> [place for place in sorted(measured("python benchmarks/counter_peers.py")) if "core" in place]
    ['src/dpstream/core/counters', 'src/dpstream/core/errors.py', 'src/dpstream/core/privacy']
    """
    for verb, parts in _VERBS.items():
        if verb in command:
            return {f"{_PLACES['dpstream_lab']}/experiments", *(f"src/dpstream/{part}" for part in parts)}
    found, scripts = set(), re.findall(r"benchmarks/(\w+)\.py|BENCH=(\w+)", command)
    waiting = [one or other for one, other in scripts]
    while waiting:
        name = waiting.pop()
        place = f"benchmarks/{name}.py"
        if place in found:
            continue
        found.add(place)
        # A script that is gone has changed.
        for module in _imports(HERE / f"{name}.py") if (HERE / f"{name}.py").is_file() else ():
            first, _, rest = module.partition(".")
            if (HERE / f"{first}.py").is_file() and first != Path(__file__).stem:
                waiting.append(first)
            elif first in _PLACES and rest:
                names = rest.split(".")
                part = f"{_PLACES[first]}/{'/'.join(names[: 2 if names[0] in _HALLS else 1])}"
                found.add(part if (ROOT / part).is_dir() else f"{part}.py")
    return found


def changed_since(made: MadeBy) -> list[str]:
    """Which of the measured files and folders differ between that commit and now; all where the commit is unknown."""
    places = sorted(measured(made.command))
    try:
        names = git("diff", "--name-only", made.commit, "HEAD", "--", *places).split()
    except subprocess.CalledProcessError:
        return places
    return [place for place in places if any(f"{name}/".startswith(f"{place}/") for name in names)]


def git(*arguments: str) -> str:
    """What git says in this repository.

    Errors:
        OSError, CalledProcessError: there is no git, or no repository.
    """
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def _imports(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += (
                [f"dpstream.{alias.name}" for alias in node.names]
                if node.module == "dpstream"
                else [node.module]
            )
    return found
