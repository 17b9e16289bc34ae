"""Words from facts: which template speaks, what values may do in it, and what a template may do."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import PureDP
from dpstream.core.schema import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.stream.templates import paragraphs, said, words

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dpstream"
TEMPLATES = [*sorted(SOURCE.glob("**/words.j2")), SOURCE / "cli/screens.j2", SOURCE / "project/draft.j2"]
PLAN = Pooled(Workload.all_k_way(Domain(("a", "b"), (2, 3)), 2)).calibrate(epsilon=1)


def toy(folder: Path, template: str | None) -> StreamPlan:
    """A plan of another package, whose module lies beside a template or beside none."""
    folder.mkdir()
    (folder / "toy_words.py").write_text(
        "from dpstream.families.tabular.pooled import PooledPlan\n"
        "class Toy(PooledPlan):\n"
        "    def facts(self):\n"
        "        return {**super().facts(), 'toys': ['x|y', 'one\\n\\ntwo']}\n"
    )
    if template is not None:
        (folder / "words.j2").write_text(template)
    name = f"toy_words_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "toy_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    made: StreamPlan = module.Toy(PLAN.recipe, PLAN.budget, PLAN.unit, PLAN.horizon, PLAN.runner)
    return made


def test_the_nearest_template_speaks_and_reaches_the_others(tmp_path: Path) -> None:
    usual = toy(tmp_path / "none", None)
    assert words(usual, "costs", **usual.facts()) == words(PLAN, "costs", **PLAN.facts())
    own = toy(tmp_path / "one", "{% block growth %}as it likes; {{ super() }}{% endblock %}")
    assert words(own, "growth", **own.facts()) == f"as it likes; {words(PLAN, 'growth', **PLAN.facts())}"
    assert words(own, "costs", **own.facts()) == words(PLAN, "costs", **PLAN.facts())


def test_a_value_ends_no_paragraph_and_no_cell_and_is_not_escaped(tmp_path: Path) -> None:
    rows = "| name |\n{% for toy in toys %}\n| {{ toy }} |\n{% endfor %}\n"
    text = "{% block says %}\nA <b> & {{ toys[1] }}.\n\n" + rows + "{% endblock %}"
    plan = toy(tmp_path / "values", text)
    assert paragraphs(plan, "says", **plan.facts()) == ["A <b> & one two.", [["name"], ["x|y"], ["one two"]]]
    assert said(paragraphs(plan, "says", **plan.facts())) == ["A <b> & one two."]


def test_a_fact_that_is_missing_is_no_empty_word(tmp_path: Path) -> None:
    with pytest.raises(jinja2.UndefinedError):
        words(toy(tmp_path / "missing", "{% block row %}{{ nothing }}{% endblock %}"), "row")


def test_what_a_budget_costs_follows_the_plan() -> None:
    half = replace(PLAN, budget=PureDP.of("1/2"))
    assert "epsilon" not in words(half, "costs", **half.facts())
    assert words(half, "composition").startswith("parallel over epochs")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.parent.name)
def test_templates_choose_words_and_compute_nothing(path: Path) -> None:
    tree = jinja2.Environment().parse(path.read_text(encoding="utf-8"))
    forbidden = (nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Import, nodes.Macro)
    assert not list(tree.find_all(forbidden))
    assert all(
        isinstance(one, nodes.Getattr | nodes.Name | nodes.Const | nodes.Getitem | nodes.List)
        for found in tree.find_all((nodes.Add, nodes.Sub))
        for one in (found.left, found.right)
    )
    # What sources say is one list of paragraphs.
    assert list(tree.find_all(nodes.Block)) or path.parent.name == "sources"
