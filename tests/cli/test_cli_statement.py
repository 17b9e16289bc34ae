"""The privacy statement: its numbers, its words and its files."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli_stream import dpstream, make
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.errors import BudgetError
from dpstream.core.privacy import ZCDP, zcdp_to_epsilon
from dpstream.core.privacy.odds import best_guess, surer


def budget(config: Path, text: str, stream: str = "") -> Path:
    old = config.read_text(encoding="utf-8")
    new = old.replace('epsilon = "1"', text).replace('name = "test"', f'name = "test"\n{stream}')
    config.write_text(new, encoding="utf-8")
    return config


def paragraph(page: str, words: str) -> str:
    (found,) = [line for line in page.splitlines() if words in line]
    return found


@given(st.floats(0, 20), st.floats(0.001, 0.999))
def test_randomized_response_attains_both_bounds(epsilon: float, prior: float) -> None:
    """The mechanism that tells the truth with probability e^eps / (1 + e^eps) is exactly epsilon-DP."""
    true = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert true <= best_guess(epsilon) <= true + 1e-9
    exact = Fraction(prior).limit_denominator(1000)
    after = float(exact) * true / (float(exact) * true + (1 - float(exact)) * (1 - true))
    assert after - 1e-12 <= surer(exact, epsilon) <= after + 1e-9


@pytest.mark.parametrize("rho", ["0.01", "0.1", "1"])
def test_no_test_between_two_gaussians_beats_the_bound(rho: str) -> None:
    """Noise of variance 1/(2 rho) on a count of sensitivity 1: the best guess is right with Phi(1/(2 sigma))."""
    sigma = math.sqrt(1 / (2 * float(rho)))
    right = 0.5 * (1 + math.erf(1 / (2 * sigma) / math.sqrt(2)))
    bounds = [best_guess(zcdp_to_epsilon(ZCDP.of(rho), delta), float(delta)) for delta in ("1e-2", "1e-9")]
    assert right <= min(bounds)
    # The negative control: with half the epsilon it would not be a bound.
    assert float(rho) < 0.5 or right > best_guess(zcdp_to_epsilon(ZCDP.of(rho), "1e-2") / 5)


def test_odds_need_a_sensible_question() -> None:
    for call in (lambda: best_guess(-1), lambda: surer(1, 1), lambda: surer("0.5", -1)):
        with pytest.raises(BudgetError):
            call()


def test_the_numbers_are_those_of_the_plan(tmp_path: Path) -> None:
    page = dpstream("statement", make(tmp_path, 3)).stdout
    assert page.startswith("# Privacy statement: test\n")
    assert "at most 2.72 times likelier with it than without it." in page
    assert "in at most 73.2 of 100" in paragraph(page, "An example")
    assert "epsilon = 2 (pure): the example above then reads 88.1 of 100" in page
    assert "on the same terms epsilon = 2 (pure), and the example reads 88.1 of 100" in page
    assert "Nothing has been published yet." in page
    assert "Spent so far: nothing." in page
    assert r"Contact: \_" in page


def test_a_stream_under_way(tmp_path: Path) -> None:
    config = budget(make(tmp_path, 3), 'epsilon = "0.5"\nhorizon = 8')
    dpstream("run", config, "--until", 2)
    page = dpstream("statement", config, "--contact", "data@example.org <Ann>").stdout
    assert "2 tables have been published so far. At most 8 will be." in page
    assert "Spent so far: epsilon = 0.5 (pure)." in page
    assert "in at most 62.3 of 100" in page
    assert r"data@example.org \<Ann\>" in page
    budget(config, "", 'total = "public"')
    assert "another plan" in dpstream("statement", config, code=2).stderr


def test_deltas_declared_sizes_seeds_and_large_losses(tmp_path: Path) -> None:
    page = dpstream("statement", budget(make(tmp_path / "a", 1), 'epsilon = "1"\ndelta = "1e-6"')).stdout
    assert "up to an exception of probability 0.000001" in page
    page = dpstream("statement", budget(make(tmp_path / "b", 1), 'rho = "0.125"', 'total = "public"')).stdout
    assert "likelier for one content of it than for another, up to an exception of probability 1e-9" in page
    assert "declared public" in page
    assert (
        "protects hardly anything"
        in dpstream("statement", budget(make(tmp_path / "c", 1), "epsilon = 40")).stdout
    )
    seeded = make(tmp_path / "d", 1)
    dpstream("run", seeded, "--test-seed", 3)
    assert "THERE IS NO GUARANTEE" in dpstream("statement", seeded).stdout


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.outside += [name for name, _ in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_files(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    out = tmp_path / "s.html"
    assert dpstream("statement", config, "--out", out, "--contact", "<script>").stdout == f"wrote {out}\n"
    page = out.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert (reader.open, reader.outside) == ([], [])
    assert "<script" not in page
    assert re.search(r"<p>&lt;script&gt;</p>", page)
    assert "there is a file" in dpstream("statement", config, "--out", out, code=2).stderr
    dpstream("statement", config, "--out", out, "--force")
    dpstream("statement", config, "--out", tmp_path / "s.md")
    assert (tmp_path / "s.md").read_text(encoding="utf-8") == dpstream("statement", config).stdout
    assert ".md, .html" in dpstream("statement", config, "--out", tmp_path / "s.pdf", code=2).stderr
    assert "does not exist" in dpstream("statement", config, "--out", tmp_path / "no" / "s.md", code=2).stderr
