"""A bounded model is the same where it was moderate, and never all but impossible."""

from __future__ import annotations

import numpy as np

from dpstream.core.graphical import Measurement, fit
from dpstream.core.schema.domain import Domain

DOMAIN = Domain(("a", "b"), (2, 3))


def test_bounded_keeps_the_moderate_and_lifts_the_impossible():
    moderate = fit(DOMAIN, [Measurement((0, 1), np.array([30.0, 20, 10, 5, 15, 20]), 1.0)], total=100)
    np.testing.assert_allclose(moderate.bounded(8.0).marginal((0, 1)), moderate.marginal((0, 1)), rtol=1e-9)
    dead = moderate
    for _ in range(40):
        dead = fit(
            DOMAIN,
            [Measurement((0,), np.array([100.0, -50.0]), 1.0)],
            total=100,
            warm=dead,
            regularisation=0.1,
        )
    assert dead.marginal((0,))[1] < 1e-6
    lifted = dead.bounded(8.0)
    assert 1e-3 < lifted.marginal((0,))[1] < 1.0
    assert lifted.total == dead.total
    np.testing.assert_allclose(lifted.bounded(8.0).marginal((0, 1)), lifted.marginal((0, 1)))
