"""Small streams of every family, through the public doors: their columns, their records, and the open stream.

    with small_stream(tmp_path, "keyed", 3) as stream:  # three steps are released
        release = small_step(stream, "keyed", 4)
    release = dp.read(tmp_path / "releases", step=2)

Families: ``table``, ``keyed`` (a census), ``panel``, ``points``, ``growing``. A stream that is opened again goes on
where it was, so tests share one by copying its folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dpstream as dp
from dpstream.core.privacy import Randomness

#: Column -> what declares it; every test folder takes the columns that it needs from here.
COLUMNS: dict[str, Any] = {
    "zip": lambda **bins: dp.Categorical("zip", ("94102", "94103", "94110"), **bins),
    "paid": lambda **bins: dp.Boolean("paid", **bins),
    "rent": lambda **bins: dp.Integer("rent", edges=(0, 500, 1000, 2000), **bins),
    "kind": lambda **bins: dp.Categorical("kind", ("cafe", "shop", "bar"), **bins),
    "poor": lambda **bins: dp.Boolean("poor", **bins),
    "x": lambda **bins: dp.Real("x", (0, 0.25, 0.5, 0.75, 1), **bins),
    "y": lambda **bins: dp.Real("y", (0, 0.5, 1), **bins),
}
#: Columns for which other texts than the declared ones have a bin, in a loose schema.
TEXTS = ("zip", "kind")
#: Family -> its columns, and the arguments of ``dpstream.open``.
FAMILIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "table": (("zip", "paid", "rent"), {"epsilon": 4}),
    "keyed": (("zip", "paid", "rent"), {"epsilon": 4, "unit": dp.Record()}),
    "panel": (
        ("poor",),
        {
            "unit": dp.Individual(),
            "mechanism": {"name": "panel-window", "window": 2},
            "budget": {"rho": 1, "horizon": 6},
            "output": {"records": "persistent"},
        },
    ),
    "points": (("kind", "x", "y"), {"epsilon": 4, "unit": dp.Event("replace"), "mechanism": "points"}),
    "growing": (
        ("zip", "paid"),
        {
            "epsilon": 4,
            "unit": dp.Event("replace"),
            "mechanism": {"name": "scheduler", "first_run": 40, "gamma": "1/10"},
        },
    ),
}


def small_schema(*columns: str, loose: bool = False, **more: Any) -> dp.Schema:
    """A schema of some of the columns, by default of a table's.

    Args:
        loose: nulls have a bin in every column, and undeclared texts where there are texts.
        more: of ``Schema``, such as ``constraints`` or ``ignore``.
    """
    names = columns or FAMILIES["table"][0]
    bins = {
        name: {"missing": "missing", **({"other": "other"} if name in TEXTS else {})} if loose else {}
        for name in names
    }
    return dp.Schema(tuple(COLUMNS[name](**bins[name]) for name in names), **more)


def small_frame(
    columns: tuple[str, ...], step: int, rows: int = 40, *, loose: bool = False
) -> dict[str, list[Any]]:
    """Records of a step, different at every step; loose ones have nulls and an undeclared zip code."""
    generator = np.random.default_rng(step)
    texts = {"zip": ["94102", "94103", "94110"], "kind": ["cafe", "shop", "bar"]}
    frame: dict[str, list[Any]] = {}
    for name in columns:
        if name in texts:
            frame[name] = generator.choice([*texts[name], *(["10001"] if loose else [])], rows).tolist()
        elif name in ("paid", "poor"):
            frame[name] = (generator.random(rows) < 0.5).tolist()
        elif name == "rent":
            frame[name] = generator.integers(0, 2001, rows).tolist()
        else:
            frame[name] = generator.random(rows).tolist()
        if loose:
            gone = generator.random(rows) < 0.1
            frame[name] = [None if null else v for v, null in zip(frame[name], gone, strict=True)]
    return frame


def small_batch(family: str, step: int, *, loose: bool = False) -> Any:
    """What a stream of the family is given at a step: a frame, for ``panel`` and ``keyed`` one that says whose."""
    frame = small_frame(FAMILIES[family][0], step, loose=loose)
    rows = len(next(iter(frame.values())))
    if family == "panel":
        return dp.Batch(frame, users=[f"person {number}" for number in range(rows)])
    if family == "keyed":  # a snapshot: some of the records leave at every step, and others come
        return dp.Snapshot({"id": [f"record {step * 10 + number}" for number in range(rows)], **frame}, "id")
    return frame


def small_step(stream: dp.Stream, family: str, step: int, *, loose: bool = False) -> dp.Release:
    """Give the stream the records of a step; the step's name is its number."""
    return stream.step(small_batch(family, step, loose=loose), str(step), f"2026-W{step:02d}")


def small_stream(
    folder: Path,
    family: str = "table",
    steps: int = 0,
    *,
    seed: int | Randomness | None = None,
    **options: Any,
) -> dp.Stream:
    """The open stream in ``folder`` (``state`` and ``releases``), gone on up to ``steps``.

    Args:
        seed: of the randomness, for files that are the same at every run; or the randomness itself.
        options: of ``dpstream.open``, in place of the family's; ``schema`` included.
    """
    columns, given = FAMILIES[family]
    arguments = {"schema": small_schema(*columns), **given, **options}
    randomness = Randomness.seeded(seed) if isinstance(seed, int) else seed
    stream = dp.open(folder, randomness=randomness, **arguments)
    for step in range(stream.last_step + 1, steps + 1):
        small_step(stream, family, step)
    return stream
