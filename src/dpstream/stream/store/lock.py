"""The state directory: owner only, and one process at a time.

Trusted base: store (one process at a time).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import warnings
from pathlib import Path

from dpstream.core.errors import ConfigError, StoreError, StoreLockedError

# Which file systems a stream's state cannot be trusted to: those whose locks end at the machine.

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
            f"{path}: {kind} may lack locks: keep the state on a local disk",
            NetworkFileSystemWarning,
            stacklevel=4,
        )


#: The folder of large files that wait to be published (``staging.py``).
STAGED = "staged"
#: The folder of users' counters, where they are files (``summed_rows.py``); it may be a link to another one.
USERS = "users"


class StatePermissionWarning(UserWarning):
    """The secret state was readable by others; its permissions were repaired."""


def repair_mode(path: Path, mode: int) -> None:
    """Take away the rights of others, through a link too, and warn that they had them.

    Errors:
        StoreError: the file belongs to another user.
    """
    try:
        kind = path.stat().st_mode
        rights = stat.S_IMODE(kind)
        if rights & ~mode == 0 or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            return
        path.chmod(mode)
    except FileNotFoundError:
        return
    except PermissionError:
        raise StoreError(
            "open to others, and another user's",
            where=str(path),
            allowed=f"{mode:04o}, owned by you",
        ) from None
    warnings.warn(
        f"{path}: permissions were {rights:04o} and are now {mode:04o}; others may have read private counts",
        StatePermissionWarning,
        stacklevel=6,
    )


class FolderLock:
    """``flock`` on a folder itself: no lock file could be deleted, and the kernel releases it when the
    process dies. Local file systems only."""

    def __init__(self) -> None:
        self._descriptor = -1

    def take(self, path: Path, held: str) -> None:
        """Lock the folder until ``close``; once it is locked, this does nothing.

        Errors:
            StoreLockedError: somebody else holds it, in the words of ``held``. StoreError: it cannot be locked.
        """
        if self._descriptor >= 0:
            return
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise StoreLockedError(held, where=str(path)) from None
        except OSError as error:
            self.close()
            raise StoreError(
                f"the directory cannot be locked ({error.strerror})",
                where=str(path),
                allowed="a local disk",
            ) from None

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StateDirectory(FolderLock):
    """Holds the directory and its exclusive lock until ``close``.

    Errors:
        StoreLockedError: another stream object (any process) holds the directory.
        ConfigError: the path is a file, or a directory with something else in it.
        StoreError: the permissions belong to somebody else, or a file of the state is a link.
    """

    def __init__(self, path: Path, *, database: str) -> None:
        super().__init__()
        self.path = path.absolute()
        self.database = self.path / database
        self._made = not self.path.exists()
        self._create()
        self.take(
            self.path,
            "another process or stream object has this stream open; wait or stop it",
        )
        try:
            warn_of_network(self.path)
            self._check_content()
            self.repair_permissions()
        except BaseException:
            self.close()
            raise

    def remove_new(self) -> None:
        """Remove the directory where it was made for a start that was refused, and is empty."""
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def repair_permissions(self) -> None:
        """Directory 0700, files 0600: private counts are in them. Repairs warn once per path.

        A directory may be a link (to another disk): the one that it leads to is repaired.
        """
        repair_mode(self.path, 0o700)
        for path in sorted(self.path.iterdir()):
            folder = path.name in (STAGED, USERS) and path.is_dir()
            folder = folder and (path.name == USERS or not path.is_symlink())
            # What is written through a link lies where nobody repairs the rights of others.
            if not folder and (path.is_symlink() or not (path.is_file() or not path.exists())):
                raise StoreError(
                    "expected a file, got a link or a folder",
                    where=str(path),
                    allowed="files in the state directory itself",
                )
            repair_mode(path, 0o700 if folder else 0o600)

    def _create(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(
                "expected a directory, got a file", where=str(self.path), allowed="a state directory"
            ) from None

    def _check_content(self) -> None:
        strangers = [entry.name for entry in self.path.iterdir() if not self._is_ours(entry.name)]
        if strangers:
            raise ConfigError(
                f"holds foreign files, such as {min(strangers)!r}",
                where=str(self.path),
                allowed="an empty directory, or this stream's state",
            )

    def _is_ours(self, name: str) -> bool:
        ours = (self.database.name, "head.json", "questions.json")
        return name in (STAGED, USERS) or name.removeprefix(".").startswith(ours)
