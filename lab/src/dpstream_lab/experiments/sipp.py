"""The household poverty panel of Bun et al. (2024), from the Census Bureau's own file (SIPP 2021, public use)."""

from __future__ import annotations

import csv
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstream.core import durable
from dpstream.core.errors import ConfigError, DataError

SIPP_MONTHS = 12
_COLUMNS = ("SSUID", "PNUM", "MONTHCODE", "THINCPOVT2")
_ALLOWED = (
    f"the public use person file (pu2021.csv, or the zip with it): columns {', '.join(_COLUMNS)} between '|'"
)
#: The size of a block: a row has thousands of columns (about ten kilobytes).
_BLOCK_BYTES = 2**22
#: The values of a person's month: in poverty, not in poverty, unknown.
_UNKNOWN = -1


@dataclass(frozen=True)
class SippPanel:
    """The panel of a SIPP file.

    Attributes:
        households: the SSUID of each household in the panel, ascending.
        poor: 1 where the household's income is below its threshold, shape (households, 12).
        rows: the number of person-months in the file.
        seen: the number of households in the file.
        incomplete: the number of households that were left out because a month is missing.
        differing: the number of households whose members have different series.
    """

    households: NDArray[np.str_]
    poor: NDArray[np.uint8]
    rows: int
    seen: int
    incomplete: int
    differing: int


def read_sipp(path: str | Path) -> SippPanel:
    """Read a SIPP file: one series per household, that of its member with the lowest number (PNUM).

    The paper keeps one series a household and then leaves out households with a missing month, and does not say
    whose series; the lowest number is usually the household's reference person. A month is 1 where THINCPOVT2
    (household income over poverty threshold) is below 1, and missing where it is empty or has no row.

    Args:
        path: ``pu2021.csv``, or the zip that holds it. Read in blocks: only four columns are kept.

    Errors:
        ConfigError: a file that cannot be opened. DataError: another kind of file, a month outside 1 .. 12, a
        person-month that comes twice, or no complete household.
    """
    file = Path(path)
    people, months, poor = _collect(file)
    # Sorted by household, then person: the first person of a household is the one with the lowest number.
    keys, person = np.unique(people, return_inverse=True)
    cells = person.reshape(-1) * SIPP_MONTHS + (months - 1)
    if len(np.unique(cells)) < len(cells):
        _refuse(file, "a person has two rows for one month")
    series = np.full((len(keys), SIPP_MONTHS), _UNKNOWN, np.int8)
    series.reshape(-1)[cells] = poor
    households, first, household = np.unique(keys["household"], return_index=True, return_inverse=True)
    kept = series[first]
    complete = (kept != _UNKNOWN).all(axis=1)
    if not complete.any():
        _refuse(file, "no household has all twelve months")
    differ = np.zeros(len(households), bool)
    np.logical_or.at(differ, household.reshape(-1), (series != kept[household.reshape(-1)]).any(axis=1))
    return SippPanel(
        households[complete],
        kept[complete].astype(np.uint8),
        rows=len(months),
        seen=len(households),
        incomplete=int((~complete).sum()),
        differing=int(differ.sum()),
    )


def write_sipp_panel(panel: SippPanel, path: str | Path) -> None:
    """Write a CSV file (mode 0600) with one line per household: its SSUID, then 0 or 1 for each month."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["household", *(f"month-{month:02d}" for month in range(1, SIPP_MONTHS + 1))])
    for name, row in zip(panel.households.tolist(), panel.poor.tolist(), strict=True):
        writer.writerow([name, *row])
    durable.replace_file(Path(path), out.getvalue().encode(), mode=0o600)


def _collect(file: Path) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int8]]:
    """(household and person), month and poverty of every row."""
    with _opened(file) as stream:
        table = _table(file, stream)
    if any(table.column(name).null_count for name in _COLUMNS[:3]):
        raise DataError("a row has no household, person or month", where="sipp", allowed=_ALLOWED)
    households = np.array(table.column("SSUID").to_pylist(), dtype=np.str_)
    persons, months = (np.array(table.column(name), dtype=np.int64) for name in _COLUMNS[1:3])
    ratio = table.column("THINCPOVT2").to_numpy()
    poor = np.where(np.isnan(ratio), _UNKNOWN, ratio < 1.0).astype(np.int8)
    if not len(months):
        _refuse(file, "there are no rows, or one does not fit its columns")
    if ((months < 1) | (months > SIPP_MONTHS)).any():
        _refuse(file, "a MONTHCODE is not one of 1 to 12")
    people = np.empty(len(months), dtype=[("household", households.dtype), ("person", np.int64)])
    people["household"], people["person"] = households, persons
    return people, months, poor


def _table(file: Path, stream: IO[bytes]) -> Any:
    """The four columns; a row of the file has thousands."""
    import pyarrow as pa
    import pyarrow.csv

    names = stream.readline().decode("utf-8-sig").strip().split("|")
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        _refuse(file, f"the header has no column {', '.join(missing)}")
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.float64())
    try:
        return pyarrow.csv.read_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=pyarrow.csv.ReadOptions(
                column_names=names, block_size=_BLOCK_BYTES, use_threads=False
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter="|", quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=list(_COLUMNS),
                column_types=dict(zip(_COLUMNS, kinds, strict=True)),
                null_values=["", "."],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid:
        _refuse(file, "there are no rows, or one does not fit its columns")


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """The person file's bytes, also where it lies in a zip."""
    try:
        if not zipfile.is_zipfile(file):
            with file.open("rb") as stream:
                yield stream
            return
        with zipfile.ZipFile(file) as archive:
            inside = [name for name in archive.namelist() if name.lower().endswith(".csv")]
            if len(inside) != 1:
                _refuse(file, f"the zip holds {len(inside)} CSV files")
            with archive.open(inside[0]) as stream:
                yield stream
    # A zip that is encrypted, or packed in a way that Python does not know, is a RuntimeError.
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, RuntimeError):
        _refuse(file, "the file is damaged, or of another kind")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "it is damaged"
        raise ConfigError(f"the file cannot be read: {reason}", where=str(file), allowed=_ALLOWED) from None


def _refuse(file: Path, what: str) -> NoReturn:
    raise DataError(what, where=str(file), allowed=_ALLOWED) from None
