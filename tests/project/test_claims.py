"""Claims name what shows them, and typed numbers are those of the results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def missing(page: str) -> Iterator[str]:
    """What a page of claims names and the repository does not have."""
    file = None
    for named in re.findall(r"`([^`\s]*(?:/|::)[^`\s]*)`", page):
        path, _, test = named.partition("::")
        file = ROOT / path if path else file
        there = file is not None and file.exists()
        if not there or (test and f"def {test}(" not in file.read_text(encoding="utf-8")):
            yield named


def test_what_is_named_exists() -> None:
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    assert not list(missing(page))
    rows = [line for line in page.splitlines() if line.startswith("| ") and line != "| claim | shown by |"]
    assert [row for row in rows if "`" not in row.split("|")[2]] == []


def test_what_is_missing_is_found() -> None:
    page = "`tests/project/test_claims.py::test_nothing` `::missing` `benchmarks/none.py` `dpstream audit`"
    assert list(missing(page)) == ["tests/project/test_claims.py::test_nothing", "benchmarks/none.py"]


def test_the_readmes_numbers_are_those_of_the_results() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    results = ROOT / "benchmarks/results"
    lines = (results / "pooled_targets.txt").read_text(encoding="utf-8").splitlines()
    # As the script of then and as ``benchmarks/targets.py`` write a line: stream, epsilon 1, five runs, AvgWE.
    line = re.compile(r"(?:\| )?(\S+) +(?:\| \w+ +\| )?1 +(?:\| )?5 +\| +(?:default +\| )?([\d.]+)")
    ends = [found.groups() for found in map(line.match, lines) if found]
    assert len(ends) == 6
    ours = dict(ends)
    order = (
        "Adult-randomized-bs-50",
        "Adult-randomized-bs-200",
        "Adult-ordered-bs-50",
        "Adult-ordered-bs-200",
    )
    typed = re.search(r"its AvgWE at the end is ([0-9., and]+) on these six streams", readme)
    assert typed
    shown = [float(text) for text in re.findall(r"0[.][0-9]+", typed[1])]
    names = (*order, "Eviction-weekly", "Eviction-bi-weekly")
    assert all(abs(a - float(ours[name])) < 0.000051 for a, name in zip(shown, names, strict=True))
    fewer = re.findall(r"([0-9.]+) times less", (results / "churn.txt").read_text(encoding="utf-8"))
    assert f"{int(float(fewer[0]))} to {round(float(fewer[1]))} times fewer than tables drawn anew" in readme
