"""Feeds without keys whose rows leave: what ``init`` drafts for them, and what plan and manifest say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from cli_stream import dpstream

from dpstream.io.sinks import read_manifest
from dpstream.mechanisms.table_release import ModelSynthesis
from dpstream.project import Config
from dpstream.stream.release.manifest import accuracy_of


def test_equal_rows_which_come_and_go_cancel(tmp_path: Path) -> None:
    """A feed without keys: its operations are read, and plan and manifest say what it means."""
    lines = [
        f"{step},{op},{zip}" for step in (1, 2) for op in ["insert"] * 30 + ["delete"] * 20 for zip in "ab"
    ]
    (tmp_path / "feed.csv").write_text("\n".join(["step,op,zip", *lines]) + "\n", encoding="utf-8")
    config = tmp_path / "dpstream.toml"
    dpstream("init", tmp_path / "feed.csv", "--time-column", "step", "--out", config)
    text = config.read_text(encoding="utf-8")
    drafted = tomllib.loads(text)
    assert drafted["stream"]["unit"] == "event"
    assert drafted["source"]["op_column"] == "op"
    assert list(drafted["schema"]["columns"]) == ["zip"]
    text = text.replace("confirmed = false", "confirmed = true").replace('end = "FILL IN"', "end = 2")
    config.write_text(text.replace('epsilon = "1"', 'epsilon = "100"'), encoding="utf-8")
    dpstream("check", config)
    assert "21 records for each that is there at step 100" in " ".join(
        dpstream("plan", config).stdout.split()
    )
    dpstream("run", config)
    manifest = read_manifest(tmp_path / "releases", 2)
    assert manifest["mechanism"]["options"]["cancels"] is True
    found = re.search(r"difference of (\S+) that came and (\S+) that left", manifest["accuracy"]["words"])
    assert found is not None
    # Of 60 that come and 40 that leave in each step 40 equal ones cancel.
    assert [round(float(number)) for number in found.groups()] == [40, 0]
    plan = Config.load(config).plan()
    at_nine = ModelSynthesis((plan.start().table,), 0.0, measured_up_to=9)
    told = accuracy_of(at_nine, plan, 10)["words"]
    assert (
        "The counts of the last step are expected from those before, not measured; they will be with step"
        in told
    )
