"""State on file systems that cannot lock: refused, or told."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from toy_stream import SCHEMA, ToyPlan

from dpstream.core.errors import StoreError
from dpstream.stream import open_stream
from dpstream.stream.store import lock
from dpstream.stream.store.lock import NetworkFileSystemWarning, network_file_system

MOUNTS = """\
1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
2 1 0:30 / /srv rw - nfs4 server:/export rw,local_lock=none
3 2 8:2 / /srv/fast rw master:1 shared:2 - xfs /dev/sdb1 rw
4 1 0:31 / /media/ann/my\\040drive rw - fuse.sshfs ann@server: rw
5 1 0:32 / /over rw - ext4 /dev/sdc rw
6 1 0:33 / /over rw - cifs //server/share rw
damaged line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/state", None),
        ("/srv", "nfs4"),
        ("/srv/state", "nfs4"),
        ("/srv/fast/state", None),
        ("/srvx/state", None),
        ("/over/state", "cifs"),
    ],
)
def test_the_innermost_mount_counts(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind
    drive = Path("/media/ann/my drive/state")
    assert network_file_system(drive, MOUNTS) == "fuse.sshfs"


def test_a_network_file_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / {tmp_path.resolve()} rw - nfs server:/x rw\n")
    monkeypatch.setattr(lock, "_MOUNTS", mounts)
    with pytest.warns(NetworkFileSystemWarning, match="kind nfs"):
        open_stream(ToyPlan(), SCHEMA, tmp_path / "state").close()
    monkeypatch.setattr(lock, "_MOUNTS", tmp_path / "none")
    open_stream(ToyPlan(), SCHEMA, tmp_path / "state").close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoreError, match="cannot be locked"):
        open_stream(ToyPlan(), SCHEMA, tmp_path / "state")
