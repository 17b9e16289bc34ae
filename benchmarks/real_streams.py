"""`dpstream run` on the real Adult and Eviction streams, from CSV files to released tables, with both mechanisms.

    DPSTREAM_DATA=... python benchmarks/real_streams.py [--work DIR] [--out FILE]

Writes each stream as CSV with a confirmed configuration, runs the command itself, reads the last ten published
tables back and compares them with the truth (Kumar et al., Tables 1 and 2, epsilon 1). Evaluation only.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
from made_by import write_result

from dpstream.core.schema import Schema
from dpstream.core.tables import Workload, count_marginals
from dpstream.io.sinks import read_table
from dpstream.lab.experiments import Replay, data_folder, kumar_stream, published_kumar
from dpstream.tools.evaluate import workload_errors

LONG = "about 15 minutes"
STREAMS = ("Adult-randomized-bs-50", "Adult-ordered-bs-50", "Eviction-weekly")
MECHANISMS = ("dpstabs", "baseline")
METHODS = {"dpstabs": "proposed-simple", "baseline": "baseline"}
PRINTED = published_kumar()


def prepare(stream: Replay, mechanism: str, folder: Path) -> Path:
    """The stream as one CSV file of codes, and a configuration for it."""
    (folder / "data").mkdir(parents=True)
    weekly = stream.name.startswith("Eviction")
    first = date(1997, 1, 2)
    with (folder / "data" / "all.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["when", *stream.domain.names])
        for step in range(1, len(stream) + 1):
            when = first + timedelta(weeks=step - 1) if weekly else step
            writer.writerows([when, *row] for row in stream.inserts(step).tolist())
    end = first + timedelta(weeks=len(stream)) - timedelta(days=1)
    cut = f'every = "week"\nstart = "{first}"\nend = "{end}"' if weekly else f"end = {len(stream)}"
    columns = "\n".join(
        f'[schema.columns.{json.dumps(name)}]\ntype = "categorical"\n'
        f"values = {json.dumps([str(v) for v in range(size)])}"
        for name, size in zip(stream.domain.names, stream.domain.sizes, strict=True)
    )
    config = folder / "dpstream.toml"
    config.write_text(
        f'format = 1\n[stream]\nname = "{stream.name.lower()}"\nunit = "event"\n'
        f'[source]\npath = "data/*.csv"\ntime_column = "when"\n{cut}\n'
        f'[mechanism]\nname = "{mechanism}"\nworkload = "all-2-way"\n'
        f'[budget]\nepsilon = "1"\n[output]\nformat = "parquet"\n{columns}\n'
    )
    return config


def evaluate(stream: Replay, folder: Path) -> tuple[float, float]:
    """AvgWE and MaxWE of the published tables, mean over the last ten steps."""
    schema = Schema.from_toml(folder / "dpstream.toml")
    workload = Workload.all_k_way(stream.domain, 2)
    found = []
    for step in range(len(stream) - 9, len(stream) + 1):
        codes = schema.encode(read_table(folder / "releases", step=step))
        rows = stream.codes[: stream.borders[step]]
        truth = count_marginals(rows, stream.domain, workload.cliques)
        made = count_marginals(codes, stream.domain, workload.cliques)
        errors = workload_errors(truth, [counts.astype(float) for counts in made], len(rows))
        found.append((errors.as_dict()["AvgWE"], errors.as_dict()["MaxWE"]))
    average, largest = np.mean(found, axis=0)
    return float(average), float(largest)


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--work", type=Path, default=None, help="where to write (default: a temporary folder)"
    )
    parser.add_argument("--streams", nargs="+", default=list(STREAMS))
    parser.add_argument("--mechanisms", nargs="+", default=list(MECHANISMS))
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    work = chosen.work or Path(tempfile.mkdtemp(prefix="dpstream-real-"))
    lines = [
        "| stream | mechanism | AvgWE | paper | MaxWE | paper | steps | CPU ms/step | wall s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    folder_of_data = data_folder(None)
    for name in chosen.streams:
        stream = kumar_stream(name, folder_of_data)
        for mechanism in chosen.mechanisms:
            folder = work / f"{name}-{mechanism}"
            config = prepare(stream, mechanism, folder)
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([sys.executable, "-m", "dpstream", "run", str(config)], check=True)
            wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            average, largest = evaluate(stream, folder)
            paper = [
                PRINTED[name, Fraction(1), metric, METHODS[mechanism]].value for metric in ("AvgWE", "MaxWE")
            ]
            lines.append(
                f"| {name} | {mechanism} | {average:.4f} | {paper[0]:.4f} | {largest:.4f} | {paper[1]:.4f} "
                f"| {len(stream)} | {1000 * cpu / len(stream):.0f} | {wall:.0f} |"
            )
            print(lines[-1], flush=True)
    table = "\n".join(lines)
    print(table)
    if chosen.out:
        write_result(
            chosen.out,
            "`dpstream run`, epsilon 1, defaults, one run each; errors of the published tables (rounded records),\n"
            f"mean of the last ten steps; CPU with reading, storing and publishing\n\n{table}\n",
        )


if __name__ == "__main__":
    main()
