"""Every section and key of ``dpstream.toml``, in one table: read, documented and explained from here."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

from dpstream.core.counters import COUNTER_NAMES
from dpstream.families.tabular import AIM, MWEMPGM, Baseline, DPStabs, Pooled
from dpstream.families.tabular.choice import BEST
from dpstream.families.tabular.plans import DEFAULT_ROUNDS
from dpstream.project.asking_keys import ASKING, ASKING_KEYS
from dpstream.project.base_keys import BASE_KEYS
from dpstream.project.classifier_keys import CLASSIFIER_KEYS
from dpstream.project.growing_keys import GROWING, GROWING_KEYS
from dpstream.project.offline_keys import OFFLINE_KEYS
from dpstream.project.output_keys import OUTPUT_KEYS, Key
from dpstream.project.panel_keys import PANEL_KEYS, PANELS
from dpstream.project.points_keys import POINTS, POINTS_KEYS
from dpstream.project.server_keys import SERVER_KEYS

__all__ = [
    "DEFAULT_MECHANISM",
    "FAMILIES_TO_COME",
    "KEYS",
    "MECHANISMS",
    "SECTIONS",
    "Key",
    "keys_of",
    "recipe_defaults",
]

#: Mechanisms that can be run.
MECHANISMS = ("pooled", "dpstabs", "baseline", *PANELS, *POINTS, *GROWING, *ASKING)
#: What runs where the file names none.
DEFAULT_MECHANISM = MECHANISMS[0]
#: Names that are taken by families that are not built yet.
FAMILIES_TO_COME: tuple[str, ...] = ()


def recipe_defaults(kind: type[Any]) -> dict[str, Any]:
    """Field name -> default of a recipe, so that files, this table and Python have the same ones."""
    fields = dataclasses.fields(kind)
    return {item.name: item.default for item in fields if item.default is not dataclasses.MISSING}


def _default(name: str) -> str:
    """The default of a mechanism's option, as the table shows it."""
    kinds = {"pooled": Pooled, "dpstabs": DPStabs, "baseline": MWEMPGM, "aim": AIM}
    owns = {word: recipe_defaults(kind) for word, kind in kinds.items()}
    values = [(word, str(own[name])) for word, own in owns.items() if own.get(name) is not None]
    first = values[0][1]
    others = [f"{word}: {value}" for word, value in values if value != first]
    return f"{first} ({', '.join(others)})" if others else first


def _choices(name: str, kind: type[Any] = DPStabs) -> str:
    """The words that an option of a mechanism takes."""
    return ", ".join(get_args(get_type_hints(kind)[name]))


SECTIONS: dict[str, str] = {
    "": "",
    "stream": "Who is protected, and what may be public.",
    "source": "Where the private rows are, and how they are cut into steps.",
    "schema": "What the columns may hold; public, written by the steward (see the schema's README).",
    "mechanism": "How the synthetic copy is made.",
    "budget": "What all releases together may cost one unit of protection.",
    "output": "Where releases go; public.",
    "state": "Where the stream's secret state is kept.",
    "base": "The last release of an earlier stream that this one begins with, and what becomes of its columns (see "
    "the guide on evolution). Without the section a stream begins empty.",
}

_BOTH = ("dpstabs", "baseline")
_DPSTABS = ("dpstabs",)
_BASELINE = ("baseline",)
_POOLED = ("pooled",)
_TABLES = (*_BOTH, *_POOLED)

KEYS: tuple[Key, ...] = (
    Key("", "format", "1", "1", "the only format there is", "Version of this file's format."),
    Key(
        "stream",
        "name",
        "1 to 200 printable characters",
        None,
        "",
        "Name of the stream; it is published in every manifest.",
    ),
    Key(
        "stream",
        "unit",
        "event, event-replace, user; of a panel individual, individual-replace",
        "event; of a panel individual",
        "batch sizes stay private unless the owner declares them public",
        "Who is protected: one record inserted or deleted at one step (`event`); one record's value where "
        "the numbers of records are public (`event-replace`); or all records of one user id together (`user`, "
        "with `max_events` and `[source] user_column`). Of a panel, everything that one person reports: added or "
        "removed (`individual`), or replaced, with the number of people public (`individual-replace`). Tables cannot "
        "have these: their mechanisms do not follow people.",
    ),
    Key(
        "stream",
        "total",
        "private, public",
        "private",
        "a number of records is information about people, too",
        "`public`: the owner declares the number of records of every step public. That switches the unit to "
        "`event-replace` (of a panel, `individual-replace`): a changed record then moves two cells, so the noise "
        "doubles.",
    ),
    Key(
        "stream",
        "max_events",
        "a number from 1 to 1000000, with unit = user",
        "not set",
        "it has to be written with the unit user, and means nothing without it",
        "How many events (inserts and deletes together) of one user are counted over the whole life of the stream; "
        "all further ones are left out. Each event gets its part of the budget, so choose it from what a user "
        "typically does, not from the largest user.",
    ),
    Key(
        "source",
        "kind",
        "files, duckdb, postgres, postgres-changes",
        "files",
        "most tables are exported as files",
        "Where the private rows are: files (or standard input), a query to a DuckDB file, a PostgreSQL table that "
        "only grows, or the changes of one (logical replication).",
    ),
    Key(
        "source",
        "path",
        'a pattern such as data/*.parquet, a list of them, or "-"',
        "not set; needed for files",
        "other kinds of sources have no files",
        "The data: csv, parquet or ndjson files (csv and ndjson also with .gz), relative to this file; `-`: "
        "ndjson on standard input.",
    ),
    Key(
        "source",
        "database",
        "a file, relative to this one",
        "not set",
        "only for kind = duckdb",
        "The DuckDB file. It is opened for reading only.",
    ),
    Key(
        "source",
        "query",
        "one SELECT with two parameters, such as SELECT * FROM t WHERE day >= ? AND day < ?",
        "not set",
        "only for kind = duckdb",
        "Gives the records of one step. The parameters are the first day of the period and the day after its last "
        "one, or a step number and the next one.",
    ),
    Key(
        "source",
        "eof",
        "hold, close",
        "hold",
        "a pipe that broke looks like one that ended",
        "What the end of standard input means for the step that is open: it is not released and its records have to "
        "be sent again (`hold`), or it is complete (`close`).",
    ),
    Key(
        "source",
        "time_column",
        "a column of the data that is not in the schema",
        "not set",
        "without it, steps are files or numbers of rows",
        "Says to which step a row belongs: a date or a time with `every`, a whole step number without it.",
    ),
    Key(
        "source",
        "every",
        'day, week, month, "14 days", "2 weeks", "3 months", files',
        "not set",
        "without it the time column holds step numbers",
        "Length of a step, counted from `start`; or `files`: one file, one step.",
    ),
    Key(
        "source",
        "rows",
        "a number of rows from 1, where sizes are public",
        "not set",
        "cutting by rows makes the size of every step public",
        'Cut into steps of this many rows, in the order of the files. Needs `[stream] total = "public"`.',
    ),
    Key(
        "source",
        "start",
        "a day such as 2026-01-05, or a step number",
        "1 for step numbers; needed with a calendar",
        "borders of steps must not depend on private data, such as the first record's date",
        "The public first day of step 1, or the number of the first step.",
    ),
    Key(
        "source",
        "end",
        "a day, a step number, today (with a calendar), data",
        "not set; needed with a time column",
        "the number of steps must not depend on private data unless the owner says that it may",
        "The last day or step. `today`: every period that is over by the clock. `data`: the step of the "
        "newest record, which the owner thereby declares public.",
    ),
    Key(
        "source",
        "op_column",
        "a column that says insert or delete",
        "not set",
        "without it, every row is an insert",
        "What a row does. A delete is an event of its own. The baseline then runs twice at every step.",
    ),
    Key(
        "source",
        "op_values",
        'words such as {insert = ["c", "after"], delete = ["d", "before"]}',
        "insert and update-after; delete and update-before",
        "an update is two rows, the old one as a delete and the new one as an insert",
        "The words of `op_column`. A word for updates that comes without the old row cannot be used.",
    ),
    Key(
        "source",
        "late",
        "error, next-step, drop-and-count-nothing",
        "error",
        "nothing is moved or dropped unless the owner says so",
        "What happens to a row that belongs to a step that is already released.",
    ),
    Key(
        "source",
        "lag",
        '"30 minutes", "6 hours", "2 days", "1 week"',
        "not set",
        "a period is taken as soon as it is over by the clock",
        "Grace period of a calendar: a period is taken when it has been over for so long, so that records may "
        "arrive a little later.",
    ),
    Key(
        "source",
        "complete",
        "rename, done",
        "rename",
        "a file that is renamed into place is never half-written",
        "When a file is finished: as soon as its name matches `path`, or when an empty file `NAME.done` is there "
        "too. That its size has stopped growing proves nothing.",
    ),
    Key(
        "source",
        "broken",
        "error, missing, drop-and-count-nothing",
        "error",
        "nothing is made up or left out unless the owner says so",
        "What becomes of a record of a csv or NDJSON source that cannot be taken apart: a line with more or fewer "
        "cells, with an open quote, or that is no JSON object. `missing`: it has a null in every column. With "
        "`missing` and `drop-and-count-nothing`, bytes that are no UTF-8 are read as U+FFFD, and keys that nobody "
        "declared are left out.",
    ),
    Key(
        "source",
        "line_breaks",
        "true, false",
        "false",
        "a record is a line, so none can take in those that follow it",
        "Whether a quoted cell of a csv file may run over several lines. The files are then trusted to close every "
        "quote.",
    ),
    Key(
        "source",
        "user_column",
        "a column of the data that is not in the schema, with unit = user or a panel",
        "not set",
        "it has to be written with the unit user and with panels, and means nothing without them",
        "The column that says whose record a row is: texts or whole numbers. A null or empty id is an error.",
    ),
    *SERVER_KEYS,
    Key(
        "mechanism",
        "name",
        ", ".join(MECHANISMS),
        DEFAULT_MECHANISM,
        "one measurement serves many steps, so there is less noise in each than where every step is measured",
        "Which mechanism runs (see the guide on choosing one)."
        + (f" Not built yet: {', '.join(FAMILIES_TO_COME)}." if FAMILIES_TO_COME else ""),
    ),
    Key(
        "mechanism",
        "workload",
        'all-1-way, all-2-way, ..., or a list such as [["zip", "rent"], {columns = ["zip"], weight = "1/2"}]',
        "all-2-way",
        "pairs of columns are what most readers of a table look at",
        "The marginals that the synthetic copy should preserve. With one column the default is `all-1-way`.",
        (*_TABLES, *GROWING),
    ),
    Key(
        "mechanism",
        "k",
        "1 to the number of marginals",
        f"{DEFAULT_ROUNDS}, or all marginals if fewer",
        "each further one takes its share of the noise budget from the others",
        "Marginals measured at every step, or in every run of a black box.",
        (*_BOTH, *GROWING),
    ),
    Key(
        "mechanism",
        "counter",
        ", ".join((BEST, *COUNTER_NAMES)),
        _default("counter"),
        "the counter with the smallest predicted error for the measurements that a marginal can expect",
        "How noisy running sums are kept. `best`: where every marginal is measured at every step, the counter whose "
        "running sums have the smallest predicted error; where marginals take turns, the one whose single gains have "
        "(which is `simple`). `dpstream plan` shows the figures. A stream keeps the counter that it began with.",
        (*_DPSTABS, PANELS[1]),
    ),
    Key(
        "mechanism",
        "score",
        _choices("score"),
        _default("score"),
        "errors are summed over a marginal's cells, less one record a cell: large marginals must earn their noise",
        "How a selection judges what a marginal would gain.",
        (*_BOTH, *GROWING),
    ),
    Key(
        "mechanism",
        "aggregate",
        _choices("aggregate"),
        _default("aggregate"),
        "the last model of a step knows all measurements of the step",
        "Which of a step's models is released: the last, or the average of all k.",
        _DPSTABS,
    ),
    Key(
        "mechanism",
        "past",
        _choices("past"),
        _default("past"),
        "a model of the current batches knows more about this step than the whole table does",
        "What is booked for a marginal at a step that did not measure it; `literal` is as published.",
        _DPSTABS,
    ),
    Key(
        "mechanism",
        "prior",
        _choices("prior", Baseline),
        str(recipe_defaults(Baseline)["prior"]),
        "a batch looks about like the batch before it, and its model is released already",
        "Where each run starts: from the previous run's model, or from the uniform distribution.",
        _BASELINE,
    ),
    Key(
        "mechanism",
        "prior_weight",
        "a number from 0 to 100",
        _default("prior_weight"),
        "a little: enough to steady a small batch, too little to hide that the stream changes",
        "How much a batch is taken to look like the batches before it (0: not at all; 1: as if drawn from "
        "them).",
        _BOTH,
    ),
    Key(
        "mechanism",
        "select_share",
        "an exact number between 0 and 1",
        _default("select_share"),
        "a choice can bear more noise than a measurement; the published split is 1/2",
        "Share of the budget for selections.",
        (*_DPSTABS, *_POOLED),
    ),
    Key(
        "mechanism",
        "staleness",
        "an exact number above 0, up to 1/2",
        _default("staleness"),
        "shorter epochs follow a stream more closely, longer ones have less noise",
        "So large a share of the steps so far, or one step, may a release be behind at most: it sets the length of "
        "epochs.",
        _POOLED,
    ),
    Key(
        "mechanism",
        "measure_share",
        "an exact number between 0 and 1",
        f"{_default('measure_share')} (aim: 4/5 of an epsilon, 9/10 of a rho)",
        "the published split: half for choosing, half for measuring",
        "Share of the budget for measurements; of AIM, of each round's.",
        (*_BASELINE, *GROWING),
    ),
    Key(
        "mechanism",
        "iterations",
        "1 or more",
        _default("iterations"),
        "a fit that starts from little needs so many (dpstabs, aim: from the last model it needs no more)",
        "Iterations of each fit; public post-processing, costs time only.",
        (*_TABLES, *GROWING),
    ),
    Key(
        "mechanism",
        "max_cells",
        "1 or more",
        _default("max_cells"),
        "larger trees cost time and memory in proportion, and pay with large budgets only",
        "Limit on the cells of the model's junction tree; no marginal of the workload may be larger.",
        (*_TABLES, *GROWING),
    ),
    *OFFLINE_KEYS,
    *ASKING_KEYS,
    *PANEL_KEYS,
    *POINTS_KEYS,
    *GROWING_KEYS,
    *CLASSIFIER_KEYS,
    Key(
        "budget",
        "epsilon",
        'an exact positive number up to 1000, such as "1" or "0.5"',
        "not set",
        "one of epsilon and rho has to be written",
        "Pure differential privacy; with `delta`, approximate: converted to the largest rho within it.",
    ),
    Key(
        "budget",
        "rho",
        "an exact positive number",
        "not set",
        "one of epsilon and rho has to be written",
        "Zero-concentrated differential privacy.",
    ),
    Key(
        "budget",
        "delta",
        'an exact number between 0 and 1, such as "1e-9", together with epsilon',
        "not set",
        "without delta the guarantee has no exception",
        "The probability left out of an (epsilon, delta) guarantee.",
    ),
    Key(
        "budget",
        "horizon",
        "none, or a number of steps from 1",
        "none",
        "the mechanisms for tables run without end at the same cost",
        "Most steps the stream may have; counters with a horizon are tuned to it. A panel needs it: its noise is made "
        "for so many periods.",
    ),
    Key(
        "budget",
        "account",
        "a file that dpstream ledger account create made, outside of state and output",
        "not set",
        "a single stream on a private source needs no sum",
        "The account in which several streams on one private source add up. A stream is charged its whole budget "
        "there when it is started, and refused where the account's limit would be passed.",
    ),
    *OUTPUT_KEYS,
    *BASE_KEYS,
)


def keys_of(section: str) -> dict[str, Key]:
    """The keys of one section by name.

    >>> sorted(keys_of("budget"))
    ['account', 'delta', 'epsilon', 'horizon', 'rho']
    """
    return {key.name: key for key in KEYS if key.section == section}
