"""Forty small streams: mechanism x unit x budget x source, for ``replay.py``.

A stream is the text of its ``dpstream.toml`` and the invented files that it reads. The rows depend on nothing but the
name of the file; numpy's generator is public here, as these records are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

STEPS = 5
#: A column's values, and how likely each one is.
COLUMNS = {
    "zip": (["a", "b", "c"], [0.5, 0.3, 0.2]),
    "kind": (["x", "y"], [0.7, 0.3]),
    "paid": (["true", "false"], [0.6, 0.4]),
    "size": (["s", "m", "l", "xl"], [0.4, 0.3, 0.2, 0.1]),
}
CATEGORIES = """
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
[schema.columns.paid]
type = "boolean"
[schema.columns.size]
type = "categorical"
values = ["s", "m", "l", "xl"]
"""
PLACES = """
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
[schema.columns.place]
type = "real"
edges = [0, 500, 4000]
"""
STEP_NUMBERS = f'path = "data.csv"\ntime_column = "step"\nend = {STEPS}'


@dataclass(frozen=True)
class Configuration:
    """One stream: what the file says, and what writes its data."""

    mechanism: str
    stream: str = ""
    source: str = STEP_NUMBERS
    budget: str = 'epsilon = "1"'
    rest: str = ""
    columns: str = CATEGORIES
    data: str = "rows"
    earlier: str = ""

    def write(self, folder: Path, name: str = "dpstream") -> Path:
        """The configuration file in ``folder``, with its data beside it."""
        _WRITERS[self.data](folder)
        file = folder / f"{name}.toml"
        file.write_text(
            f'[stream]\nname = "{name}"\n{self.stream}\n[source]\n{self.source}\n{self.columns}\n'
            f"[mechanism]\n{self.mechanism}\n[budget]\n{self.budget}\n{self.rest}\n"
            + ("" if "[output]" in self.rest else '[output]\nformat = "csv"\n'),
            encoding="utf-8",
        )
        return file


def _rows(name: str, many: int) -> dict[str, list[Any]]:
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    rows = {
        column: generator.choice(values, many, p=weights).tolist()
        for column, (values, weights) in COLUMNS.items()
    }
    rows["size"] = [s if z != "a" else "s" for s, z in zip(rows["size"], rows["zip"], strict=True)]
    return rows


def _steps(each: int) -> list[int]:
    return [step for step in range(1, STEPS + 1) for _ in range(each)]


def _insert_rows() -> dict[str, list[Any]]:
    return {"step": _steps(60), **_rows("rows", 60 * STEPS)}


def _write_csv(folder: Path, rows: dict[str, list[Any]]) -> None:
    pa.csv.write_csv(pa.table(rows), folder / "data.csv")


def _write_rows(folder: Path) -> None:
    _write_csv(folder, _insert_rows())


def _write_parquet(folder: Path) -> None:
    pa.parquet.write_table(pa.table(_insert_rows()), folder / "data.parquet")


def _write_ndjson(folder: Path) -> None:
    rows = _insert_rows()
    lines = [json.dumps(dict(zip(rows, values, strict=True))) for values in zip(*rows.values(), strict=True)]
    (folder / "data.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_duckdb(folder: Path) -> None:
    import duckdb

    _write_csv(folder, _insert_rows())
    with duckdb.connect(str(folder / "data.duckdb")) as connection:
        connection.sql(f"CREATE TABLE t AS SELECT * FROM read_csv('{folder / 'data.csv'}')")


def _write_days(folder: Path) -> None:
    rows = _insert_rows()
    _write_csv(folder, {"day": [f"2024-03-{step:02}" for step in rows.pop("step")], **rows})


def _write_users(folder: Path) -> None:
    rows = _insert_rows()
    people = np.random.default_rng(5).integers(0, 70, 60 * STEPS)
    _write_csv(folder, {**rows, "person": [f"p{person}" for person in people]})


def _write_deletes(folder: Path) -> None:
    rows = _insert_rows()
    for step in range(2, STEPS + 1):
        for row in range((step - 2) * 60, (step - 2) * 60 + 15):
            for column, values in rows.items():
                values.append(step if column == "step" else values[row])
    rows["op"] = ["insert"] * (60 * STEPS) + ["delete"] * (15 * (STEPS - 1))
    _write_csv(folder, rows)


def _changes() -> list[tuple[int, str, str, dict[str, Any]]]:
    """Step, operation, key and row of what happens to keyed records."""
    generator = np.random.default_rng(11)
    rows = _rows("changes", 400)
    row_at = lambda i: {column: values[i] for column, values in rows.items()}  # noqa: E731
    present: list[str] = []
    events, count = [], 0
    for step in range(1, STEPS + 1):
        left = [present.pop(int(generator.integers(len(present)))) for _ in range(min(len(present), 12))]
        events += [(step, "delete", key, row_at(0)) for key in left]
        changed = generator.choice(present, 5, replace=False).tolist() if present else []
        events += [(step, "update", key, row_at(int(generator.integers(400)))) for key in changed]
        for _ in range(60 if step == 1 else 15):
            events.append((step, "insert", f"k{count}", row_at(count)))
            present.append(f"k{count}")
            count += 1
    return events


def _write_changes(folder: Path) -> None:
    events = _changes()
    rows = {column: [event[3][column] for event in events] for column in COLUMNS}
    heads = {"step": 0, "op": 1, "id": 2}
    _write_csv(folder, {**{name: [event[i] for event in events] for name, i in heads.items()}, **rows})


def _write_snapshots(folder: Path) -> None:
    present: dict[str, dict[str, Any]] = {}
    events = _changes()
    for step in range(1, STEPS + 1):
        for when, what, key, row in events:
            if when == step and what == "delete":
                present.pop(key)
            elif when == step:
                present[key] = row
        table = {"id": list(present)}
        for column in COLUMNS:
            table[column] = [row[column] for row in present.values()]
        pa.csv.write_csv(pa.table(table), folder / f"table-{step}.csv")


def _write_stays(folder: Path) -> None:
    events = _changes()
    left = {key: step for step, what, key, _ in events if what == "delete"}
    came = [event for event in events if event[1] == "insert"]
    _write_csv(
        folder,
        {
            "step": [event[0] for event in came],
            "gone": [str(left.get(event[2], "")) for event in came],
            "id": [event[2] for event in came],
            **{column: [event[3][column] for event in came] for column in COLUMNS},
        },
    )


def _write_keys(folder: Path) -> None:
    _write_csv(folder, {**_insert_rows(), "id": [f"k{i}" for i in range(60 * STEPS)]})


def _write_panel(folder: Path) -> None:
    generator = np.random.default_rng(3)
    people = [(step, person) for step in range(1, STEPS + 1) for person in range(80)]
    rows = {"step": [step for step, _ in people], "person": [f"p{person}" for _, person in people]}
    poor = generator.random(len(people)) < 0.3
    _write_csv(folder, {**rows, "poor": ["true" if value else "false" for value in poor]})


def _write_places(folder: Path) -> None:
    generator = np.random.default_rng(4)
    rows = {"step": _steps(60), "kind": _rows("places", 60 * STEPS)["kind"]}
    _write_csv(folder, {**rows, "place": (generator.random(60 * STEPS) ** 2 * 4000).round(2).tolist()})


def _write_prior(folder: Path) -> None:
    _write_rows(folder)
    (folder / "prior.csv").write_text("zip,kind,n\na,x,50\na,y,10\nb,x,20\nb,y,10\nc,x,5\nc,y,5\n")


def _write_districts(folder: Path) -> None:
    rows = _insert_rows()
    _write_csv(folder, {**rows, "district": ["north" if zip_ == "a" else "south" for zip_ in rows["zip"]]})
    (folder / "districts.csv").write_text("zip,district\na,north\nb,south\nc,south\n")


_WRITERS: dict[str, Callable[[Path], None]] = {
    name.removeprefix("_write_"): writer
    for name, writer in list(globals().items())
    if name.startswith("_write_")
}

POOLED = 'name = "pooled"'
EXPECT = "[expect]\nsize = 300\nrecords_per_step = 60"
KEPT = "[expect]\nsize = 100\nrecords_per_step = 15"
RHO, APPROXIMATE = 'rho = "1/10"', 'epsilon = "1"\ndelta = "1e-6"'
USERS = 'unit = "user"\nmax_events = 3'
PERSON = f'{STEP_NUMBERS}\nuser_column = "person"'
DELETES = f'{STEP_NUMBERS}\nop_column = "op"'
PUBLIC, RECORD = 'total = "public"', 'unit = "record"'
KEYS = f'{STEP_NUMBERS}\nkey_column = "id"'
CHANGES = f'{KEYS}\nop_column = "op"'
SNAPSHOTS = 'path = "table-*.csv"\nevery = "files"\nkey_column = "id"\nshape = "snapshots"'
STAYS = f'{KEYS}\nshape = "stays"\ndelete_time_column = "gone"'
PRIOR = '[prior]\nfile = "prior.csv"\nweight = "n"\npublic = true'
OF_PEOPLE = '[schema.columns.poor]\ntype = "boolean"\n'
FOLLOWED = {"source": PERSON, "columns": OF_PEOPLE, "data": "panel"}
LASTING = '[output]\nformat = "csv"\nrecords = "persistent"\npublish = "both"'
CONSTRAINED = '[schema.columns.district]\ntype = "categorical"\nvalues = ["north", "south"]\n'
CONSTRAINTS = '[schema.constraints]\nderived.district = { from = "zip", file = "districts.csv" }\n'

CONFIGURATIONS: dict[str, Configuration] = {
    "pooled, plain": Configuration(POOLED),
    "pooled, rho": Configuration(POOLED, budget=RHO),
    "pooled, approximate": Configuration(POOLED, budget=APPROXIMATE),
    "pooled, user": Configuration(POOLED, USERS, PERSON, data="users"),
    "pooled, user, rho, expected": Configuration(POOLED, USERS, PERSON, RHO, EXPECT, data="users"),
    "pooled, public total": Configuration(POOLED, PUBLIC),
    "pooled, rows": Configuration(POOLED, PUBLIC, 'path = "data.csv"\nrows = 60', columns=CATEGORIES.replace(
        "[schema.columns.zip]", '[schema]\nignore = ["step"]\n[schema.columns.zip]')),
    "pooled, deletes": Configuration(POOLED, source=DELETES, data="deletes"),
    "pooled, deletes, expected": Configuration(POOLED, source=DELETES, rest=EXPECT, data="deletes"),
    "pooled, expected": Configuration(POOLED, rest=EXPECT),
    "pooled, expected, rho": Configuration(POOLED, budget=RHO, rest=EXPECT),
    "pooled, headline": Configuration(POOLED, rest=(
        '[accuracy]\nheadline = ["zip", ["zip", "kind"]]\nperiods = "2 steps"\n')),
    "pooled, persistent": Configuration(POOLED, rest=LASTING),
    "pooled, season": Configuration(POOLED, "season = 2"),
    "pooled, days": Configuration(POOLED, source='path = "data.csv"\ntime_column = "day"\nevery = "day"\n'
        'start = "2024-03-01"\nend = "2024-03-05"', data="days"),
    "pooled, constraints": Configuration(POOLED, columns=CATEGORIES + CONSTRAINED + CONSTRAINTS, data="districts"),
    "pooled, prior": Configuration(POOLED, rest=PRIOR, data="prior"),
    "pooled, parquet": Configuration(POOLED, source=STEP_NUMBERS.replace("csv", "parquet"), data="parquet"),
    "pooled, ndjson": Configuration(POOLED, source=STEP_NUMBERS.replace("csv", "ndjson"), data="ndjson"),
    "pooled, duckdb": Configuration(POOLED, source='kind = "duckdb"\ndatabase = "data.duckdb"\n'
        f'query = "SELECT * EXCLUDE (step) FROM t WHERE step >= ? AND step < ?"\nend = {STEPS}', data="duckdb"),
    "pooled, insert-only keys": Configuration(POOLED, RECORD, f"{KEYS}\ninsert_only = true", data="keys"),
    "dpstabs": Configuration('name = "dpstabs"'),
    "dpstabs, user, rho": Configuration('name = "dpstabs"', USERS, PERSON, RHO, data="users"),
    "dpstabs, deletes": Configuration('name = "dpstabs"', source=DELETES, data="deletes"),
    "dpstabs, tree": Configuration('name = "dpstabs"\ncounter = "tree"', budget='epsilon = "1"\nhorizon = 8'),
    "dpstabs, block": Configuration('name = "dpstabs"\ncounter = "block"', PUBLIC, budget='epsilon = "1"\nhorizon = 8'),
    "dpstabs, toeplitz": Configuration('name = "dpstabs"\ncounter = "toeplitz"', budget=f"{RHO}\nhorizon = 8"),
    "baseline": Configuration('name = "baseline"'),
    "baseline, deletes, rho": Configuration('name = "baseline"', source=DELETES, budget=RHO, data="deletes"),
    "census, changes": Configuration('name = "census"', RECORD, CHANGES, rest=KEPT, data="changes"),
    "census, snapshots, rho": Configuration('name = "census"', RECORD, SNAPSHOTS, RHO, KEPT, data="snapshots"),
    "census, stays, headline": Configuration('name = "census"', RECORD, STAYS, rest='[accuracy]\nheadline = [["zip"]]\n'
        + KEPT, data="stays"),
    "census, public total": Configuration('name = "census"', PUBLIC, CHANGES, rest=KEPT, data="changes"),
    "panel window": Configuration('name = "panel-window"\nwindow = 2', budget='rho = "1/10"\nhorizon = 5', **FOLLOWED),
    "panel window, replaced": Configuration('name = "panel-window"\nwindow = 2',
        'unit = "individual-replace"', budget='epsilon = "2"\ndelta = "1e-6"\nhorizon = 5', **FOLLOWED),
    "panel cumulative": Configuration('name = "panel-cumulative"', budget='rho = "1/10"\nhorizon = 5', **FOLLOWED),
    "points": Configuration('name = "points"', PUBLIC, columns=PLACES, data="places"),
    "points, persistent": Configuration('name = "points"', PUBLIC, rest=LASTING, columns=PLACES, data="places"),
    "scheduler": Configuration('name = "scheduler"\nfirst_run = 100\ngamma = "1/10"', PUBLIC),
    "scheduler, erm": Configuration('name = "scheduler"\nfirst_run = 100\ngamma = "1/10"\nblack_box = "erm"\n'
        'target = "paid"', PUBLIC),
    "improver": Configuration('name = "improver"\nfirst_run = 100', PUBLIC, budget='epsilon = "1/2"\ndelta = "1e-6"'),
    "pmwg": Configuration('name = "pmwg"\nalpha = "1/5"\nstart = 60\nhard_questions = 3', PUBLIC),
    "successor": Configuration(POOLED, rest='[base]\nreleases = "earlier"', earlier="pooled, plain",
        source=f'path = "data.csv"\ntime_column = "step"\nstart = {STEPS + 1}\nend = {STEPS + 2}'),
}  # fmt: skip
