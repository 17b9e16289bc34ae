"""How many users the bound on events cuts: each is counted once, and public periods publish their counts.

Guarantee: a user is counted at the step of the first event beyond the bound, once in a life. So one count changes, by
1: the share of the budget that ``User.cut_share`` says. Nothing that draws, chooses or admits reads the counts. Proof:
docs/theory/users.md.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import NoiseSum, Randomness


@dataclass(frozen=True, repr=False)
class CutUsers:
    """What a stream remembers of them.

    Attributes:
        open: users who were cut since the last publication. Private.
        begun: the step of that publication; 0: none. Public, as what follows.
        published: the sum of the noisy counts; ``draws``: how many they are.
    """

    open: int = 0
    begun: int = 0
    published: int = 0
    draws: int = 0

    def after(self, plan: StreamPlan, step: int, cut: int, randomness: Randomness) -> Self:
        """A step later, at which ``cut`` users had their first event beyond the bound; at a period's end the count is
        published and starts again."""
        noise, count = plan.cut_noise, self.open + cut
        if noise is None or not plan.ends_cut_period(step, self.begun):
            return type(self)(count, self.begun, self.published, self.draws)
        noisy = randomness.measure(np.array([count], np.int64), noise)
        return type(self)(0, step, self.published + int(noisy[0]), self.draws + 1)

    def pack(self) -> bytes:
        """For the store."""
        return np.array([self.open, self.begun, self.published, self.draws], "<i8").tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of ``pack``."""
        return cls(*np.frombuffer(data, "<i8").tolist())


#: Before the first step, and where nothing is counted.
NONE_CUT = CutUsers()
#: Of the interval that manifests say.
CONFIDENCE = 0.95


def published_cut(plan: StreamPlan, before: CutUsers, after: CutUsers, step: int) -> dict[str, Any] | None:
    """What the manifest of a step says of them: how many up to the last publication, and its own period's number. None:
    they are not counted. Public."""
    noise = plan.cut_noise
    if noise is None:
        return None
    found: dict[str, Any] = {"up_to_step": after.begun, "users": after.published, "half_width": None}
    if after.draws:
        found["half_width"] = NoiseSum(((noise, after.draws),)).half_width(CONFIDENCE)
    if after.draws > before.draws:
        users, law = after.published - before.published, NoiseSum(((noise, 1),))
        found["period"] = {"first": before.begun + 1, "last": step, "users": users, "noise": law.pack()}
    return found


#: Bytes of ``pack``.
PACKED = len(NONE_CUT.pack())
