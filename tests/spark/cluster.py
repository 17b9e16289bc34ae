"""``dpstream run`` on a Spark cluster of three processes, and a worker that is killed midway.

    make spark-cluster

Starts a standalone master and two workers on this machine, with a secret of their own and everything encrypted; runs
one ``dpstream.toml`` in one process and on the cluster with the same test seed; kills a worker (and its executor) while
the cluster counts, with speculative tasks; compares the releases byte by byte; runs the same file under spark-submit
and, where "pyspark[connect]" is installed, through a Spark Connect server; follows records that change. Prints times.
Ends what it started.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, FILES, STEPS = 400_000, 16, 3
CHANGES = 60_000
TOML = (
    '[stream]\nname = "cluster"\n[source]\n{source}\ntime_column = "step"\nend = {steps}\n'
    '[schema.columns.a]\ntype = "integer"\nmin = 0\nmax = 9\nmissing = "missing"\n'
    '[schema.columns.b]\ntype = "categorical"\nvalues = ["x", "y", "z"]\nother = "other"\n'
    '[schema.columns.c]\ntype = "integer"\nmin = 0\nmax = 19\n'
    '[mechanism]\nname = "dpstabs"\nworkload = "all-2-way"\n[budget]\nepsilon = "1"\nhorizon = {steps}\n'
)
#: Records with keys: inserts, updates and deletes, whose moments order them.
KEYED = (
    TOML.replace('name = "cluster"', 'name = "cluster"\nunit = "record"')
    .replace('time_column = "step"', 'time_column = "at"\nevery = "day"\nstart = "2026-01-05"')
    .replace("end = {steps}", 'end = "2026-01-07"\nkey_column = "who"\nop_column = "op"\nunknown = "drop"')
    .replace('"dpstabs"', '"census"\nturnover = 3')
)


SETTINGS = [
    *("spark.executor.memory=640m", "spark.executor.cores=1", "spark.sql.shuffle.partitions=4"),
    *("spark.speculation=true", "spark.speculation.quantile=0.1", "spark.speculation.multiplier=1.1"),
    *("spark.speculation.interval=10ms", "spark.speculation.minTaskRuntime=1ms"),
]


def main() -> int:
    """Run everything; 0 if the releases are equal."""
    folder = Path(tempfile.mkdtemp(prefix="dpstream-cluster-"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        _make_data(folder)
        port = _start(folder, started)
        plain = _run(folder, "plain", 'path = "data/*.parquet"')
        changed = _run(folder, "keyed-plain", 'path = "changes/*.parquet"', text=KEYED)
        key = f'kind = "spark"\nmaster = "spark://127.0.0.1:{port}"\nsettings = {json.dumps(SETTINGS)}\n'
        data, changes = (f'{key}table = "parquet.`{folder}/{name}`"' for name in ("data", "changes"))
        same = [
            _equal(f"{STEPS} releases of {ROWS} records", plain, _run(folder, "cluster", data, started[-1])),
            _equal("spark-submit", plain, _run(folder, "submitted", data, words=_submit(folder, port))),
            _equal("records that change", changed, _run(folder, "keyed", changes, text=KEYED)),
        ]
        if any(importlib.util.find_spec(name) is None for name in ("grpc", "grpc_status", "google.rpc")):
            print('Spark Connect: not installed (pip install "pyspark[connect]")')
        else:
            same.append(_equal("Spark Connect", plain, _connect(folder, started)))
        return 0 if all(same) else 1
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _equal(name: str, expected: list[bytes], found: list[bytes]) -> bool:
    print(f"{name}: {'equal' if found == expected else 'DIFFERENT'}")
    return found == expected


def _make_data(folder: Path) -> None:
    rng = np.random.default_rng(1)

    def values(rows: int) -> dict[str, object]:
        texts = np.array(["x", "y", "z", "w"])[rng.integers(0, 4, rows)]
        return {"a": rng.integers(0, 10, rows), "b": texts, "c": rng.integers(0, 20, rows)}

    data = {**values(ROWS), "step": rng.integers(1, STEPS + 1, ROWS)}
    data["a"] = pa.array(data["a"], mask=rng.random(ROWS) < 0.01)
    changes = {
        **values(CHANGES),
        "who": rng.integers(0, CHANGES // 4, CHANGES),
        "op": np.array(["insert", "insert", "update", "delete"])[rng.integers(0, 4, CHANGES)],
        "at": np.datetime64("2026-01-05", "us") + np.arange(CHANGES) * np.timedelta64(4_300_000, "us"),
    }
    for name, columns in (("data", data), ("changes", changes)):
        (folder / name).mkdir()
        table = pa.table(columns)
        rows = len(table) // FILES
        for number in range(FILES):
            pq.write_table(table.slice(number * rows, rows), folder / name / f"{number:02}.parquet")


def _start(folder: Path, started: list[subprocess.Popen[bytes]]) -> int:
    """Start master and workers; gives the master's port."""
    import pyspark  # not at the top: the tests are collected without it, too

    conf = folder / "conf"
    conf.mkdir()
    lines = [
        "spark.authenticate true",
        f"spark.authenticate.secret {secrets.token_hex(32)}",
        "spark.network.crypto.enabled true",
        "spark.io.encryption.enabled true",
        "spark.worker.timeout 5",
        f"spark.pyspark.python {sys.executable}",
    ]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.environ |= {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": pyspark.__path__[0],
    }
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
    port = 17077 + os.getpid() % 1000
    run = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")

    def start(name: str, kind: str, *words: str) -> None:
        log = (folder / f"{name}.log").open("wb")
        command = [run, f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *words]
        command += ["--properties-file", str(conf / "spark-defaults.conf")]
        started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=folder))

    start("master", "master.Master", "-h", "127.0.0.1", "-p", str(port))
    _wait(folder / "master.log", "I have been elected leader")
    for number in (1, 2):
        own = ["-c", "1", "-m", "1g", "-d", str(folder / f"work{number}")]
        start(f"worker{number}", "worker.Worker", *own, f"spark://127.0.0.1:{port}")
    for number in (1, 2):
        _wait(folder / f"worker{number}.log", "Successfully registered with master")
    return port


def _wait(log: Path, words: str, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while words not in log.read_text(encoding="utf-8", errors="replace"):
        if time.monotonic() > end:
            raise SystemExit(f"{log.name} does not say {words!r}:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)


def _submit(folder: Path, port: int) -> list[str]:
    """The words of spark-submit for a program that runs the file in its own folder."""
    import pyspark

    program = folder / "run.py"
    program.write_text(
        "import dpstream\n"
        "from dpstream.core.privacy import Randomness\n"
        "for release in dpstream.run('dpstream.toml', randomness=Randomness.seeded(7)):\n"
        "    print(release)\n",
        encoding="utf-8",
    )
    words = [str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", f"spark://127.0.0.1:{port}"]
    for setting in SETTINGS:
        words += ["--conf", setting]
    return [*words, str(program)]


def _connect(folder: Path, started: list[subprocess.Popen[bytes]]) -> list[bytes]:
    """The releases of a run through a Spark Connect server."""
    import pyspark

    port = 19002 + os.getpid() % 1000
    words = [str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local[2]"]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.sql.session.timeZone=UTC",
        "spark.sql.shuffle.partitions=4",
    ):
        words += ["--conf", setting]
    log = (folder / "server.log").open("wb")
    words.append("spark-internal")
    # As a daemon it would have the memory of the master, which is too little for a driver.
    own = os.environ | {"SPARK_DAEMON_MEMORY": "1g"}
    started.append(
        subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, cwd=folder, env=own)
    )
    _wait(folder / "server.log", "Spark Connect server started")
    source = f'kind = "spark"\ntable = "parquet.`{folder}/data`"\nremote = "sc://127.0.0.1:{port}"'
    return _run(folder, "connect", source)


def _run(
    folder: Path,
    name: str,
    source: str,
    victim: subprocess.Popen[bytes] | None = None,
    words: list[str] | None = None,
    text: str = TOML,
) -> list[bytes]:
    """Run the stream, and kill a worker after the first release; gives the released tables.

    Args:
        words: of the command, where it is not ``dpstream run``.
        text: of the file.
    """
    own = folder / name
    own.mkdir()
    (own / "dpstream.toml").write_text(
        text.format(source=source.replace('path = "', f'path = "{folder}/'), steps=STEPS), encoding="utf-8"
    )
    began, log = time.monotonic(), (folder / f"{name}.log").open("wb")
    words = words or [sys.executable, "-m", "dpstream", "run", "dpstream.toml", "--test-seed", "7"]
    process = subprocess.Popen(words, cwd=own, stdout=log, stderr=log)
    first = own / "releases" / "step-000001"
    while process.poll() is None:
        if victim is not None and first.exists():
            time.sleep(1.0)  # somewhere in the counting of the next step
            os.killpg(victim.pid, signal.SIGKILL)
            print(f"{name}: a worker was killed after step 1")
            victim = None
        time.sleep(0.1)
    if process.returncode != 0:
        print((folder / f"{name}.log").read_text(errors="replace")[-3000:])
        raise SystemExit(f"{name}: exit code {process.returncode}")
    print(f"{name}: {time.monotonic() - began:.1f} s by the clock")
    return [path.read_bytes() for path in sorted(own.glob("releases/step-*/table.parquet"))]


if __name__ == "__main__":
    raise SystemExit(main())
