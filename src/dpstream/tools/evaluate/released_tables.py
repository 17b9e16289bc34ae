"""The released tables of a stream, as an evaluation compares them with the truth. Nothing here is private."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import count_marginals
from dpstream.io.sinks import read_catalogue
from dpstream.io.sinks.release_reader import released_alike
from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.run_folder import released_codes, releases_of

if TYPE_CHECKING:
    from dpstream.project import Config


class ReleasedTables:
    """Published tables, read as anybody would read them, with checked hashes.

    Attributes:
        steps: those whose table is still there, in order.
        left_out: steps that were taken back, in order.

    Errors:
        ConfigError: no release; another stream's or another configuration's; no table that was kept.
        StoreDamagedError: files that differ from their hashes.
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

    def codes(self, step: int) -> Codes:
        """The table of a step, shape (rows, columns); ``missing`` where null may mean either bin."""
        if self._held is None or self._held[0] != step:
            self._held = step, released_codes(self._schema, self._folder.releases, step)
        return self._held[1]

    def marginals(self, step: int, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Counts of cliques, flat in C order."""
        return count_marginals(self.codes(step), self._schema.domain, cliques)

    def manifest(self, step: int) -> dict[str, Any]:
        """What was published about a step."""
        return self._folder.manifest_of(step)


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
