"""Errors by simulation as files beside the releases, and as what a terminal shows."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.paths import sha256_hex
from dpstream.core.schema.predicate import parse_predicate
from dpstream.core.version import __version__
from dpstream.io.sinks import Publisher, read_catalogue
from dpstream.io.sinks.catalogue import Catalogue
from dpstream.io.sinks.simulated_errors import FOLDER, SimulatedError, error_files, t_factor, unseen
from dpstream.stream.declared import counted_records
from dpstream.stream.release.manifest import COUNTED
from dpstream.tools.errors.contract import InventedTable, Observation
from dpstream.tools.errors.simulation import MIN_RUNS, Simulation
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.metrics import total_variation

if TYPE_CHECKING:
    from dpstream.project import Config


#: Classes of cells by their invented number of records: each begins here and ends before the next one.
SIZES = (0, 1, 5, 20, 100, 1000, 10_000, 100_000)


def root_mean_square(errors: Floats) -> float:
    """Over all entries; NaN of none."""
    return math.sqrt(float((errors**2).mean())) if errors.size else math.nan


@dataclass(frozen=True, eq=False)
class StepErrors:
    """Errors by simulation of one step.

    Attributes:
        truth: the invented one. observed: what each run released.
    """

    step: int
    truth: InventedTable
    observed: tuple[Observation, ...]

    @classmethod
    def of(cls, simulation: Simulation, step: int) -> StepErrors:
        """Those of one of the simulation's steps."""
        return cls(step, simulation.invented.truth[step], tuple(run[step] for run in simulation.runs))

    @cached_property
    def counts(self) -> list[Floats]:
        """The invented counts of each marginal, flat."""
        return self.truth.table.marginals(self.truth.domain, self.truth.cliques)

    @cached_property
    def errors(self) -> list[Floats]:
        """Released less invented counts of each marginal, shape (runs, cells)."""
        made = [one.marginals(self.truth.domain, self.truth.cliques) for one in self.observed]
        return [
            np.stack([run[i] for run in made]) - self.counts[i][None, :]
            for i in range(len(self.truth.cliques))
        ]

    @property
    def total_errors(self) -> Floats:
        """Released less invented number of records, of each run."""
        return np.array([one.total for one in self.observed]) - self.truth.table.total

    def names(self, clique: Sequence[int]) -> list[str]:
        """Of a marginal's columns."""
        return [self.truth.domain.names[i] for i in clique]

    def summary(self) -> dict[str, Any]:
        """Total, classes of cells, marginals and distances; JSON-able."""
        size = max(1.0, self.truth.table.total)
        marginals = []
        for clique, counts, errors in zip(self.truth.cliques, self.counts, self.errors, strict=True):
            variations = [total_variation(counts, counts + one) for one in errors]
            known = [value for value in variations if not math.isnan(value)]
            marginals.append(
                {
                    "columns": self.names(clique),
                    "cells": int(counts.size),
                    "standard_error": _short(root_mean_square(errors)),
                    "avg_we": _short(float(np.abs(errors).mean()) / size),
                    "total_variation": _short(float(np.mean(known))) if known else None,
                    "sizes": _classes(counts, errors),
                }
            )
        most = max(len(clique) for clique in self.truth.cliques)
        widest = [i for i, clique in enumerate(self.truth.cliques) if len(clique) == most]
        counts = np.concatenate([self.counts[i] for i in widest])
        errors = np.concatenate([self.errors[i] for i in widest], axis=1)
        return {
            "total": {**_spread(self.total_errors), "invented": _short(self.truth.table.total)},
            "avg_we": _short(float(np.mean([np.abs(self.errors[i]).mean() for i in widest])) / size),
            "sizes": _classes(counts, errors),
            "distances": self._distances(),
            "marginals": marginals,
        }

    def _distances(self) -> dict[str, Any]:
        names = sorted({name for one in self.observed for name in one.distances})
        found = {}
        for name in names:
            values = np.array([one.distances[name] for one in self.observed if name in one.distances])
            found[name] = {"mean": _short(float(values.mean())), "largest": _short(float(values.max()))}
        return found


def _spread(errors: Floats) -> dict[str, float]:
    return {"standard_error": _short(root_mean_square(errors)), "bias": _short(float(errors.mean()))}


def _classes(counts: Floats, errors: Floats) -> list[dict[str, Any]]:
    """The errors of cells, by the class of their size."""
    found: list[dict[str, Any]] = []
    for at, start in enumerate(SIZES):
        end = SIZES[at + 1] if at + 1 < len(SIZES) else None
        inside = (counts >= start) & (counts < (math.inf if end is None else end))
        if inside.any():
            own = errors[:, inside]
            found.append({"from": start, "below": end, "cells": int(inside.sum()), **_spread(own)})
    return found


def _short(value: float) -> float:
    """Five digits: more would be noise of the simulation."""
    return float(f"{value:.5g}")


LABEL = "by simulation"
_FORMAT = 1
#: Cells whose errors are published one by one; the smallest marginals come first.
_MAX_CELLS = 100_000
_CANNOT_SEE = "Simulation cannot see what the releases have lost: errors may be larger."
_BASE = " Errors of the earlier stream's table come on top."


def check_questions(config: Config, questions: Sequence[str]) -> None:
    """Refuse what cannot be asked, before anything is run.

    Errors:
        ConfigError, SchemaError: a question that cannot be read; or releases other than tables of records.
    """
    if not questions:
        return
    config.table_recipe("asking about errors")
    for question in questions:
        parse_predicate(question, config.schema())


def step_facts(simulation: Simulation, step: int, questions: Sequence[str] = ()) -> dict[str, Any]:
    """What was found about one step, JSON-able, without the errors of single cells.

    Errors:
        ConfigError: fewer than two runs are done. As of ``check_questions``.
    """
    if len(simulation.runs) < MIN_RUNS:
        raise ConfigError(
            f"{len(simulation.runs)} of {MIN_RUNS} runs are done",
            where="errors",
            allowed="the same command again",
        )
    errors = StepErrors.of(simulation, step)
    runs, factor = len(simulation.runs), t_factor(len(simulation.runs))
    records, about = counted_records(simulation.config.unit, simulation.config.schema())
    facts = {
        "format": _FORMAT,
        "label": LABEL,
        "words": f"Errors {LABEL}: {runs} runs on the released stream as an invented truth. "
        f"{_CANNOT_SEE}{'' if simulation.invented.base is None else _BASE}{about}",
        COUNTED: records,
        "stream": simulation.config.name,
        "step": step,
        "through_step": simulation.releases.last,
        "runs": runs,
        "seed": simulation.seed,
        "plan_hash": simulation.plan_hash,
        "program": {"name": "dpstream", "version": __version__},
        "interval": {"confidence": 0.95, "standard_errors": round(factor, 4)},
        **errors.summary(),
    }
    if questions:
        sizes = facts["sizes"]
        facts["questions"] = [_answered(simulation, errors, one, sizes) for one in questions]
    return facts


def _answered(
    simulation: Simulation, errors: StepErrors, question: str, sizes: list[dict[str, Any]]
) -> dict[str, Any]:
    asked = parse_predicate(question, simulation.config.schema())
    satisfied = np.asarray(asked.mask())
    columns = list(asked.columns)

    def counted(table: Any) -> float:
        if not columns:
            return float(table.total * bool(satisfied.all()))
        inside = satisfied[tuple(table.codes[:, columns].T)]
        return float(inside.sum() if table.weights is None else table.weights[inside].sum())

    truth = counted(errors.truth.table)
    off: Floats = np.array([counted(one) for one in errors.observed]) - truth
    hidden = float(unseen(np.array([truth]), sizes)[0]) if len(columns) > 1 else 0.0
    error = SimulatedError(root_mean_square(off), float(off.mean()), hidden, len(off), LABEL)
    return {
        "question": question,
        "invented": truth,
        "standard_error": error.standard_error,
        "bias": error.bias,
        "half_width": error.half_width(),
    }


def publish_errors(simulation: Simulation, *, questions: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Write what was found about every compared step beside the releases; gives the facts of all, in order.

    Errors:
        As of ``step_facts``.
    """
    folder = simulation.releases.folder
    sink = Publisher(folder, sign=simulation.config.output.sign)
    stream_id, found = Catalogue(folder).stream_id, []
    for step in simulation.steps:
        facts = step_facts(simulation, step, questions)
        listed, data = _cells(StepErrors.of(simulation, step))
        facts["cells"] = {
            "file": error_files(step)[1],
            "sha256": sha256_hex(data),
            "marginals": listed,
        }
        text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        names = [f"{FOLDER}/{name}" for name in error_files(step)]
        sink.write_index(stream_id, dict(zip(names, (text.encode(), data), strict=True)))
        found.append(facts)
    for entry in read_catalogue(folder)["steps"]:
        # A table that was taken back leaves no invented counts of it behind.
        if entry["state"] == "withdrawn" and entry["step"] not in simulation.steps:
            names = [f"{FOLDER}/{name}" for name in error_files(int(entry["step"]))]
            sink.write_index(stream_id, {}, beside=dict.fromkeys(names))
            for name in names:
                durable.unlink(folder / name)
    return found


def _cells(errors: StepErrors) -> tuple[list[dict[str, Any]], bytes]:
    """Which marginals there are cells of, and the file with the errors of all runs in each of them."""
    import pyarrow as pa
    import pyarrow.parquet

    domain, labels = errors.truth.domain, errors.truth.labels
    sizes = [domain.cells(clique) for clique in errors.truth.cliques]
    order = np.argsort(sizes, kind="stable")
    fitting = set(order[np.cumsum(np.array(sizes)[order]) <= _MAX_CELLS].tolist())
    listed: list[dict[str, Any]] = []
    names: list[str] = []
    values: list[str] = []
    counts, spread = [np.zeros(0)], [np.zeros((len(errors.observed), 0))]
    for at in sorted(fitting):
        clique = errors.truth.cliques[at]
        listed.append({"columns": errors.names(clique), "shape": list(domain.shape(clique))})
        words = [""]
        for position in clique:
            words = [f"{word} x {label}" if word else label for word in words for label in labels[position]]
        names += [" x ".join(errors.names(clique))] * len(words)
        values += words
        counts.append(errors.counts[at])
        spread.append(errors.errors[at])
    every = np.concatenate(spread, axis=1).astype(np.float32)
    columns = {
        "marginal": pa.array(names, pa.string()).dictionary_encode(),
        "cell": pa.array(values, pa.string()),
        "invented": pa.array(np.concatenate(counts).astype(np.float32)),
        **{f"run_{run}": pa.array(every[run - 1]) for run in range(1, len(every) + 1)},
    }
    target = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), target, compression="zstd")
    return listed, target.getvalue()
