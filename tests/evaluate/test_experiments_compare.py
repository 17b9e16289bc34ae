"""Comparison files, their errors, offline peers, and the two verbs."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli_stream import COLUMNS, dpstream, make, write_step
from evaluated_runs import write_run
from experiment_data import COMPARE, comparison, fake_data

from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.privacy import Randomness
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.simulate import simulate
from dpstream_lab.experiments import Comparison, runs
from dpstream_lab.experiments import offline_ceiling as offline

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


def test_empty_files_and_missing_ones(tmp_path: Path) -> None:
    for body, message in (
        ("", "there are no streams"),
        ("streams = 3\n", "there are no streams"),
        ("x", "invalid TOML"),
    ):
        (tmp_path / "c.toml").write_text(body, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            Comparison.load(tmp_path / "c.toml")
    path = comparison(tmp_path, COMPARE[: COMPARE.index("[methods")])
    with pytest.raises(ConfigError, match="nothing to compare"):
        Comparison.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Comparison.load(tmp_path / "none.toml")


def test_outputs_stay_apart_from_releases_and_states(tmp_path: Path) -> None:
    path = comparison(tmp_path)
    for place in ("small/releases", "small/state/deep", "small"):
        with pytest.raises(ConfigError, match=r"inside each other|not releasable"):
            Comparison.load(path).run(tmp_path / place, jobs=1)
    assert not (tmp_path / "small/releases").exists()


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


def test_reproduce_prints_the_label_and_resumes(tmp_path: Path) -> None:
    data = fake_data(tmp_path / "data")
    words = "--jobs 1 --repeats 1 --epsilons 1 --methods baseline --no-figures --streams"
    args = ("lab", "reproduce", "kumar", "--data", data, "--out", tmp_path / "out", *words.split())
    args += ("Eviction-weekly, Adult-ordered-bs-50",)
    first = dpstream(*args)
    assert LABEL in first.stdout
    assert "Adult-ordered-b" in first.stdout  # long names are folded, numbers are not
    assert "/ 0.0102" in first.stdout
    assert "2/2 " in first.stderr
    rows = json.loads(dpstream(*args, "--json").stdout)["rows"]
    printed = [
        row["published"] for row in rows if row["stream"] == "Eviction-weekly" and row["metric"] == "AvgL1"
    ]
    assert printed == [{"value": 0.6906, "metric": "AvgRelWE", "target": True}]
    assert "allowed: kumar" in dpstream("lab", "reproduce", "other", code=2).stderr


def test_ctrl_c_keeps_finished_runs(tmp_path: Path) -> None:
    """A real process, two workers, a real signal; then the same command does the rest."""
    path = comparison(tmp_path, "repeats = 400\n" + COMPARE, steps=12)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "dpstream", "lab", "compare", str(path), "--out", str(out)]
    command += ["--no-figures", "--jobs", "2"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("3/"):
            break
    # As a terminal does it: to every process of the group.
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 5, (seen, rest)
    assert "Traceback" not in rest
    assert "interrupted" in rest
    kept = sorted((out / "runs").iterdir())
    assert 3 <= len(kept) < 800
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in kept)
    before = {file.name: file.read_bytes() for file in kept}
    path.write_text(COMPARE, encoding="utf-8")
    dpstream("lab", "compare", path, "--out", out, "--jobs", 1, "--no-figures")
    assert {name: (out / "runs" / name).read_bytes() for name in before} == before


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
