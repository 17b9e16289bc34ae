"""Small finished runs to be evaluated, with deletions and empty steps."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from small_configs import PAID, ZIP, load, write_rows

from dpstream.core.privacy import Randomness
from dpstream.project import Config, taken_steps

Row = tuple[str, str, str]
#: zip, paid, size
BASE: tuple[Row, ...] = (("a", "true", "1"), ("b", "false", "7"), ("c", "true", "7"), ("a", "false", "1"))
COLUMNS = f'{ZIP}{PAID}[schema.columns.size]\ntype = "integer"\nedges = [0, 4, 8]\n'
NAMES = ("zip", "paid", "size")


def write_run(
    folder: Path,
    steps: Sequence[Sequence[tuple[str, Row]]],
    *,
    columns: str = COLUMNS,
    keep: str = '"all"',
    late: str = "error",
    name: str = "small",
    k: int = 2,
    epsilon: str = "1",
) -> Config:
    """Files and configuration of a stream; ``steps``: operations and rows of each."""
    for number, rows in enumerate(steps, 1):
        write_step(folder, number, rows)
    return load(
        folder,
        name=name,
        source=f'path = "data/*.csv"\ntime_column = "step"\nend = {len(steps)}\nop_column = "op"\nlate = "{late}"',
        columns=columns,
        mechanism=f'name = "dpstabs"\nk = {k}',
        budget=f'epsilon = "{epsilon}"',
        rest=f'[output]\nformat = "csv"\nkeep = {keep}',
    )


def write_step(folder: Path, number: int, rows: Sequence[tuple[str, Row]]) -> None:
    lines = (f"{number},{op},{','.join(row)}" for op, row in rows)
    write_rows(folder, f"{number:03d}.csv", "step,op,zip,paid,size", lines)


def run(config: Config, until: int | None = None) -> None:
    """Take every step, with predictable noise."""
    with config.open_stream(randomness=Randomness.seeded(11)) as stream:
        for _ in taken_steps(config, stream, config.source(), until=until):
            pass


def copy_of(config: Config, folder: Path) -> Config:
    shutil.copytree(config.path.parent, folder)
    return Config.load(folder / "dpstream.toml")


def typical(steps: int) -> list[list[tuple[str, Row]]]:
    """Eight inserts a step; every third step takes one of them back, the fifth deletes what never was."""
    made = []
    for step in range(1, steps + 1):
        rows = [("insert", row) for row in BASE * 2]
        if step % 3 == 0:
            rows.append(("delete", BASE[1]))
        if step == 5:
            rows.append(("delete", ("c", "false", "1")))
        made.append(rows)
    return made


def net(steps: Sequence[Sequence[tuple[str, Row]]], until: int) -> Counter[Row]:
    """Inserts minus deletes after ``until`` steps."""
    counts: Counter[Row] = Counter()
    for rows in steps[:until]:
        for op, row in rows:
            counts[row] += 1 if op == "insert" else -1
    return counts


def fingerprint(folder: Path) -> dict[str, str]:
    """Hashes of all files in a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
