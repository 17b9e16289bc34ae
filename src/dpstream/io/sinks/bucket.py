"""Releases in an object store, beside the folder: ``[output] sink = "bucket"``.

A store has no rename, and writes one object at a time. So the order makes a step appear whole: its tables first, then
its manifest, then the catalogue that lists it. Readers follow the catalogue. What a step's objects hold never changes;
only the catalogue, its parts and the codebook are replaced, each by one write.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.core.foreign import arrow_input
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.io.objects import ObjectPath, asking, object_path
from dpstream.io.sinks.catalogue import CATALOGUE, listed_hashes
from dpstream.io.sinks.signing import SIGNATURE, sha256
from dpstream.io.sinks.table_files import Content, StagedFile, sha256_of
from dpstream.io.sinks.target import MANIFEST, Comparison, Differences, StepFiles, TakesTables, step_name

_STEP = re.compile(r"step-(\d{6,})/(.+)")


class Bucket:
    """The folder of releases as objects below ``url``; one stream, one place.

    Only one process at a time may write a stream there, which the lock of its state sees to. Calls may be repeated
    after a crash; a step whose manifest is there must be equal, byte for byte. Without one, what is there of a step was
    left by a process that stopped, and is replaced.

    Errors:
        ConfigError: no such URL. StoreDamagedError: objects that differ from what was committed, or another stream's.
        StoreError: the store cannot be reached, or refuses.
    """

    takes: TakesTables = "files"

    def __init__(self, url: str) -> None:
        self._root = object_path(url)

    def have(self, stream_id: str) -> dict[int, str]:
        """The SHA-256 of the manifest of every step that the catalogue lists or that has a manifest.

        Cost: reads the catalogue, and the manifests that it does not list.
        """
        with self._asking():
            hashes = listed_hashes(self._root, stream_id)
            for step, names in self._steps().items():
                if step not in hashes and MANIFEST in names:
                    hashes[step] = sha256_hex(self._at(step, MANIFEST).read_bytes())
            return hashes

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """Write all files of a step, the manifest last, and read them back.

        Errors:
            StoreDamagedError: the step is there already with other files.
        """
        if mend:
            self._mend(files.step, files.names, files.file)
            return
        step, contents = files.step, files.all()
        with self._asking():
            if not self._at(step, MANIFEST).exists():
                for name in _manifest_last(contents):
                    self._put(self._at(step, name), contents[name])
            wanted = {name: sha256_of(content) for name, content in contents.items()}
            present = {name: self._digest(step, name) for name in self._steps(step).get(step, ())}
        names = sorted(n for n in present.keys() | wanted.keys() if present.get(n) != wanted.get(n))
        if names:
            raise StoreDamagedError(
                f"{', '.join(names)} differ from the committed bytes",
                where=str(self._root / step_name(step)),
                allowed="the same bytes; or delete the step's objects and run again",
            )

    def compare(self, asked: Comparison) -> Differences:
        """See ``Comparison.of_files``. Cost: one list of all objects, and what is read."""
        with self._asking():
            steps = self._steps()
            return asked.of_files(lambda step: steps.get(step, ()), self._digest)

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """Remove a step's table, and keep its manifest and what it measured; the notice comes beside them."""
        with self._asking():
            for name in sorted(gone):
                self._at(step, name).unlink()
            for name, data in staying.items():
                self._replace(f"{step_name(step)}/{name}", data)

    def index(self, name: str, data: bytes, staying: Callable[[int], Mapping[str, bytes]]) -> None:
        """Write the codebook, the catalogue or a part of it, or a file that explains the releases. The catalogue waits
        until the tables that it lists are here: they may be in the folder alone, after a crash, or where the bucket
        came later."""
        entries = parse_json(data).get("steps", ()) if name.startswith("catalogue") else ()
        if (
            name == SIGNATURE
            and sha256(self.indexed(CATALOGUE) or b"") not in parse_json(data)["files"][CATALOGUE]
        ):
            return  # the catalogue that it signs waits itself
        listed = {int(entry["step"]): bool(entry["kept"]) for entry in entries}
        with self._asking():
            there = self._steps() if listed else {}
            lacking = [step for step in sorted(listed) if MANIFEST not in there.get(step, ())]
            if any(listed[step] for step in lacking):
                return
            for step in lacking:  # withdrawn or expired before the bucket came
                contents = staying(step)
                self._mend(step, contents, contents.__getitem__)
            self._replace(name, data)

    def indexed(self, name: str) -> bytes | None:
        """See ``Target``."""
        with self._asking():
            place = self._root / name
            return place.read_bytes() if place.exists() else None

    def _mend(self, step: int, names: Collection[str], make: Callable[[str], Content]) -> None:
        """Write the missing objects of a step, the manifest last; objects that exist are left alone."""
        with self._asking():
            for name in _manifest_last(set(names) - self._steps(step).get(step, set())):
                self._put(self._at(step, name), make(name))

    def _replace(self, name: str, data: bytes) -> None:
        """Write an object, unless it has these bytes already."""
        if self.indexed(name) != data:
            self._put(self._root / name, data)

    def _steps(self, only: int | None = None) -> dict[int, set[str]]:
        """The names of the objects of each step."""
        below = self._root if only is None else self._root / step_name(only)
        start = "" if only is None else f"{step_name(only)}/"
        found: dict[int, set[str]] = {}
        for rest in below.below():
            match = _STEP.fullmatch(f"{start}{rest}")
            if match is not None:
                found.setdefault(int(match[1]), set()).add(match[2])
        return found

    def _at(self, step: int, name: str) -> ObjectPath:
        return self._root / f"{step_name(step)}/{name}"

    def _digest(self, step: int, name: str) -> str:
        with self._at(step, name).open() as stream:
            digest = hashlib.sha256()
            while block := stream.read(2**22):
                digest.update(block)
        return digest.hexdigest()

    def _put(self, place: ObjectPath, content: Content) -> None:
        import pyarrow as pa

        if not isinstance(content, StagedFile):
            place.write(arrow_input(content).read_buffer())
        elif content.size:
            with pa.memory_map(str(content.path)) as file:
                place.write(file.read_buffer())
        else:
            place.write(arrow_input(b"").read_buffer())

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            with asking(self._root):
                yield
        except FileNotFoundError:
            raise StoreError(
                "the bucket or an object is missing",
                where=str(self._root),
                allowed="trying again",
            ) from None


def _manifest_last(names: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: (name == MANIFEST, name))
