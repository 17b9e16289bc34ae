"""``dpstream evaluate``: the releases of a run against the private table. For the owner's eyes only.

Trusted base: owner (shows the owner a comparison with the private table).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.progress import counted_progress
from dpstream.cli.shared import console, json_option, of_stream, print_json, print_table
from dpstream.cli.types import FilePath, Steps, Whole
from dpstream.core.errors import counted

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.tools.evaluate.contract import EvaluationResult


@click.command("evaluate", short_help="Compare the releases with the private table (not releasable).")
@of_stream("--state", "--releases")
@click.option(
    "--out",
    type=FilePath("folder"),
    help="Folder of the results (evaluation/ beside CONFIG).",
)
@click.option("--workload", metavar="NAME", help="Marginals to compare (the run's).")
@click.option(
    "--steps", "listed", type=Steps(), metavar="LIST", help="Steps to evaluate, such as 1,10,90-104."
)
@click.option(
    "--every",
    type=Whole(),
    metavar="N",
    help="Every N-th step and the last (every tenth and the last ten).",
)
@click.option(
    "--target",
    metavar="COLUMN",
    help="Judge how this column is predicted (each in turn).",
)
@click.option(
    "--no-ceiling",
    "without",
    is_flag=True,
    help="Leave out the offline run.",
)
@click.option("--all", "everything", is_flag=True, help="Print all tables.")
@json_option
def command(
    config: Config,
    out: str | None,
    workload: str | None,
    listed: list[range] | None,
    every: int | None,
    target: str | None,
    without: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Compare the releases with the private table, step by step: a page with a verdict (evaluation.html), and files.

    Beside the last table stand two samples of real records, and an offline run with the same budget. Nothing is
    changed or spent. Results hold exact private numbers: evaluation only, not releasable; options chosen by them
    are outside the guarantee.

    \b
    Example:
      dpstream evaluate dpstream.toml
      dpstream evaluate dpstream.toml --workload all-3-way --every 26 --target nuisance
    """
    from dpstream.tools.evaluate.contract import PAGE, EvaluationRequest, FamilyEvaluation, write_result_files
    from dpstream.tools.evaluate.private_folder import check_private_folder, open_private_folder
    from dpstream.tools.family_tools import tool_of
    from dpstream.tools.report.evaluation_page import evaluation_page

    with counted_progress("evaluated", "steps", quiet=as_json) as progress:
        asked = EvaluationRequest(
            releases=config.output.dir,
            workload=workload,
            steps=None if listed is None else [step for steps in listed for step in steps],
            every=every,
            target=target,
            ceiling=False if without else None,
            progress=progress,
        )
        evaluation = tool_of("evaluation", FamilyEvaluation, config.family)
        evaluation.check(asked)
        places = {"releases": config.output.dir, "state": config.state_dir}
        folder = config.path.parent / "evaluation" if out is None else Path(out)
        check_private_folder(folder, places, where="--out")
        result = evaluation.find(config, asked)
    open_private_folder(folder, places, where="--out")
    written = write_result_files(result, folder, evaluation_page(result))
    if as_json:
        print_json({**result.facts, "folder": str(folder), "files": [path.name for path in written]})
        return
    _print(result, everything=everything)
    more = "" if everything else "; --all shows more"
    click.echo(f"page: {folder / PAGE}; {counted(len(written), 'file')} in {folder}{more}")


def _print(result: EvaluationResult, *, everything: bool) -> None:
    """What it found, with the verdict first; without ``everything`` only down to the first table."""
    from dpstream.tools.evaluate.private_folder import LABEL

    out = console()
    out.print(LABEL)
    for part in result.summary:
        if isinstance(part, str):
            out.print(part)
        else:
            if everything:
                out.print(f"\n{part.title}")
            print_table(part.headings, part.rows, right=part.right)
            if not everything:
                break
