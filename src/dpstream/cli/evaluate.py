"""``dpstream evaluate``: the releases of a run against the private table. For the owner's eyes only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpstream.cli.shared import config_argument, console, json_option, print_json, print_table
from dpstream.cli.types import FilePath, Whole

if TYPE_CHECKING:
    from dpstream.core.tables import Workload
    from dpstream.project import Config
    from dpstream.tools.evaluate import Evaluation, Utility

__all__ = ["command"]


@click.command("evaluate", short_help="Compare the releases with the private table (not releasable).")
@config_argument
@click.option(
    "--out",
    type=FilePath("folder"),
    help="Folder for the results; by default evaluation/ beside CONFIG. Made private (mode 0700).",
)
@click.option(
    "--workload", metavar="NAME", help="Marginals to compare, such as all-3-way; by default the run's."
)
@click.option("--steps", "listed", metavar="LIST", help="Steps to evaluate, such as 1,10,90-104.")
@click.option(
    "--every",
    type=Whole(),
    metavar="N",
    help="Every N-th step and the last one. By default every tenth and the last ten.",
)
@click.option(
    "--from",
    "synthetic",
    type=click.Choice(["tables", "models"]),
    default="tables",
    show_default=True,
    help="The published tables, or the models in the secret state (no sampling error).",
)
@click.option("--target", metavar="COLUMN", help="Train on synthetic, test on real, for this column.")
@click.option("--state", type=FilePath("folder"), help="Another place for the secret state.")
@click.option("--releases", type=FilePath("folder"), help="Another place for the releases.")
@click.option("--no-pictures", is_flag=True, help="Write numbers only (works without matplotlib).")
@json_option
def command(
    config: str,
    out: str | None,
    workload: str | None,
    listed: str | None,
    every: int | None,
    synthetic: str,
    target: str | None,
    state: str | None,
    releases: str | None,
    no_pictures: bool,
    as_json: bool,
) -> None:
    """Compare the releases of a run with the private table, step by step.

    Reads the source, the releases and (with --from models) the state; changes none of them and costs no
    budget. The results are evaluation only, not releasable: they hold exact private numbers, and options that
    are chosen by them are outside the guarantee. Points are compared by their distance (W1), panels by the usual
    questions.

    \b
    Example:
      dpstream evaluate dpstream.toml
      dpstream evaluate dpstream.toml --workload all-3-way --every 26 --target nuisance
    """
    from dpstream.families.panel.people import PeoplePlan
    from dpstream.families.points.points_plan import PointsStreamPlan
    from dpstream.project import Config
    from dpstream.tools.evaluate.evaluation import evaluate_run
    from dpstream.tools.evaluate.evaluation_files import summarise, write_evaluation
    from dpstream.tools.evaluate.private_folder import check_private_folder, open_private_folder

    loaded = Config.load(config)
    if isinstance(loaded.plan(), PointsStreamPlan):
        strange = (workload, target, state, None if synthetic == "tables" else synthetic)
        _points(
            loaded,
            out,
            releases,
            (None if listed is None else parse_steps(listed), every),
            refused=any(one is not None for one in strange),
            pictures=not no_pictures,
            as_json=as_json,
        )
        return
    if isinstance(loaded.plan(), PeoplePlan):
        given = (workload, listed, every, target, state)
        _panel(loaded, out, releases, as_json, refused=any(one is not None for one in given))
        return
    chosen = _workload(loaded, workload)
    places = {
        "releases": loaded.output.dir if releases is None else Path(releases),
        "state": loaded.state_dir if state is None else Path(state),
    }
    steps = None if listed is None else parse_steps(listed)
    if not no_pictures:
        _require_matplotlib()
    folder = loaded.path.parent / "evaluation" if out is None else Path(out)
    check_private_folder(folder, places, where="--out")
    with _progress(quiet=as_json) as told:
        found = evaluate_run(
            loaded,
            state=state,
            out=releases,
            workload=chosen,
            steps=steps,
            every=every,
            synthetic="models" if synthetic == "models" else "tables",
            target=target,
            progress=told,
        )
    open_private_folder(folder, places, where="--out")
    written = write_evaluation(found, folder, pictures=not no_pictures)
    if as_json:
        print_json({**summarise(found), "folder": str(folder), "files": [path.name for path in written]})
    else:
        _print(found)
        click.echo(f"{found.label}: {len(written)} files in {folder}")


def _panel(config: Config, out: str | None, releases: str | None, as_json: bool, *, refused: bool) -> None:
    """The usual questions of a panel, answered by the published people and by the private ones."""
    from dpstream.core.errors import ConfigError
    from dpstream.tools.evaluate.panel_run import evaluate_panel, write_panel_evaluation
    from dpstream.tools.evaluate.private_folder import check_private_folder, open_private_folder

    if refused:
        raise ConfigError(
            "the stream is a panel, whose periods are all compared, by the usual questions",
            where="evaluate",
            allowed="--out, --releases, --no-pictures, --json",
        )
    published = config.output.dir if releases is None else Path(releases)
    places = {"releases": published, "state": config.state_dir}
    folder = config.path.parent / "evaluation" if out is None else Path(out)
    check_private_folder(folder, places, where="--out")
    found = evaluate_panel(config, published)
    open_private_folder(folder, places, where="--out")
    written, facts = write_panel_evaluation(found, folder, config)
    if as_json:
        print_json({**facts, "folder": str(folder), "files": [path.name for path in written]})
        return
    out_ = console()
    out_.print(facts["label"])
    rows = [
        [one["question"], str(one["periods"]), _number(one["error"]), _number(one["stated"])]
        for one in facts["questions"]
    ]
    print_table(["people", "periods", "error", "stated standard error"], rows, right=[1, 2, 3])
    click.echo(f"{facts['label']}: {len(written)} files in {folder}")


def _points(
    config: Config,
    out: str | None,
    releases: str | None,
    steps: tuple[list[int] | None, int | None],
    *,
    refused: bool,
    pictures: bool,
    as_json: bool,
) -> None:
    """Distances between the published points and the private ones, counts of cells, categories."""
    from dpstream.core.errors import ConfigError
    from dpstream.tools.evaluate.point_run import evaluate_points, write_point_evaluation
    from dpstream.tools.evaluate.private_folder import check_private_folder, open_private_folder

    if refused:
        raise ConfigError(
            "the stream is one of points, whose distances are compared, and not marginals",
            where="evaluate",
            allowed="--out, --releases, --steps, --every, --no-pictures, --json",
        )
    if pictures:
        _require_matplotlib()
    published = config.output.dir if releases is None else Path(releases)
    places = {"releases": published, "state": config.state_dir}
    folder = config.path.parent / "evaluation" if out is None else Path(out)
    check_private_folder(folder, places, where="--out")
    with _progress(quiet=as_json) as told:
        found = evaluate_points(config, releases=published, steps=steps[0], every=steps[1], progress=told)
    open_private_folder(folder, places, where="--out")
    written, facts = write_point_evaluation(found, folder, pictures=pictures)
    if as_json:
        print_json({**facts, "folder": str(folder), "files": [path.name for path in written]})
        return
    console().print(facts["label"])
    rows = [
        [
            *(str(one[key]) for key in ("step", "true_points", "depth")),
            *(_number(one[key]) for key in ("w1", "w1_lower", "w1_upper", "w1_uniform")),
        ]
        for one in facts["steps"]
    ]
    headings = ["step", "points", "depth", "W1, in sides", "at least", "at most", "spread evenly"]
    print_table(headings, rows, right=list(range(7)))
    click.echo(f"{facts['label']}: {len(written)} files in {folder}")


def parse_steps(text: str) -> list[int]:
    """Step numbers and ranges.

    Errors:
        ConfigError: a text that is neither.

    >>> parse_steps("1,10,12-14")
    [1, 10, 12, 13, 14]
    """
    from dpstream.core.errors import ConfigError

    steps: list[int] = []
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(word) > 20:
            raise ConfigError(
                f"{word.strip()!r} is not a step", where="--steps", allowed="such as 1,10,90-104"
            )
        begin, end = int(first), int(last or first)
        if not 1 <= begin <= end <= 10**7:
            raise ConfigError(
                f"{word.strip()!r} holds no step", where="--steps", allowed="steps from 1, the smaller first"
            )
        steps += range(begin, end + 1)
    return steps


def _workload(config: Config, name: str | None) -> Workload | None:
    from dpstream.core.tables import Workload

    return None if name is None else Workload.parse(config.schema().domain, name)


def _require_matplotlib() -> None:
    from dpstream.core.errors import ConfigError

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError(
            "matplotlib is not installed",
            where="pictures",
            allowed="pip install 'dpstream[evaluate]', or --no-pictures",
        ) from None


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal; a line for every tenth of the steps elsewhere."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield _lines
    else:
        from rich.progress import Progress

        with Progress(console=console(err=True, bar=True), transient=True) as bar:
            task = bar.add_task("evaluated steps", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(done: int, total: int) -> None:
    if done == total or done * 10 // total > (done - 1) * 10 // total:
        click.echo(f"evaluated {done} of {total} steps", err=True)


def _print(found: Evaluation) -> None:
    out, last = console(), found.last
    period = f" ({last.period})" if last.period else ""
    out.print(found.label)
    out.print(
        f"Stream {found.stream}: released {found.synthetic} against the private table, {found.workload} "
        f"({len(found.cliques)} marginals), {len(found.steps)} of {found.released} steps."
    )
    for note in found.notes:
        out.print(f"Note: {note}")
    out.print()
    ten = found.mean()
    rows = [[name, _number(value), _number(ten[name])] for name, value in last.errors.as_dict().items()]
    print_table(["error", f"step {last.step}{period}", found.mean_words()], rows, right=[1, 2])
    out.print(
        f"True records {last.records}, synthetic rows {last.rows}; change against the release before: "
        f"{_number(last.churn)} (total variation)."
    )
    out.print()
    worst = [[" x ".join(found.columns[i]), _number(error)] for i, error in found.worst(5)]
    print_table([f"marginals with the largest error at step {last.step}", "L1"], worst, right=[1])
    if found.utility is not None:
        _print_utility(found.utility)


def _print_utility(utility: Utility) -> None:
    facts = utility.as_dict()
    kinds = [
        ("total variation, single columns", "tv_one_way"),
        ("total variation, pairs of columns", "tv_two_way"),
        ("difference of associations (Cramer's V)", "association_difference"),
    ]
    rows = [[name, _number(facts[f"mean_{key}"]), _number(facts[f"max_{key}"])] for name, key in kinds]
    print_table(["last step", "mean", "largest"], rows, right=[1, 2])
    prediction = utility.prediction
    if prediction is None:
        return
    scores = [
        [
            score.model,
            score.trained_on,
            *(_number(v) for v in (score.accuracy, score.balanced_accuracy, score.macro_f1, score.roc_auc)),
            score.note,
        ]
        for score in prediction.scores
    ]
    headings = [
        f"predicting {prediction.target}",
        "trained on",
        "accuracy",
        "balanced",
        "macro F1",
        "ROC AUC",
        "",
    ]
    print_table(headings, scores, right=[2, 3, 4, 5])
    if prediction.remark:
        console().print(f"Note: {prediction.remark}")


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.4g}"
