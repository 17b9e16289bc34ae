"""``dpstream.toml`` as one frozen value: a recipe and the places, without data and without state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpstream.core.contracts import ExpectedTable, Family, RecipeContext, StreamPlan, StreamRecipe, located
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import Budget, InsertedRecord, Randomness, Unit
from dpstream.core.schema import Schema
from dpstream.families.registry import DEFAULT_MECHANISM, family_of
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.base import BaseOptions
from dpstream.project.keys import Accuracy, Output, Publication, StateKeys, StreamKeys
from dpstream.project.public_knowledge import (
    check_taken,
    expected_words,
    of_stays,
    read_discovery,
    read_expected,
    read_per,
    read_periods,
    read_prior,
    read_season,
)
from dpstream.project.reader import EffectiveSetting, Section
from dpstream.project.schema_file import load_toml, read_schema
from dpstream.project.sections import (
    BudgetOptions,
    check_account,
    check_columns,
    check_database,
    check_fits,
    check_key,
    check_source,
    default_mechanism,
    named_family,
    read_budget,
    read_output,
    read_recipe,
    read_server,
    read_source,
    read_unit,
    sections_of,
)
from dpstream.stream import PostgresServer, StateKey, Stream
from dpstream.stream.arguments import check_places
from dpstream.stream.declared import bound_of

if TYPE_CHECKING:
    from dpstream.io.sinks import Publisher
    from dpstream.io.sources import Source
    from dpstream.stream.predecessor_cost import Base


def _check_database_place(output: Output, state: Path) -> None:
    """A database that is a file does not lie in the secret state (ConfigError)."""
    from dpstream.io.sinks.target import OWN_SINKS, SINKS

    is_file = output.sink == "duckdb" or (output.sink not in OWN_SINKS and SINKS.get(output.sink).folder)
    if is_file and output.database is not None:
        check_places(state, Path(output.database), "output database")


def sink_of(output: Output, state: Path, make_plan: Callable[[], StreamPlan], schema: Schema) -> Publisher:
    """The folder, and the database, the bucket, the standard output or the tables that it is followed by.

    Args:
        state: the secret state's folder.

    Errors:
        ConfigError: a place that lies in the state, or a column whose name the sink needs.
    """
    from dpstream.io.sinks import Bucket, DuckDBFeed, PostgresFeed, Publisher, StandardOutput, Target
    from dpstream.io.sinks.target import SINKS

    _check_database_place(output, state)
    beside: Target | None = None
    if output.sink == "duckdb" and output.database is not None:
        beside = DuckDBFeed(Path(output.database), table=output.table)
    elif output.sink == "postgresql" and output.database is not None:
        beside = PostgresFeed(output.database, table=output.table)
    elif output.sink == "bucket" and output.database is not None:
        beside = Bucket(output.database)
    elif output.sink == "stdout":
        beside = StandardOutput()
    elif output.sink != "folder":
        kind = SINKS.get(output.sink)
        beside = kind.open(output.database, output.table)
        names = make_plan().released_schema(schema).names if kind.reserved else ()
        taken = [column for column in names if column.lower() in kind.reserved]
        if taken:
            raise ConfigError(
                f"sink = {output.sink!r} needs the name of column {taken[0]!r}",
                where="[output] sink",
                allowed="another name, or another sink",
            )
    return Publisher(output.dir, format=output.format, beside=beside, sign=output.sign)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a stream is run with, checked and with its defaults: of a file, or of the arguments of ``dpstream.open``.

    Attributes:
        where: the file, for messages.
        name: of the stream.
        unit: who is protected.
        family, recipe, context: the mechanism, and what it could take from the rest of the file.
        budget, output, state, accuracy: the sections.
        server: keeps the store, if not a file in the state's folder.
        expected: the owner's public guesses about the table.
        same_unit: why the unit is that of other streams.
        bound_from_data: whether the bound on a user's events was read off private records.
        used: every value the plan rests on, with the reason of each default.
    """

    where: str
    name: str
    unit: Unit
    family: Family = field(repr=False)
    recipe: StreamRecipe
    context: RecipeContext = field(repr=False)
    budget: BudgetOptions
    output: Output
    state: StateKeys
    accuracy: Accuracy
    server: PostgresServer | None
    expected: ExpectedTable | None
    same_unit: str | None
    bound_from_data: bool
    used: tuple[EffectiveSetting, ...]
    _schema: Schema = field(repr=False)

    @property
    def account(self) -> Path | None:
        """The file in which several streams on one private source add up."""
        return self.budget.account

    @property
    def state_dir(self) -> Path:
        """Where the secret state is kept."""
        return self.state.dir

    def state_key(self) -> StateKey | None:
        """The key of the encrypted store, read now; None where it is not encrypted. Secret.

        Errors:
            ConfigError: it is not there, is none, or others may read it.
        """
        return self.state.key()

    def declared_public(self) -> tuple[str, ...]:
        """What the source and the guesses leave open to whoever watches, in sentences."""
        return (*expected_words(self.expected), *self.read_off)

    @property
    def read_off(self) -> list[str]:
        """What the owner says was read off private records, a sentence each."""
        bound, edges = f"max_events = {bound_of(self.unit)} was", "edges of numbers were"
        parts = ((bound, self.bound_from_data), (edges, self._schema.edges_from_data))
        return [
            f"{what} read off private records, which the guarantee does not cover" for what, so in parts if so
        ]

    def pinned(self) -> dict[str, Any] | None:
        """The public facts of how records are cut into steps; None where nothing is said of it."""
        return None if self.same_unit is None else {"same_unit": self.same_unit}

    def schema(self) -> Schema:
        """The public declaration of the columns."""
        return self._schema

    def plan(self, budget: Budget | None = None) -> StreamPlan:
        """The calibrated mechanism: every noise scale fixed (``budget`` takes the place of the file's)."""
        with located(f"{self.where} [mechanism]"):
            return self.recipe.calibrate(budget or self.budget.budget, self.unit, self.budget.horizon)

    def base(self) -> Base | None:
        """What the stream begins with; None for an empty table."""
        return None

    @cached_property
    def reading_schema(self) -> Schema:
        """The columns as the mechanism reads them."""
        return self.plan().reading_schema(self._schema)

    def require_decided(self) -> None:
        """Raise ``ConfigError`` for a draft with something that its owner has not confirmed or decided."""
        self._schema.require_confirmed(self.where)

    def publisher(self) -> Publisher:
        """Where releases go: the folder, and what stands beside it."""
        return sink_of(self.output, self.state_dir, self.plan, self._schema)

    def open_stream(self, *, randomness: Randomness | None = None, publish: bool = True) -> Stream:
        """The live stream: starts it, or goes on where it stopped.

        Args:
            randomness: for tests; releases made with it say so.
            publish: False leaves the output folder alone (to read what is stored).

        Errors:
            ConfigError: a draft that nobody confirmed, a state inside the output, or another plan's state.
            StoreError: the state is locked, damaged, or cannot be written.
        """
        from dpstream.stream import open_stream

        publisher = self.publisher()
        check_places(self.state.dir, publisher.directory, "state")
        self.require_decided()
        return open_stream(
            self.plan(),
            self._schema,
            self.state.dir,
            name=self.name,
            randomness=randomness,
            publish_to=publisher if publish else None,
            source=self.pinned(),
            declared_public=self.declared_public(),
            account=self.account,
            publishing=self.output.publishing,
            server=self.server,
            key=self.state_key(),
            base=self.base(),
        )


def read_settings(
    sections: Mapping[str, Section],
    schema: Schema,
    keys: StreamKeys,
    family: Family,
    unit: Unit,
    *,
    source: SourceOptions | None = None,
    deletions: bool = False,
    recipe: StreamRecipe | None = None,
) -> dict[str, Any]:
    """The fields of ``Settings``: what the sections say once the unit is known and how records come.

    Args:
        source: how records come; None where Python gives them.
        deletions: whether records may leave.
        recipe: what stands in the place of ``[mechanism]``.

    Errors:
        ConfigError: names file, section, key, value and what is allowed. UnitError, BudgetError, HorizonError: a
        guarantee that cannot be given.
    """
    mechanism, outputs, states = sections["mechanism"], sections["output"], sections["state"]
    where = mechanism.file
    budget = read_budget(sections["budget"])
    expected = read_expected(sections["expect"], unit, mechanism, deletions=deletions, horizon=budget.horizon)
    accuracy = sections["accuracy"].read(Accuracy)
    grid = None if source is None else source.grid
    unit = read_per(sections["stream"], keys.per, unit, grid, accuracy)
    context = RecipeContext(
        schema.domain,
        schema,
        deletions,
        horizon=budget.horizon,
        budget=budget.budget,
        stated=budget.stated,
        first_records=None if expected is None else int(expected.records_per_step) or None,
        **of_stays(expected, unit),
        step_name=None if source is None else source.period_name,
        headline=accuracy.headline,
        headline_share=accuracy.headline_share,
        **read_periods(
            sections["accuracy"],
            accuracy,
            grid,
            unit,
            budget.budget,
            expected,
            schema.domain,
        ),
        season=read_season(sections["stream"], keys.season, grid),
        prior=read_prior(sections["prior"], schema) if sections["prior"].written else None,
        discovery=None if recipe else read_discovery(sections["discovery"], schema, grid),
        cancels=source is None or source.cancels,
    )
    if recipe is None:
        recipe = read_recipe(mechanism, context, *default_mechanism(sections["stream"], sections["source"]))
        check_taken(where, context, recipe, periods=accuracy.periods is not None)
    output = read_output(outputs, family.limits_of(recipe), schema.names)
    state = states.read(StateKeys)
    check_places(state.dir, output.dir, states.place("dir"))
    _check_database_place(output, state.dir)
    check_key(state, states, output.dir)
    check_account(budget.account, state.dir, output.dir, sections["budget"])
    return {
        "where": where,
        "name": keys.name,
        "unit": unit,
        "family": family,
        "recipe": recipe,
        "context": context,
        "budget": budget,
        "output": output,
        "state": state,
        "accuracy": accuracy,
        "server": read_server(state, states, keys.name),
        "expected": expected,
        "same_unit": keys.same_unit,
        "bound_from_data": keys.max_events_from == "data",
        "_schema": schema,
    }


#: A line of a draft that its owner has not decided, and values that stand for one.
_MARKED = re.compile(r"\s*(?P<key>\w+) *= *\"?(?P<value>.*?)\"? *# *FILL IN")
_PLACEHOLDERS = ("FILL IN", "YYYY-MM-DD")
#: So many of them are named where a file is refused.
_NAMED = 5


def marked_keys(text: str) -> tuple[tuple[str, ...], bool]:
    """Keys of a draft that are marked FILL IN, those of columns with their names; and whether one has no value yet."""
    found, column, unusable = list[str](), "", False
    for line in text.splitlines():
        if line.startswith("["):
            inner = line.strip().strip("[]").removeprefix("schema.columns.")
            column = f"{inner}." if "schema.columns." in line else ""
        if marked := _MARKED.match(line):
            found.append(column + marked["key"])
            unusable = unusable or marked["value"] in _PLACEHOLDERS
    return tuple(found), unusable


def _undecided(where: str, keys: Sequence[str]) -> ConfigError:
    named = ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
    return ConfigError(
        f"{named} {'is' if len(keys) == 1 else 'are'} marked FILL IN",
        where=where,
        allowed="values that you decide, without the mark",
    )


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Everything a configuration file says, checked and with its defaults; made by ``Config.load``.

    Holds no data, no noise and no state: all of it is public. Paths are relative to the file.

    Attributes:
        path: the file.
        source_options: how records become steps.
        base_options: what the stream begins with, if not an empty table.
        publication: what the owner says to readers; pinned to nothing.
        usual_dir: where the file itself puts the releases, whatever ``at`` says.
        undecided: keys of a draft that are still marked FILL IN.
    """

    path: Path
    source_options: SourceOptions
    base_options: BaseOptions | None
    publication: Publication
    usual_dir: Path
    undecided: tuple[str, ...] = ()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        document: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read and check a whole configuration file. Reads no data.

        Args:
            document: what stands in the place of the parsed file: other values that are tried out there.

        Errors:
            ConfigError, SchemaError: name file, section, key, value and what is allowed.
            UnitError, BudgetError, HorizonError: a guarantee that cannot be given.
        """
        if not isinstance(path, str | Path):
            raise ConfigError(
                f"expected a path, got {type(path).__name__}", where="Config.load", allowed="a path"
            )
        file = Path(path)
        undecided: tuple[str, ...] = ()
        if document is None:
            document = load_toml(file)
            undecided, unusable = marked_keys(file.read_text(encoding="utf-8"))
            if unusable:
                raise _undecided(str(file), undecided)
        sections = sections_of(str(file), file.parent, document)
        stream, source = sections["stream"], sections["source"]
        keys = stream.read(StreamKeys)
        family = named_family(sections["mechanism"], default_mechanism(stream, source)[0])
        unit = read_unit(stream, keys, source, family.limits)
        if "schema" not in document:
            raise ConfigError(
                "the schema is missing",
                where=str(file),
                allowed='a section [schema] with columns, or file = "schema.toml"',
            )
        schema = read_schema(document, base=file.parent, where=str(file))
        options = read_source(source, unit, RecipeContext(schema.domain, schema))
        check_columns(source, options, schema)
        check_source(source, options, family.limits)
        settings = read_settings(
            sections, schema, keys, family, unit, source=options, deletions=options.deletions
        )
        output, begins = settings["output"], sections["base"]
        check_database(output, options, sections["output"])
        if begins.written and not family.limits_of(settings["recipe"]).base:
            raise ConfigError(
                f"{family.noun} cannot begin with another stream's table",
                where=begins.place(),
                allowed="a file without [base]",
            )
        base = replace(begins.read(BaseOptions), place=begins.place()) if begins.written else None
        options = replace(options, continues=base is not None, same_unit=keys.same_unit)
        publication = sections.pop("statement").read(Publication)
        config = cls(
            **settings,
            used=tuple(setting for section in sections.values() for setting in section.used),
            path=file,
            source_options=options,
            base_options=base,
            publication=publication,
            usual_dir=output.dir,
            undecided=undecided,
        )
        check_fits(source, options, config.plan(), schema)
        return config

    def require_decided(self) -> None:
        """See ``Settings``; also for keys that are marked FILL IN."""
        super().require_decided()
        if self.undecided:
            raise _undecided(self.where, self.undecided)

    def at(self, state: str | Path | None = None, releases: str | Path | None = None) -> Self:
        """The same stream with its state, or its releases, in another place than the file names."""
        output = self.output if releases is None else replace(self.output, dir=Path(releases))
        secret = self.state if state is None else replace(self.state, dir=Path(state))
        return replace(self, state=secret, output=output)

    def declared_public(self) -> tuple[str, ...]:
        """What the source and the guesses leave open to whoever watches, in sentences."""
        by_key = isinstance(self.unit, InsertedRecord)
        return (*self.source_options.declared_public(by_key=by_key), *super().declared_public())

    def pinned(self) -> dict[str, Any]:
        """The public facts of how records are cut into steps."""
        return self.source_options.pinned()

    def plan(self, budget: Budget | None = None) -> StreamPlan:
        """The calibrated mechanism: every noise scale fixed (``budget`` takes the place of the file's). It measures the
        last step up to ``end``."""
        plan = super().plan(budget)
        with located(f"{self.path} [mechanism]"):
            return plan.ending(self.source_options.final_step())

    def table_recipe(self, verb: str) -> Any:
        """The recipe of a stream of tables; it has a ``workload``.

        Errors:
            ConfigError: the stream releases something else than tables of records, and ``verb`` is for such.
        """
        refused = self.family.limits_of(self.recipe).no_tables
        if refused is not None:
            kind, instead = refused
            *others, last = [f'"{name}"' for name in family_of(DEFAULT_MECHANISM).mechanisms]
            raise ConfigError(
                f"the stream is {kind}, and {verb} is for streams of tables",
                where=str(self.path),
                allowed=f"[mechanism] name = {', '.join(others)} or {last}{instead}",
            )
        return self.recipe

    def facts(self, *, pinned: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The public facts that the stream is pinned to; ``pinned``: see ``base``."""
        from dpstream.stream.identity import plan_facts

        base = self.base(pinned=pinned)
        return plan_facts(
            self.plan(),
            self._schema,
            self.name,
            self.pinned(),
            self.declared_public(),
            None if base is None else base.facts,
        )

    def base(self, *, pinned: Mapping[str, Any] | None = None) -> Base | None:
        """What the stream begins with; None for an empty table.

        A stream that was started knows it: the predecessor's folder is not read any more.

        Args:
            pinned: the pinned plan of a started stream whose state is elsewhere, as in an archive.

        Errors:
            ConfigError, UnitError, StoreDamagedError: see ``dpstream.project.base``.
        """
        from dpstream.project.base import find_base

        return None if self.base_options is None else find_base(self, self.base_options, pinned)

    def source(self, *, reveal: bool = False, watched: bool = False, schema: Schema | None = None) -> Source:
        """Where the private rows are, cut into steps; the arguments are those of ``ReadOptions``."""
        from dpstream.io.sources import ReadOptions, open_source

        self._schema.require_exact(f"{self.path} [schema]")
        columns, ignored = self._schema.read_names, self._schema.unread_names
        reading = ReadOptions(self.path.parent, columns, ignored, reveal, watched, schema)
        return open_source(self.source_options, reading)

    def open_stream(self, *, randomness: Randomness | None = None, publish: bool = True) -> Stream:
        """See ``Settings``. StoreDamagedError: the state is behind the releases where the file puts them."""
        if self.output.dir != self.usual_dir:
            self._check_usual_place()
        return super().open_stream(randomness=randomness, publish=publish)

    def _check_usual_place(self) -> None:
        """Compare the state with the folder that the file names, even where this run publishes elsewhere.

        Errors:
            StoreDamagedError: the state is behind that folder, so it was rolled back.
        """
        from dpstream.io.sinks import read_catalogue
        from dpstream.stream.ledger.reading import read_identity

        if not (self.usual_dir / "catalogue.json").is_file():
            return
        known = read_identity(self.state_dir, server=self.server, key=self.state_key())
        catalogue = read_catalogue(self.usual_dir)
        published = max((int(entry["step"]) for entry in catalogue["steps"]), default=0)
        if (
            known is not None
            and catalogue["stream_id"] == known[0]["stream_id"].hex()
            and published > known[1]
        ):
            raise StoreDamagedError(
                f"step {published} is published, but the ledger ends at step {known[1]}: the state was rolled "
                "back, and continuing would spend the budget twice",
                where=str(self.usual_dir),
                allowed="the newest state, or a new stream with another [output] dir",
            )
