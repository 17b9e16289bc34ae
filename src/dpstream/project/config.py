"""``dpstream.toml`` as one frozen value: a recipe and the places, without data and without state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpstream.core.contracts import Family, RecipeContext, StreamPlan, StreamRecipe, located, shown
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import Budget, InsertedRecord, Randomness, Unit
from dpstream.core.schema import Schema
from dpstream.families.registry import DEFAULT_MECHANISM, family_of
from dpstream.io.sources.source_options import SourceOptions
from dpstream.project.base import BaseOptions, read_base
from dpstream.project.keys import SECTIONS
from dpstream.project.public_knowledge import (
    Expected,
    check_season_taken,
    check_taken,
    expected_words,
    facts_for,
    read_expected,
    read_prior,
    read_season,
)
from dpstream.project.reader import EffectiveSetting, Section
from dpstream.project.schema_file import load_toml, read_schema
from dpstream.project.sections import (
    AccuracyOptions,
    BudgetOptions,
    KeyPlace,
    OutputOptions,
    Publication,
    check_account,
    check_columns,
    check_database,
    check_fits,
    check_places,
    check_source,
    default_mechanism,
    named_family,
    read_accuracy,
    read_budget,
    read_headline,
    read_key_place,
    read_output,
    read_publication,
    read_recipe,
    read_server,
    read_source,
    read_state,
    read_unit,
)
from dpstream.stream import PostgresServer, StateKey

if TYPE_CHECKING:
    from dpstream.io.sinks import Publisher
    from dpstream.io.sources import Source
    from dpstream.stream import Stream
    from dpstream.stream.predecessor_cost import Base


def sink_of(
    output: OutputOptions, state: Path, make_plan: Callable[[], StreamPlan], schema: Schema
) -> Publisher:
    """The folder, and the database, the bucket, the standard output or the tables that it is followed by.

    Args:
        state: the secret state's folder.

    Errors:
        ConfigError: a place that lies in the state, or a column whose name the sink needs.
    """
    from dpstream.io.sinks import Bucket, DuckDBFeed, PostgresFeed, Publisher, StandardOutput, Target
    from dpstream.io.sinks.target import SINKS

    beside: Target | None = None
    if output.sink == "duckdb" and output.database is not None:
        check_places(state, Path(output.database), "output database")
        beside = DuckDBFeed(Path(output.database), table=output.table)
    elif output.sink == "postgresql" and output.database is not None:
        beside = PostgresFeed(output.database, table=output.table)
    elif output.sink == "bucket" and output.database is not None:
        beside = Bucket(output.database)
    elif output.sink == "stdout":
        beside = StandardOutput()
    elif output.sink != "folder":
        kind = SINKS.get(output.sink)
        if kind.folder and output.database is not None:
            check_places(state, Path(output.database), "output database")
        beside = kind.open(output.database, output.table)
        names = make_plan().released_schema(schema).names if kind.reserved else ()
        taken = [column for column in names if column.lower() in kind.reserved]
        if taken:
            raise ConfigError(
                f"column {taken[0]!r} of the schema has a name that sink = {output.sink!r} needs",
                where="[output] sink",
                allowed="another name of the column, or another sink",
            )
    return Publisher(output.dir, format=output.format, beside=beside)


FORMAT = 1


@dataclass(frozen=True)
class Config:
    """Everything a configuration file says, checked and with its defaults; made by ``Config.load``.

    Holds no data, no noise and no state: all of it is public. Paths are relative to the file.

    Attributes:
        path: the file.
        name: of the stream.
        unit: who is protected.
        source_options, recipe, budget, output: the sections.
        state_dir: where the secret state is kept.
        used: every value the plan rests on, with the reason of each default.
        server: where the store is, if it is no file in ``state_dir``.
        key_place: where the key of an encrypted store is.
    """

    path: Path
    name: str
    unit: Unit
    source_options: SourceOptions
    recipe: StreamRecipe
    budget: BudgetOptions
    output: OutputOptions
    state_dir: Path
    used: tuple[EffectiveSetting, ...]
    _schema: Schema = field(repr=False)
    family: Family = field(repr=False)
    server: PostgresServer | None = None
    key_place: KeyPlace | None = None
    #: What the stream begins with, if it is no empty table.
    base_options: BaseOptions | None = None
    #: The owner's public guesses about the table.
    expected: Expected | None = None
    #: What is found out about errors while the stream runs.
    accuracy: AccuracyOptions = field(default_factory=AccuracyOptions)
    #: What the owner says to readers; pinned to nothing.
    publication: Publication = field(default_factory=Publication)
    #: Where the file itself puts the releases, whatever ``at`` says.
    usual_dir: Path = Path()
    #: What the recipe could take from the rest of the file.
    context: RecipeContext = field(kw_only=True, repr=False)

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
            raise ConfigError(f"a {type(path).__name__} is no file", where="Config.load", allowed="a path")
        file = Path(path)
        document = load_toml(file) if document is None else document
        base = file.parent
        top = Section(str(file), "", document)
        _check_format(top)
        section = {name: Section(str(file), name, document.get(name, {})) for name in ("stream", "source")}
        stream, source = section["stream"], section["source"]
        name = stream.line("name", 200)
        chosen, why = default_mechanism(stream, source)
        mechanism = Section(str(file), "mechanism", document.get("mechanism", {}), mechanism=chosen)
        family = named_family(mechanism, chosen)
        unit = read_unit(stream, source, family.limits)
        if "schema" not in document:
            raise ConfigError(
                "there is no schema",
                where=str(file),
                allowed='a section [schema] with columns, or file = "schema.toml"',
            )
        schema = read_schema(document, base=base, where=str(file))
        options = read_source(source, unit, RecipeContext(schema.domain, schema))
        check_columns(source, options, schema)
        others = ("expect", "budget", "accuracy", "prior", "output", "state", "base", "statement")
        section |= {other: Section(str(file), other, document.get(other, {})) for other in others}
        outputs, states = section["output"], section["state"]
        budget = read_budget(section["budget"])
        check_source(source, options, family.limits)
        expected = read_expected(
            section["expect"],
            unit,
            mechanism,
            "expect" in document,
            deletions=options.deletions,
            horizon=budget.horizon,
        )
        headline, share = read_headline(section["accuracy"])
        context = facts_for(
            schema,
            unit,
            budget.budget,
            expected,
            deletions=options.deletions,
            horizon=budget.horizon,
            stated=budget.stated,
            step_name=options.period_name,
            headline=headline,
            headline_share=share,
            season=read_season(stream, options),
            prior=read_prior(section["prior"], base, schema) if "prior" in document else None,
            cancels=options.cancels,
        )
        recipe = read_recipe(mechanism, context, chosen, why)
        check_taken(str(file), context, recipe)
        check_season_taken(stream, recipe)
        limits = family.limits_of(recipe)
        output = read_output(outputs, base, limits)
        check_database(output, options, outputs, base)
        state = check_places(read_state(states, base), output.dir, states.place("dir"))
        records = output.publishing.records
        if records == "persistent":
            with located(outputs.place("records")):
                output.publishing.check_columns(schema.names)
        if records in limits.no_records:
            allowed = ", ".join(kind for kind in limits.records if kind not in limits.no_records)
            raise outputs.wrong("records", limits.no_records[records], allowed)
        server = read_server(states, name)
        key = read_key_place(states, base, state, output.dir)
        if "base" in document and not limits.base:
            raise ConfigError(
                f"{family.noun} cannot begin with another stream's table",
                where=section["base"].place(),
                allowed="a file without [base]",
            )
        begins = read_base(section["base"], base) if "base" in document else None
        same_unit = stream.line("same_unit", 500) if stream.has("same_unit") else None
        options = replace(options, continues=begins is not None, same_unit=same_unit)
        publication = read_publication(section.pop("statement"))
        accuracy = read_accuracy(section["accuracy"]) if "accuracy" in document else AccuracyOptions()
        read = (top, stream, source, section["expect"], mechanism, *list(section.values())[3:])
        config = cls(
            file,
            name,
            unit,
            options,
            recipe,
            budget,
            output,
            state,
            tuple(setting for part in read for setting in part.used),
            schema,
            family,
            server,
            key,
            begins,
            expected,
            accuracy,
            publication,
            output.dir,
            context=context,
        )
        check_account(config.account, state, output.dir, section["budget"], base)
        check_fits(source, options, config.plan(), schema)
        return config

    def at(self, state: str | Path | None = None, releases: str | Path | None = None) -> Self:
        """The same stream with its state, or its releases, in another place than the file names."""
        output = self.output if releases is None else replace(self.output, dir=Path(releases))
        return replace(self, state_dir=self.state_dir if state is None else Path(state), output=output)

    @property
    def account(self) -> Path | None:
        """The file in which several streams on one private source add up."""
        return None if self.budget.account is None else self.path.parent / self.budget.account

    def state_key(self) -> StateKey | None:
        """The key of the encrypted store, read now; None where it is not encrypted. Secret.

        Errors:
            ConfigError: it is not there, is none, or others may read it.
        """
        return None if self.key_place is None else self.key_place.read()

    def declared_public(self) -> tuple[str, ...]:
        """What the source and the guesses leave open to whoever watches, in sentences."""
        by_key = isinstance(self.unit, InsertedRecord)
        return (*self.source_options.declared_public(by_key=by_key), *expected_words(self.expected))

    def schema(self) -> Schema:
        """The public declaration of the columns."""
        return self._schema

    def plan(self, budget: Budget | None = None) -> StreamPlan:
        """The calibrated mechanism: every noise scale fixed (``budget`` takes the place of the file's). It measures the
        last step up to ``end``."""
        amount = self.budget.budget if budget is None else budget
        with located(f"{self.path} [mechanism]"):
            plan = self.recipe.calibrate(amount, self.unit, self.budget.horizon)
            return plan.ending(self.source_options.final_step())

    def table_recipe(self, verb: str) -> Any:
        """The recipe of a stream of tables; it has a ``workload``.

        Errors:
            ConfigError: releases of the stream are no tables of records, and ``verb`` is for such.
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

    def facts(self, *, told: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The public facts that the stream is pinned to; ``told``: see ``base``."""
        from dpstream.stream.identity import plan_facts

        options, base = self.source_options, self.base(told=told)
        return plan_facts(
            self.plan(),
            self._schema,
            self.name,
            options.pinned(),
            self.declared_public(),
            None if base is None else base.facts,
        )

    def base(self, *, told: Mapping[str, Any] | None = None) -> Base | None:
        """What the stream begins with; None for an empty table.

        A stream that was started knows it: the predecessor's folder is not read any more.

        Args:
            told: the pinned plan of a started stream whose state is elsewhere, as in an archive.

        Errors:
            ConfigError, UnitError, StoreDamagedError: see ``dpstream.project.base``.
        """
        from dpstream.project.base import find_base

        return None if self.base_options is None else find_base(self, self.base_options, told)

    @cached_property
    def reading_schema(self) -> Schema:
        """The columns as the mechanism reads them."""
        return self.plan().reading_schema(self._schema)

    def source(self, *, reveal: bool = False, watched: bool = False, schema: Schema | None = None) -> Source:
        """Where the private rows are, cut into steps; the arguments are those of ``open_source``."""
        from dpstream.io.sources import open_source

        self._schema.require_exact(f"{self.path} [schema]")
        return open_source(
            self.source_options,
            base=self.path.parent,
            columns=self._schema.read_names,
            ignored=self._schema.unread_names,
            reveal=reveal,
            watched=watched,
            schema=schema,
        )

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
        folder = check_places(self.state_dir, publisher.directory, "state")
        self._schema.require_confirmed(str(self.path))
        if self.output.dir != self.usual_dir:
            self._check_usual_place()
        return open_stream(
            self.plan(),
            self._schema,
            folder,
            name=self.name,
            randomness=randomness,
            publish_to=publisher if publish else None,
            keep="all" if self.output.keep is None else self.output.keep,
            source=self.source_options.pinned(),
            declared_public=self.declared_public(),
            account=self.account,
            publishing=self.output.publishing,
            server=self.server,
            key=self.state_key(),
            base=self.base(),
        )

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
                allowed="the newest state, or a new stream with its own releases directory",
            )


def _check_format(top: Section) -> None:
    for name in SECTIONS:
        if name and top.has(name) and not isinstance(top.raw(name), Mapping):
            raise ConfigError(
                f"{name} = {shown(top.raw(name))} is not a table",
                where=top.file,
                allowed=f"a section [{name}]",
            )
    value = top.raw("format") if top.has("format") else FORMAT
    if isinstance(value, bool) or value != FORMAT:
        raise top.wrong("format", f"unknown format {shown(value)}")
    top.note("format", str(value), default=not top.has("format"))
