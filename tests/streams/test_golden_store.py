"""A store of this version's format, as a file: what a later version must open, or refuse with a remedy.

``python tests/streams/test_golden_store.py`` makes it anew, which every change of the format before the first release
needs.
"""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

from toy_stream import ToyPlan, batch, start

from dpstream.core.privacy import Randomness, User
from dpstream.stream import Batch, Stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store.archive import archived_plan, export_store, import_store

GOLDEN = Path(__file__).parent / "data" / "store.xz"


def opened(home: Path) -> Stream:
    plan = ToyPlan(unit=User(2))  # type: ignore[arg-type]
    return start(home, plan=plan, publish=False, randomness=Randomness.seeded(1))


def step(stream: Stream, number: int) -> None:
    records = Batch(batch(number).inserts, users=[f"u{k % 7}" for k in range(40)])
    stream.step(records, f"b{number}", position={"rows": 40 * number})


def test_a_store_of_this_format_is_opened_and_goes_on(tmp_path: Path) -> None:
    archive, state = tmp_path / "archive", tmp_path / "state"
    archive.write_bytes(lzma.decompress(GOLDEN.read_bytes()))
    assert import_store(archive, state, archived_plan(archive)) == 3
    assert check_store(state, None).problems == ()
    with opened(tmp_path) as stream:
        assert stream.position == {"rows": 120}
        assert stream.release(2).total != 0
        step(stream, 3)  # by its fingerprint, the same records
        assert stream.last_step == 3
        step(stream, 4)
        assert (stream.last_step, stream.dropped_events > 0) == (4, True)


def make(folder: Path) -> None:
    """Write the file."""
    with opened(folder) as stream:
        for number in (1, 2, 3):
            step(stream, number)
    export_store(folder / "state", folder / "archive", move=True)
    GOLDEN.write_bytes(lzma.compress((folder / "archive").read_bytes()))
    shutil.rmtree(folder)


if __name__ == "__main__":
    import tempfile

    make(Path(tempfile.mkdtemp()))
