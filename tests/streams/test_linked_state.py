"""A state behind a link: the folder is repaired like any other, and a linked file in it is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from toy_stream import run, start

from dpstream.core.errors import StoreError
from dpstream.stream import StatePermissionWarning


def test_a_linked_state_is_for_its_owner_only(tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir(mode=0o755)
    (tmp_path / "state").symlink_to(elsewhere, target_is_directory=True)
    elsewhere.chmod(0o755)
    with pytest.warns(StatePermissionWarning, match="0755"):
        run(tmp_path, 1)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.lstat().st_mode) for entry in elsewhere.iterdir()} == {0o600}
    for name in (
        "stream.sqlite",
        "head.json",
        "stream.sqlite-wal",
        "stream.sqlite-shm",
        "stream.sqlite.charge",
    ):
        for target, mode in ((tmp_path / "open", 0o666), (tmp_path / "nowhere", None)):
            entry, kept = elsewhere / name, tmp_path / f"kept-{name}"
            if entry.exists():
                entry.rename(kept)
            if mode is not None:
                target.write_bytes(kept.read_bytes() if kept.exists() else b"")
                target.chmod(mode)
            before = target.read_bytes() if mode is not None else None
            entry.symlink_to(target)
            with pytest.raises(StoreError, match="is a link"):
                start(tmp_path)
            assert (target.read_bytes() if target.exists() else None) == before
            entry.unlink()
            if kept.exists():
                kept.rename(entry)
    os.mkfifo(elsewhere / "stream.sqlite-odd")
    with pytest.raises(StoreError, match="no file at all"):
        start(tmp_path)
    (elsewhere / "stream.sqlite-odd").unlink()
    with start(tmp_path) as stream:
        assert stream.last_step == 1
