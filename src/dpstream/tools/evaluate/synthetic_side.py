"""The synthetic side of an evaluation: released tables, or the models behind them.

Nothing here touches private records. ``ReleasedModels`` opens the secret state, as ``dpstream sample`` does, and
takes only models out of it; it draws nothing, spends nothing and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import count_marginals
from dpstream.io.sinks import read_catalogue
from dpstream.io.sinks.release_reader import released_alike
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.run_folder import read_codes, released_codes, releases_of

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream import Release

Synthetic = Literal["tables", "models"]
#: Counts of some cliques, flat in C order: of a table, of a model, or of the truth.
Marginals = Callable[[Sequence[Clique]], Sequence[NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class SyntheticStep:
    """One step's synthetic data.

    Attributes:
        rows: of the released table.
        marginals: counts of cliques, flat; floats where they come from a model.
        manifest: what was published about the step.
    """

    rows: int
    marginals: Marginals
    manifest: dict[str, Any]


class PublishedSteps(Protocol):
    """All released steps of a stream; a context manager."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps whose synthetic data are still there, in order."""
        ...

    @property
    def left_out(self) -> tuple[int, ...]:
        """Steps that were taken back, in order."""
        ...

    def as_shown(self, counts: NDArray[Any], clique: Clique) -> NDArray[Any]:
        """A true marginal (flat) with values in one cell that the synthetic data cannot tell apart."""
        ...

    def take(self, step: int) -> SyntheticStep:
        """The synthetic data of a step."""
        ...

    def codes(self, step: int) -> Codes:
        """The released table of a step as codes, shape (rows, columns); ``missing`` where null may mean either bin."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_releases(
    config: Config, synthetic: Synthetic, state: str | Path | None, out: str | Path | None
) -> PublishedSteps:
    """The releases that ``config`` made.

    Errors:
        ConfigError: no release, releases of another stream or plan, or no state.
        StoreError: a state that is locked or damaged; released files that differ from their hashes.
    """
    if synthetic == "tables":
        return ReleasedTables(config, out)
    if synthetic == "models":
        return ReleasedModels(config, state, out)
    raise ConfigError(f"unknown source {synthetic!r}", where="synthetic", allowed="tables, models")


class ReleasedTables:
    """Published tables, read as anybody would read them, with checked hashes.

    Errors:
        ConfigError: no release; another stream's or another configuration's; no table that was kept.
    """

    def __init__(self, config: Config, out: str | Path | None = None) -> None:
        place = config.output.dir if out is None else Path(out)
        read_catalogue(
            place
        )  # refuses a folder without releases; a report would ask the state why there are none
        self._folder = releases_of(config, place)
        self._schema = config.schema()
        self.steps = self._folder.full
        self.left_out = tuple(step for step, state in self._folder.states if state == "withdrawn")
        if not self.steps:
            raise ConfigError(
                "there is no released table", where=str(self._folder.releases), allowed="one step, or more"
            )
        self._held: tuple[int, Codes] | None = None

    def as_shown(self, counts: NDArray[Any], clique: Clique) -> NDArray[Any]:
        """See ``PublishedSteps.as_shown``: a null stands for both bins of some columns."""
        return alike_together(counts, clique, self._schema)

    def take(self, step: int) -> SyntheticStep:
        """Read the table of a step.

        Errors:
            StoreDamagedError: files that differ from their hashes.
        """
        codes = self.codes(step)
        domain = self._schema.domain
        return SyntheticStep(
            len(codes),
            lambda cliques: count_marginals(codes, domain, cliques),
            self._folder.manifest_of(step),
        )

    def codes(self, step: int) -> Codes:
        """See ``PublishedSteps.codes``."""
        if self._held is None or self._held[0] != step:
            self._held = step, released_codes(self._schema, self._folder.releases, step)
        return self._held[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held = None


class ReleasedModels:
    """The models of the released steps, from the secret state: no sampling error. Steps that were withdrawn or
    rejected are left out.

    The state stays locked while this is open, as with ``dpstream sample``: a run has to wait.

    Errors:
        ConfigError: no state, or another plan's; no model that was kept.
        StoreError: a state that is locked or damaged.
    """

    def __init__(
        self, config: Config, state: str | Path | None = None, out: str | Path | None = None
    ) -> None:
        from dpstream.stream.store.place import has_store

        folder = config.state_dir if state is None else Path(state)
        if not has_store(folder, server=config.server):
            # Opening would begin a new stream there.
            raise ConfigError(
                "there is no stream", where=str(folder), allowed="a state directory that a run made"
            )
        self._schema = config.schema()
        self._stream = config.at(state, out).open_stream(publish=False)
        try:
            released = range(1, self._stream.last_step + 1)
            self.left_out = tuple(step for step in released if not self._stream.is_given(step))
            given = (step for step in released if step not in self.left_out)
            self.steps = tuple(step for step in given if _has_model(self._stream.release(step)))
            if not self.steps:
                raise ConfigError(
                    "there is no released model", where=str(folder), allowed="one step, or more"
                )
        except BaseException:
            self._stream.close()
            raise

    def as_shown(self, counts: NDArray[Any], clique: Clique) -> NDArray[Any]:
        """See ``PublishedSteps.as_shown``: a model tells all values apart."""
        return counts

    def take(self, step: int) -> SyntheticStep:
        """The model of a step.

        Errors (of ``marginals``):
            LimitError: a marginal with more cells than a model answers.
        """
        release, names = self._stream.release(step), self._schema.names

        def marginals(cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
            return [release.marginal([names[i] for i in clique]).values.ravel() for clique in cliques]

        return SyntheticStep(release.rows, marginals, release.manifest)

    def codes(self, step: int) -> Codes:
        """The released table of a step, drawn again from its model (the same rows)."""
        release = self._stream.release(step)
        return read_codes(release.sample(), self._schema, f"step {step}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def alike_together(counts: NDArray[Any], clique: Clique, schema: Schema) -> NDArray[Any]:
    """A marginal (flat) with ``other`` and ``missing`` in one cell, that of ``missing``, where a released table shows
    both as null."""
    shaped = counts.reshape(schema.domain.shape(clique))
    for axis, column in enumerate(clique):
        if released_alike(schema.columns[column]):
            view = np.moveaxis(shaped, axis, 0)
            view[-1] += view[-2]
            view[-2] = 0
    return shaped.ravel()


def alike_as_missing(codes: Codes, schema: Schema) -> Codes:
    """The same of codes."""
    found = codes.copy()
    for i, column in enumerate(schema.columns):
        if released_alike(column) and column.missing_code is not None:
            found[codes[:, i] == column.other_code, i] = column.missing_code
    return found


def _has_model(release: Release) -> bool:
    try:
        _ = release.total
    except ConfigError:  # dropped by the keep policy
        return False
    return True
