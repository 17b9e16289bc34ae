"""What generated texts say of a stream, against its plan and its manifest, over all mechanisms.

Numbers and claims are taken out of the words of plan, statement, status, manifest and report, and each is looked up in
what the plan itself computes. Noise is real: nothing here depends on how it falls.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dpstream.cli.main import main
from dpstream.core.privacy import PureDP, User
from dpstream.families.growing import ClassifierPlan, PMWGPlan
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.panel import CumulativePlan
from dpstream.families.panel.people import PeoplePlan
from dpstream.families.tabular import BaselinePlan, DPStabsPlan, PooledPlan
from dpstream.project import Config, describe
from dpstream.stream.templates import paragraphs, words

STEPS = 3
TABLE = """
[schema.columns.city]
type = "categorical"
values = ["Bern", "Basel", "Chur"]
[schema.columns.smoker]
type = "boolean"
[schema.columns.age]
type = "integer"
edges = [0, 18, 65, 120]
[schema.columns.late]
type = "boolean"
"""
REPORTS = '[schema.columns.late]\ntype = "boolean"\n'
#: Large enough that no table is empty by chance.
PURE, BOTH, RHO = 'epsilon = "3"', 'epsilon = "3"\ndelta = "1e-6"', 'rho = "0.5"'
PUBLIC = 'total = "public"'
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
        found: dict[str, Any] = json.loads(
            (self.home / "releases" / f"step-{STEPS:06d}" / "manifest.json").read_text()
        )
        return found

    @property
    def accuracy(self) -> dict[str, Any]:
        found: dict[str, Any] = self.manifest["accuracy"]
        return found

    def said(self, verb: str, *arguments: str) -> str:
        done = CliRunner().invoke(main, [verb, str(self.home / "dpstream.toml"), *arguments])
        assert done.exit_code == 0, done.output
        return " ".join(done.stdout.split())

    @cached_property
    def statement(self) -> str:
        return self.said("statement").replace("\\", "")

    @cached_property
    def printed(self) -> str:
        return self.said("plan")

    @cached_property
    def page(self) -> str | None:
        """The report, where the family has one."""
        if isinstance(self.plan, ClassifierPlan | PMWGPlan):
            return None
        self.said("report", "--out", str(self.home / "report.html"))
        return (self.home / "report.html").read_text()

    @property
    def report(self) -> str:
        """Its words."""
        body = (self.page or "<main></main>").partition("<main>")[2].partition("</main>")[0]
        return " ".join(unescape(re.sub("<[^>]+>", " ", body)).split())

    @property
    def marginals(self) -> int | None:
        """How many were asked for."""
        owner = self.plan.box if isinstance(self.plan, GrowingPlan) else getattr(self.plan, "recipe", None)
        workload = getattr(owner, "workload", None)
        return None if workload is None else len(workload)


@pytest.fixture(scope="module", params=CASES, ids=str)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    case, home = CASES[request.param], tmp_path_factory.mktemp("told")
    (home / "in").mkdir()
    for step in range(1, STEPS + 1):
        heads = ["late"] if case.panel else ["city", "smoker", "age", "late"]
        lines = []
        for i in range(60):
            row = ["Bern", "true", str(i), "false"] if i % 3 else ["Chur", "false", str(i), "true"]
            extra = ["delete" if step > 1 and i % 5 == 0 else "insert"] if case.deletes else []
            owner = [f"p{i if case.panel else i % 20}"] if case.users or case.panel else []
            lines.append(",".join([*row[-len(heads) :], *extra, *owner]))
        names = [*heads, *(["op"] if case.deletes else []), *(["who"] if case.users or case.panel else [])]
        (home / "in" / f"{step}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    operation = 'op_column = "op"\n' if case.deletes else ""
    owner_column = 'user_column = "who"\n' if case.users or case.panel else ""
    horizon = f"horizon = {STEPS + 1}\n" if case.panel else ""
    (home / "dpstream.toml").write_text(
        f'[stream]\nname = "told"\n{case.stream}\n[source]\npath = "in/*.csv"\nevery = "files"\n'
        f"{operation}{owner_column}{REPORTS if case.panel else TABLE}[mechanism]\n{case.mechanism}\n"
        f'[budget]\n{case.budget}\n{horizon}[output]\nformat = "csv"\n'
    )
    made = Told(case, home)
    made.said("run")
    return made


def test_guarantee_and_unit_are_the_plans_in_every_text(told: Told) -> None:
    plan = told.plan
    texts = [told.printed, told.statement, told.manifest["guarantee"]["words"]]
    for text in texts:
        # Printed in a box of a terminal's width, so with single blanks.
        (found,) = re.findall(r"satisf(?:y|ies) [^=]*? with ((?:epsilon|rho) = \S+(?: \([^)]*\))*)", text)
        assert found.rstrip(".;") == str(plan.budget)
    for text in (*texts, told.said("status"), told.report or plan.unit.describe()):
        assert " ".join(plan.unit.describe().split()) in text
    stated = told.config.budget.stated
    for text in texts[:2]:
        assert ("This is within epsilon" in text) == (stated is not None)
    if stated is not None:
        assert f"within epsilon = {float(stated[0]):g} and delta = 0.000001" in told.printed
    kind = "pure" if isinstance(plan.budget, PureDP) else "zero-concentrated"
    assert all(f"{kind} differential privacy" in text or f"{kind} DP" in text for text in texts)


def test_steps_and_costs_are_those_of_the_stream(told: Told) -> None:
    plan, statement = told.plan, told.statement
    assert f"{STEPS} tables have been published so far." in statement
    assert f"told: {STEPS} steps released" in told.said("status")
    assert ("At most" in statement) == (plan.horizon is not None)
    assert plan.horizon is None or f"At most {plan.horizon} will be" in statement
    assert f"Spent so far: {plan.budget}" in statement
    assert ("later deleted, has" in statement) == (told.case.deletes and not told.case.users)
    if isinstance(plan.unit, User):
        each = plan.unit.per_event(plan.budget)
        assert (
            f"each of the {plan.unit.max_events} events of a user that are counted at most costs {each}"
            in (statement[0].lower() + statement[1:]).replace("Each of", "each of")
        )
        assert "charged in the one step" not in statement
        assert "What one step takes" not in told.report
    assert ("groups of" in statement or "neighbouring steps" in statement) <= isinstance(plan, PooledPlan)


def test_what_is_said_of_errors_is_what_the_manifest_can_tell(told: Told) -> None:
    plan, accuracy, statement = told.plan, told.accuracy, told.statement
    measured = accuracy.get("measured_every_step", {"marginals": []})["marginals"]
    error = accuracy["total_standard_error"]
    panel, scaled = isinstance(plan, PeoplePlan), isinstance(plan, ClassifierPlan)
    every = isinstance(plan, DPStabsPlan) and plan.selector is None
    assert bool(measured) == every
    assert ("counts over the measured columns may be" in statement) == bool(measured)
    by_plan = not (measured or panel or scaled) and any(
        one["use"] == "columns" and one["how"] == "predicted" for one in accuracy.get("verdicts", ())
    )
    assert ("How wrong counts of one column may be is predicted by the plan" in statement) == by_plan
    assert ("How wrong its counts may be is not known" in statement) == (
        not measured and not panel and not scaled and not by_plan
    )
    assert (error == 0) == (plan.unit.relation == "replace")
    if not panel and not scaled and not isinstance(plan, GrowingPlan):
        assert ("number of records is exact" in statement) == (error == 0)
    if error:
        assert f"standard error of {error:.3g}" in accuracy["words"]
    said = accuracy["words"]
    assert (
        ("error bar" in said and " no" in said.lower()) or measured or panel or isinstance(plan, GrowingPlan)
    )
    if isinstance(plan, BaselinePlan | PMWGPlan):
        # Every step may measure every marginal, or nothing; neither is what keeps error bars away.
        assert "measures no marginal at every step" not in said
    if isinstance(plan, PMWGPlan):
        assert "Answers to questions about the records are published" in statement
    if panel:
        padding = accuracy["panel"].get("padding", accuracy["panel"].get("padding_of_a_pattern"))
        for text in (said, told.report):
            assert ("padding" in text.lower().replace("no padding", "")) == (padding > 0)
        bound = plan.bounds[STEPS - 1] if isinstance(plan, CumulativePlan) else plan.bound
        assert f"by more than {bound:.4g} people" in said
        assert ("this period or an earlier one" in said) == isinstance(plan, CumulativePlan)


def test_the_report_says_what_was_measured_and_draws_no_noise_of_public_numbers(told: Told) -> None:
    page, report, plan = told.page, told.report, told.plan
    if page is None:
        pytest.skip("no report of this family")
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert block is not None
    charts = json.loads(block[1])["charts"]
    lines = [line for chart in charts for line in chart["lines"]]
    noise = [
        line for line in lines if line["label"] == "the number of records" or "measured" in line["label"]
    ]
    assert not any(value == 0 for line in noise for value in line["values"])
    # A sentence about turns belongs to a line that is drawn.
    assert ("In turn:" in report) == any("in turn" in line["label"] for line in noise)
    if told.marginals is None:
        return
    assert f"mean over the {told.marginals} marginals asked for" in report
    assert f"The thinnest of {told.marginals} marginals" in report
    assert {int(n) for n in re.findall(r"of the (\d+) marginals", report)} <= {told.marginals}
    rounds = plan.box.options().get("k") if isinstance(plan, GrowingPlan) else plan.options().get("k")
    partial = rounds is not None and rounds < told.marginals
    every = isinstance(plan, DPStabsPlan) and plan.selector is None
    assert ("All marginals asked for were measured at every step" in report) == every
    assert ("not at every step" in report) <= every
    sums = "Under a share stands what was measured of it" in report
    assert sums >= isinstance(plan, PooledPlan)
    assert ("no column was measured by itself" in report) == (not every and not sums)
    assert not (sums and isinstance(plan, PooledPlan) and "Its errors are not known." in report)
    assert ("epoch" in report) == isinstance(plan, PooledPlan)
    assert ("in turn" in report.lower()) <= (isinstance(plan, DPStabsPlan | BaselinePlan) and partial)


def test_the_plans_numbers_are_its_own(told: Told) -> None:
    plan, text = told.plan, told.printed
    deviation = plan.facts().get("noise", {}).get("one_measurement")
    found = re.findall(r"standard deviation ([0-9.e+]+) records", text)
    if found:
        assert deviation is not None
        assert [float(value) for value in found] == [pytest.approx(deviation, rel=1e-3)]
    if told.marginals is not None and not isinstance(plan, GrowingPlan):
        assert f"{told.marginals} marginals" in text
    total = sum((part.total for part in plan.parts()), 0 * plan.budget.amount)
    assert total == plan.budget.amount
    if isinstance(plan, PeoplePlan):
        padding = plan.padding * getattr(plan, "patterns", 1)
        assert f"; {padding} of them are padding" in text
    assert not math.isnan(float(total))


def test_a_plan_explains_itself_in_whole_sentences_and_full_tables(told: Told) -> None:
    plan, facts = told.plan, told.plan.facts()
    for block in ("says", "further"):
        for part in paragraphs(plan, block, **facts):
            if isinstance(part, str):
                assert re.fullmatch(r"[A-Z].*\.", part), part
                assert "  " not in part
            else:
                assert {len(row) for row in part} == {len(part[0])}
    for block in ("costs", "row", "published", "warning"):
        text = words(plan, block, **facts, often="for every day")
        assert re.fullmatch(r"[A-Z].*\.", text) or (block in ("row", "warning") and not text), text
    # What it adds for programs is JSON, holds no sentence, and hides nothing that is said of every plan.
    described = json.loads(json.dumps(describe(told.config)))
    stored = json.loads(json.dumps(facts, allow_nan=False))
    assert {key: value for key, value in stored.items() if key != "size"}.items() <= described.items()
    assert stored.get("size", {}).items() <= described["size"].items()
    usual = set(described) - set(facts)
    assert {"guarantee", "parts", "words", "predicted_errors", "options", "values"} <= usual
    until = plan.facts_until(500)
    assert (until is None) == (not isinstance(plan, GrowingPlan))
    assert until is None or set(until) == set(facts)
