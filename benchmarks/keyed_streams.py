"""Streams of keyed records for benchmarks: invented registers, and real tables with stays (nothing is printed here).

Real data are read from the folder named by DPSTREAM_DATA and never enter the repository. The later half of the steps of
each real stream stays out of all tuning: it is reported apart.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from inserted_streams import ORDERS, invented, real

from dpstream.core.schema import Domain
from dpstream.core.tables import KeyedChanges
from dpstream.project import Config
from dpstream.tools.evaluate.true_table import encoded_steps
from dpstream.tools.simulate import Stock, simulate
from dpstream.tools.simulate.stock_folder import DELETE
from dpstream_lab.experiments import KUMAR_STREAMS, Replay, data_folder, kumar_stream

#: Days of the hotels' recommended stream, and its steps by the length of one.
_HOTEL_START, _HOTEL_END = np.datetime64("2015-07-01"), np.datetime64("2017-09-01")


@dataclass(frozen=True, repr=False)
class KeyedStream:
    """What changes in each step, over public domains.

    Attributes:
        size, records_per_step: public guesses as an owner would make them, of records present and of new ones a step.
        real: whether the records are; then the steps after ``steps // 2`` are out of all tuning.
        deletes, updates: whether records leave, and whether they change.
        followed: whether a record's whole stay is protected, by its key; else each insert and each delete is.
    """

    name: str
    domain: Domain
    steps: int
    size: int
    records_per_step: float
    changes: Callable[[], Iterator[KeyedChanges]]
    real: bool = False
    deletes: bool = True
    updates: bool = True
    followed: bool = True


def load(name: str, seed: int) -> KeyedStream:
    """A stream by name; ``NAME@30`` is its first 30 steps, ``NAME#0,3`` or ``NAME@30#0,3`` these columns of it.

    ``stock:RECORDS:MEAN_STAY:STEPS``, and ``...:simulated`` with seasons, heavy tails, reload and burst;
    ``adult:RECORDS:MEAN_STAY:STEPS`` (real records, invented stays); ``hotel:day``, ``hotel:week``, ``hotel:month``;
    ``satellites:month``, ``satellites:year``. ``inserts:...``: streams of ``inserted_streams``
    (``inserts:ORDER:RECORDS:STEPS``, ``inserts:adult:shuffled``, ``inserts:eviction:month``), and the hotels' and
    satellites' records as they come first (``inserts:hotel:week``), of which none leaves. The paper's six by name
    (``Adult-ordered-bs-50``). ``simulated:NAME:RECORDS:STEPS``: evictions or census, as ``dpstream simulate`` has them,
    with so many records a step.

    Errors:
        ValueError: an unknown name. ConfigError: the data are not there.
    """
    rest, _, columns = name.partition("#")
    whole, _, steps = rest.partition("@")
    stream = replace(_whole(whole, seed), name=name)
    if steps:
        cut = stream
        stream = replace(cut, steps=int(steps), changes=lambda: islice(cut.changes(), int(steps)))
    return _narrow(stream, [int(column) for column in columns.split(",")]) if columns else stream


def _whole(name: str, seed: int) -> KeyedStream:
    kind, *rest = name.split(":")
    match kind:
        case "stock":
            return _stock(name, int(rest[0]), float(rest[1]), int(rest[2]), "simulated" in rest, seed)
        case "adult":
            return _adult(name, int(rest[0]), float(rest[1]), int(rest[2]), seed)
        case "hotel":
            return _hotel(name, rest[0])
        case "satellites":
            return _satellites(name, rest[0])
        case "simulated":
            return _simulated(name, rest[0], int(rest[1]), int(rest[2]))
        case "inserts" if rest[0] in ("hotel", "satellites"):
            keyed = _whole(":".join(rest), seed)
            changes = partial(_first, keyed)
            return replace(keyed, name=name, changes=changes, deletes=False, updates=False, followed=False)
        case "inserts" if rest[0] in ORDERS:
            return _inserted(name, invented(rest[0], int(rest[1]), int(rest[2]), seed), False)
        case "inserts":
            return _inserted(name, real(rest[0], rest[1], seed), True)
        case _ if kind in KUMAR_STREAMS:
            order = seed if "randomized" in kind else 0
            return _inserted(name, kumar_stream(kind, data_folder(None), seed=order), True)
    raise ValueError(f"{name}: unknown stream")


def is_there(name: str) -> bool:
    """Whether what the stream is made of is on this machine."""
    folder = {"hotel": "hotel_bookings", "satellites": "satellites", "adult": "adult", "eviction": "eviction"}
    kind = name.removeprefix("inserts:").split(":", maxsplit=1)[0].split("-")[0].lower()
    place = os.environ.get("DPSTREAM_DATA")
    invented_here = kind in ("stock", "simulated") or kind in ORDERS
    return invented_here or (place is not None and (Path(place) / folder[kind]).is_dir())


def changes_of(keys: np.ndarray, present: np.ndarray, codes: np.ndarray) -> KeyedChanges:
    """A step's events, in order, as what each key is at its end.

    Args:
        keys: whole numbers from 0, shape (events,).
        present: False for a delete.
        codes: values after each event; those of deletes are not looked at.
    """
    _, last = np.unique(keys[::-1], return_index=True)
    last = len(keys) - 1 - last
    words = np.zeros((len(last), 2), np.uint64)
    words[:, 0] = keys[last]
    there = present[last]
    return KeyedChanges(words, there, np.ascontiguousarray(codes[last][there], np.int32))


def _stock(name: str, size: int, stay: float, steps: int, odd: bool, seed: int) -> KeyedStream:
    plain = {"season": 0.0, "heavy_tails": False, "reload_at": None, "burst_at": None}
    stock = Stock(size, stay) if odd else Stock(size, stay, **plain)  # type: ignore[arg-type]

    def changes() -> Iterator[KeyedChanges]:
        for step in islice(stock.steps(seed), steps):
            yield changes_of(step.keys, step.kinds != DELETE, step.codes)

    return KeyedStream(name, stock.schema.domain, steps, size, size / stay, changes)


def _adult(name: str, size: int, stay: float, steps: int, seed: int) -> KeyedStream:
    """Real records, in random order and from the beginning again when all have come; exponential stays."""
    replay = kumar_stream("Adult-randomized-bs-50", data_folder(None), seed=seed)
    records = np.asarray(replay.codes)

    def changes() -> Iterator[KeyedChanges]:
        generator = np.random.default_rng(seed)
        came, ends = 0, np.zeros(0)
        alive = np.zeros(0, np.int64)
        for step in range(steps):
            count = int(generator.poisson(size / stay)) + (size if step == 0 else 0)
            arrival = np.where(np.arange(count) < (size if step == 0 else 0), 0.0, generator.random(count))
            fresh = came + np.arange(count)
            came += count
            alive = np.concatenate([alive, fresh])
            ends = np.concatenate([ends, step + arrival + stay * generator.exponential(size=count)])
            gone = ends < step + 1
            keys = np.concatenate([fresh, alive[gone]])
            there = np.arange(len(keys)) < count
            yield changes_of(keys, there, records[keys % len(records)])
            alive, ends = alive[~gone], ends[~gone]

    return KeyedStream(name, replay.domain, steps, size, size / stay, changes, updates=False)


def _hotel(name: str, every: str) -> KeyedStream:
    """Bookings from entry to check-out, cancellation or no-show; step 1 holds those entered before July 2015."""
    domain, keys, days, present, codes = _read("hotel_bookings")
    until = int(np.searchsorted(days, _HOTEL_END))
    keys, days, present, codes = keys[:until], days[:until], present[:until], codes[:until]
    if every == "month":
        months = days.astype("datetime64[M]").astype(int)
        step = months - int(_HOTEL_START.astype("datetime64[M]").astype(int)) + 1
        steps = 26
    else:
        length = {"day": 1, "week": 7}[every]
        step = (days - _HOTEL_START).astype(int) // length + 1
        # Whole weeks: the last days would be a step that only empties the table.
        steps = int((_HOTEL_END - _HOTEL_START).astype(int)) // length
    per_step = {"day": 100, "week": 1_000, "month": 3_000}[every]
    changes = _cut(np.maximum(step, 1), steps, keys, present, codes)
    return KeyedStream(name, domain, steps, 10_000, per_step, changes, real=True)


def _satellites(name: str, every: str) -> KeyedStream:
    """Operating spacecraft from October 1957 on; a table that grows, with stays of years."""
    domain, keys, days, present, codes = _read("satellites")
    unit = {"month": "M", "year": "Y"}[every]
    step = days.astype(f"datetime64[{unit}]").astype(int)
    step = step - int(step.min()) + 1
    changes = _cut(step, int(step.max()), keys, present, codes)
    per_step = {"month": 10, "year": 100}[every]
    return KeyedStream(name, domain, int(step.max()), 300, per_step, changes, real=True, updates=False)


def _simulated(name: str, example: str, rows: int, steps: int) -> KeyedStream:
    """An example stream, whose records have no keys: a delete takes any equal record."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.load(simulate(example, steps, Path(folder) / example, rows_per_step=rows))
        domain, parts = config.schema().domain, [(came, gone) for _, _, came, gone in encoded_steps(config)]

    def changes() -> Iterator[KeyedChanges]:
        waiting, number = dict[bytes, list[int]](), 0
        for came, gone in parts:
            keys = list(range(number, number := number + len(came)))
            for key, row in zip(keys, came, strict=True):
                waiting.setdefault(row.tobytes(), []).append(key)
            left = [waiting[row.tobytes()].pop(0) for row in gone]
            there = np.arange(len(keys) + len(left)) < len(keys)
            yield changes_of(np.array(keys + left, np.int64), there, np.concatenate([came, gone]))

    deletes = any(len(gone) for _, gone in parts)
    return KeyedStream(name, domain, steps, rows * steps, rows, changes, deletes=deletes, followed=False)


def _inserted(name: str, replay: Replay, is_real: bool) -> KeyedStream:
    """Records that come and stay."""

    def changes() -> Iterator[KeyedChanges]:
        for step in range(1, len(replay) + 1):
            rows = np.arange(replay.borders[step - 1], replay.borders[step])
            yield changes_of(rows, np.ones(len(rows), np.bool_), np.asarray(replay.codes)[rows])

    records = len(replay.codes)
    return KeyedStream(
        name, replay.domain, len(replay), records, records / len(replay), changes,
        real=is_real, deletes=False, updates=False, followed=False,
    )  # fmt: skip


def _narrow(stream: KeyedStream, columns: list[int]) -> KeyedStream:
    """Some columns of a stream."""
    names = tuple(stream.domain.names[i] for i in columns)
    sizes = tuple(stream.domain.sizes[i] for i in columns)

    def changes() -> Iterator[KeyedChanges]:
        for step in stream.changes():
            yield KeyedChanges(step.keys, step.present, np.ascontiguousarray(step.codes[:, columns]))

    return replace(stream, domain=Domain(names, sizes), changes=changes)


def _first(keyed: KeyedStream) -> Iterator[KeyedChanges]:
    """Each record at the end of the step in which it comes."""
    seen = np.empty(0, np.uint64)
    for step in keyed.changes():
        keys = step.keys[:, 0]
        fresh = step.present & ~np.isin(keys, seen)
        seen = np.concatenate([seen, keys[fresh]])
        yield KeyedChanges(
            step.keys[fresh],
            np.ones(int(fresh.sum()), np.bool_),
            np.ascontiguousarray(step.codes[fresh[step.present]]),
        )


def _read(name: str) -> tuple[Domain, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Domain, keys, days, whether present, and codes of ``changes.csv.gz``, in order of time."""
    folder = data_folder(None) / name
    values: dict[str, list[str]] = json.loads((folder / "domain.json").read_text(encoding="utf-8"))
    content = gzip.decompress((folder / "changes.csv.gz").read_bytes())
    kinds = {column: pa.string() for column in ("time", "op", *values)}
    read = pyarrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
    table = pyarrow.csv.read_csv(io.BytesIO(content), convert_options=read)
    codes = np.empty((len(table), len(values)), np.int32)
    for i, (column, listed) in enumerate(values.items()):
        found = pc.index_in(table[column], value_set=pa.array(listed, pa.string()))
        if found.null_count:
            raise ValueError(f"{name}: column {column} has values that the domain does not list")
        codes[:, i] = found.to_numpy()
    days = table["time"].to_numpy().astype("datetime64[D]")
    if (days[1:] < days[:-1]).any():
        raise ValueError(f"{name}: the changes are not in order of time")
    domain = Domain(tuple(values), tuple(len(listed) for listed in values.values()))
    return domain, table["key"].to_numpy(), days, table["op"].to_numpy() != "delete", codes


def _cut(
    step: np.ndarray, steps: int, keys: np.ndarray, present: np.ndarray, codes: np.ndarray
) -> Callable[[], Iterator[KeyedChanges]]:
    borders = np.searchsorted(step, np.arange(1, steps + 2))

    def changes() -> Iterator[KeyedChanges]:
        for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            yield changes_of(keys[begin:end], present[begin:end], codes[begin:end])

    return changes
