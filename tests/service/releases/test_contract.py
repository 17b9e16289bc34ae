"""The OpenAPI document holds for requests made from it, and for the releases of every family."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import schemathesis
from feed_server import served
from hypothesis import HealthCheck, Phase, given, settings
from small_streams import small_stream
from test_release_contract import CASES

from dpstream.io.sinks import read_changes
from dpstream.io.sinks import read_table as read

NAMES = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")
CHECKS = [schemathesis.checks.not_a_server_error, *(getattr(schemathesis.checks, name) for name in NAMES)]


def test_requests_made_from_the_document(made: Path) -> None:
    """Also those that the document does not allow: no answer is an error of the server, each is as described."""
    with served(made / "releases") as feed:
        document = feed.get("/openapi.json").json()
        for path, route in document["paths"].items():
            for one in route["get"].get("parameters", []):
                if one["name"] == "name":
                    one["schema"]["enum"] = ["invented", "other"]
            assert route["get"]["summary"], path
        del document["paths"]["/v1/streams/{name}/events"]  # it does not end
        schema = schemathesis.openapi.from_dict(document)
        asked = set()
        for found in schema.get_all_operations():
            operation = found.ok()
            has_more = any(True for _ in operation.iter_parameters())
            for mode in (
                [*schemathesis.GenerationMode] if has_more else [schemathesis.GenerationMode.POSITIVE]
            ):

                @settings(
                    max_examples=3,
                    derandomize=True,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(operation.as_strategy(generation_mode=mode))
                def ask(case: schemathesis.Case) -> None:
                    answer = case.call_and_validate(base_url=str(feed.base_url), checks=CHECKS)
                    asked.add((case.path, answer.status_code))

                ask()
    assert {path for path, status in asked if status == 200} >= {"/v1/streams", "/v1/streams/{name}/steps"}
    assert {path for path, _ in asked} == set(document["paths"])


@pytest.mark.parametrize("name", list(CASES))
def test_every_family(name: str, tmp_path: Path) -> None:
    family, options = CASES[name]
    form = {"format": "csv"} if family in ("panel", "keyed") else {}  # whose texts are digits
    persistent = family != "growing"
    kept = {"output": {"records": "persistent", "publish": "both", **form}} if persistent else {}
    small_stream(tmp_path, family, 3, **kept, **options).close()
    folder = tmp_path / "releases"
    with served(f"x={folder}") as feed:
        at = "/v1/streams/x"
        table = read(folder, step=2, ids=True)
        tables = {"table": table}
        if persistent:
            tables["changes"] = read_changes(folder, 2)
        for kind, expected in tables.items():
            answer = feed.get(f"{at}/steps/2/{kind}.arrows")
            assert pa.ipc.open_stream(answer.content).read_all().equals(expected)
            answer = feed.get(f"{at}/steps/2/{kind}.parquet")
            assert pa.parquet.read_table(io.BytesIO(answer.content)).to_pylist() == expected.to_pylist()
        names = table.column_names[::-1][:2]
        few = feed.get(f"{at}/steps/2/table.arrows", params={"columns": ",".join(names), "limit": 2})
        assert pa.ipc.open_stream(few.content).read_all().equals(table.select(names).slice(0, 2))
        lines = feed.get(f"{at}/steps/2/table.ndjson").text.splitlines()
        assert [json.loads(one) for one in lines] == table.to_pylist()
        assert feed.get(f"{at}/steps/2/table.csv").text.count("\n") == table.num_rows + 1
        assert '"event": "end"' in feed.get(f"{at}/changes?after=1").text
        assert read(f"{feed.base_url}{at}", step=2, ids=True).equals(table)
        asked = feed.get(f"{at}/answer", params={"q": "paid"})
        assert asked.status_code in (200, 400), asked.text
        assert asked.json().get("note") or asked.json()["detail"]
        assert family != "panel" or "no table of records" in asked.json()["detail"]
        assert feed.get(f"{at}/steps/2/manifest").json()["step"] == 2
