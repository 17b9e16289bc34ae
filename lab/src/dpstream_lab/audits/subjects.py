"""Subjects of the audits of the program itself: pairs of streams, broken plans, and the audit of several subjects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from dpstream.core.privacy import Randomness
from dpstream.tools.audit.door import stream_run
from dpstream.tools.audit.finding import Audit, AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.transcripts import Pair, Subject, audit_subject


def stream_pair(plan: Any, where: str, base: Iterable[Any], other: Iterable[Any], **more: Any) -> Pair:
    """A pair of streams of one plan."""
    return Pair(where, stream_run(plan, base), stream_run(plan, other), **more)


def transcripts_of(subjects: Callable[[], Iterable[Subject]], short: int, long: int) -> Audit:
    """The audit of subjects, with so many transcripts of each pair."""

    def audit(length: AuditLength, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
        for subject in subjects():
            progress(f"control: {subject.name}" if subject.control else subject.name)
            yield audit_subject(subject, short if length == "short" else long, randomness)

    return audit


def rebuilt(kind: type[Any], made: Any, **more: Any) -> Any:
    """The same frozen object as one of another kind, with other fields where they are given."""
    return kind(**{one.name: getattr(made, one.name) for one in fields(made) if one.init} | more)
