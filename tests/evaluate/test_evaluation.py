"""A whole run against its truth: the numbers, what is left untouched, and what is refused."""

from __future__ import annotations

import functools
import itertools
import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from evaluated_runs import COLUMNS, NAMES, fingerprint, net, run, typical, write_run, write_step
from small_configs import rewrite

from dpstream import Boolean, Categorical, Config, Integer, Schema, Workload
from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.sinks import read_table as read
from dpstream.tools import evaluate
from dpstream.tools.evaluate import LABEL, true_steps
from dpstream.tools.evaluate.evaluation import alike_as_missing, alike_together
from dpstream.tools.evaluate.run_folder import read_codes

#: What it finds besides is the subject of ``test_judgement``.
evaluate_run = functools.partial(evaluate.evaluate_run, judged=False)

STEPS = typical(14)


def bins(row):
    """A row's codes, spelled out."""
    return ("abc".index(row[0]), int(row[1] == "true"), int(int(row[2]) >= 4))


def released(config, step) -> Counter:
    table = read(config.output.dir, step).to_pylist()
    return Counter(bins((r["zip"], str(r["paid"]).lower(), r["size"])) for r in table)


def truth(step) -> Counter:
    counts: Counter = Counter()
    for row, count in net(STEPS, step).items():
        counts[bins(row)] += count
    return counts


def gap(real, made, pair):
    """The sum of all differences of a marginal."""
    moved = Counter()
    for counts, sign in ((real, 1), (made, -1)):
        for row, count in counts.items():
            moved[tuple(row[i] for i in pair)] += sign * count
    return sum(map(abs, moved.values()))


def test_every_number_is_the_one_of_the_files(finished):
    found = evaluate_run(finished)
    assert found.label == LABEL
    assert [entry.step for entry in found.steps] == list(range(5, 15))
    assert found.columns == tuple(itertools.combinations(NAMES, 2))
    for entry in found.steps:
        real, made = truth(entry.step), released(finished, entry.step)
        before = released(finished, entry.step - 1)
        assert (entry.records, entry.rows) == (real.total(), made.total())
        moved = []
        for i, pair in enumerate(itertools.combinations(range(3), 2)):
            assert entry.errors.l1[i] == pytest.approx(gap(real, made, pair) / real.total())
            shares = ({row: n / one.total() for row, n in one.items()} for one in (made, before))
            moved.append(gap(*shares, pair) / 2)
        assert entry.churn == pytest.approx(float(np.mean(moved)))
    assert found.last.errors.l1[found.worst(1)[0][0]] == found.last.errors.as_dict()["MaxL1"]
    errors = [entry.errors.as_dict() for entry in found.steps]
    assert found.mean()["AvgWE"] == pytest.approx(np.mean([one["AvgWE"] for one in errors]))
    assert found.mean_words(2) == "mean of the last 2"
    assert found.mean_words(99).startswith("mean of steps ")
    assert found.mean(2)["MaxL1"] == pytest.approx(np.mean([one["MaxL1"] for one in errors[-2:]]))
    assert any("1 deletes match no row" in note for note in found.notes)
    assert any("NO GUARANTEE" in note for note in found.notes), "made with a test seed"


def test_nothing_of_the_stream_changes(copied):
    folder = copied.path.parent
    before = {part: fingerprint(folder / part) for part in ("releases", "state", "data")}
    evaluate_run(copied, every=5)
    after = {part: fingerprint(folder / part) for part in ("releases", "state", "data")}
    assert after == before
    assert sorted(path.name for path in folder.iterdir()) == ["data", "dpstream.toml", "releases", "state"]


def test_steps_that_were_taken_back_are_left_out_and_told(copied):
    before = evaluate_run(copied, steps=[13, 14])
    assert not any("taken back" in note for note in before.notes)
    with copied.open_stream() as stream:
        stream.withdraw(3, "sent twice")
        stream.withdraw(13, "sent twice")
    found = evaluate_run(copied)
    assert "Left out, because withdrawn: 3, 13." in found.notes
    assert 13 not in [one.step for one in found.steps]
    assert found.last.churn is None, "the step before is not there"
    again = evaluate_run(copied, steps=[14])
    np.testing.assert_array_equal(again.last.errors.we, before.last.errors.we)
    with pytest.raises(ConfigError, match="released data are missing at step 13"):
        evaluate_run(copied, steps=[13])


def test_other_places_steps_and_workloads(copied):
    folder = copied.path.parent
    place = (folder / "releases").rename(folder / "elsewhere")
    shutil.rmtree(copied.state_dir)  # it is not needed
    domain = copied.schema().domain
    done: list[tuple[int, int]] = []
    found = evaluate_run(
        copied,
        out=place,
        workload=Workload.all_k_way(domain, 3),
        steps=[14, 2, 2],
        progress=lambda *told: done.append(told),
    )
    assert (found.workload, found.columns) == ("all-3-way", (NAMES,))
    assert [entry.step for entry in found.steps] == [2, 14]
    assert done == [(1, 2), (2, 2)]
    assert [e.step for e in evaluate_run(copied, out=place, every=6).steps] == [6, 12, 14]
    chosen = Workload.of(domain, [["size"], ["zip", "paid"]])
    assert evaluate_run(copied, out=place, workload=chosen).workload == "2 chosen marginals"


def test_one_step_with_a_constant_column(tmp_path):
    config = write_run(tmp_path, [[("insert", ("a", "true", "1"))] * 30])
    run(config)
    found = evaluate_run(config)
    assert [entry.step for entry in found.steps] == [1]
    assert found.last.churn is None
    assert found.last.records == 30
    assert not np.isnan(list(found.last.errors.as_dict().values())).any()
    with pytest.raises(DataError, match="or a constant target"):
        evaluate_run(config, target="paid", judged=True)


def test_an_empty_truth_leaves_shares_blank(tmp_path):
    row = ("b", "true", "1")
    config = write_run(tmp_path, [[], [("insert", row)] * 3, [("delete", row)] * 3])
    run(config)
    found = evaluate_run(config)
    assert [entry.records for entry in found.steps] == [0, 3, 0]
    assert [math.isnan(entry.errors.as_dict()["AvgWE"]) for entry in found.steps] == [True, False, True]
    assert not any(math.isnan(entry.errors.as_dict()["AvgRelWEFloor"]) for entry in found.steps)
    assert found.worst() == []
    assert any("At 2 evaluated steps the true table is empty" in note for note in found.notes)
    assert found.mean()["AvgWE"] == found.steps[1].errors.as_dict()["AvgWE"]


def test_late_records_dropped_tables_and_steps_to_come(tmp_path):
    config = write_run(tmp_path, typical(6), keep="2", late="next-step")
    run(config, until=5)
    found = evaluate_run(config)
    assert found.released == 5
    assert [(entry.step, entry.churn is None) for entry in found.steps] == [(4, True), (5, False)]
    assert "later than in the truth" in found.notes[1]
    assert [step.table.records for step in true_steps(config, until=2)] == [8, 16]
    with pytest.raises(ConfigError, match=r"released data are missing at step 3 .*steps 4 to 5"):
        evaluate_run(config, steps=[3])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "small"', 'name = "large"', "releases are of the stream 'small', not of 'large'"),
        ("edges = [0, 4, 8]", "edges = [0, 5, 8]", "another schema"),
        ('late = "error"', 'late = "next-step"', "have other steps"),
        ('epsilon = "1"', 'epsilon = "2"', "another plan"),
    ],
)
def test_releases_of_something_else_are_refused(copied, old, new, message):
    other = Config.load(rewrite(copied.path, old, new))
    with pytest.raises(ConfigError, match=message):
        evaluate_run(other)


def test_what_is_not_there_is_said(copied):
    with pytest.raises(ConfigError, match="steps to evaluate are missing"):
        evaluate_run(copied, steps=[])
    with pytest.raises(ConfigError, match="every 0 steps"):
        evaluate_run(copied, every=0)
    other = Schema([Boolean("paid"), Boolean("zip")]).domain
    with pytest.raises(ConfigError, match="the workload has other columns"):
        evaluate_run(copied, workload=Workload.all_k_way(other, 2))
    piped = rewrite(copied.path, 'path = "data/*.csv"', 'path = "-"')
    with pytest.raises(ConfigError, match="cannot be read again"):
        list(true_steps(Config.load(piped)))


def test_a_source_that_shrank_or_broke_stops_the_evaluation(copied):
    data = copied.path.parent / "data"
    copied.path.write_text(copied.path.read_text().replace("end = 14", "end = 12"))
    with pytest.raises(StepError, match="the source ends at step 12, and step 14 is released"):
        evaluate_run(Config.load(copied.path))
    write_step(copied.path.parent, 3, [("insert", ("z", "true", "1"))])
    with pytest.raises(DataError, match=r"step 3 .*column 'zip'") as caught:
        evaluate_run(copied)
    assert "'z'" not in str(caught.value)
    shutil.rmtree(data)
    with pytest.raises(DataError, match="no file matches"):
        evaluate_run(copied)


@pytest.mark.parametrize("missing", ["", 'missing = "missing"\n'])
def test_other_bins_of_numbers_come_back_from_null(tmp_path, missing):
    """With both bins, as drafts declare them, they count as one."""
    columns = COLUMNS.replace("edges = [0, 4, 8]\n", f'edges = [0, 4, 8]\nother = "other"\n{missing}')
    steps = [[("insert", ("a", "true", "99"))] * 40 + [("insert", ("b", "false", "1"))] * 20]
    config = write_run(tmp_path, steps, columns=columns)
    run(config)
    found = evaluate_run(config)
    assert read(config.output.dir, 1).column("size").null_count > 20
    real = Counter({("a", "true", None): 40, ("b", "false", False): 20})
    made = Counter(
        (row["zip"], str(row["paid"]).lower(), None if row["size"] is None else row["size"] >= 4)
        for row in read(config.output.dir, 1).to_pylist()
    )
    for error, pair in zip(found.last.errors.l1, itertools.combinations(range(3), 2), strict=True):
        assert error == pytest.approx(gap(real, made, pair) / 60)
    assert found.last.errors.as_dict()["MaxL1"] < 0.3
    assert any("count as one" in note for note in found.notes) == bool(missing)


def test_codes_survive_a_released_table():
    schema = Schema(
        [
            Categorical("kind", ["x"], other="other", missing="missing"),
            Integer("age", edges=[0, 5, 9], other="other"),
            Boolean("paid", missing="unknown"),
            Categorical("level", [1, 2], other="more"),
        ]
    )
    sizes = schema.domain.sizes
    codes = np.array(list(itertools.product(*(range(size) for size in sizes))), np.int32)
    np.testing.assert_array_equal(read_codes(schema.decode(codes, 1), schema, "here"), codes)
    both = Schema([Integer("age", edges=[0, 5, 9], other="other", missing="missing")])
    known = np.array([[0], [1]], np.int32)
    np.testing.assert_array_equal(read_codes(both.decode(known, 1), both, "here"), known)
    either = np.array([[0], [2], [3]], np.int32)
    found = read_codes(both.decode(either, 1), both, "here")
    assert found.ravel().tolist() == alike_as_missing(either, both).ravel().tolist() == [0, 3, 3]
    np.testing.assert_array_equal(alike_together(np.array([5, 1, 3, 4]), (0,), both), [5, 1, 0, 7])


def test_a_true_step_hides_its_records(finished: Config, tmp_path: Path) -> None:
    step = next(true_steps(finished))
    assert "8" not in repr(step).replace("step", "")
    assert (step.batch_id, step.period) == ("step-1", None)
