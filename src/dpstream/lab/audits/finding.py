"""What one audit of one mechanism says: the claimed loss, the loss that was found, and whether that is right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream.core.privacy.randomness import Randomness

__all__ = ["TOLERANCE", "Audit", "AuditFinding", "AuditLength", "AuditProgress"]

AuditLength = Literal["short", "long"]

#: Is called with words for what is audited next.
AuditProgress = Callable[[str], None]

#: Relative slack (absolute for a claim of nothing) of ``AuditFinding.caught``: exact losses are sums and logarithms
#: of floats.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class AuditFinding:
    """One subject, audited once. Public: audits read invented neighbours only, never private data.

    Attributes:
        subject: what was audited, such as ``"counter tree, T = 16"``.
        kind: ``"exact"`` where ``found`` is the true loss, ``"empirical"`` where it is a lower bound from runs.
        claimed: the loss that the mechanism promises not to pass, in ``unit``.
        found: the exact loss, or the lower confidence bound, in ``unit``; may be infinite.
        confidence: of the lower bound; None where exact.
        runs: how often the mechanism ran on each neighbour; None where exact.
        control: whether the mechanism was broken on purpose, and therefore has to be caught.
        detail: where the loss was found, in words.
        seconds: wall-clock time of this audit.
        unit: ``"epsilon"`` or ``"rho"``.
    """

    subject: str
    kind: Literal["exact", "empirical"]
    claimed: float
    found: float
    confidence: float | None
    runs: int | None
    control: bool
    detail: str
    seconds: float
    unit: Literal["epsilon", "rho"] = "epsilon"

    @classmethod
    def exact(
        cls,
        began: float,
        *,
        subject: str,
        claimed: float | Budget,
        found: float,
        control: bool,
        detail: str,
        unit: Literal["epsilon", "rho"] = "epsilon",
    ) -> AuditFinding:
        """The true loss; ``began``: ``time.perf_counter()`` then. A claimed budget says its own unit."""
        if isinstance(claimed, PureDP | ZCDP):
            claimed, unit = float(claimed.amount), "epsilon" if isinstance(claimed, PureDP) else "rho"
        seconds = time.perf_counter() - began
        return cls(subject, "exact", claimed, found, None, None, control, detail, seconds, unit)

    @property
    def caught(self) -> bool:
        """Whether the loss passes the claim by more than float arithmetic explains (``TOLERANCE``)."""
        return not self.found <= self.claimed + TOLERANCE * (self.claimed or 1.0)

    @property
    def passed(self) -> bool:
        """Whether this is as it must be: honest mechanisms are not caught, controls are."""
        return self.caught == self.control

    def as_json(self) -> dict[str, Any]:
        """All fields and both verdicts; an infinite loss is the word ``"infinite"``, which JSON can hold."""
        facts = asdict(self) | {"caught": self.caught, "passed": self.passed}
        for key in ("claimed", "found"):
            if facts[key] in (float("inf"), float("-inf")):
                facts[key] = "infinite"
        return facts


#: One part of an audit: findings as they come. Real randomness in use, seeded in tests.
Audit = Callable[[AuditLength, Randomness, AuditProgress], Iterator[AuditFinding]]
