"""``dpstream check``: does the data fit the configuration? Spends nothing.

Trusted base: owner (shows the owner problems of private records).
"""

from __future__ import annotations

import datetime
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import first_lines, json_option, of_stream, print_facts, screen_paragraphs
from dpstream.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dpstream.core.schema import Problem
    from dpstream.io.sources import StepInput
    from dpstream.project import Config
    from dpstream.project.keyed_check import KeyedCheck

_MAX_STEPS = 3
_MAX_VALUES = 10
WRONG_INPUT = 2


@dataclass
class Finding:
    """One kind of problem of one column, over all steps."""

    problem: Problem
    steps: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def add(self, problem: Problem, place: str) -> None:
        """The same problem at one more place."""
        if place not in self.steps:
            self.steps.append(place)
        new = [value for value in problem.values if value not in self.values]
        self.values += new[: max(0, _MAX_VALUES - len(self.values))]

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
    help="Print offending values: private, on a terminal only.",
)
@click.option("--all", "everything", is_flag=True, help="Show all problems and hints.")
@json_option
def command(config: Config, show_values: bool, everything: bool, as_json: bool) -> int:
    """Read the configuration and all data, and say what does not fit, column by column.

    Nothing is spent or written. Exit code 2: there is a problem. "look:" marks what fits but may be unintended.
    What only records show (identifiers, a short last step, empty columns) is private: a terminal shows it, pipes
    and --json do not.

    \b
    Example:
      dpstream check dpstream.toml --show-values
    """
    if show_values and (as_json or not sys.stdout.isatty()):
        raise ConfigError(
            "private values are for a terminal only",
            where="--show-values",
            allowed="a terminal, without --json, pipes or files",
        )
    checked = DataCheck(config, reveal=show_values)
    problems, steps = checked.read(), checked.steps
    schema, fits, private = config.schema(), not problems, sys.stdout.isatty()
    if not schema.confirmed:
        problems.append(
            "the schema is an unconfirmed draft: set confirmed = true when each line marked CONFIRM is public"
        )
    if config.undecided:
        problems.append(f"marked FILL IN, which a run refuses: {', '.join(config.undecided)}")
    facts = {
        "format": 1,
        "steps": steps,
        "problems": problems,
        "hints": checked.hints.sentences(private=private and not as_json),
    }
    follows = checked.keyed if steps and not problems else None
    options = config.source_options
    more = {
        "empty": [name for name in schema.names if steps and private and name not in checked.filled],
        "repaired": schema.constraints is not None and bool(schema.constraints.repair),
        "violated": checked.violated if private else {},
        "shape": None if follows is None else options.shape,
        "key": options.key_column,
        "followed": follows.sentences(options.every) if follows is not None and show_values else None,
    }
    said = screen_paragraphs("check_attention", facts | more)
    attention = said if everything else first_lines(said)
    print_facts(
        "check",
        facts,
        as_json=as_json,
        wrap=True,
        fits=fits,
        repaired=more["repaired"],
        attention=attention,
        more=len(said) - len(attention),
    )
    return WRONG_INPUT if problems else 0


class DataCheck:
    """Reads all steps, and finds what in them does not fit.

    Attributes:
        steps: how many were read.
        filled: the columns that hold something in some record. Private.
        violated: how many records violate each public constraint, whatever becomes of them. Private.
        keyed: follows the records, where they have keys; None where they have none.
        hints: has seen all rows.
    """

    def __init__(self, config: Config, *, reveal: bool = False) -> None:
        from dpstream.core.privacy import InsertedRecord
        from dpstream.project.keyed_check import KeyedCheck

        plan = config.plan()
        self._config, self._reveal = config, reveal
        self._ids = "key" if isinstance(plan.unit, InsertedRecord) else "user id"
        self._column = str(config.source_options.user_column)
        self._people = None if config.family.checks is None else config.family.checks(plan, self._column)
        self._schema = plan.reading_schema(config.schema())
        self._findings: dict[tuple[str, str], Finding] = {}
        self._notes: list[str] = []
        self._stopped: list[str] = []
        self.steps = 0
        self.filled: set[str] = set()
        self.violated: dict[str, int] = {}
        self.keyed: KeyedCheck | None = None
        if config.source_options.key_column is not None:
            self.keyed = KeyedCheck(self._schema, config.unit)
        self.hints = Hints(config)

    def read(self, until: int | None = None) -> list[str]:
        """A sentence for each column and kind of problem, in the steps up to ``until``.

        Errors:
            StepError: where each file is a step, a file sorts before one that is released, so that a run refuses it.
        """
        seen, key = self._read_before()
        for entry in self._config.source(reveal=self._reveal).steps(seen=seen, key=key):
            if until is not None and entry.step > until:
                break
            self.steps = entry.step
            for problem in self._problems(entry, place := f"step {entry.step} ({entry.batch_id})"):
                finding = self._findings.setdefault((problem.column, problem.kind), Finding(problem))
                finding.add(problem, place)
            if self.keyed is not None and entry.engine is None and not self._findings and not self._stopped:
                self._follow(self.keyed, entry, place)
        return [*(finding.sentence() for finding in self._findings.values()), *self._notes, *self._stopped]

    def _read_before(self) -> tuple[dict[str, int] | None, bytes]:
        """Which files a stream has read, where each file is a step; the same as a run knows it."""
        from dpstream.stream.ledger.reading import read_source_position

        config, options = self._config, self._config.source_options
        if options.every != "files" or options.kind != "files":
            return None, b""
        position = read_source_position(config.state_dir, server=config.server, key=config.state_key())
        return (None, b"") if position is None else position

    def _problems(self, entry: StepInput, place: str) -> Iterator[Problem]:
        """Of the rows of a step, and of the ids of those whose records they are."""
        from dpstream.core.schema import Problem
        from dpstream.core.tables.access import CheckedBatch
        from dpstream.core.tables.contribution import id_bytes
        from dpstream.project.keyed_check import checked_rows

        tables = [(entry.inserts, False), (entry.deletes, False)]
        for table, keeps in tables if entry.keyed is None else checked_rows(entry.keyed):
            if table is None:
                continue
            self.hints.see(entry, table)
            self.filled |= {
                name for name in table.column_names if table.column(name).null_count < table.num_rows
            }
            if self._schema.constraints is not None:
                for words, records in self._schema.violated(table, where=place).items():
                    self.violated[words] = self.violated.get(words, 0) + records
            for problem in self._schema.problems(table, where=place, reveal=self._reveal):
                if not (keeps and problem.kind == "null"):
                    yield problem
        if isinstance(entry.engine, CheckedBatch):
            self.filled |= set(self._schema.names)  # an engine tells what is wrong, and not what is there
            yield from entry.engine.problems(self._schema, place)
        if entry.users is not None:
            try:
                inserted, deleted = (id_bytes(ids, place, self._ids) for ids in entry.users)
            except DataError as error:
                what = f"cannot be used as {self._ids}s: {error.what}"
                yield Problem(self._column, "user", what, str(error.allowed))
            else:
                self.hints.count(entry.step, [*inserted.to_pylist(), *deleted.to_pylist()])
                yield from () if self._people is None else self._people.problems(inserted)

    def _follow(self, keyed: KeyedCheck, entry: StepInput, place: str) -> None:
        """What of keys and operations would stop the stream at a step; no step after it is looked at."""
        try:
            note = keyed.add(entry)
        except DataError as error:
            self._stopped.append(f"{error.what}; at {place} (allowed: {error.allowed})")
        else:
            self._notes += [] if note is None else [f"{note}; at {place}"]


#: Rows that are looked at for identifiers.
_HINT_ROWS = 20_000
#: A last period is compared with so many others or more, and only where they hold so many rows.
_OTHERS, _MANY = 4, 20


class Hints:
    """Sees the rows of all steps, and says what looks wrong although it fits. Private, but for what the file says.

    Attributes:
        bound: the most events of a user that are counted. events: of each user. Private.
    """

    def __init__(self, config: Config) -> None:
        from dpstream.stream.declared import bound_of

        self._config, self.bound = config, bound_of(config.unit)
        self._tables: list[Any] = []
        self._per = getattr(config.unit, "per", None)
        #: How many each user has; of each period by itself, where the bound counts anew.
        self._events = Counter[tuple[int, bytes]]()
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

    def count(self, step: int, ids: list[bytes]) -> None:
        """Take a step's ids of users, where their events are bounded."""
        if self.bound is not None:
            period = 0 if self._per is None else self._per.number(step)
            self._events.update((period, one) for one in ids)

    def sentences(self, *, private: bool) -> list[str]:
        """What to look at, one sentence each; what only the records say where ``private`` sentences may be shown."""
        hints = [*self._operations(), *self._ends_within()]
        if not private:
            return hints
        from dpstream.project.contribution_bounds import bound_sentences

        whose = "users" if self._per is None else f"users in a period ({self._per.name})"
        bounds = bound_sentences(self._events.values(), self.bound, whose)
        return [*hints, *self._identifiers(), *self._cut_off(), *bounds]

    def _operations(self) -> list[str]:
        from dpstream.core.schema import Categorical
        from dpstream.project.keyed_draft import are_operations

        return [
            f"column {column.name!r} looks like the operations of a change feed: if so, name it as op_column in "
            "[source] only"
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
                        f"values of column {column.name!r} hardly repeat: move an identifier to ignore in [schema]"
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
                    f"end = {options.end} cuts off step {last} ({self._batch_id}), whose period ends on {final}"
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
                f"the last step, {self._step} ({self._batch_id}), holds less than half the usual rows: if it is "
                "incomplete, end one step earlier"
            ]
        return []
