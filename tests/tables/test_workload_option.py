"""A workload's short form reads back as the same workload."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))


@pytest.mark.parametrize(
    ("workload", "short"),
    [
        (Workload.all_k_way(DOMAIN, 1), "all-1-way"),
        (Workload.all_k_way(DOMAIN, 2), "all-2-way"),
        (Workload.all_k_way(DOMAIN, 3), "all-3-way"),
        (Workload(DOMAIN, ((0, 1), (0, 2)), (Fraction(1), Fraction(1))), None),
        (Workload(DOMAIN, ((0, 1), (0, 2), (1, 2)), (Fraction(1), Fraction(2), Fraction(1))), None),
        (Workload(DOMAIN, ((0,), (0, 1), (0, 1, 2)), (Fraction(1),) * 3), None),
    ],
)
def test_the_short_form_reads_back(workload, short):
    option = workload.as_option()
    assert option == (workload.as_spec() if short is None else short)
    assert Workload.parse(DOMAIN, option) == workload
