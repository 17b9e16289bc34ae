"""An evaluation and a page of a family of another package."""

from __future__ import annotations

from dpstream.project import Config
from dpstream.tools.evaluate.contract import EvaluationRequest, EvaluationResult, FamilyEvaluation
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.evaluate.run_folder import Folder, PublishedRun, releases_of
from dpstream.tools.report.assembly import FamilyPage, Page, Pairs, charts_of
from dpstream.tools.report.markup import Html


def _find(config: Config, asked: EvaluationRequest) -> EvaluationResult:
    steps = [step for step, _ in releases_of(config, asked.releases).states]
    facts = {"label": LABEL, "released": steps}
    return EvaluationResult(config.name, facts, ("A toy was looked at.",), [{"step": 1, "toys": 3}])


EVALUATION = FamilyEvaluation(("steps",), _find)


def _draw(folder: Folder, pairs: Pairs) -> Page:
    run = PublishedRun(folder.manifest, folder.states, folder.facts())
    section = Html('<section id="toy"><p>A toy has 3 values</p></section>')
    return Page(run, [("toy", "Toy", section)], "A toy", charts_of(run))


PAGE = FamilyPage(_draw)
