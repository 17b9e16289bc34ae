"""Released files say what they are, and come back with what they said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import toy_stream

from dpstream.core.errors import StoreDamagedError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Boolean, Real, Schema
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.io.sinks import read_changes
from dpstream.io.sinks import read_table as read
from dpstream.stream import Batch, Publishing, Stream

SCHEMA = Schema([Boolean("paid"), Real("rent", [0, 500, 2000.5, 1e6], missing="missing")])
ROWS = {"paid": [True, False] * 40, "rent": [100.0, None, 700.0, 30_000.0] * 20}


def start(home: Path, form: Any, policy: Publishing) -> Stream:
    plan = Pooled(Workload.all_k_way(SCHEMA.domain, 2)).calibrate(epsilon=1)
    options: dict[str, Any] = {"plan": plan, "schema": SCHEMA, "randomness": Randomness.seeded(4)}
    return toy_stream.start(home, form=form, publishing=policy, name="Rents", **options)


def run(home: Path, form: Any, policy: Publishing, steps: int = 4) -> dict[str, bytes]:
    with start(home, form, policy) as stream:
        for step in range(1, steps + 1):
            stream.step(Batch(ROWS), f"b{step}", f"2026-W0{step}")
    folder = home / "releases"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("step-*/*"))}


BOTH = Publishing(records="persistent", publish="both")


@pytest.mark.parametrize("policy", [Publishing(), BOTH], ids=["fresh", "persistent"])
def test_every_file_says_what_it_is(tmp_path: Path, policy: Publishing) -> None:
    run(tmp_path / "p", "parquet", policy)
    made = run(tmp_path / "c", "csv", policy)
    manifest = json.loads(made["step-000003/manifest.json"])
    for kind in ("table", "changes") if policy is BOTH else ("table",):
        there = pyarrow.parquet.read_schema(tmp_path / "p" / "releases" / "step-000003" / f"{kind}.parquet")
        told = json.loads(there.metadata[b"dpstream"])
        beside = json.loads(made[f"step-000003/{kind}.csv-metadata.json"])
        assert (beside["url"], beside["notes"]) == (f"{kind}.csv", [manifest["label"]])
        assert (told["synthetic"], told["step"], told["period"]) == (True, 3, "2026-W03")
        assert manifest["guarantee"]["words"] in beside["dc:description"]
        assert "NO GUARANTEE" in told["words"], "a seeded stream promises nothing, in its files neither"
        assert f"{kind}.csv-metadata.json" in manifest["files"]
    read(tmp_path / "c" / "releases", 3)


def test_the_codebook_names_a_table_that_is_there(tmp_path: Path) -> None:
    policy = Publishing(records="persistent", publish="changes", full_every=3)
    made = run(tmp_path, "csv", policy)
    texts = [line.rsplit(b",", 1)[1] for line in made["step-000001/table.csv"].splitlines()[1:]]
    assert len(texts) > 20
    assert max(map(len, texts)) <= 6, "a thousandth of a bin's width: 123.4, 1234, 123400"
    for path in ("step-000004/table.csv", "step-000001/table.csv"):
        book = json.loads((tmp_path / "releases" / "codebook.json").read_bytes())["resources"][0]
        assert book["path"] == path
        names = pa.csv.read_csv(tmp_path / "releases" / path).column_names
        assert names == [field["name"] for field in book["schema"]["fields"]]
        with start(tmp_path, "csv", policy) as stream:
            stream.withdraw(4, "a mistake")


@pytest.mark.parametrize("kind", ["table", "changes"])
@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_a_harmed_label_beside_a_csv_file_is_told_to_its_reader(tmp_path: Path, kind: str, harm: str) -> None:
    run(tmp_path, "csv", BOTH, steps=2)
    reader = read if kind == "table" else read_changes
    releases = tmp_path / "releases"
    reader(releases, 2)
    label = releases / "step-000002" / f"{kind}.csv-metadata.json"
    if harm == "changed":
        label.write_bytes(label.read_bytes().replace(b"Synthetic records", b"Genuine records"))
    else:
        label.unlink()
    with pytest.raises(StoreDamagedError, match=label.name):
        reader(releases, 2)
