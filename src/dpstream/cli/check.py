"""``dpstream check``: does the data fit the configuration? Spends nothing."""

from __future__ import annotations

import datetime
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import json_option, of_stream, print_json
from dpstream.core.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from dpstream.core.schema import Problem
    from dpstream.io.sources import Source, StepInput
    from dpstream.project import Config
    from dpstream.project.keyed_check import KeyedCheck

_MAX_STEPS = 3
_MAX_VALUES = 10
WRONG_INPUT = 2
_REPAIRED = (
    "records that violate a constraint are repaired (violations), and every release is about the repaired records; how "
    "many violate is private: on a terminal it stands here"
)


@dataclass
class Finding:
    """One kind of problem of one column, over all steps."""

    problem: Problem
    steps: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Column, what is wrong, where, what is allowed; values only where the owner asked for them."""
        shown = ", ".join(self.steps[:_MAX_STEPS]) + (" and later" if len(self.steps) > _MAX_STEPS else "")
        values = f": {', '.join(self.values)}" if self.values else ""
        what = f"column {self.problem.column!r} {self.problem.what}{values}"
        return f"{what}; at {shown} (allowed: {self.problem.allowed})"


@click.command("check", short_help="Say what in the data does not fit; spends nothing.")
@of_stream()
@click.option(
    "--show-values",
    is_flag=True,
    help="Print offending values and where they are: private, on a terminal only.",
)
@json_option
def command(config: Config, show_values: bool, as_json: bool) -> int:
    """Read the configuration and all data, and say what does not fit, column by column.

    Nothing is spent and nothing is written. Exit code 2 if there is a problem. Lines that begin with "look:" name what
    fits and is perhaps not meant: a column of operations or of identifiers among the attributes, and a last period
    that is cut off. What only the records tell of this (identifiers, a last step with few records, a column without any
    value) is private: it is said on a terminal, and neither in --json nor in pipes and files.

    \b
    Example:
      dpstream check dpstream.toml --show-values
    """
    from dpstream.project.keyed_check import how_it_is_read

    if show_values and (as_json or not sys.stdout.isatty()):
        raise ConfigError(
            "private values are shown on a terminal only",
            where="--show-values",
            allowed="a terminal, without --json, pipes or files",
        )
    source = config.source(reveal=show_values)
    filled: set[str] = set()
    violated: dict[str, int] = {}
    keyed, hints = _keyed_check(config), Hints(config)
    steps, problems = find_problems(
        config,
        reveal=show_values,
        source=source,
        filled=filled,
        keyed=keyed,
        violated=violated,
        hints=hints,
    )
    fits = not problems
    constraints = config.schema().constraints
    repaired = constraints is not None and bool(constraints.repair)
    if not config.schema().confirmed:
        problems.append("the schema is a draft (confirmed = false): it will not run before it is confirmed")
    if as_json:
        told = hints.sentences(private=False)
        print_json({"format": 1, "steps": steps, "problems": problems, "hints": told})
    else:
        for sentence in problems:
            click.echo(sentence)
        terminal = sys.stdout.isatty()
        for name in config.schema().names if steps and terminal else ():
            if name not in filled:
                click.echo(f"column {name!r} holds nothing in any record: is this its name in the data?")
        for sentence in hints.sentences(private=terminal):
            click.echo(f"look: {sentence}")
        if repaired:
            click.echo(_REPAIRED)
        for words, records in violated.items() if terminal else ():
            verb = "violates" if records == 1 else "violate"
            click.echo(f"{counted(records, 'record')} {verb} the constraint {words!r} (private)")
        if keyed is not None and steps and not problems:
            click.echo(how_it_is_read(config.source_options))
            hidden = ["--show-values says how many are there, and how many come and leave a step (private)"]
            shown = keyed.sentences(config.source_options.every) if show_values else hidden
            for sentence in shown:
                click.echo(sentence)
        verdict = "all rows fit the schema" if fits else "fix the schema or the data"
        if fits and repaired:
            verdict += ", once those that violate a constraint are repaired"
        if fits and problems:
            verdict += "; set confirmed = true in [schema] when you have looked at each line marked CONFIRM"
        click.echo(f"{counted(steps, 'step')} read: {verdict}")
    return WRONG_INPUT if problems else 0


def find_problems(
    config: Config,
    *,
    reveal: bool,
    until: int | None = None,
    source: Source | None = None,
    filled: set[str] | None = None,
    keyed: KeyedCheck | None = None,
    violated: dict[str, int] | None = None,
    hints: Hints | None = None,
) -> tuple[int, list[str]]:
    """Number of steps (up to ``until``), and a sentence for each column and kind of problem.

    Args:
        source: where the records are read; the configuration's own by default.
        filled: gets the names of the columns that hold something in some record.
        keyed: follows the records, where they have keys; the configuration's own by default.
        violated: gets how many records violate each public constraint, whatever becomes of them. Private.
        hints: sees all rows.

    Errors:
        StepError: where each file is a step, a file sorts before one that is released, so that a run refuses it.
    """
    from dpstream.core.contracts import CheckedBatch
    from dpstream.core.privacy import InsertedRecord
    from dpstream.core.tables.contribution import id_bytes

    plan, column, steps = config.plan(), str(config.source_options.user_column), 0
    what = "key" if isinstance(plan.unit, InsertedRecord) else "user id"
    schema = plan.reading_schema(config.schema())
    checks = None if config.family.checks is None else config.family.checks(plan, column)
    findings: dict[tuple[str, str], Finding] = {}
    following = _keyed_check(config) if keyed is None else keyed
    stopped: list[str] = []
    notes: list[str] = []
    seen, key = _read_before(config)
    for entry in (source or config.source(reveal=reveal)).steps(seen=seen, key=key):
        if until is not None and entry.step > until:
            break
        steps = entry.step
        place = f"step {entry.step} ({entry.batch_id})"
        for table, keeps in _tables(entry):
            if table is not None:
                if hints is not None:
                    hints.see(entry, table)
                if filled is not None:
                    names = [name for name in table.column_names if name not in filled]
                    filled.update(name for name in names if table.column(name).null_count < table.num_rows)
                if violated is not None and schema.constraints is not None:
                    for words, records in schema.violated(table, where=place).items():
                        violated[words] = violated.get(words, 0) + records
                for problem in schema.problems(table, where=place, reveal=reveal):
                    if not (keeps and problem.kind == "null"):
                        _add(findings, problem, place)
        if isinstance(entry.engine, CheckedBatch):
            if filled is not None:
                filled.update(schema.names)  # an engine tells what is wrong, and not what is there
            for problem in entry.engine.problems(schema, place):
                _add(findings, problem, place)
        if following is not None and entry.engine is None and not findings and not stopped:
            stopped += _stops(following, entry, place, notes)
        if entry.users is not None:
            unusable = _unusable_ids(column, entry.users, place, what)
            if unusable is not None:
                _add(findings, unusable, place)
            elif checks is not None:
                for problem in checks.problems(id_bytes(entry.users[0], place)):
                    _add(findings, problem, place)
    return steps, [finding.sentence() for finding in findings.values()] + notes + stopped


def _read_before(config: Config) -> tuple[dict[str, int] | None, bytes]:
    """Which files a stream has read, where each file is a step; the same as a run knows it."""
    from dpstream.stream.ledger.reading import read_source_position

    options = config.source_options
    if options.every != "files" or options.kind != "files":
        return None, b""
    found = read_source_position(config.state_dir, server=config.server, key=config.state_key())
    return (None, b"") if found is None else found


def _tables(entry: StepInput) -> Iterator[tuple[Any, bool]]:
    """The rows whose values have to fit, and whether nulls among them say nothing."""
    from dpstream.project.keyed_check import checked_rows

    if entry.keyed is not None:
        yield from checked_rows(entry.keyed)
    else:
        yield from ((entry.inserts, False), (entry.deletes, False))


def _keyed_check(config: Config) -> KeyedCheck | None:
    from dpstream.project.keyed_check import KeyedCheck

    if config.source_options.key_column is None:
        return None
    return KeyedCheck(config.plan().reading_schema(config.schema()), config.unit)


def _stops(following: KeyedCheck, entry: StepInput, place: str, notes: list[str]) -> list[str]:
    """What of keys and operations would stop the stream at a step; no step after it is looked at. ``notes`` gets what
    the owner can confirm."""
    from dpstream.core.errors import DataError

    try:
        note = following.add(entry)
    except DataError as error:
        return [f"{error.what}; at {place} (allowed: {error.allowed})"]
    notes += [] if note is None else [f"{note}; at {place}"]
    return []


def _unusable_ids(column: str, users: tuple[Any, Any], place: str, what: str) -> Problem | None:
    from dpstream.core.schema import Problem
    from dpstream.core.tables.contribution import id_bytes

    try:
        for ids in users:
            id_bytes(ids, place, what)
    except DataError as error:
        return Problem(column, "user", f"cannot be used as {what}s: {error.what}", str(error.allowed))
    return None


def _add(findings: dict[tuple[str, str], Finding], problem: Any, place: str) -> None:
    finding = findings.setdefault((problem.column, problem.kind), Finding(problem))
    if place not in finding.steps:
        finding.steps.append(place)
    new = [value for value in problem.values if value not in finding.values]
    finding.values += new[: max(0, _MAX_VALUES - len(finding.values))]


#: Rows that are looked at for identifiers.
_HINT_ROWS = 20_000
#: A last period is compared with so many others or more, and only where they hold so many rows.
_OTHERS, _MANY = 4, 20


class Hints:
    """Sees the rows of all steps, and says what looks wrong although it fits. Private, but for what the file says."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tables: list[Any] = []
        self._left = _HINT_ROWS
        self._step = 0
        self._rows: dict[int, int] = {}
        self._batch_id = ""

    def see(self, entry: StepInput, table: Any) -> None:
        """Take rows of a step."""
        self._step, self._batch_id = entry.step, entry.batch_id
        self._rows[entry.step] = self._rows.get(entry.step, 0) + table.num_rows
        whole = self._config.source_options.whole_tables
        if self._left > 0 and not (whole and self._tables):
            self._tables.append(table.slice(0, self._left))
            self._left -= table.num_rows

    def sentences(self, *, private: bool) -> list[str]:
        """What to look at, one sentence each; what only the records say where ``private`` sentences may be shown."""
        told = [*self._operations(), *self._ends_within()]
        return [*told, *self._identifiers(), *self._cut_off()] if private else told

    def _operations(self) -> list[str]:
        from dpstream.core.schema import Categorical
        from dpstream.project.keyed_draft import are_operations

        return [
            f"column {column.name!r} holds words of a change feed; if it says what happened to a record, name it as "
            "op_column in [source], and take it out of [schema.columns]"
            for column in self._config.schema().columns
            if isinstance(column, Categorical) and are_operations(column.name, column.bin_labels())
        ]

    def _identifiers(self) -> list[str]:
        import pyarrow as pa

        from dpstream.core.schema import Categorical, Integer
        from dpstream.project.column_draft import is_nearly_unique

        found = []
        for column in self._config.schema().columns:
            if isinstance(column, Categorical | Integer):
                parts = [
                    table.column(column.name) for table in self._tables if column.name in table.column_names
                ]
                chunks = [
                    chunk for part in parts for chunk in part.chunks if not pa.types.is_nested(chunk.type)
                ]
                same = [chunk for chunk in chunks if chunk.type == chunks[0].type]
                if same and is_nearly_unique(pa.chunked_array(same)):
                    found.append(
                        f"hardly a value of column {column.name!r} occurs twice; if it is an identifier, take it out "
                        "of [schema.columns] and name it in the list ignore of [schema]"
                    )
        return found

    def _ends_within(self) -> list[str]:
        options = self._config.source_options
        last, grid = options.final_step(), options.grid
        period = None if grid is None or last is None else grid.period(last)
        if period is not None and last == self._step and isinstance(options.end, datetime.date):
            final = period[1] - datetime.timedelta(days=1)
            if options.end < final:
                return [
                    f"end = {options.end} lies within the last period, which ends on {final}: step {last} "
                    f"({self._batch_id}) would be released before it is over, and later records of it come too late"
                ]
        return []

    def _cut_off(self) -> list[str]:
        options = self._config.source_options
        if self._ends_within():
            return []  # said already
        others = [rows for step, rows in self._rows.items() if step != self._step]
        usual = statistics.median(others) if len(others) >= _OTHERS else 0
        whole = options.whole_tables or options.key_column is not None
        if not whole and usual >= _MANY and self._rows[self._step] < usual / 2:
            return [
                f"step {self._step} ({self._batch_id}), the last one, holds less than half of what is usual: if its "
                "period was cut off when the data were made, end the stream one step earlier until the rest is there"
            ]
        return []
