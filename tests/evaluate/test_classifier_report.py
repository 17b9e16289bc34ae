"""The page of a classifier repeats its released coefficients with their errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_stream import dpstream
from report_pages import Page, classifier

from dpstream.core.errors import ConfigError
from dpstream.io.sinks import read_table as read
from dpstream.tools.report import write_report


def test_page_of_a_classifier(tmp_path: Path) -> None:
    config = classifier(tmp_path)
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
        # What was measured is shrunk where noise is large, and its error with it.
        shrunk = [table["coefficient"][place] / table["measured"][place] for table in tables]
        errors = [
            2 * table["standard_error"][place] * factor for table, factor in zip(tables, shrunk, strict=True)
        ]
        assert max(shrunk) < 1
        assert line["width"] == pytest.approx(errors, rel=1e-3)
    coefficients = [tables[-1][key] for key in ("coefficient", "standard_error", "measured")]
    beyond = sum(
        abs(value) > 2 * error * value / measured
        for value, error, measured in zip(*coefficients, strict=True)
    )
    assert f"{beyond} of {len(coefficients[0])} are beyond the noise" in page.words
    assert "nobody has counted it" in page.words
    assert "Above 0 speaks for late." in page.words
    assert "Rows are no sample" not in page.words
    with pytest.raises(ConfigError, match="has no heat maps"):
        write_report(config, tmp_path / "x.html", pairs=[("late", "kind")])
