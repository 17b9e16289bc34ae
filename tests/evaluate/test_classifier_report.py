"""The page of a classifier repeats its released coefficients with their errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream
from report_pages import Page, classifier

from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.erm import FeatureMap
from dpstream.io.sinks import read_table as read
from dpstream.tools.families.growing.growing_page import _blocks
from dpstream.tools.report import write_report


def test_features_are_read_back_from_their_names() -> None:
    domain = Domain(("a", "a=b", "late", "n", "paid", "flagged"), (3, 4, 2, 5, 2, 4))
    for columns in (("a", "a=b", "n", "paid", "flagged"), ("paid", "n"), ("flagged", "a")):
        numbers = tuple((name, bins) for name, bins in (("n", 5), ("flagged", 2)) if name in columns)
        features = FeatureMap(domain, "late", 1, columns, numbers)
        box = {"columns": list(columns), "numbers": [list(one) for one in numbers]}
        made = _blocks(features.names(), box)
        if columns[:2] == ("a", "a=b"):
            assert made is None, "the names of one column begin as those of the other"
            continue
        assert made is not None
        for block, own in zip(made, features.blocks, strict=False):
            assert features.scale * block == pytest.approx(own)
        assert sum(block.shape[1] for block in made) == features.dimension


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
    # What the card says of answers follows from the features that the mechanism itself makes.
    features = FeatureMap(Domain(("late", "kind"), (2, 2)), "late")
    records = np.array([[0, 0], [0, 1]], np.int32)
    margins = features.margins(records, np.array(tables[-1]["measured"]))
    sides = np.array([[-1.0, 1.0], [1.0, 1.0]]) * features.scale * tables[-1]["standard_error"][0]
    beyond = int((abs(margins) > 2 * np.sqrt((sides**2).sum(axis=1))).sum())
    assert f"{beyond} of 2 are beyond the noise, of all combinations of values" in page.words
    assert "nobody has counted it" in page.words
    assert "Above 0 speaks for late." in page.words
    assert "Rows are no sample" not in page.words
    with pytest.raises(ConfigError, match="has no heat maps"):
        write_report(config, tmp_path / "x.html", pairs=[("late", "kind")])
