"""Public files that a configuration names and that are gone, for verbs that only look at what a stream has released.

A started stream is pinned to what these files said, and its releases' codebook has the constraints. Whoever takes a
step needs the files themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core.contracts import PublicPrior
from dpstream.core.errors import DpstreamError
from dpstream.core.schema import Schema
from dpstream.core.schema.constraints import Constraints, split_spec
from dpstream.stream import PostgresServer


@dataclass(frozen=True)
class AbsentFiles:
    """What stands in for files that are not there.

    Attributes:
        names: of the files, as the configuration has them.
        pinned: what the started stream is pinned to.
        codebook: of its releases; None: no file of constraints is missing.
        prior_gone: whether the file of the prior is missing.
    """

    names: tuple[str, ...]
    pinned: Mapping[str, Any]
    codebook: Schema | None
    prior_gone: bool

    @classmethod
    def of(
        cls,
        document: Mapping[str, Any],
        base: Path,
        state: Path,
        releases: Path,
        server: PostgresServer | None,
    ) -> AbsentFiles | None:
        """None where all files are there, or nothing can stand in for them: reading them says what is wrong."""
        prior, rules = (_missing(names, base) for names in (_of_prior(document), _of_constraints(document)))
        if not prior and not rules:
            return None
        from dpstream.io.sinks import read_catalogue, read_manifest
        from dpstream.io.sinks.release_reader import released_schema
        from dpstream.stream import read_status

        try:
            pinned, codebook = read_status(state, server=server).plan, None
            if rules:
                last = max(int(entry["step"]) for entry in read_catalogue(releases)["steps"])
                codebook = released_schema(releases, read_manifest(releases, last))
        except (DpstreamError, KeyError, TypeError, ValueError):
            return None
        if (prior and "prior" not in pinned["options"]) or (rules and codebook is None):
            return None
        return cls((*prior, *rules), pinned, codebook, bool(prior))

    @property
    def told(self) -> str:
        """A sentence for the owner."""
        one = len(self.names) == 1
        return (
            f"the public {'file' if one else 'files'} {', '.join(map(repr, self.names))} "
            f"{'is' if one else 'are'} not there; what the stream is pinned to is used instead, and the next step "
            f"needs {'it' if one else 'them'}"
        )

    def schema(self, document: Mapping[str, Any], base: Path, where: str) -> Schema:
        """The schema as the stream is pinned to it.

        Errors: see ``Schema.from_toml``; whatever else differs is found where plans are compared.
        """
        if self.codebook is None:
            return Schema.from_toml(document, base=base, where=where)
        table = {key: value for key, value in document["schema"].items() if key != "constraints"}
        plain = Schema.from_toml({"schema": table}, base=base, where=where)
        spec = self.codebook.constraints.spec() if self.codebook.constraints is not None else {}
        measured, found = split_spec(spec, plain.columns)
        return replace(plain, columns=tuple(measured), constraints=self._with_files(found, document))

    def _with_files(self, found: Constraints, document: Mapping[str, Any]) -> Constraints:
        """The codebook has no files; which constraint is from which is in the configuration, in the same order."""
        rules = document["schema"]["constraints"]
        digests = self.pinned["schema"]["constraints"]["files"]
        derived = tuple(
            replace(one, file=name, digest=digests.get(name))
            for one in found.derived
            for name in (str(rules["derived"][one.column.name]["file"]),)
        )
        written = len(rules.get("forbidden", ()))
        excluded = tuple(
            replace(one, file=name, digest=digests.get(name))
            for one, entry in zip(found.excluded[written:], rules.get("allowed", ()), strict=True)
            for name in (str(entry["file"]),)
        )
        return replace(found, derived=derived, excluded=(*found.excluded[:written], *excluded))

    def prior(self, schema: Schema) -> PublicPrior | None:
        """Something with the pinned facts, for a plan that takes no step; None where the file is there."""
        if not self.prior_gone:
            return None
        facts = self.pinned["options"]["prior"]
        columns = tuple(sorted(schema.names.index(name) for name in facts["columns"]))
        codes, weights = np.zeros((1, len(columns)), np.int32), np.array([float(facts["records"])])
        return PublicPrior(schema.domain, columns, codes, weights, facts)


def _of_prior(document: Mapping[str, Any]) -> list[Any]:
    own = document.get("prior")
    return [own.get("file")] if isinstance(own, Mapping) else []


def _of_constraints(document: Mapping[str, Any]) -> list[Any]:
    schema = document.get("schema")
    rules = schema.get("constraints") if isinstance(schema, Mapping) else None
    if not isinstance(rules, Mapping):
        return []
    derived, allowed = rules.get("derived", {}), rules.get("allowed", [])
    entries = list(derived.values()) if isinstance(derived, Mapping) else []
    entries += allowed if isinstance(allowed, list) else []
    return [entry.get("file") for entry in entries if isinstance(entry, Mapping)]


def _missing(names: list[Any], base: Path) -> list[str]:
    return [name for name in names if isinstance(name, str) and name and not (base / name).exists()]
