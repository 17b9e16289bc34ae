"""Which file systems a stream's state cannot be trusted to: those whose locks end at the machine."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"nfs4?|cifs|smb(?:fs|2|3)|9p|afs|ncpfs|vboxsf|vmhgfs|drvfs|glusterfs|fuse\.(?:sshfs|rclone|glusterfs|s3fs|"
    r"gcsfuse|vmhgfs-fuse|davfs\S*|blobfuse\S*|osxfs|grpcfuse)"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


class NetworkFileSystemWarning(UserWarning):
    """The state is on a file system where locks or shared memory may not work."""


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """The kind of a network (or foreign) file system that holds ``path``; None for others, and where it is unknown.

    Args:
        mounts: the kernel's list, as in ``/proc/self/mountinfo`` (Linux).

    >>> mounts = r"20 1 8:1 / / rw - ext4 /dev/a rw" + chr(10) + r"21 20 0:9 / /mnt/a\\040b rw shared:1 - nfs4 h:/x rw"
    >>> network_file_system(Path("/mnt/a b/state"), mounts), network_file_system(Path("/mnt/a"), mounts)
    ('nfs4', None)
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    best, kind = -1, ""
    for line in mounts.splitlines():
        front, _, back = line.partition(" - ")
        fields = front.split(" ")
        if len(fields) < 5 or not back:
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of mounts on the same point the last one is seen.
        if (point == path or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), back.split(" ")[0]
    return kind if _NETWORK.fullmatch(kind) else None


def warn_of_network(path: Path) -> None:
    """Warn where ``path`` is on a network file system."""
    kind = network_file_system(path.resolve())
    if kind is not None:
        warnings.warn(
            f"{path}: this is a file system of kind {kind}, whose locks may not be seen by other machines and "
            "which may not share memory: keep the state on a local disk",
            NetworkFileSystemWarning,
            stacklevel=4,
        )
