"""One step of a large table with the default mechanism, end to end: ``dpstream run`` on a Parquet file.

    python benchmarks/large_tables.py [--rows 10000000] [--repeat 1] [--columns 20] [--threads 1 2]
        [--no-duckdb] [--out benchmarks/results/large_tables.txt]

The file is invented: columns of text with 2 to 42 values, 1 % null and 1 % undeclared values. Each run is a process of
its own with warm compiled loops, and with Python's compiled files, as an installed package has them: CPU seconds of all
its threads with those of starting Python, elapsed seconds, its highest memory, and the bytes of what it published.
"A first step of 1,000" is what every run costs whatever its size (start of Python, imports, compiled loops, fit), and
what a first one costs that has to compile its loops ("cold").
DuckDB reads the same file, counts the same pairs of columns, and writes the table again (it protects nobody): what the
same work costs without privacy. It reads the texts into a table of enumerations first; a query for each pair of the
file itself takes half as long again, and one query with GROUPING SETS twice as long.
"""

from __future__ import annotations

import itertools
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench import documented_parser, show_result
from reading import NAMES, words, write_files

LONG = "about 10 minutes"

_DUCKDB = """
import duckdb, sys
names, path, out = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
db = duckdb.connect()
db.execute(f"SET threads = {sys.argv[4]}")
for name in names:
    db.execute(f"CREATE TYPE of_{name} AS ENUM (SELECT DISTINCT {name} FROM '{path}' WHERE {name} IS NOT NULL)")
coded = ", ".join(f"{name}::of_{name} AS {name}" for name in names)
db.execute(f"CREATE TABLE coded AS SELECT {coded} FROM '{path}'")
for i, first in enumerate(names):
    for second in names[i + 1 :]:
        db.execute(f"SELECT {first}, {second}, COUNT(*) FROM coded GROUP BY 1, 2").fetchall()
texts = ", ".join(f"{name}::VARCHAR AS {name}" for name in names)
db.execute(f"COPY (SELECT {texts} FROM coded) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
"""


def configuration(folder: Path, columns: int) -> Path:
    """A file with the declared values of each column."""
    lines = ['[stream]\nname = "large"\n[source]\npath = "big.parquet"\nevery = "files"\n']
    for i, name in enumerate(NAMES[:columns]):
        values = ", ".join(f'"{word}"' for word in words(i))
        lines.append(
            f'[schema.columns.{name}]\ntype = "categorical"\nvalues = [{values}]\n'
            'other = "other"\nmissing = "missing"\n'
        )
    if columns < len(NAMES):
        lines.append(f"[schema]\nignore = {list(NAMES[columns:])!r}\n".replace("'", '"'))
    lines.append('[budget]\nepsilon = "1"\nhorizon = 52\n')
    path = folder / "dpstream.toml"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def environment(folder: Path) -> dict[str, str]:
    """Where Python and Numba keep what they compile: in a folder of this benchmark, also where nothing is kept else."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    places = {"PYTHONPYCACHEPREFIX": folder / "python", "NUMBA_CACHE_DIR": folder / "numba"}
    return kept | {key: str(place) for key, place in places.items()}


def measured(command: list[str], folder: Path, threads: int) -> tuple[float, float, float]:
    """CPU seconds, elapsed seconds and the highest memory in MB of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder) | {"DPSTREAM_THREADS": str(threads)},
        stdout=subprocess.DEVNULL,
    )
    peak = [0.0]

    def watch() -> None:
        # The counter of child processes would begin at the memory of this one.
        while process.poll() is None:
            try:
                text = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            except OSError:
                return
            found = [line for line in text.splitlines() if line.startswith("VmHWM")]
            if found:
                peak[0] = max(peak[0], float(found[0].split()[1]) / 1000)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    elapsed = time.monotonic() - start
    watcher.join()
    if code:
        raise SystemExit(f"{command[0]} ended with code {code}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, elapsed, peak[0]


def repeat(path: Path, out: Path, times: int) -> None:
    """A Parquet file with the groups of rows of another one, several times."""
    import pyarrow.parquet

    if times == 1:
        path.rename(out)
        return
    with (
        pyarrow.parquet.ParquetFile(path) as file,
        pyarrow.parquet.ParquetWriter(out, file.schema_arrow) as writer,
    ):
        for _ in range(times):
            for number in range(file.num_row_groups):
                writer.write_table(file.read_row_group(number))
    path.unlink()


def starts(folder: Path, columns: int) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """What a first step of 1,000 records takes without and with compiled loops; Python's files are there in both."""
    small = folder / "small"
    small.mkdir()
    (folder / "small.parquet").rename(small / "big.parquet")
    configuration(small, columns)
    found = []
    for number in range(3):
        if number == 1:
            shutil.rmtree(folder / "numba")
        places = ["--out", f"small-r{number}", "--state", f"small-s{number}"]
        command = [sys.executable, "-m", "dpstream", "run", "small/dpstream.toml", *places]
        found.append(measured(command, folder, 1))
    return found[1], found[2]


def main() -> None:
    parser = documented_parser(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=1, help="how often the file holds these records")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-duckdb", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = [
        f"{given.rows * given.repeat:,} records x {given.columns} columns from Parquet, one step, default mechanism, "
        "epsilon 1; "
        f"python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "",
        f"{'what':<28}{'threads':>8}{'CPU s':>9}{'elapsed s':>11}{'peak MB':>9}{'published MB':>14}",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, given.rows, 1000)
        repeat(folder / "large.parquet", folder / "big.parquet", given.repeat)
        configuration(folder, given.columns)
        run = [sys.executable, "-m", "dpstream", "run", "dpstream.toml"]
        cold, warm = starts(folder, given.columns)
        measured([sys.executable, "-m", "dpstream", "warm"], folder, 1)
        lines.append(_line("a first step of 1,000, cold", 1, cold, 0))
        lines.append(_line("a first step of 1,000, warm", 1, warm, 0))
        for threads in given.threads:
            print(f"dpstream, {threads} threads", file=sys.stderr, flush=True)
            kept = ["--out", f"r{threads}", "--state", f"s{threads}"]
            used = measured([*run, *kept], folder, threads)
            size = sum(path.stat().st_size for path in (folder / f"r{threads}").rglob("*") if path.is_file())
            lines.append(_line("dpstream run", threads, used, size))
        names = ",".join(NAMES[: given.columns])
        for threads in () if given.no_duckdb else given.threads:
            print(f"DuckDB, {threads} threads", file=sys.stderr, flush=True)
            out = folder / f"again{threads}.parquet"
            command = [sys.executable, "-c", _DUCKDB, names, "big.parquet", str(out), str(threads)]
            used = measured(command, folder, threads)
            lines.append(_line("DuckDB", threads, used, out.stat().st_size))
    pairs = len(list(itertools.combinations(range(given.columns), 2)))
    if not given.no_duckdb:
        lines.append("")
        lines.append(
            f"DuckDB codes the texts, counts {pairs} pairs, each by a query, and writes the table again."
        )
    text = "\n".join(lines) + "\n"
    show_result(text, given.out)


def _line(what: str, threads: int, used: tuple[float, float, float], size: int) -> str:
    cpu, elapsed, peak = used
    return f"{what:<28}{threads:>8}{cpu:>9.1f}{elapsed:>11.1f}{peak:>9.0f}{size / 1e6:>14.1f}"


if __name__ == "__main__":
    main()
