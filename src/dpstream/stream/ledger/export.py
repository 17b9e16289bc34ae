"""A ledger as a public file that checks itself: JSON lines, each with the SHA-256 of the line before.

Public facts only: no hash of private records, no batch id and no time, unless the owner asks for them. Two exports of
one stream agree line by line, up to the last line of the shorter one; whoever keeps that line's hash sees
every later change of what came before it. The chain has no key: it shows edits to those who hold a copy or a
hash, and proves nothing to others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.paths import parse_json
from dpstream.stream.identity import canonical_json
from dpstream.stream.ledger.reading import Ledger, verify_releases
from dpstream.stream.store.store_database import file_errors

_KIND = "dpstream ledger"
EXPORT_FORMAT = 1


@dataclass(frozen=True)
class CheckedExport:
    """What a check of an exported ledger found.

    Attributes:
        findings: what is wrong; empty where all is well.
        stream, steps, total, planned: what it says, as far as it can be read.
        head: SHA-256 of its last line before the end line: the same in every later export that continues it.
    """

    findings: tuple[str, ...]
    stream: str | None
    steps: int
    total: str | None
    planned: str | None
    head: str | None


def export_ledger(ledger: Ledger, *, secret: bool = False, times: bool = False) -> bytes:
    """The file's bytes.

    Args:
        secret: batch ids too, which are the owner's names for private data.
        times: when each step was committed, by the owner's clock.
    """
    facts = ledger.facts
    head: dict[str, Any] = {
        "kind": _KIND,
        "format": EXPORT_FORMAT,
        "stream": facts["stream"],
        "stream_id": ledger.stream_id,
        "plan_hash": ledger.plan_hash,
        "mechanism": facts["mechanism"],
        "unit": facts["unit"],
        "budget": facts["budget"],
        "horizon": facts["horizon"],
        "total_is": "the largest step's cost: what all steps together cost one unit of protection",
    }
    lines, total = [_chained(head, None)], Fraction(0)
    for one in ledger.spends:
        total = max(total, one.spent)
        line: dict[str, Any] = {
            "step": one.step,
            "period": one.period,
            "definition": one.definition,
            "spent": str(one.spent),
            "parts": list(one.parts),
            "total": str(total),
            "manifest_sha256": one.manifest_sha256,
            "made_with_test_seed": one.test_seed,
        }
        if secret:
            line["batch_id"] = one.batch_id
        if times:
            line["time"] = one.time
        lines.append(_chained(line, lines[-1]))
    end = {"end": True, "steps": len(ledger.spends), "total": str(total), "not_released": ledger.inside}
    end["previous"] = _digest(lines[-1])
    lines.append(canonical_json({**end, "sha256": _digest(canonical_json(end))}))
    return b"".join(line + b"\n" for line in lines)


def write_export(path: Path, data: bytes, *, private: bool) -> None:
    """Write the file whole; an old one is replaced. A ``private`` one is readable by its owner only."""
    if not path.absolute().parent.is_dir():
        raise ConfigError("the folder does not exist", where=str(path.parent), allowed="a folder that exists")
    with file_errors("the ledger could not be written", path):
        durable.replace_file(path, data, mode=0o600 if private else 0o644)


def is_export(path: str | Path) -> bool:
    """Whether a file looks like an exported ledger (and not like a configuration)."""
    with file_errors("the file cannot be read", Path(path)), Path(path).open("rb") as file:
        return file.read(1) == b"{"


def check_export(data: bytes, releases: str | Path | None = None) -> CheckedExport:
    """Check an exported ledger by itself, and against a folder of releases.

    Later steps among the releases are fine: an export is older than what was released after it.
    """
    findings, lines = _check_lines(data)
    if not lines or lines[0].get("kind") != _KIND:
        return CheckedExport(("is not an exported ledger", *findings), None, 0, None, None, None)
    if lines[0].get("format") != EXPORT_FORMAT:
        return CheckedExport(
            (f"format {lines[0].get('format')!r} is unknown here", *findings), None, 0, None, None, None
        )
    head, spends, end = lines[0], [line for line in lines[1:] if "step" in line], lines[-1]
    known: dict[int, str] = {}
    try:
        planned = {key: value for key, value in head["budget"].items() if key != "definition"}
        amount, definition = Fraction(next(iter(planned.values()))), head["budget"]["definition"]
        total = Fraction(0)
        for expected, line in enumerate(spends, start=1):
            total = max(total, Fraction(line["spent"]))
            findings += _check_spend(line, expected, amount, definition, total)
            known[int(line["step"])] = str(line["manifest_sha256"])
        if end.get("end") is not True:
            findings.append("the last line is missing: the file was cut short")
        elif end["steps"] != len(spends) or Fraction(end["total"]) != total or len(lines) != len(spends) + 2:
            findings.append("the last line does not fit the lines before it")
        elif end["sha256"] != _digest(canonical_json({key: end[key] for key in end if key != "sha256"})):
            findings.append("the last line was changed")
        if head["horizon"] is not None and len(spends) > head["horizon"]:
            findings.append(f"there are {len(spends)} steps, and the plan pays for {head['horizon']}")
        name, stream_id = str(head["stream"]), str(head["stream_id"])
        inside = set(end.get("not_released", ()))
    except (KeyError, ValueError, TypeError, AttributeError, StopIteration, ZeroDivisionError):
        findings.append("a line lacks what it has to say")
        return CheckedExport(tuple(findings), str(head.get("stream")), len(spends), None, None, None)
    if releases is not None:
        folder = Path(releases)
        if not folder.is_dir():
            raise ConfigError(
                "there are no releases", where=str(folder), allowed="the folder of a stream's releases"
            )
        required = {step: digest for step, digest in known.items() if step not in inside}
        findings += verify_releases(folder, stream_id, known, required=required, later=True)
    symbol = "epsilon" if definition == "pure" else "rho"
    return CheckedExport(
        tuple(findings), name, len(spends), f"{symbol} = {total}", f"{symbol} = {amount}", end.get("previous")
    )


def _chained(content: dict[str, Any], previous: bytes | None) -> bytes:
    return canonical_json({**content, "previous": None if previous is None else _digest(previous)})


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _check_lines(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    """Check the chain line by line, up to the first line that cannot be read."""
    findings, lines = [], []
    previous: bytes | None = None
    if data and not data.endswith(b"\n"):
        findings.append("the file ends in the middle of a line")
    for number, raw in enumerate(data.splitlines(), start=1):
        try:
            line = parse_json(raw)
            linked = line["previous"]
        except (ValueError, KeyError, TypeError):
            findings.append(f"line {number} cannot be read")
            break
        if linked != (None if previous is None else _digest(previous)):
            findings.append(
                f"line {number} does not follow line {number - 1}: one of them was changed, or one is missing"
            )
        lines.append(line)
        previous = raw
    return findings, lines


def _check_spend(
    line: dict[str, Any], expected: int, amount: Fraction, definition: str, total: Fraction
) -> list[str]:
    findings, step = [], line["step"]
    spent = Fraction(line["spent"])
    if step != expected:
        findings.append(f"step {step} stands where step {expected} belongs")
    if sum((Fraction(part["total"]) for part in line["parts"]), Fraction(0)) != spent:
        findings.append(f"the parts of step {step} do not add up to {spent}")
    if line["definition"] != definition or spent > amount:
        findings.append(
            f"step {step} spent {spent} ({line['definition']}), and the plan says {amount} ({definition})"
        )
    if Fraction(line["total"]) != total:
        findings.append(f"the total at step {step} is not the largest cost so far")
    return findings
