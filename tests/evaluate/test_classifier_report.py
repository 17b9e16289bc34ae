"""The page of a classifier repeats its released coefficients with their errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_stream import dpstream
from report_pages import Page

from dpstream.core.errors import ConfigError
from dpstream.io.sinks import read
from dpstream.tools.report import write_report

CONFIG = """format = 1
[stream]
name = "loans"
total = "public"
[source]
path = "data/*.csv"
every = "files"
[schema.columns.late]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y</script>"]
[mechanism]
name = "scheduler"
black_box = "erm"
target = "late"
first_run = 200
gamma = "1/2"
[budget]
epsilon = "1"
"""


def test_page_of_a_classifier(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for file in (1, 2, 3):
        rows = "".join(f"{str(i % 3 == 0).lower()},{'x' if i % 2 else 'y</script>'}\n" for i in range(200))
        (tmp_path / "data" / f"{file}.csv").write_text(f"late,kind\n{rows}")
    config = tmp_path / "dpstream.toml"
    config.write_text(CONFIG)
    dpstream("run", config)
    from_config = write_report(config, tmp_path / "c.html").read_bytes()
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "state")
    page = Page(write_report(tmp_path / "releases", tmp_path / "f.html"))
    assert page.text.encode() == from_config
    assert "A classifier (logistic regression) of late by 1 column, trained on 600 records" in page.words
    chart = page.spec("The largest coefficients")
    tables = [read(tmp_path / "releases", step).to_pydict() for step in (1, 2, 3)]
    for line in chart["lines"]:
        place = tables[-1]["feature"].index(line["label"])
        assert line["values"] == pytest.approx([table["coefficient"][place] for table in tables], rel=1e-3)
        errors = [2 * table["standard_error"][place] for table in tables]
        assert line["width"] == pytest.approx(errors, rel=1e-3)
    for options in ({"private_data": True}, {"pairs": [("late", "kind")]}):
        with pytest.raises(ConfigError, match="neither heat maps nor the private data"):
            write_report(config, tmp_path / "x.html", **options)  # type: ignore[arg-type]
