"""The engine of the experiments: streams, runs, resuming, tables."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import stat
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cli_stream import make
from evaluated_runs import write_run
from experiment_data import fake_data
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import Randomness
from dpstream.tools.evaluate import LABEL, METRICS, TrueTable, workload_errors
from dpstream_lab.experiments import (
    KUMAR_METHODS,
    KUMAR_STREAMS,
    ConfigSource,
    KumarSource,
    Method,
    Offline,
    Result,
    Task,
    error_lines,
    evaluated_steps,
    kumar_stream,
    published_kumar,
    reproduce_kumar,
    run_grid,
    run_task,
)
from dpstream_lab.experiments import (
    runs as runs_module,
)
from dpstream_lab.experiments.kumar_tables import at_or_below_print, errors_csv, markdown_table
from dpstream_lab.experiments.private_output import PrivateFolder
from dpstream_lab.experiments.replayed_streams import ADULT_COLUMNS


class Noted:
    """Remembers which runs were started."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def expect(self, runs: int, done: int) -> None:
        self.total, self.before = runs, done

    def started(self, name: str) -> None:
        self.runs.append(name)

    def finished(self, name: str, seconds: float, left: float | None) -> None:
        assert left is None or left >= 0.0


def test_the_printed_numbers() -> None:
    numbers = published_kumar()
    assert len(numbers) == 240
    # Spot checks, one per table.
    assert numbers["Eviction-weekly", Fraction(1, 2), "MaxWE", "baseline"].value == 0.2180
    assert numbers["Adult-ordered-bs-200", Fraction(4), "AvgRelWE", "proposed-simple"].value == 0.1563
    assert numbers["Adult-randomized-bs-50", Fraction(1, 2), "AvgRelWE", "proposed-block"].value == 0.3718
    blocks = {stream for stream, _, _, method in numbers if method == "proposed-block"}
    assert blocks == {"Eviction-weekly", "Adult-randomized-bs-50", "Adult-ordered-bs-50"}
    slips = {key[:2] for key, number in numbers.items() if not number.target}
    assert slips == {("Adult-randomized-bs-200", Fraction(2)), ("Adult-randomized-bs-200", Fraction(4))}
    for stream, epsilon in slips:
        cells = {n.value for (s, e, _, _), n in numbers.items() if (s, e) == (stream, epsilon)}
        assert len(cells) == 4  # eight cells, the same for both methods


@given(st.integers(1, 300))
def test_steps_at_which_errors_are_taken(steps: int) -> None:
    found = evaluated_steps(steps)
    assert found == sorted(set(found))
    assert set(range(max(1, steps - 9), steps + 1)) <= set(found)
    assert set(range(10, steps + 1, 10)) <= set(found)
    assert len(found) <= steps // 10 + 10


def test_the_papers_streams_are_cut_as_it_says(tmp_path: Path) -> None:
    folder = fake_data(tmp_path / "data")
    ordered = kumar_stream("Adult-ordered-bs-50", folder)
    assert ordered.domain.names == ADULT_COLUMNS
    assert [len(ordered.inserts(step)) for step in (1, 2, 3)] == [50, 50, 20]
    rows = [tuple(row) for row in ordered.codes.tolist()]
    assert rows == sorted(rows)
    shuffled = [kumar_stream("Adult-randomized-bs-200", folder, seed=seed) for seed in (0, 1)]
    assert len(shuffled[0]) == 1
    assert shuffled[0].fingerprint != shuffled[1].fingerprint
    for stream in shuffled:
        assert sorted(map(tuple, stream.codes.tolist())) == rows
    weekly, fortnights = kumar_stream("Eviction-weekly", folder), kumar_stream("Eviction-bi-weekly", folder)
    assert [len(weekly.inserts(step)) for step in (1, 2, 3)] == [2, 1, 1]
    assert [len(fortnights.inserts(step)) for step in (1, 2)] == [3, 1]
    assert weekly.inserts(1).tolist() == [[0, 0], [1, 1]]
    with pytest.raises(ConfigError, match="did you mean 'Eviction-weekly'"):
        kumar_stream("Eviction-weakly", folder)
    with pytest.raises(ConfigError, match=r"adult_48813-domain\.json.*cannot be read"):
        kumar_stream("Adult-ordered-bs-50", tmp_path / "elsewhere")
    broken = fake_data(tmp_path / "broken")
    (broken / "eviction/eviction.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="damaged"):
        kumar_stream("Eviction-weekly", broken)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("DPSTREAM_DATA"), reason="DPSTREAM_DATA is not set")
def test_the_real_streams_have_the_sizes_that_are_known() -> None:
    folder = Path(os.environ["DPSTREAM_DATA"])
    steps = [len(kumar_stream(name, folder)) for name in KUMAR_STREAMS]
    assert steps == [1000, 500, 977, 245, 977, 245]
    adult = kumar_stream("Adult-ordered-bs-50", folder)
    assert (len(adult.codes), sum(a * b for a, b in itertools.combinations(adult.domain.sizes, 2))) == (
        48_813,
        9190,
    )
    assert len(kumar_stream("Eviction-weekly", folder).codes) == 35_346


@pytest.mark.parametrize("method", KUMAR_METHODS.values(), ids=lambda method: method.label)
def test_errors_equal_a_recount_by_hand(
    method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With seeded noise: the same plan in a plain loop."""

    class Seeded:
        system = staticmethod(lambda: Randomness.seeded(11))

    monkeypatch.setattr(runs_module, "Randomness", Seeded)
    source = ConfigSource("small", make(tmp_path / "s", 12))
    found = run_task(Task(source, method, "2", 0))
    stream = source.load(0)
    plan = method.plan(stream, "2", "all-2-way")
    assert (plan.horizon, plan.budget.amount) == (12, 2)
    state, randomness = plan.start(), Randomness.seeded(11)
    counted, finals, pairs = TrueTable(stream.domain), [], tuple(itertools.combinations(range(3), 2))
    for step in range(1, 13):
        counted.add(stream.batch(step))
        made = plan.step(state, stream.batch(step), randomness).marginals(pairs)
        if step >= 3:
            errors = workload_errors(counted.marginals(pairs), made, counted.records).as_dict()
            finals.append([errors[metric] for metric in ("AvgWE", "MaxWE", "AvgL1", "MaxL1")])
    expected = np.mean(finals, axis=0)
    assert [found["final"][m] for m in ("AvgWE", "MaxWE", "AvgL1", "MaxL1")] == pytest.approx(expected)
    assert found["points"]["step"] == list(range(3, 13))
    assert found["points"]["AvgWE"][-1] == pytest.approx(finals[-1][0])
    assert found["settings"]["options"] == plan.options()


def test_deletions_are_taken_off_the_truth_and_of_the_final_table(tmp_path: Path) -> None:
    row, other = ("a", "true", "1"), ("b", "false", "7")
    steps = [
        [("insert", row)] * 6 + [("insert", other)] * 3,
        [("delete", row)] * 4 + [("delete", ("c", "true", "7"))],
    ]
    config = write_run(tmp_path / "s", steps)
    peer = tmp_path / "peer.py"
    peer.write_text(
        "import numpy as np\n"
        "def exact(codes, domain, cliques, *, epsilon, repeat, spare):\n"
        "    assert spare == 'x' and epsilon == 0.5 and repeat == 2 and codes.dtype == np.int32\n"
        "    assert sorted(codes.tolist()) == [[0, 1, 0]] * 2 + [[1, 0, 1]] * 3, codes.tolist()\n"
        "    return [np.bincount(np.ravel_multi_index(codes[:, list(c)].T, domain.shape(c)),\n"
        "                        minlength=domain.cells(c)).astype(float) for c in cliques]\n",
        encoding="utf-8",
    )
    source = ConfigSource("s", config.path)
    offline = Offline("exact", {"python": "peer.py:exact", "spare": "x"}, str(tmp_path / "compare.toml"))
    found = run_task(Task(source, offline, "0.5", 2))
    # A deletion without its record takes nothing away, in the table and in its truth.
    assert found["final"]["AvgL1"] == 0.0
    streamed = run_task(Task(source, Method("m", {"name": "dpstabs"}), "1000", 0))
    assert streamed["settings"]["options"]["deletions"] is True
    # At a budget of 1000 the noise is nil: the release follows inserts less deletes.
    assert streamed["points"]["AvgL1"][-1] < 0.6


def test_finished_runs_are_kept_and_other_settings_are_noticed(tmp_path: Path) -> None:
    source = ConfigSource("small", make(tmp_path / "s", 3))

    def tasks(k: int, repeats: int) -> list[Task]:
        method = Method("dpstabs", {"name": "dpstabs", "k": k})
        return [Task(source, method, "1", repeat) for repeat in range(repeats)]

    out, watch = PrivateFolder(tmp_path / "out"), Noted()
    first = run_grid(tasks(2, 2), out, watch=watch)
    assert (watch.total, watch.before, len(watch.runs)) == (2, 0, 2)
    again = Noted()
    second = run_grid(tasks(2, 3), out, watch=again)
    assert (again.before, again.runs) == (2, ["small--dpstabs--epsilon-1--3"])
    assert [r.values for r in second[:2]] == [r.values for r in first]
    kept = out.path / "runs/small--dpstabs--epsilon-1--1.json"
    before = kept.read_bytes()
    with pytest.raises(ConfigError, match=r"1--1\.json.*other settings \(.*options\.k: 2 then, 1 now"):
        run_grid(tasks(1, 1), out)
    (tmp_path / "s/data/003.csv").write_text("step,zip,paid,kind\n3,a,true,x\n", encoding="utf-8")
    changed = ConfigSource("small", tmp_path / "s" / ".." / "s" / "dpstream.toml")
    with pytest.raises(ConfigError, match=r"other settings \(data: "):
        run_grid([Task(changed, tasks(2, 1)[0].method, "1", 0)], out)
    assert kept.read_bytes() == before
    kept.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="not the result of a run"):
        run_grid(tasks(2, 1), out)
    for wrong in ({"points": None}, {"settings": {"options": {}}}):
        values = {key: value for key, value in {**json.loads(before), **wrong}.items() if value is not None}
        kept.write_text(json.dumps(values), encoding="utf-8")
        with pytest.raises(ConfigError, match="a finished run was made with other settings"):
            run_grid(tasks(2, 1), out)
    kept.unlink()
    third = Noted()
    run_grid(tasks(2, 3), out, watch=third)
    assert third.runs == ["small--dpstabs--epsilon-1--1"]


def test_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    """Stream a with method b--c, and stream a--b with method c: one file, and one of the two results lost."""
    path = make(tmp_path / "s", 2)
    tasks = [
        Task(ConfigSource(stream, path), Method(method, {"name": "dpstabs", "k": k}), "1", 0)
        for stream, method, k in (("a", "b--c", 1), ("a--b", "c", 2))
    ]
    out = PrivateFolder(tmp_path / "out")
    with pytest.raises(ConfigError, match="'a--b--c--epsilon-1--1'"):
        run_grid(tasks, out)
    assert not (out.path / "runs").exists()


def result(method: str, repeat: int, values: dict[str, float | None]) -> Result:
    source = KumarSource("Adult-randomized-bs-200", "Adult-randomized-bs-200", Path("nowhere"))
    final = {metric: values.get(metric, 1.0) for metric in METRICS}
    return Result(Task(source, Method(method), "2", repeat), {"final": final})


def test_tables_show_mean_and_spread_beside_the_print() -> None:
    results = [result("baseline", r, {"AvgWE": v}) for r, v in enumerate((0.001, 0.002, 0.006))]
    results += [result("proposed-block", 0, {"AvgWE": 0.5, "MaxRelWE": None})]
    lines = error_lines(results, published_kumar())
    one = next(line for line in lines if (line.method, line.metric) == ("baseline", "AvgWE"))
    assert (one.mean, one.low, one.high, one.repeats) == (pytest.approx(0.003), 0.001, 0.006, 3)
    assert one.deviation == pytest.approx(np.std([0.001, 0.002, 0.006], ddof=1))
    page = markdown_table(lines, ("AvgWE", "MaxRelWE"), ("AvgWE",))
    assert "| 2 | baseline | 0.0030 (0.0010-0.0060) | ~~0.0036~~ | 1 (1-1) |" in page
    assert "| 2 | proposed-block | 0.5000 |  | none |" in page
    assert at_or_below_print(lines, "AvgWE") == {}  # a misprint is no target
    rows = list(csv.DictReader(io.StringIO(errors_csv(lines))))
    assert len(rows) == 2 * len(METRICS)
    assert {row["label"] for row in rows} == {LABEL}
    first = rows[0]
    assert (float(first["mean"]), first["published"], first["is_target"]) == (
        pytest.approx(0.003),
        "0.0036",
        "no",
    )
    assert (
        next(r for r in rows if r["method"] == "proposed-block" and r["metric"] == "MaxRelWE")["mean"] == ""
    )


def test_a_reproduction_writes_private_labelled_files(tmp_path: Path) -> None:
    folder = fake_data(tmp_path / "data")
    out = tmp_path / "out"
    chosen = {"streams": ["Adult-ordered-bs-50"], "epsilons": ["1.0", "1"], "jobs": 1}
    outcome = reproduce_kumar(folder, out, methods=["proposed-simple"], repeats=1, **chosen)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {path.name for path in files} >= {"table.csv", "table.md", "settings.md"}
    for path in files:
        if path.suffix != ".png":
            assert LABEL in path.read_text(encoding="utf-8"), path
    assert sum(path.suffix == ".png" and path.read_bytes()[:4] == b"\x89PNG" for path in files) == 2
    page = (out / "table.md").read_text(encoding="utf-8")
    assert "| 0.0080 |" in page
    assert "AvgWE at or below the printed number: proposed-simple" in page
    assert len(outcome.results) == 1  # "1.0" and "1" are one budget
    settings = (out / "settings.md").read_text(encoding="utf-8")
    assert "decisions/0011" in settings
    assert "counter = simple counter" in settings
    quick = reproduce_kumar(
        folder, tmp_path / "quick", quick=True, methods=["baseline"], repeats=1, figures=False, **chosen
    )
    text = (tmp_path / "quick/table.md").read_text(encoding="utf-8")
    assert "shorter horizon" in text
    assert "paper |" not in text
    assert all(line.published is None for line in quick.lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"streams": ["Adult-ordered"]}, "unknown name 'Adult-ordered'; did you mean 'Adult-ordered-bs-50'"),
        ({"methods": ["proposed"]}, "allowed: baseline, proposed-simple, proposed-block"),
        ({"repeats": 0}, "repeats = 0"),
        ({"jobs": 0, "streams": ["Adult-ordered-bs-50"]}, "jobs = 0"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        reproduce_kumar(fake_data(tmp_path / "data"), tmp_path / "out", **arguments)  # type: ignore[arg-type]


def test_missing_data_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSTREAM_DATA", raising=False)
    with pytest.raises(ConfigError, match="DPSTREAM_DATA"):
        reproduce_kumar(None, tmp_path / "out")
    with pytest.raises(ConfigError, match="no such folder"):
        reproduce_kumar(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()
