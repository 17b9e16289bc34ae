"""Growing databases: schedulers around static mechanisms, and queries answered adaptively (Cummings et al. 2018)."""

from dpstream.growing.blackbox import (
    BlackBox,
    Counts,
    Database,
    LinearQuery,
    PowerLaw,
    Records,
    Released,
    Table,
)

__all__ = [
    "BlackBox",
    "Counts",
    "Database",
    "LinearQuery",
    "PowerLaw",
    "Records",
    "Released",
    "Table",
]
