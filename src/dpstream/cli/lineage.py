"""``run --lineage``: what a run read and published, as OpenLineage events; one JSON object a line.

Source: OpenLineage, object model 2-0-2 (RunEvent), and its facets for schemas and versions of data sets. What an event
may hold is listed here: names from the public configuration, names and types of released columns, numbers of steps. No
number of records, no statistics of inputs, and no message.
"""

from __future__ import annotations

import datetime
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dpstream.cli.logs import JsonLog
from dpstream.core.version import __version__

if TYPE_CHECKING:
    from dpstream.project import Config

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PRODUCER = f"urn:dpstream:{__version__}"
_TYPES = {"begun": "START", "done": "COMPLETE", "interrupted": "ABORT", "stopped": "FAIL"}


class Lineage(JsonLog):
    """A log that says the same to tools of data lineage: a START, and then a COMPLETE, ABORT or FAIL."""

    def __init__(self, place: str, config: Config, out: str | None) -> None:
        super().__init__(place)
        self._config, self._releases = config, config.output.dir if out is None else Path(out)
        self._run, self._newest = str(uuid.uuid4()), 0

    def event(self, level: str, event: str, step: int | None, state: str, **more: Any) -> None:
        """Remember a step, or write an event about the run."""
        if event == "step":
            if state == "published" and step is not None:
                self._newest = max(self._newest, step)
            return
        self.put(
            {
                "eventType": _TYPES[state],
                "eventTime": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
                "run": {"runId": self._run},
                "job": {"namespace": "dpstream", "name": self._config.name},
                "inputs": [{"namespace": space, "name": name} for space, name in _inputs(self._config)],
                "outputs": [] if state == "begun" or not self._newest else [self._output()],
                "producer": _PRODUCER,
                "schemaURL": _EVENT,
            }
        )

    def _output(self) -> dict[str, Any]:
        from dpstream.core.errors import DpstreamError
        from dpstream.io.sinks.release_reader import read_manifest, released_schema

        facets = {"version": _facet("1-0-1/DatasetVersion", datasetVersion=str(self._newest))}
        try:
            schema = released_schema(self._releases, read_manifest(self._releases, self._newest))
        except DpstreamError:  # no table of records, or withdrawn since: the version says enough
            schema = None
        if schema is not None:
            fields = [{"name": column.name, "type": column.type_name} for column in schema.released_columns]
            facets["schema"] = _facet("1-1-1/Schema", fields=fields)
        return {"namespace": "file", "name": str(self._releases.absolute()), "facets": facets}


def _facet(kind: str, **values: Any) -> dict[str, Any]:
    version, _, name = kind.partition("/")
    url = f"{_SPEC}/facets/{version}/{name}DatasetFacet.json#/$defs/{name}DatasetFacet"
    return {"_producer": _PRODUCER, "_schemaURL": url, **values}


def _inputs(config: Config) -> list[tuple[str, str]]:
    """Namespace and name of what is read, as the configuration names it; nothing is looked up."""
    from dpstream.io.objects import is_object_url, object_path

    source, base = config.source_options, config.path.parent.absolute()
    if source.stdin:
        return []
    if source.kind == "files":
        stored = [object_path(text) for text in source.path if is_object_url(text)]
        local = [os.path.normpath(base / text) for text in source.path if not is_object_url(text)]
        return [
            *(("file", text) for text in local),
            *((f"{one.scheme}://{one.place}", one.key) for one in stored),
        ]
    if source.kind == "duckdb":
        return [("file", os.path.normpath(base / str(source.database)))]
    what = source.table or "query"
    if source.url is None:  # it may hold a password
        return [(source.kind, what)]
    parts = urlsplit(source.url)
    server = f"{parts.scheme}://{parts.hostname or 'localhost'}" + (f":{parts.port}" if parts.port else "")
    return [(server, f"{parts.path.strip('/')}.{what}".lstrip("."))]
