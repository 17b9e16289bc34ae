"""Experiments of papers and comparisons: streams, runs that are kept, tables, the verbs, and files of the Census."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import re
import stat
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cli_stream import COLUMNS, dpstream, make, write_step
from evaluated_runs import write_run
from experiment_data import COMPARE, comparison, fake_data
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.privacy import Individual, Randomness
from dpstream.tools.evaluate import LABEL, METRICS, TrueTable, workload_errors
from dpstream.tools.simulate import poverty_panel, simulate
from dpstream_lab.audits.panel_audit import window_plan
from dpstream_lab.experiments import (
    KUMAR_METHODS,
    KUMAR_STREAMS,
    Comparison,
    ConfigSource,
    CumulativeRun,
    KumarSource,
    Method,
    Offline,
    Result,
    Task,
    WindowRun,
    error_lines,
    evaluated_steps,
    kumar_stream,
    lines_of,
    load_panel,
    published_kumar,
    reproduce_bun,
    reproduce_kumar,
    run_grid,
    run_task,
    runs,
    sipp,
)
from dpstream_lab.experiments import offline_ceiling as offline
from dpstream_lab.experiments import (
    runs as runs_module,
)
from dpstream_lab.experiments.kumar_tables import at_or_below_print, markdown_table
from dpstream_lab.experiments.panel_data import panel_path
from dpstream_lab.experiments.panel_runs import _View
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
    monkeypatch.setattr(runs_module, "Randomness", Seeded)
    source = ConfigSource("small", make(tmp_path / "s", 12))
    found = run_task(Task(source, method, "2", 0))
    stream = source.load(0)
    plan = method.plan(stream, "2", "all-2-way")
    assert (plan.horizon, plan.budget.amount) == (12, 2)
    state, randomness = plan.start(), Seeded.system()
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


# Comparison files, their errors, offline peers, and the two verbs


ROOT = Path(__file__).resolve().parents[2]
PEER = """\
import numpy as np

def uniform(codes, domain, cliques, *, epsilon, repeat, scale=1.0):
    return [np.full(domain.cells(c), scale * len(codes) / domain.cells(c)) for c in cliques]

def wrong(codes, domain, cliques, *, epsilon, repeat):
    return [np.zeros(1) for _ in cliques]

number = 7
"""


class Seeded:
    """In place of the operating system's randomness: a test that always sees the same noise."""

    system = staticmethod(lambda: Randomness.seeded(5))


def test_the_guides_example_runs_on_the_shipped_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands and the file of docs/guide/comparing.md, as they stand there."""
    monkeypatch.setattr(runs, "Randomness", Seeded)
    monkeypatch.setattr(offline, "Randomness", Seeded)
    page = (ROOT / "docs/guide/comparing.md").read_text(encoding="utf-8")
    assert "dpstream simulate evictions --steps 12 --out example\n" in page
    example = re.search(r"```toml\n# compare.toml\n(format = 1.*?)```", page, re.DOTALL)
    assert example is not None
    simulate("evictions", 12, tmp_path / "example")
    (tmp_path / "compare.toml").write_text(example[1], encoding="utf-8")
    out = tmp_path / "comparison"
    words = ("lab", "compare", tmp_path / "compare.toml", "--out", out, "--jobs", 1, "--no-figures")
    shown = dpstream(*words).stdout
    assert LABEL in shown
    assert "ceiling (once)" in shown
    again = dpstream(*words, "--json")
    assert "20 runs, 20 done before" in again.stderr
    facts = json.loads(again.stdout)
    assert facts["label"] == LABEL
    average = {(r["method"], r["epsilon"]): r["mean"] for r in facts["rows"] if r["metric"] == "AvgWE"}
    assert len(average) == 10
    # Seeing the whole table once is easier than releasing at every step (epsilon 4: noise is no excuse).
    streams = [error for (name, epsilon), error in average.items() if name != "ceiling" and epsilon == "4"]
    assert average["ceiling", "4"] < 0.8 * min(streams)
    assert facts["files"] == ["table.csv", "table.md", "settings.md"]
    assert "ceiling (once, final table)" in (out / "table.md").read_text(encoding="utf-8")


WRONG = {
    "epsilon = 1\n": "compare.toml: unknown key 'epsilon' (1); did you mean 'epsilons'?",
    "repeats = 0\n": "compare.toml repeats: 0 cannot be used (allowed: a whole number from 1)",
    "format = 2\n": "compare.toml format: unknown format 2",
    "epsilons = 1\n": "compare.toml epsilons: 1 is not a list of budgets",
    'epsilons = ["0"]\n': "compare.toml epsilons: '0' is not positive",
    '[streams.other]\nconfig = "nowhere.toml"\n': "[streams.other] config: there is no file 'nowhere.toml'",
    '[streams.other]\nkumar = "Adult"\n': "[streams.other] kumar: unknown stream 'Adult'",
    "[streams.other]\n": "[streams.other]: a stream has one source",
    '[streams."a/b"]\nkumar = "x"\n': "the name 'a/b' cannot be part of a file's name",
    '[methods.fast]\nname = "mwem"\n': "[methods.fast] name: 'mwem' is not a choice",
    '[methods.fast]\nname = "dpstabs"\nk = 99\n': "k: 99 exceeds the workload's 3 marginals (allowed: 1 to 3)",
    "[methods.fast]\nk = 2\n": 'allowed: name = "dpstabs"',
    'workload = "all-9-way"\n': "all-9-way needs 9 columns",
    '[offline.top]\nname = "mst"\n': "unknown offline mechanism 'mst' (allowed: mwem-pgm, aim, or python",
    '[offline.top]\npython = "peer.py"\n': "[offline.top] python: 'peer.py' names no function",
    '[offline.top]\npython = "peer.py:missing"\n': "peer.py has no function 'missing'",
    '[offline.top]\npython = "peer.py:uniform"\ndelta = 1\n': "uniform cannot be called with these options",
    '[offline.top]\npython = "peer.py:wrong"\n': "not one flat array of finite counts for every clique",
    '[offline.top]\npython = "broken.py:x"\n': "broken.py cannot be imported: No module named",
    '[offline.top]\nname = "mwem-pgm"\nrecipe = {kk = 1}\n': "[offline.top] recipe: a table are not",
    '[methods.m]\nname = "dpstabs"\nrecipe = 3\n': "[methods.m] recipe: 3 are not arguments of DPStabs",
    '[offline.baseline]\nname = "mwem-pgm"\n': "a method has the same name",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_is_named_with_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    body = COMPARE.replace('format = 1\nepsilons = ["1"]\n', "") if not text.startswith("[") else COMPARE
    path = comparison(tmp_path, body + text if text.startswith("[") else text + body, steps=1)
    (tmp_path / "peer.py").write_text(PEER, encoding="utf-8")
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n", encoding="utf-8")
    with pytest.raises(DpstreamError) as caught:
        Comparison.load(path).run(tmp_path / "out", jobs=1, figures=False)
    assert caught.value.exit_code == 2
    assert message in str(caught.value)
    assert "allowed:" in str(caught.value) or "empty" in str(caught.value)


def test_one_step_constant_columns_and_empty_steps(tmp_path: Path) -> None:
    """A column of one declared value, one that never changes, a stream of one step, and one that starts empty."""
    columns = COLUMNS.replace('"x", "y"', '"x"')
    make(tmp_path / "short", 1, columns=columns)
    write_step(tmp_path / "short", 1, ["a,true,x", "b,true,x"])
    write_run(tmp_path / "late", [[], [], [("insert", ("a", "true", "1"))] * 9])
    text = (
        '[streams.short]\nconfig = "short/dpstream.toml"\n[streams.late]\nconfig = "late/dpstream.toml"\n'
        '[methods.dpstabs]\nname = "dpstabs"\n[methods.baseline]\nname = "baseline"\n'
        '[offline.top]\npython = "peer.py:uniform"\nscale = 1.0\n[offline.pgm]\nname = "mwem-pgm"\n'
        '[offline.aim]\nname = "aim"\nrecipe = {rounds = 2, measure_share = "1/2"}\n'
    )
    (tmp_path / "compare.toml").write_text(text, encoding="utf-8")
    (tmp_path / "peer.py").write_text(PEER, encoding="utf-8")
    outcome = Comparison.load(tmp_path / "compare.toml").run(tmp_path / "out", jobs=1)
    found = {(line.stream, line.method): line.mean for line in outcome.lines if line.metric == "AvgL1"}
    # a x, b x against a third each in 3 cells; (a, true), (b, true) against a sixth; (true, x) against a half.
    assert found["short", "top"] == pytest.approx((2 / 3 + 4 / 3 + 1) / 3)
    assert all(value is not None for value in found.values())
    assert {("short", "aim"), ("late", "aim"), ("short", "pgm")} <= set(found)
    settings = (tmp_path / "out/settings.md").read_text(encoding="utf-8")
    assert "offline = aim, rounds = 2, columns_share = 3/20, measure_share = 1/2" in settings
    run = json.loads((tmp_path / "out/runs/late--dpstabs--epsilon-1--1.json").read_text(encoding="utf-8"))
    assert run["points"]["AvgWE"][:2] == [None, None]
    assert run["points"]["AvgWE"][2] is not None
    assert {path.name for path in (tmp_path / "out/figures").iterdir()} == {
        f"{stream}-{kind}.png" for stream in ("short", "late") for kind in ("errors", "relative")
    }


@pytest.mark.slow
@pytest.mark.skipif("DPSTREAM_PEERS" not in os.environ, reason="JAX takes long: make versions")
def test_the_peers_of_the_benchmarks_agree_with_the_truth_at_a_large_budget(tmp_path: Path) -> None:
    """AIM and MST over mbi: near the truth where the noise is nil, and far from it where there is only noise."""
    pytest.importorskip("mbi")
    write_run(
        tmp_path / "s",
        [
            [("insert", row)] * n
            for row, n in ((("a", "true", "1"), 400), (("b", "false", "7"), 300), (("c", "true", "7"), 100))
        ],
    )
    peers = os.path.relpath(ROOT / "benchmarks/peers.py", tmp_path)
    errors = {}
    for name, epsilon, extra in (("mst", "500", ""), ("mst", "0.01", ""), ("aim", "500", "between = 50\n")):
        text = (
            f'epsilons = ["{epsilon}"]\nworkload = [["zip", "paid"], ["paid", "size"]]\n[streams.s]\n'
            f'config = "s/dpstream.toml"\n[offline.peer]\npython = "{peers}:{name}"\niterations = 200\n{extra}'
        )
        (tmp_path / "c.toml").write_text(text, encoding="utf-8")
        run = Comparison.load(tmp_path / "c.toml").run(tmp_path / f"{name}-{epsilon}", jobs=1, figures=False)
        errors[name, epsilon] = next(line.mean for line in run.lines if line.metric == "AvgL1")
    assert errors["mst", "500"] < 0.02
    assert errors["aim", "500"] < 0.02
    assert errors["mst", "0.01"] > 0.1


# ``dpstream lab reproduce bun``: panels are read right, errors are taken right, finished runs are kept; and


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A panel of 700 people and 7 periods."""
    path = tmp_path / "small.csv.gz"
    rows = poverty_panel(700, 7, seed=5)
    lines = ["person,a,b,c,d,e,f,g", *(f"p{i},{','.join(map(str, row))}" for i, row in enumerate(rows))]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_errors_are_those_of_the_synthetic_people(small: Path) -> None:
    """The largest error of each width and period, from the released people one by one."""
    panel = load_panel(str(small), small)
    plan = window_plan(7, 3, rho="0.05", unit=Individual("replace"))
    state, randomness = plan.start(panel.people), Randomness.seeded(4)
    truths = {w: [panel.histogram(t, w) for t in range(w, 8)] for w in (3, 2, 6)}
    view, columns = _View(plan, truths, panel.people), []
    for period in range(7):
        release = plan.advance(state, panel.reports[:, period], randomness)
        if release.new:
            view.add(release)
            columns.append(release.columns)
    people = np.concatenate(columns, axis=1)
    assert people.shape[1] == 7
    for width, place in ((3, 5), (2, 5), (6, 7)):
        errors, raw = [], []
        for code in range(2**width):
            pattern = [int(digit) for digit in f"{code:0{width}b}"]
            true = sum(row[place - width : place] == pattern for row in panel.reports.tolist()) / 700
            count = (people[:, place - width : place] == pattern).all(axis=1).sum()
            errors.append(abs((count - plan.padding * 2 ** (3 - width)) / 700 - true))
            raw.append(abs(count / len(people) - true))
        at = place - max(width, 3)
        assert view.worst[width]["debiased"][at] == pytest.approx(max(errors))
        assert view.worst[width]["raw"][at] == pytest.approx(max(raw))


def test_answers_are_unbiased_and_their_errors_as_predicted(small: Path) -> None:
    """64 repetitions: a mean is off by six of its standard errors, and a mean square by half, once in 1e7 or less."""
    for run in (
        WindowRun(str(small), small, "0.05", "replace", 64),
        CumulativeRun(str(small), small, "0.05", "replace", 64),
    ):
        values = run.run()
        lines = lines_of(values)
        assert len(lines) == (8 if values["settings"]["kind"] == "window" else 5)
        for line in lines:
            assert abs(line.bias) < 6 * line.predicted / 8
            # Rounding is bounded from above: the prediction may be a little large.
            assert 0.5 < line.deviation / line.predicted < 1.6
        raw_bias = [line.mean_raw - line.truth for line in lines]
        if values["settings"]["kind"] == "window":
            # The padding shows: without debiasing the same test fails.
            assert max(raw_bias) > 6 * lines[0].predicted / 8


def test_the_command(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = [
        "lab", "reproduce", "bun", "--panel", str(small), "--repeats", "4", "--jobs", "1", "--quick", "--out", str(out)
    ]  # fmt: skip
    assert LABEL in dpstream(*args).stdout
    with (out / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 + 2 * 5
    assert {row["label"] for row in rows} == {LABEL}
    assert all(
        (out / name).read_text(encoding="utf-8").startswith(f"**{LABEL}**")
        for name in ("table.md", "settings.md")
    )
    kept = {path.name: path.read_bytes() for path in (out / "runs").iterdir()}
    again = dpstream(*args, "--json")
    assert {path.name: path.read_bytes() for path in (out / "runs").iterdir()} == kept
    runs = json.loads(again.stdout)["runs"]
    assert sum(len(run["answers"]) for run in runs) == len(rows)
    other = dpstream(*args[:5], "--repeats", 5, "--quick", "--out", out, code=2)
    assert "repetitions: 4 then, 5 now" in other.stderr


def test_what_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSTREAM_DATA", raising=False)
    with pytest.raises(ConfigError, match="unknown panel 'sipp'"):
        panel_path("sipp", None)
    with pytest.raises(ConfigError, match="DPSTREAM_DATA"):
        reproduce_bun(None, tmp_path / "out", panels=["activity"])
    with pytest.raises(ConfigError, match="repeats"):
        reproduce_bun(None, tmp_path / "out", repeats=1)
    bad = tmp_path / "bad.csv"
    for text in ("id,a,b,c,d\n1,0,1,0,2\n", "id,a,b,c,d\n1,0,1,0\n", "id,a,b\n1,0,1\n", "id,a,b,c,d\n", ""):
        bad.write_text(text)
        load_panel.cache_clear()
        with pytest.raises(DataError, match="this is no panel"):
            reproduce_bun(None, tmp_path / "out", panels=[str(bad)], repeats=2)
    assert not (tmp_path / "out").exists()
    for args in (["kumar", "--panel", "activity"], ["bun", "--epsilons", "1"], ["bum"]):
        dpstream("lab", "reproduce", *args, code=2)


HEAD = "SHHADID|SSUID|PNUM|MONTHCODE|WPFINWGT|THINCPOVT2|TPTOTINC"


def rows_of(seed: int, households: int) -> list[tuple[str, int, int, str]]:
    """(household, person, month, ratio), shuffled; some months are empty, some have no row."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(households):
        for person in generator.choice([101, 102, 103, 1, 201], size=generator.integers(1, 4), replace=False):
            for month in range(1, 13):
                draw = generator.random()
                if draw > 0.01:
                    ratio = "" if draw < 0.02 else f"{generator.choice([0, 0.99, 1, 1.01, 3.5])}"
                    rows.append((f"{number:014d}", int(person), month, ratio))
    return [rows[i] for i in generator.permutation(len(rows))]


def text_of(rows: list[tuple[str, int, int, str]]) -> str:
    return "\n".join([HEAD, *(f"1|{h}|{p}|{m}|12.5|{r}|" for h, p, m, r in rows)]) + "\n"


def by_hand(rows: list[tuple[str, int, int, str]]) -> dict[str, list[int]]:
    """The rule, row by row."""
    result = {}
    for household in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == household]
        first = min(row[1] for row in own)
        ratios = {month: ratio for _, person, month, ratio in own if person == first and ratio}
        if len(ratios) == 12:
            result[household] = [int(float(ratios[month]) < 1) for month in range(1, 13)]
    return result


def test_the_panel_is_what_the_rule_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(1, 300)
    expected = by_hand(rows)
    assert 100 < len(expected) < 300
    # Many small blocks, cut in the middle of rows.
    monkeypatch.setattr(sipp, "_BLOCK_BYTES", 1000)
    plain = tmp_path / "pu2021.csv"
    plain.write_text(text_of(rows))
    packed = tmp_path / "pu2021_csv.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain, "pu2021.csv")
    for source in (plain, packed):
        out = tmp_path / f"{source.stem}-panel.csv"
        done = dpstream("lab", "datasets", "sipp", source, "--out", out, "--json")
        with out.open(newline="") as file:
            lines = list(csv.reader(file))
        assert {row[0]: [int(value) for value in row[1:]] for row in lines[1:]} == expected
        assert [row[0] for row in lines[1:]] == sorted(expected)
        facts = json.loads(done.stdout)
        assert (facts["kept"], facts["person_months"]) == (len(expected), len(rows))
        assert facts["households"] == 300 == facts["kept"] + facts["left_out_missing_month"]
    panel = load_panel(str(out), out)
    assert panel.real
    assert panel.reports.tolist() == [expected[name] for name in sorted(expected)]


def test_members_that_differ_are_counted(tmp_path: Path) -> None:
    alike = [("07", person, month, "0.5") for person in (101, 102) for month in range(1, 13)]
    other = [("08", person, month, "0.5" if person == 101 else "2") for _, person, month, _ in alike]
    file = tmp_path / "made.csv"
    file.write_text(text_of(alike + other))
    found = sipp.read_sipp(file)
    assert (found.seen, found.differing, found.incomplete) == (2, 1, 0)
    assert found.households.tolist() == ["07", "08"]
    assert found.poor.all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD.replace("THINCPOVT2", "THINCPOV") + "\n", "no column THINCPOVT2"),
        (text_of([("1", 101, 13, "0.5")]), "MONTHCODE"),
        (text_of([("1", 101, 1, "0.5")] * 2), "two rows for one month"),
        (text_of([("1", 101, 1, "0.5")]), "no household has all twelve"),
        (text_of([("1", 101, 1, "poor")]), "does not fit its columns"),
        (HEAD + "\n1|2|3\n", "does not fit its columns"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "made.csv"
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        sipp.read_sipp(file)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        sipp.read_sipp(tmp_path / "none.csv")
    packed = tmp_path / "two.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "x")
    with pytest.raises(DataError, match="holds 2 CSV files"):
        sipp.read_sipp(packed)
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises((DataError, ConfigError), match="damaged"):
        sipp.read_sipp(packed)
