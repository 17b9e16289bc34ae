"""Compares methods on streams, as a small TOML file says; offline mechanisms on the final table show what is
possible."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstream.core.contracts import shown
from dpstream.core.errors import ConfigError, DpstreamError, did_you_mean
from dpstream.project import Config
from dpstream.project.schema_file import load_toml
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream_lab.experiments.grid import RunWatch, run_grid
from dpstream_lab.experiments.kumar import ExperimentOutcome, data_folder, epsilon_text
from dpstream_lab.experiments.kumar_figures import draw_error_figures, require_matplotlib
from dpstream_lab.experiments.kumar_tables import ErrorLine, error_lines, errors_csv, markdown_table
from dpstream_lab.experiments.methods import Method
from dpstream_lab.experiments.offline_ceiling import Offline
from dpstream_lab.experiments.private_output import PrivateFolder
from dpstream_lab.experiments.replayed_streams import KUMAR_STREAMS, ConfigSource, KumarSource, StreamSource
from dpstream_lab.experiments.runs import EVALUATE_EVERY, EVALUATE_LAST, Task
from dpstream_lab.experiments.settings import settings_page, settings_table

COMPARISON_FORMAT = 1
_KEYS = {
    "format": "1",
    "epsilons": 'a list of exact positive numbers such as ["0.5", "1"]',
    "repeats": "a whole number from 1",
    "steps": "a whole number from 1: only the first steps of each stream",
    "workload": "as in [mechanism] of dpstream.toml",
    "streams": 'tables [streams.NAME] with config = "dpstream.toml" or kumar = "Adult-ordered-bs-50"',
    "methods": 'tables [methods.NAME] with name = "pooled", "dpstabs" or "baseline" and options as in [mechanism]',
    "offline": 'tables [offline.NAME] with name = "mwem-pgm" or "aim" and options, or python = "FILE.py:FUNCTION"',
}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COLUMNS = ("AvgWE", "AvgTV", "MaxWE", "AvgRelWE", "AvgL1", "MaxL1")


@dataclass(frozen=True)
class Comparison:
    """The checked settings of a comparison file, with defaults; made by ``Comparison.load``.

    Attributes:
        epsilons, repeats, steps, workload: the settings of all runs; ``steps`` None: whole streams.
        streams, methods, offline: the tables of the file, in its order.
    """

    path: Path
    epsilons: tuple[str, ...]
    repeats: int
    steps: int | None
    workload: Any
    streams: tuple[StreamSource, ...]
    methods: tuple[Method, ...]
    offline: tuple[Offline, ...]

    @classmethod
    def load(cls, path: str | Path, *, data: str | Path | None = None) -> Comparison:
        """Read and check a comparison file. Paths in it are relative to it.

        Args:
            data: the folder with the real data, for the paper's streams; None: ``DPSTREAM_DATA``.

        Errors:
            ConfigError: names the file, the key, its value and what is allowed.
        """
        file = Path(path)
        document = load_toml(file)
        read = _ComparisonFile(str(file), document)
        streams = tuple(
            read.stream(name, table, data) for name, table in read.tables("streams", required=True)
        )
        methods = tuple(Method(name, table, str(file)) for name, table in read.tables("methods"))
        offline = tuple(Offline(name, table, str(file)) for name, table in read.tables("offline"))
        if not methods and not offline:
            raise read.wrong("methods", "there is nothing to compare")
        for one in offline:
            one.check()
            if any(one.label == other.label for other in methods):
                raise read.wrong(f"offline.{one.label}", "a method has the same name", "another name")
        return cls(
            file, read.epsilons(), read.count("repeats", 1) or 1, read.count("steps", None),
            document.get("workload", "all-2-way"), streams, methods, offline,
        )  # fmt: skip

    def tasks(self) -> list[Task]:
        """Every run of the comparison: streams, budgets, methods and repetitions."""
        everything: list[Method | Offline] = [*self.methods, *self.offline]
        return [
            Task(source, method, epsilon, repeat, self.steps, self.workload)
            for source in self.streams
            for epsilon in self.epsilons
            for method in everything
            for repeat in range(self.repeats)
        ]

    def run(
        self, out: str | Path, *, jobs: int = 2, figures: bool = True, watch: RunWatch | None = None
    ) -> ExperimentOutcome:
        """Run everything, and write ``runs/``, ``table.csv``, ``table.md``, ``figures/`` and ``settings.md``.

        The noise is real. Finished runs with equal settings are not repeated (see ``run_grid``).

        Errors:
            ConfigError: a method does not fit a stream, data are missing, or ``out`` is a folder of releases.

        Guarantee: none; every number is computed from the private tables.
        """
        if figures:
            require_matplotlib()
        private = PrivateFolder(out, self._apart_from())
        results = run_grid(self.tasks(), private, jobs=jobs, watch=watch)
        lines = error_lines(results)
        private.write("table.csv", errors_csv(lines))
        private.write("table.md", self._page(lines))
        private.write("settings.md", settings_page("comparison", settings_table(results)))
        names = ["table.csv", "table.md", "settings.md"]
        names += draw_error_figures(results, private) if figures else []
        return ExperimentOutcome(private.path, tuple(names), tuple(lines), tuple(results))

    def _apart_from(self) -> dict[str, Path]:
        """The released tables and the secret states of the configurations that are read."""
        places = {}
        for source in self.streams:
            if isinstance(source, ConfigSource):
                config = Config.load(source.path)
                places[f"releases of {source.label}"] = config.output.dir
                places[f"state of {source.label}"] = config.state_dir
        return places

    def _page(self, lines: Sequence[ErrorLine]) -> str:
        runs = f"{self.repeats} repetitions" if self.repeats > 1 else "One run"
        spread = ", mean with the lowest and the highest in brackets" if self.repeats > 1 else ""
        part = "" if self.steps is None else f" of the first {self.steps} steps"
        head = (
            f"**{LABEL}**\n\n# Comparison: {self.path.name}\n\n{runs}{part}{spread}. Errors are taken at every "
            f"{EVALUATE_EVERY}th step and at each of the last {EVALUATE_LAST}, over which the table averages."
        )
        if self.offline:
            head += (
                " A method that ran once saw the final table whole, with the same budget: an easier task, and so a "
                "level to aim at rather than a bound."
            )
        return f"{head}\n\n{markdown_table(lines, _COLUMNS)}"


@dataclass(frozen=True)
class _ComparisonFile:
    """The content of a comparison file, and the checks of its keys."""

    file: str
    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        for key, value in self.document.items():
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS)
                raise ConfigError(
                    f"unknown key {key!r} ({shown(value)}){hint}", where=self.file, allowed=", ".join(_KEYS)
                )
        stated = self.document.get("format", COMPARISON_FORMAT)
        if isinstance(stated, bool) or stated != COMPARISON_FORMAT:
            raise self.wrong("format", f"unknown format {shown(stated)}")

    def wrong(self, key: str, what: str, allowed: str | None = None) -> ConfigError:
        return ConfigError(what, where=f"{self.file} {key}", allowed=allowed or _KEYS[key])

    def count(self, key: str, default: int | None) -> int | None:
        value = self.document.get(key, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.wrong(key, f"{shown(value)} cannot be used")
        return value

    def epsilons(self) -> tuple[str, ...]:
        values = self.document.get("epsilons", ["1"])
        if not isinstance(values, list) or not values:
            raise self.wrong("epsilons", f"{shown(values)} is not a list of budgets")
        try:
            return tuple(dict.fromkeys(map(epsilon_text, values)))
        except DpstreamError as error:
            raise self.wrong("epsilons", error.what) from None

    def tables(self, key: str, *, required: bool = False) -> list[tuple[str, Mapping[str, Any]]]:
        """The tables under a key, by their names."""
        found = self.document.get(key, {})
        if not isinstance(found, Mapping) or (required and not found):
            raise self.wrong(key, f"there are no {key}" if required else f"{shown(found)} is not a table")
        for name, table in found.items():
            if not isinstance(table, Mapping):
                raise self.wrong(key, f"{name} = {shown(table)} is not a table")
            if not _LABEL.fullmatch(name):
                raise self.wrong(
                    key,
                    f"the name {name!r} cannot be part of a file's name",
                    "up to 64 letters, digits, '.', '_' and '-'",
                )
        return list(found.items())

    def stream(self, name: str, table: Mapping[str, Any], data: str | Path | None) -> StreamSource:
        place = f"{self.file} [streams.{name}]"
        known = ("config", "kumar")
        for key in table:
            if key not in known:
                raise ConfigError(
                    f"unknown key {key!r} ({shown(table[key])}){did_you_mean(key, known)}",
                    where=place,
                    allowed=", ".join(known),
                )
        if len(table) != 1:
            raise ConfigError("a stream has one source", where=place, allowed="config or kumar")
        key, value = next(iter(table.items()))
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{shown(value)} is not a text", where=f"{place} {key}", allowed="a text")
        if key == "config":
            path = Path(self.file).parent / value
            if not path.is_file():
                raise ConfigError(
                    f"there is no file {value!r}", where=f"{place} config", allowed="a dpstream.toml"
                )
            return ConfigSource(name, path)
        if value not in KUMAR_STREAMS:
            raise ConfigError(
                f"unknown stream {value!r}{did_you_mean(value, KUMAR_STREAMS)}",
                where=f"{place} kumar",
                allowed=", ".join(KUMAR_STREAMS),
            )
        return KumarSource(name, value, data_folder(data))
