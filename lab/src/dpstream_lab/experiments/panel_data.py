"""The panels of the reproduction: an invented one, an extreme one, two real ones, or a file."""

from __future__ import annotations

import csv
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, did_you_mean
from dpstream.tools.simulate import poverty_panel

#: name -> file in the folder with the real data; None for an invented panel.
KNOWN_PANELS: dict[str, str | None] = {
    "sipp-simulated": None,
    "all-ones": None,
    "credit-delay": "credit_delay_panel/delayed_2plus.csv.gz",
    "activity": "activity_panel/not_working.csv.gz",
}
_TITLES = {
    "sipp-simulated": "invented panel of the size of SIPP 2021",
    "all-ones": "simulated extreme: everybody reports 1 at every period",
    "credit-delay": "credit card clients, two or more months behind (Taiwan 2005)",
    "activity": "Swiss Household Panel 2000, not working",
}


@dataclass(frozen=True)
class Panel:
    """A binary panel.

    Attributes:
        reports: 0 or 1, shape (people, periods).
        real: whether the reports are those of real people; then all numbers computed from them are private.
    """

    name: str
    title: str
    real: bool
    reports: NDArray[np.uint8]

    @property
    def people(self) -> int:
        """The number of people (n)."""
        return int(self.reports.shape[0])

    @property
    def periods(self) -> int:
        """The number of periods (T)."""
        return int(self.reports.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all reports."""
        content = repr(self.reports.shape).encode() + np.ascontiguousarray(self.reports).tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def histogram(self, period: int, width: int) -> NDArray[np.int64]:
        """The true number of people for each pattern of the ``width`` periods up to ``period``."""
        codes = np.zeros(self.people, np.int64)
        for column in range(period - width, period):
            codes = 2 * codes + self.reports[:, column]
        return np.bincount(codes, minlength=2**width).astype(np.int64)

    def at_least(self, times: int, period: int) -> int:
        """The true number of people with at least ``times`` ones by ``period``."""
        return int((self.reports[:, :period].sum(axis=1, dtype=np.int64) >= times).sum())


def panel_path(name: str, folder: Path | None) -> Path | None:
    """The file of a panel; None for an invented one. ``name`` is a name of ``KNOWN_PANELS``, or a file.

    Errors:
        ConfigError: the name is unknown and not a file, or the panel is real and no folder with data is named.
    """
    if name in KNOWN_PANELS:
        below = KNOWN_PANELS[name]
        if below is None:
            return None
        if folder is None:
            raise ConfigError(
                f"the panel {name!r} is real, but no folder with data is named",
                where="panel",
                allowed="--data DIR, or the variable DPSTREAM_DATA",
            )
        return folder / below
    if not Path(name).is_file():
        raise ConfigError(
            f"unknown panel {name!r}{did_you_mean(name, KNOWN_PANELS)}",
            where="panel",
            allowed=f"{', '.join(KNOWN_PANELS)}, or a CSV file",
        )
    return Path(name)


@lru_cache(maxsize=4)
def load_panel(name: str, path: Path | None) -> Panel:
    """The panel with this name, from the file of ``panel_path``. It is cached.

    Errors:
        ConfigError: the file cannot be read. DataError: the file is not a panel: one row per person, with a column of
        names and then 0 or 1 for each of at least four periods.
    """
    if path is None and name == "all-ones":
        return Panel(name, _TITLES[name], False, np.ones((25_000, 12), np.uint8))
    if path is None:
        return Panel(name, _TITLES[name], False, poverty_panel())
    label = name if name in KNOWN_PANELS else _label(path)
    return Panel(label, _TITLES.get(name, f"panel from {path.name}"), True, _read(path))


def _label(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv")


def _read(path: Path) -> NDArray[np.uint8]:
    try:
        rows = list(csv.reader(_lines(path)))
    except OSError as error:
        raise ConfigError(
            f"the file cannot be read: {error.strerror or 'it is damaged'}", where=str(path)
        ) from None
    except (EOFError, zlib.error, UnicodeDecodeError, csv.Error):
        raise DataError(
            "the file is damaged", where=str(path), allowed="UTF-8 text, perhaps gzipped"
        ) from None
    body = [row[1:] for row in rows[1:]]
    widths = {len(row) for row in rows}
    fits = len(widths) == 1 and min(widths) >= 5 and body
    if not fits or not all(value in ("0", "1") for row in body for value in row):
        raise DataError(
            "this is no panel",
            where=str(path),
            allowed="a header; then a name and 0 or 1 for each period, at least 4, equally many in all rows",
        )
    return np.array(body, dtype="U1").astype(np.uint8)


def _lines(path: Path) -> Iterator[str]:
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        yield from file
