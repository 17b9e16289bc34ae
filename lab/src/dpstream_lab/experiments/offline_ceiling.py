"""Offline mechanisms, run once on the final table: the ceiling for a stream of the same budget."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import RecipeContext, located
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, PureDP, Randomness
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline
from dpstream.families.tabular.baseline import OFFLINE
from dpstream.mechanisms import OfflinePlan
from dpstream.project.keys import section_of
from dpstream.project.sections import read_recipe
from dpstream.tools.evaluate.true_table import TrueTable
from dpstream_lab.experiments.methods import with_arguments

#: What a file named by ``python = "FILE.py:FUNCTION"`` defines, and how it is called:
#: ``function(codes, domain, cliques, *, epsilon, repeat, **options)`` with the final table as int32 codes
#: (records x columns), its public domain, the workload's cliques (tuples of column positions), the budget as a float,
#: the number of the repetition (a seed, if it wants one) and the entry's other options. It returns one flat
#: array (C order) of counts, in records, for every clique.
Peer = Callable[..., Sequence[NDArray[np.float64]]]

_DEFAULT = next(iter(OFFLINE))


@dataclass(frozen=True)
class Offline:
    """One offline mechanism.

    Attributes:
        label: its name in tables and figures.
        options: ``name = "mwem-pgm"`` or ``"aim"`` with its options as in ``[mechanism]`` and ``recipe``, or
            ``python = "FILE.py:FUNCTION"`` with options of its own.
        file: the file that says so; Python files are looked up beside it.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    file: str = "experiment"

    @property
    def place(self) -> str:
        """Where the method stands, for messages."""
        return f"{self.file} [offline.{self.label}]"

    @property
    def _name(self) -> str:
        return str(self.options.get("name", _DEFAULT))

    @property
    def is_peer(self) -> bool:
        """Whether it is a Python function."""
        return "python" in self.options

    def check(self) -> None:
        """Refuse an entry that cannot run, before anything else does.

        Errors:
            ConfigError: names the key and what is allowed.
        """
        if self.is_peer:
            self._peer()
        elif self._name not in OFFLINE:
            raise ConfigError(
                f"unknown offline mechanism {self.options['name']!r}",
                where=f"{self.place} name",
                allowed=f'{", ".join(OFFLINE)}, or python = "FILE.py:FUNCTION"',
            )

    def facts(self, domain: Domain, workload: Workload, epsilon: str, unit: Event) -> dict[str, Any]:
        """Everything that its result depends on but the table: JSON-able."""
        if not self.is_peer:
            return self._plan(domain, workload, epsilon, unit).options()
        path, function = self._file()
        code = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        rest = {key: str(value) for key, value in self.options.items() if key != "python"}
        return {"python": f"{path.name}:{function}", "code": code, **rest}

    def run(
        self, table: TrueTable, workload: Workload, epsilon: str, unit: Event, repeat: int
    ) -> list[NDArray[np.float64]]:
        """Marginals of the workload, in records, after one run on the whole table.

        Guarantee: MWEM+PGM's or AIM's own. A peer's is its author's claim.
        """
        domain = workload.domain
        if not self.is_peer:
            plan = self._plan(domain, workload, epsilon, unit)
            run = plan.run(EncodedBatch(domain, table.rows()), "inserts", Randomness.system())
            return run.model.marginals(workload.cliques)
        options = {key: value for key, value in self.options.items() if key != "python"}
        # Row-major, as most libraries want it.
        codes = np.ascontiguousarray(table.rows())
        found = self._peer()(
            codes,
            domain,
            workload.cliques,
            epsilon=float(PureDP.of(epsilon).epsilon),
            repeat=repeat,
            **options,
        )
        return self._checked(found, domain, workload.cliques)

    def _plan(self, domain: Domain, workload: Workload, epsilon: str, unit: Event) -> OfflinePlan:
        # Read as the baseline's options are, so that one table of keys says what is allowed.
        options = {key: value for key, value in self.options.items() if key not in ("name", "recipe")}
        with located(self.place):
            table = {"name": "baseline", "offline": self._name, "workload": workload.as_option(), **options}
            if self._name == _DEFAULT:
                table.setdefault("k", min(len(domain), len(workload)))
            section = section_of(self.file, "mechanism", table, title=f"offline.{self.label}")
            recipe = read_recipe(section, RecipeContext(domain))
            assert isinstance(recipe, Baseline)
            assert recipe.offline is not None  # read from a file, it is always named
            offline = with_arguments(recipe.offline, self.options.get("recipe", {}), section)
            plan: OfflinePlan = offline.calibrate(workload, PureDP.of(epsilon), unit)
            return plan

    def _file(self) -> tuple[Path, str]:
        name, _, function = str(self.options["python"]).partition(":")
        path = Path(self.file).parent / name
        if not name.endswith(".py") or not function.isidentifier() or not path.is_file():
            raise ConfigError(
                f"{self.options['python']!r} names no function in a file beside the experiment",
                where=f"{self.place} python",
                allowed='such as "peers.py:aim"',
            )
        return path, function

    def _peer(self) -> Peer:
        path, name = self._file()
        try:
            function = getattr(_module(path), name, None)
        except ImportError as error:
            raise ConfigError(
                f"{path.name} cannot be imported: {error}",
                where=f"{self.place} python",
                allowed="a file whose imports are installed",
            ) from None
        if not callable(function):
            raise ConfigError(
                f"{path.name} has no function {name!r}",
                where=f"{self.place} python",
                allowed="a function (codes, domain, cliques, *, epsilon, repeat, **options)",
            )
        options = {key: value for key, value in self.options.items() if key != "python"}
        try:
            inspect.signature(function).bind(None, None, None, epsilon=1.0, repeat=0, **options)
        except TypeError as error:
            raise ConfigError(
                f"{name} cannot be called with these options: {error}",
                where=self.place,
                allowed=f"{name}{inspect.signature(function)}",
            ) from None
        found: Peer = function
        return found

    def _checked(
        self, found: Sequence[NDArray[np.float64]], domain: Domain, cliques: Sequence[Clique]
    ) -> list[NDArray[np.float64]]:
        arrays = [np.asarray(values, dtype=np.float64) for values in found]
        wanted = [(domain.cells(clique),) for clique in cliques]
        if [a.shape for a in arrays] != wanted or not all(np.isfinite(a).all() for a in arrays):
            raise ConfigError(
                "the function's result is not one flat array of finite counts for every clique",
                where=self.place,
                allowed=f"{len(wanted)} arrays, each as long as its clique has cells",
            )
        return arrays


def _module(path: Path) -> ModuleType:
    """A file beside the experiment as a module; running it is what naming it there asks for."""
    name = f"dpstream_peer_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError:
        del sys.modules[name]
        raise
    return module
