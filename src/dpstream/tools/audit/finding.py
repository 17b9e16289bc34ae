"""The result of one audit of one mechanism: the claimed loss, the loss that was found, and the verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dpstream.core.privacy import ZCDP, Budget, PureDP, Randomness

AuditLength = Literal["short", "long"]

#: Called with the subject that is audited next, in words.
AuditProgress = Callable[[str], None]

#: Relative tolerance (absolute where the claim is 0) of ``AuditFinding.caught``, because exact losses are computed with
#: floats.
TOLERANCE = 1e-9


@dataclass
class Largest:
    """The largest loss of those that were seen, the first one of equals, and where it was.

    >>> largest = Largest()
    >>> for loss, where in ((0.5, "first"), (0.75, "second"), (0.75, "third")):
    ...     largest.see(loss, where)
    >>> largest
    Largest(loss=0.75, where='second')
    >>> largest.see(math.nan, "nowhere")
    >>> largest.loss
    inf
    """

    loss: float = -1.0
    where: str = ""

    def see(self, loss: float, where: str) -> None:
        """One more. A loss of NaN counts as infinite, lest it pass for a small loss."""
        loss = math.inf if math.isnan(loss) else loss
        if loss > self.loss:
            self.loss, self.where = loss, where


@dataclass(frozen=True)
class AuditFinding:
    """The result for one subject. It is public, because audits read invented data only.

    Attributes:
        subject: what was audited, such as ``"counter tree, T = 16"``.
        kind: ``"exact"`` where ``found`` is the true loss, ``"empirical"`` where it is a lower bound from runs.
        claimed: the most that the mechanism claims to lose, in ``unit``.
        found: the exact loss, or the lower confidence bound, in ``unit``; may be infinite.
        confidence: the confidence of the lower bound; None for an exact loss.
        runs: how often the mechanism ran on each neighbour; None for an exact loss.
        control: whether the mechanism was broken on purpose, and so must be caught.
        detail: the neighbours with the largest loss, in words.
        seconds: wall-clock time of this audit.
        unit: ``"epsilon"``, ``"rho"``, or the ``"delta"`` that an epsilon leaves.
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
    unit: Literal["epsilon", "rho", "delta"] = "epsilon"

    @classmethod
    def of(
        cls,
        began: float,
        *,
        subject: str,
        claimed: float | Budget,
        found: float,
        control: bool,
        detail: str,
        unit: Literal["epsilon", "rho", "delta"] = "epsilon",
        confidence: float | None = None,
        runs: int | None = None,
    ) -> AuditFinding:
        """A finding of the true loss, or from ``runs`` of a lower confidence bound.

        Args:
            began: ``time.perf_counter()`` at the beginning of the audit.
            claimed: a budget, or its amount in ``unit``.
        """
        if isinstance(claimed, PureDP | ZCDP):
            claimed, unit = float(claimed.amount), "epsilon" if isinstance(claimed, PureDP) else "rho"
        seconds = time.perf_counter() - began
        kind: Literal["exact", "empirical"] = "exact" if runs is None else "empirical"
        return cls(subject, kind, claimed, found, confidence, runs, control, detail, seconds, unit)

    @property
    def caught(self) -> bool:
        """Whether the loss exceeds the claim by more than the errors of floats (``TOLERANCE``)."""
        return not self.found <= self.claimed + TOLERANCE * (self.claimed or 1.0)

    @property
    def ratio(self) -> float:
        """The loss that was found, as a part of the claim."""
        if self.found <= 0:
            return 0.0
        return self.found / self.claimed if self.claimed else math.inf

    @property
    def passed(self) -> bool:
        """Whether the verdict is right: honest mechanisms must not be caught, and controls must be."""
        return self.caught == self.control

    def as_json(self) -> dict[str, Any]:
        """All fields, ``caught`` and ``passed``, as JSON values; an infinite loss is the text ``"infinite"``."""
        facts = asdict(self) | {"caught": self.caught, "passed": self.passed}
        for key in ("claimed", "found"):
            if facts[key] in (float("inf"), float("-inf")):
                facts[key] = "infinite"
        return facts


#: One part of an audit, which gives findings as they come. Users run it with the system's randomness, tests with a
#: seed.
Audit = Callable[[AuditLength, Randomness, AuditProgress], Iterator[AuditFinding]]
