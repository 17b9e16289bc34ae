"""The first steps of the real streams: what is released beats what anybody knew before (uniform)."""

from __future__ import annotations

import csv
import gzip
import os

import numpy as np
import pytest

from dpstream.core.contracts import ExpectedTable
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.privacy import Event, PureDP, Randomness, approximate_to_zcdp
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload, count_marginals
from dpstream.families.tabular import Pooled
from dpstream.mechanisms import AIM
from dpstream.tools.evaluate import workload_errors
from dpstream_lab.experiments import data_folder, kumar_stream

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("DPSTREAM_DATA"), reason="DPSTREAM_DATA is not set"),
]


@pytest.mark.parametrize(
    ("budget", "avg_we", "max_we"),
    [(approximate_to_zcdp(1, "1e-9"), 0.00068, 0.0030), (PureDP.of(1), 0.00085, 0.0060)],
    ids=["approximate", "pure"],
)
def test_aim_on_all_of_adult(budget, avg_we, max_we):
    """Within 1.3 of the AIM of its authors (AvgWE 0.00052), and better than MWEM+PGM at any budget (0.0010, 0.0063)."""
    stream = kumar_stream("Adult-ordered-bs-200", data_folder(None))
    workload = Workload.all_k_way(stream.domain, 2)
    plan = AIM().calibrate(workload, budget, Event())
    counts = count_marginals(stream.codes, stream.domain, plan.counted)
    model = plan.run_on(counts, Randomness.seeded(1)).model
    truth = count_marginals(stream.codes, stream.domain, workload.cliques)
    found = workload_errors(truth, model.marginals(workload.cliques), len(stream.codes))
    assert found.as_dict()["AvgWE"] < avg_we
    assert found.as_dict()["MaxWE"] < max_we


def test_predicted_errors_of_the_number_of_records_hold_what_is_not_measured():
    """230 months of evictions, without noise: what a table that goes on as the last epoch went is off by, as a root
    mean square over the steps from 10 on that end no epoch, beside the prediction (with noise that does not matter).
    """
    file = data_folder(None) / "eviction" / "eviction.csv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        months = [row["file_date"][:7].split("-") for row in csv.DictReader(lines)]
    first = min(int(year) * 12 + int(month) for year, month in months)
    numbers = np.bincount([int(year) * 12 + int(month) - first for year, month in months]).astype(float)
    plan = Pooled(Workload.all_k_way(Domain(("a",), (2,)), 1)).calibrate(epsilon=10)
    until, off, steps, last = np.concatenate([[0.0], np.cumsum(numbers)]), [], [], 0
    while last < len(numbers):
        border = plan.epochs.after(last)
        following = range(border + 1, min(plan.epochs.after(border), len(numbers) + 1))
        rate = (until[min(border, len(numbers))] - until[last]) / (border - last)
        for step in following if border >= 10 else ():
            off.append(until[step] - until[border] - rate * (step - border))
            steps.append(step)
        last = border
    truth, mean = float(np.sqrt(np.mean(np.square(off)))), float(numbers.mean())
    declared = float(np.sqrt(np.mean(np.diff(numbers) ** 2)) / mean)
    for varies in (VARIES, declared):
        table = ExpectedTable(int(until[-1]), mean, "grows", varies=varies)
        found = np.array([one.total for one in plan.expected_errors(steps, table)])
        assert 0.8 < float(np.sqrt(np.mean(found**2))) / truth < 1.25, varies
    still = ExpectedTable(int(until[-1]), mean, "grows", varies=0.0)
    assert max(one.total for one in plan.expected_errors(steps, still)) < 0.05 * truth, (
        "noise alone, as before"
    )
