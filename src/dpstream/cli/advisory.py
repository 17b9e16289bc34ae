"""``dpstream advisory``: does a known flaw of the program concern a stream? Only public manifests are read.

An advisory says which versions of the program, which mechanisms, units and options have a flaw, what it does to the
guarantee, and what to do. The format is in docs/guide/upgrading.md.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import ATTENTION, json_option, print_facts
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError
from dpstream.core.paths import parse_json, read_bytes

if TYPE_CHECKING:
    from dpstream.io.objects import AnyPath

FORMAT = 1
_TEXTS = ("id", "published", "title", "what", "guarantee", "remedy", "versions")
_LISTS = ("mechanisms", "units")
_BOUND = re.compile(r"(<=|>=|==|<|>)([0-9]+(?:[.][0-9]+)*)")
_COMPARES = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt}


@dataclass(frozen=True)
class Advisory:
    """One flaw.

    Args:
        id: its number, as DPS-2027-001. published: when, as 2027-01-31. title: the flaw in one line.
        what: what happens. guarantee: what it does to the guarantee. remedy: what to do.
        versions: of the program, as ">=0.1,<0.1.4"; all parts must hold.
        mechanisms, units: names as in manifests; empty: all.
        options: of the mechanism: each has one of these values, as in manifests (None: it is not named); empty: any.
    """

    id: str
    published: str
    title: str
    what: str
    guarantee: str
    remedy: str
    versions: str
    mechanisms: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def concerns(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a step was made by a program, and in a way, that has the flaw."""
        mechanism = manifest["mechanism"]
        options = mechanism.get("options", {})
        return (
            _fits(manifest["program"]["version"], self.versions)
            and (not self.mechanisms or mechanism["name"] in self.mechanisms)
            and (not self.units or manifest["unit"]["name"] in self.units)
            and all(options.get(name) in values for name, values in self.options.items())
        )


@dataclass(frozen=True)
class Concern:
    """An advisory and the published steps that it concerns, in order."""

    advisory: Advisory
    steps: tuple[int, ...]


def concerned(releases: str | AnyPath, advisories: tuple[Advisory, ...]) -> tuple[list[Concern], int]:
    """The advisories that concern a stream, and how many steps were looked at: all whose manifests are kept.

    Errors:
        ConfigError: no release was found. StoreDamagedError, StoreFormatError: a manifest cannot be read.
    """
    from dpstream.io.sinks.release_reader import read_catalogue, read_manifest

    kept = [int(entry["step"]) for entry in read_catalogue(releases)["steps"] if entry["kept"]]
    manifests = [(step, read_manifest(releases, step)) for step in kept]
    found = [
        Concern(advisory, tuple(step for step, manifest in manifests if advisory.concerns(manifest)))
        for advisory in advisories
    ]
    return [concern for concern in found if concern.steps], len(kept)


def read_advisories(path: str | Path | None = None) -> tuple[Advisory, ...]:
    """All advisories of a file; of this version of the program by default.

    Errors:
        ConfigError: the file is missing, or not a list of advisories.
    """
    if path is None:
        place, data = "advisories.json", resources.files(__package__).joinpath("advisories.json").read_bytes()
    else:
        place = str(path)
        try:
            data = read_bytes(Path(path))
        except OSError:
            raise ConfigError(
                "the file cannot be read", where=place, allowed="a file of advisories"
            ) from None
    try:
        listing = parse_json(data)
        if listing["format"] != FORMAT:
            raise ConfigError(
                "the format is not known", where=place, allowed=f"format {FORMAT}; update dpstream"
            )
        return tuple(_advisory(entry) for entry in listing["advisories"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(
            "expected a list of advisories", where=place, allowed="the file that the project publishes"
        ) from None


def _advisory(entry: Mapping[str, Any]) -> Advisory:
    if set(entry) - {*_TEXTS, *_LISTS, "options"}:
        raise ValueError  # a condition that this version does not know could concern a stream unseen
    texts = {name: entry[name] for name in _TEXTS}
    mechanisms, units = (tuple(entry.get(name, ())) for name in _LISTS)
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError
    _fits("0", texts["versions"])
    options = {name: tuple(values) for name, values in entry.get("options", {}).items()}
    return Advisory(**texts, mechanisms=mechanisms, units=units, options=options)


def _fits(version: str, bounds: str) -> bool:
    """Whether a version is within all bounds.

    >>> _fits("0.1.10", ">=0.1,<0.1.9"), _fits("0.1.0", "<=0.1"), _fits("0.2.0.dev1", ">=0.2")
    (False, True, True)
    """
    matches = [_BOUND.fullmatch(bound.strip()) for bound in bounds.split(",")]
    if None in matches:
        raise ValueError
    numbers = _numbers(version)
    return all(_COMPARES[match[1]](numbers, _numbers(match[2])) for match in matches if match)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without zeros at its end, so that 0.1 and 0.1.0 are one version."""
    match = re.match(r"[0-9]+(?:[.][0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@click.group("advisory", short_help="Say whether a flaw found in dpstream concerns a stream.")
def command() -> None:
    """Flaws that were found in released versions of dpstream, and the streams that they concern."""


@command.command("check")
@click.argument("releases", type=FilePath("folder"))
@click.option(
    "--file",
    "path",
    type=FilePath("file"),
    help="Other advisories than the built-in ones.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Check the owner's signature.",
)
@json_option
def check(releases: str, path: str | None, keys: tuple[str, ...], as_json: bool) -> None:
    """Say which published steps in RELEASES a known flaw of the program concerns. Only public files are read.

    The project publishes newer advisories as a file: name it with --file. Exit codes: 0 none concerns the stream, 6
    one does.

    \b
    Examples:
      dpstream advisory check releases
      dpstream advisory check releases --key 3b6a27bc...
    """
    from dpstream.io.objects import any_path
    from dpstream.io.sinks.release_reader import check_signed
    from dpstream.io.sinks.signing import signed_folder

    known = read_advisories(path)
    root = signed_folder(any_path(releases), keys) if keys else None
    signed = None if root is None else {"key": root.signature.key, "files": check_signed(root)}
    found, steps = concerned(root or releases, known)
    texts = ("id", "published", "title", "what", "guarantee", "remedy")
    concerns = [
        {**{name: getattr(one.advisory, name) for name in texts}, "steps": list(one.steps)} for one in found
    ]
    facts = {"signed": signed, "steps": steps, "advisories": len(known), "concerns": concerns}
    print_facts("advisories", facts, as_json=as_json, spans=[_spans(one.steps) for one in found])
    if found:
        sys.exit(ATTENTION)


def _spans(steps: tuple[int, ...]) -> str:
    """``1-3, 7``."""
    runs = groupby(enumerate(steps), key=lambda pair: pair[1] - pair[0])
    spans = [[step for _, step in run] for _, run in runs]
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
