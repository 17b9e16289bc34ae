"""Tiny stand-ins for the real data, and a comparison that runs in a second."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
from cli_stream import make

from dpstream_lab.experiments.replayed_streams import ADULT_COLUMNS

COMPARE = (
    'format = 1\nepsilons = ["1"]\n[streams.small]\nconfig = "small/dpstream.toml"\n'
    '[methods.dpstabs]\nname = "dpstabs"\nk = 2\n[methods.baseline]\nname = "baseline"\nk = 2\n'
)


def comparison(folder: Path, text: str = COMPARE, steps: int = 4) -> Path:
    """A small stream and a comparison file beside it."""
    make(folder / "small", steps)
    path = folder / "compare.toml"
    path.write_text(text, encoding="utf-8")
    return path


def fake_data(folder: Path, rows: int = 120) -> Path:
    """Files in the form of the real ones: ``rows`` of Adult with two values a column, notices of 16 days."""
    rng = np.random.default_rng(5)
    (folder / "adult").mkdir(parents=True)
    names = ["age", *ADULT_COLUMNS[::-1], "education"]
    codes = rng.integers(0, 2, (rows, len(names)))
    lines = [",".join(names), *(",".join(map(str, row)) for row in codes.tolist())]
    (folder / "adult/adult_48813.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "adult/adult_48813-domain.json").write_text(json.dumps(dict.fromkeys(names, 2)))
    (folder / "eviction").mkdir()
    (folder / "eviction/domain.json").write_text('{"zip": ["94102", "missing"], "breach": [0, 1]}')
    days = ["1997-01-02,94102,0", "1997-01-08,missing,1", "1997-01-09,94102,1", "1997-01-17,94102,1"]
    text = "\n".join(["file_date,zip,breach", *days])
    (folder / "eviction/eviction.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder
