"""What a plan, a statement, a manifest and a report say of a stream is what its plan computes, over all mechanisms.

Noise is real: nothing here depends on how it falls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream
from small_configs import PAID, PUBLIC, ZIP, write_config, write_rows

from dpstream.core.privacy import PureDP, User
from dpstream.families.growing import ClassifierPlan, GrowingPlan, PMWGPlan
from dpstream.families.panel import CumulativePlan
from dpstream.families.panel.people import PeoplePlan
from dpstream.families.tabular import BaselinePlan, DPStabsPlan
from dpstream.io.sinks import read_manifest
from dpstream.project import Config, describe
from dpstream.stream.templates import paragraphs, words

STEPS = 3
REPORTS = PAID.replace("paid", "late")
AGE = '[schema.columns.age]\ntype = "integer"\nedges = [0, 18, 65, 120]\n'
TABLE = ZIP + PAID + AGE + REPORTS
#: Large enough that no table is empty by chance.
PURE, BOTH, RHO = 'epsilon = "3"', 'epsilon = "3"\ndelta = "1e-6"', 'rho = "0.5"'
RUNS = "first_run = 40\n"


@dataclass(frozen=True)
class Case:
    mechanism: str
    budget: str = PURE
    stream: str = ""
    deletes: bool = False
    users: bool = False
    panel: bool = False


CASES = {
    "pooled": Case('name = "pooled"'),
    "pooled, deletes, zCDP": Case('name = "pooled"', RHO, deletes=True),
    "pooled, public": Case('name = "pooled"', BOTH, PUBLIC),
    "pooled, users": Case('name = "pooled"', 'epsilon = "9"', stream='unit = "user"\nmax_events = 5', users=True),
    "dpstabs, chosen": Case('name = "dpstabs"\nk = 2'),
    "dpstabs, all, deletes": Case('name = "dpstabs"\nk = 6', BOTH, deletes=True),
    "dpstabs, all, public": Case('name = "dpstabs"\nk = 6', PURE, PUBLIC),
    "dpstabs, users": Case('name = "dpstabs"\nk = 6', 'rho = "2"', 'unit = "user"\nmax_events = 7', users=True),
    "baseline": Case('name = "baseline"\nk = 2', deletes=True),
    "baseline, all": Case('name = "baseline"\nk = 6', PURE, PUBLIC),
    "baseline, AIM": Case('name = "baseline"\noffline = "aim"', RHO),
    "scheduler": Case(f'name = "scheduler"\n{RUNS}gamma = "1/2"', PURE, PUBLIC),
    "scheduler, k": Case(f'name = "scheduler"\n{RUNS}gamma = "1/2"\nk = 2', BOTH, PUBLIC),
    "improver": Case(f'name = "improver"\n{RUNS}workload = "all-3-way"', BOTH, PUBLIC),
    "classifier": Case(f'name = "improver"\n{RUNS}black_box = "erm"\ntarget = "late"', RHO, PUBLIC),
    "points": Case('name = "points"', PURE, PUBLIC),
    "questions": Case('name = "pmwg"\nalpha = "0.2"\nstart = 40\nhard_questions = 3', PURE, PUBLIC),
    "window": Case('name = "panel-window"\nwindow = 2', RHO, 'unit = "individual"', panel=True),
    "window, public": Case(
        'name = "panel-window"\nwindow = 2', RHO, 'unit = "individual-replace"', panel=True
    ),
    "cumulative": Case('name = "panel-cumulative"', BOTH, 'unit = "individual"', panel=True),
    "cumulative, public": Case(
        'name = "panel-cumulative"', RHO, 'unit = "individual-replace"', panel=True
    ),
}  # fmt: skip


@dataclass
class Told:
    """A stream's texts, and what they have to agree with."""

    case: Case
    home: Path

    @cached_property
    def config(self) -> Config:
        return Config.load(self.home / "dpstream.toml")

    @cached_property
    def plan(self) -> Any:
        return self.config.plan()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.home / "releases", STEPS)

    def said(self, verb: str, *arguments: object) -> str:
        return " ".join(dpstream(verb, self.home / "dpstream.toml", *arguments).stdout.split())

    @cached_property
    def statement(self) -> str:
        return self.said("statement").replace("\\", "")

    @cached_property
    def printed(self) -> str:
        return self.said("plan", "--all", "--quick")


@pytest.fixture(scope="module", params=CASES, ids=str)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    case, home = CASES[request.param], tmp_path_factory.mktemp("told")
    people = case.users or case.panel
    heads = ["late"] if case.panel else ["zip", "paid", "age", "late"]
    names = [*heads, *(["op"] if case.deletes else []), *(["who"] if people else [])]
    for step in range(1, STEPS + 1):
        lines = []
        for i in range(60):
            row = ["a", "true", str(i), "false"] if i % 3 else ["c", "false", str(i), "true"]
            extra = ["delete" if step > 1 and i % 5 == 0 else "insert"] if case.deletes else []
            owner = [f"p{i if case.panel else i % 20}"] if people else []
            lines.append(",".join([*row[-len(heads) :], *extra, *owner]))
        write_rows(home, f"{step}.csv", ",".join(names), lines)
    keys = ['op_column = "op"'] if case.deletes else []
    keys += ['user_column = "who"'] if people else []
    write_config(
        home,
        stream=case.stream,
        source="\n".join(['path = "data/*.csv"\nevery = "files"', *keys]),
        columns=REPORTS if case.panel else TABLE,
        mechanism=case.mechanism,
        budget=f"{case.budget}\nhorizon = {STEPS + 1}" if case.panel else case.budget,
    )
    made = Told(case, home)
    made.said("run")
    return made


def test_guarantee_unit_and_costs_are_the_plans_in_every_text(told: Told) -> None:
    plan, statement = told.plan, told.statement
    texts = [told.printed, statement, told.manifest["guarantee"]["words"]]
    kind = "pure" if isinstance(plan.budget, PureDP) else "zero-concentrated"
    for text in texts:
        # Printed in a box of a terminal's width, so with single blanks.
        (found,) = re.findall(r"satisf(?:y|ies) [^=]*? with ((?:epsilon|rho) = \S+(?: \([^)]*\))*)", text)
        assert found.rstrip(".;") == str(plan.budget)
        assert f"{kind} differential privacy" in text or f"{kind} DP" in text
    for text in (*texts, told.said("status")):
        assert " ".join(plan.unit.describe().split()) in text
    stated = told.config.budget.stated
    for text in texts[:2]:
        assert ("This is within epsilon" in text) == (stated is not None)
    assert f"Spent so far: {plan.budget}" in statement
    assert ("entered and later deleted" in statement) == (told.case.deletes and not told.case.users)
    assert ("that are planned" in statement) == (plan.horizon is not None)
    if isinstance(plan.unit, User):
        assert f"Each costs {plan.unit.per_event(plan.budget)}" in statement
        assert "charged in its step" not in statement
    total = sum((part.total for part in plan.all_parts()), 0 * plan.budget.amount)
    assert total == plan.budget.amount


def test_what_is_said_of_errors_is_what_the_manifest_can_tell(told: Told) -> None:
    plan, accuracy = told.plan, told.manifest["accuracy"]
    measured = accuracy.get("measured_every_step", {"marginals": []})["marginals"]
    error, words = accuracy["total_standard_error"], accuracy["words"]
    assert bool(measured) == (isinstance(plan, DPStabsPlan) and plan.selector is None)
    assert ("counts over the measured columns may be" in told.statement) == bool(measured)
    assert (error == 0) == (plan.unit.relation == "replace")
    assert f"standard error of {error:.3g}" in words or not error
    if isinstance(plan, BaselinePlan | PMWGPlan):
        # Every step may measure every marginal, or nothing; neither is what keeps error bars away.
        assert "measures no marginal at every step" not in words
    if isinstance(plan, PeoplePlan):
        padding = accuracy["panel"].get("padding", accuracy["panel"].get("padding_of_a_pattern"))
        assert ("padding" in words.lower().replace("no padding", "")) == (padding > 0)
        bound = plan.bounds[STEPS - 1] if isinstance(plan, CumulativePlan) else plan.bound
        assert f"by more than {bound:.4g} people" in words
        assert f"; {plan.padding * getattr(plan, 'patterns', 1)} are padding" in told.printed
    deviation = plan.facts().get("noise", {}).get("one_measurement")
    for value in re.findall(r"standard deviation ([0-9.e+]+) records", told.printed):
        assert float(value) == pytest.approx(deviation, rel=1e-3)


def test_the_report_draws_no_noise_of_public_numbers(told: Told) -> None:
    if isinstance(told.plan, ClassifierPlan | PMWGPlan):
        pytest.skip("no report of this family")
    told.said("report", "--out", told.home / "report.html")
    page = (told.home / "report.html").read_text(encoding="utf-8")
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert block is not None
    for chart in json.loads(block[1])["charts"]:
        for line in chart["lines"]:
            if line["label"] == "the number of records" or "measured" in line["label"]:
                assert 0 not in line["values"]


def test_a_plan_explains_itself_in_words_full_tables_and_facts(told: Told) -> None:
    plan, facts = told.plan, told.plan.facts()
    for block in ("says", "further"):
        for part in paragraphs(plan, block, **facts):
            assert isinstance(part, str) or {len(row) for row in part} == {len(part[0])}
    for block in ("costs", "row", "published", "warning"):
        assert words(plan, block, **facts, often="for every day") or block in ("row", "warning")
    # What it adds for programs is JSON, holds no sentence, and hides nothing that is said of every plan.
    described = json.loads(json.dumps(describe(told.config)))
    stored = json.loads(json.dumps(facts, allow_nan=False))
    assert {key: value for key, value in stored.items() if key != "size"}.items() <= described.items()
    assert stored.get("size", {}).items() <= described["size"].items()
    usual = set(described) - set(facts)
    assert {"guarantee", "parts", "words", "options", "values"} <= usual
    until = plan.facts_until(500)
    assert (until is None) == (not isinstance(plan, GrowingPlan))
    assert until is None or set(until) == set(facts)
