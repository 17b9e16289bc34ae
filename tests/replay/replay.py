"""What forty small streams publish under repeated randomness, compared with what they published before.

    make replay                (ACCEPT=1: what they publish now becomes what is expected; NAMES="census pmwg")

A change of structure must change nothing here. Kept in ``expected.json``, a stream: the plan's parts, law and size of
every draw of noise with how often it was drawn, and a hash for each kind of published file. Whoever changes one of
them on purpose accepts it in the same commit and says which and why; law, size and plan rarely have a reason.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import secrets
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
from configurations import CONFIGURATIONS, Configuration
from numpy.typing import NDArray

import dpstream as dp
from dpstream.core.privacy import DiscreteGaussian, DiscreteLaplace, Randomness
from dpstream.project import Config

QUESTIONS = ("paid", "zip = 'a'", "kind = 'y' and not paid", "paid")
#: The logs behind the witnesses have the times of their entries; what explains the folder follows from its other files.
LEFT_OUT = (".head.json", ".questions.json", "README.txt", "counts.csv", "index.html")
LEFT_OUT += ("datapackage.json", "croissant.json", "catalog.json")
EXPECTED = Path(__file__).with_name("expected.json")


class Recorded(Randomness):
    """Repeated words, and a list of what was drawn with them."""

    drawn: ClassVar[Counter[str]] = Counter()

    def draw(self, law: Any, size: int) -> NDArray[np.int64]:
        self._note(f"{law!r} x {size}" if isinstance(law, DiscreteLaplace | DiscreteGaussian) else repr(law))
        return super().draw(law, size)

    @classmethod
    def _note(cls, law: str) -> None:
        cls.drawn[law.replace("Fraction", "")] += 1


def _bytes_of(name: str) -> Any:
    """A source of bytes that depends on a name, and on what was asked of it before."""
    calls = itertools.count()
    return lambda n=32: hashlib.shake_256(f"{name}/{next(calls)}".encode()).digest(n)


def _run(configuration: Configuration, folder: Path, name: str) -> Config:
    config = Config.load(configuration.write(folder, name))
    for _ in dp.run(config):
        pass
    if config.plan().asks is not None:
        with config.open_stream() as stream:
            answers = [stream.ask(question) for question in QUESTIONS]  # type: ignore[attr-defined]
        (config.output.dir / "answers.txt").write_text("\n".join(map(str, answers)), encoding="utf-8")
    return config


def replay(name: str) -> dict[str, Any]:
    """What one configuration plans, draws and publishes."""
    configuration = CONFIGURATIONS[name]
    Recorded.drawn = Counter()
    sources = itertools.count()

    def system() -> Recorded:
        return Recorded(_bytes_of(f"{name}/{next(sources)}"), secure=True)

    fresh = _bytes_of(f"{name}/secrets")
    with (
        tempfile.TemporaryDirectory() as temporary,
        mock.patch.object(Randomness, "system", system),
        mock.patch.multiple(
            secrets,
            token_bytes=fresh,
            token_hex=lambda n=32: fresh(n).hex(),
            randbits=lambda n: int.from_bytes(fresh(8)) % 2**n,
        ),
    ):
        folder = Path(temporary)
        if configuration.earlier:
            earlier = folder / "before"
            earlier.mkdir()
            _run(CONFIGURATIONS[configuration.earlier], earlier, "earlier").output.dir.rename(
                folder / "earlier"
            )
            Recorded.drawn = Counter()
        config = _run(configuration, folder, "dpstream")
        plan = config.plan()
        files: dict[str, Any] = defaultdict(hashlib.sha256)
        for path in sorted(config.output.dir.rglob("*")):
            if path.is_file() and path.name not in LEFT_OUT:
                files[path.name].update(path.read_bytes())
        return {
            "plan": [f"{part.name}: {part.times} x {part.budget}; {part.detail}" for part in plan.parts()],
            "draws": dict(sorted(Recorded.drawn.items())),
            "files": {file: digest.hexdigest()[:16] for file, digest in sorted(files.items())},
        }


def _replayed(name: str) -> tuple[str, dict[str, Any] | str]:
    try:
        return name, replay(name)
    except Exception as error:  # noqa: BLE001
        return name, f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only configurations whose names hold one of these words")
    parser.add_argument(
        "--accept", action="store_true", help="what is published now becomes what is expected"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = [n for n in CONFIGURATIONS if not options.names or any(word in n for word in options.names)]
    expected = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.is_file() else {}
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        now = dict(pool.imap(_replayed, names))
    failed = {name: text for name, text in now.items() if isinstance(text, str)}
    for name, text in failed.items():
        print(f"{name}: {text}")
    changed = 0
    for name, facts in now.items():
        if isinstance(facts, str):
            continue
        before = expected.get(name, {})
        parts = [part for part in facts if facts[part] != before.get(part)]
        for part in parts:
            print(f"{name}: {part} changed")
            old = before.get(part, {})
            if isinstance(facts[part], dict):
                for key in sorted(facts[part].keys() | old.keys()):
                    if facts[part].get(key) != old.get(key):
                        print(f"    {key}: {old.get(key, 'none')} -> {facts[part].get(key, 'none')}")
            else:
                print(f"    {old} -> {facts[part]}")
        changed += bool(parts)
    if options.accept and not failed:
        kept = {name: facts for name, facts in expected.items() if name in CONFIGURATIONS}
        EXPECTED.write_text(json.dumps({**kept, **now}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(names)} streams replayed: {changed} changed, {len(failed)} failed")
    return int(bool(failed) or (changed > 0 and not options.accept))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
