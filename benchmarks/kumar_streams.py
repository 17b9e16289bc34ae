"""The six streams of Kumar, Strohmer, Vershynin (2024), section 7.1, from the folder named by DPSTREAM_DATA.

Adult: the 48,813 records of Liu et al., projected to 13 columns; ``ordered`` sorts the projected rows
lexicographically, ``randomized`` permutes them (seeded). Steps are numbers attached to records beforehand.
Eviction: notices of the San Francisco Rent Board 1997-2016, 1,000 of the paper's 1,409 weeks, by week or
fortnight counted from the first filing date.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.schema.domain import Domain

ADULT_COLUMNS = (
    "sex", "income>50K", "race", "relationship", "marital-status", "workclass", "occupation",
    "education-num", "native-country", "capital-gain", "capital-loss", "hours-per-week", "age_10",
)  # fmt: skip
STREAMS = (
    "Eviction-weekly",
    "Eviction-bi-weekly",
    "Adult-randomized-bs-50",
    "Adult-randomized-bs-200",
    "Adult-ordered-bs-50",
    "Adult-ordered-bs-200",
)


@dataclass(frozen=True)
class Stream:
    """Codes of all records in order, and the first record of every step."""

    name: str
    domain: Domain
    codes: NDArray[np.int32]
    borders: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.borders) - 1

    def batch(self, step: int) -> NDArray[np.int32]:
        """Records of step 1, 2, ..."""
        return self.codes[self.borders[step - 1] : self.borders[step]]


def data_folder() -> Path:
    """The folder with the real data; ends the program with a sentence where it is not set."""
    folder = os.environ.get("DPSTREAM_DATA")
    if not folder:
        raise SystemExit("DPSTREAM_DATA is not set: name the folder that holds adult/ and eviction/")
    return Path(folder)


def load(name: str, seed: int = 0) -> Stream:
    """One of ``STREAMS``; ``seed`` permutes the randomized ones."""
    if name.startswith("Eviction"):
        return _eviction(name, 7 if name == "Eviction-weekly" else 14)
    _, order, _, size = name.split("-")
    domain, codes = adult()
    if order == "ordered":
        codes = codes[np.lexsort(codes.T[::-1])]
    else:
        codes = codes[np.random.default_rng(seed).permutation(len(codes))]
    borders = np.append(np.arange(0, len(codes), int(size)), len(codes))
    return Stream(name, domain, codes, borders)


def adult() -> tuple[Domain, NDArray[np.int32]]:
    """All of Adult, 13 columns."""
    folder = data_folder() / "adult"
    sizes = json.loads((folder / "adult_48813-domain.json").read_text())
    with gzip.open(folder / "adult_48813.csv.gz", "rt", newline="") as lines:
        rows = list(csv.reader(lines))
    position = [rows[0].index(column) for column in ADULT_COLUMNS]
    codes = np.array(rows[1:], dtype=np.int32)[:, position]
    return Domain(ADULT_COLUMNS, tuple(sizes[column] for column in ADULT_COLUMNS)), codes


def _eviction(name: str, days: int) -> Stream:
    folder = data_folder() / "eviction"
    values = json.loads((folder / "domain.json").read_text())
    columns = tuple(values)
    lookup = [{str(v): code for code, v in enumerate(values[column])} for column in columns]
    with gzip.open(folder / "eviction.csv.gz", "rt", newline="") as lines:
        reader = csv.DictReader(lines)
        rows = [
            (row["file_date"], [codes[row[column]] for column, codes in zip(columns, lookup, strict=True)])
            for row in reader
        ]
    first = date.fromisoformat(rows[0][0])
    steps = np.array([(date.fromisoformat(day) - first).days // days for day, _ in rows])
    codes = np.array([row for _, row in rows], dtype=np.int32)
    borders = np.searchsorted(steps, np.arange(steps[-1] + 2))
    return Stream(name, Domain(columns, tuple(len(values[c]) for c in columns)), codes, borders)
