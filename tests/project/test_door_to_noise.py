"""The door to noise: what makes a noisy value, and what asks for words and noise, is known place by place.

mypy holds that releases and measurements take ``Noisy`` arrays only. This test holds that nothing makes such an array
but the door, and the places below.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "dpstream"

#: Module: how many places make an array noisy, and why that gives away nothing.
CONVERSIONS = {
    "core/privacy/randomness.py": (1, "the door"),
    "tools/audit/door.py": (3, "the door of audits, on invented records"),
    "core/contracts/noisy_counts.py": (2, "a part of noisy counts; a published line that is read"),
    "core/counters/binned.py": (2, "another shape; the public half of a counter"),
    "core/counters/forest.py": (2, "sums of measured nodes; the public half of a counter"),
    "families/tabular/dpstabs.py": (1, "differences of two estimates of a counter, kept as one array"),
    "families/panel/window.py": (1, "less the public padding"),
    "families/panel/cumulative.py": (1, "a part of the counters' estimates"),
    "families/points/points_plan.py": (1, "measured counts that the state keeps as floats"),
}
#: Module: how often it asks the door for words or noise beside its functions, and why.
BESIDE = {
    "core/privacy/randomness.py": (2, "a relay hands requests on"),
    "core/counters/forest.py": (1, "noise of nodes that are measured when they end"),
    "families/growing/pmwg_plan.py": (1, "the noise of a limit, which stays secret"),
    "families/points/cells.py": (2, "the noise of limits, which stays secret"),
    "tools/audit/controls.py": (1, "a control hands requests on"),
    "tools/audit/door.py": (2, "the door of audits"),
    "tools/audit/samplers_audit.py": (3, "draws are compared with their law"),
}


def conversions(code: str) -> Iterator[int]:
    """Lines that make an array noisy: by its name, by a cast, or by a name that stands for it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")[-1]
            made = called == "Noisy" or (called == "cast" and "Noisy" in ast.unparse(node.args[0]))
        elif isinstance(node, ast.Assign):
            made = ast.unparse(node.value).split(".")[-1] == "Noisy"
        else:
            made = isinstance(node, ast.alias) and node.name == "Noisy" and bool(node.asname)
        if made:
            yield node.lineno


def beside(code: str) -> Iterator[int]:
    """Lines that ask a randomness for words, or for noise without a count."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = ast.unparse(node.func.value).split(".")[-1].lower()
            of_door = asked in ("randomness", "_randomness", "_inner", "inner", "_noise", "door", "super()")
            if of_door and node.func.attr in ("draw", "words"):
                yield node.lineno


@pytest.mark.parametrize(("find", "expected"), [(conversions, CONVERSIONS), (beside, BESIDE)])
def test_every_place_is_known(find, expected) -> None:
    counted = Counter(
        path.relative_to(SOURCES).as_posix()
        for path in sorted(SOURCES.rglob("*.py"))
        for _ in find(path.read_text(encoding="utf-8"))
    )
    assert dict(counted) == {module: many for module, (many, _) in expected.items()}


@pytest.mark.parametrize(
    "code",
    [
        *("values = Noisy(batch.count([()])[0])", "values = privacy.Noisy(exact)"),
        *("values = cast('Noisy', exact)", "values = typing.cast(Noisy, exact)"),
        *("from dpstream.core.privacy import Noisy as Counts", "Counts = Noisy"),
    ],
)
def test_a_conversion_is_seen(code: str) -> None:
    assert list(conversions(code)) == [1]
    assert not list(conversions("values: Noisy = randomness.measure(exact, law)"))


@pytest.mark.parametrize("code", ["a = exact + randomness.draw(law, 3)", "a = self._randomness.words(3)"])
def test_noise_beside_the_door_is_seen(code: str) -> None:
    assert list(beside(code)) == [1]
    assert not list(beside("a = randomness.measure(exact, law)"))
