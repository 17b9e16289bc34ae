"""Streams of records that only come: invented ones of known orders, and real tables (nothing is printed here).

Invented records belong to one of six classes; in a class columns are independent, and the classes' shares change in
one of the orders below. Of real tables only the halves that ``TUNED`` names may be looked at while anything is tuned.
"""

from __future__ import annotations

import numpy as np

from dpstream.core.schema import Domain
from dpstream_lab.experiments import Replay, data_folder, kumar_stream

__all__ = ["ORDERS", "TUNED", "invented", "real"]

SIZES = (2, 2, 3, 3, 4, 5, 6, 8, 10, 12)
#: Steps of one season.
SEASON = 12
_CLASSES = 6
#: How far classes' shares move (as logarithms): over a season, over the whole stream.
_SEASON, _DRIFT = 1.2, 2.5
#: Orders, and whether the classes' shares have a season and a drift there.
ORDERS = {
    "shuffled": (False, False),
    "sorted": (False, False),
    "season": (True, False),
    "drift": (False, True),
    "both": (True, True),
}
#: Real streams on which options may be tuned; the others are only reported.
TUNED = ("adult:shuffled", "eviction:month")


def invented(order: str, records: int, steps: int, seed: int) -> Replay:
    """A stream of about ``records`` records; the seed sets the classes, too."""
    season, drift = ORDERS[order]
    generator = np.random.default_rng([seed, list(ORDERS).index(order)])
    common = [generator.dirichlet(np.full(size, 1.0)) for size in SIZES]
    tables = [
        np.array([generator.dirichlet(np.maximum(4.0 * own, 0.05)) for _ in range(_CLASSES)])
        for own in common
    ]
    times = np.arange(steps)
    phases, slopes = np.arange(_CLASSES) / _CLASSES, generator.normal(size=_CLASSES)
    wave = np.cos(2 * np.pi * (times[:, None] / SEASON - phases))
    logits = season * _SEASON * wave + drift * _DRIFT * slopes * (times[:, None] / steps - 0.5)
    shares = np.exp(logits + 0.5 * generator.normal(size=_CLASSES))
    shares /= shares.sum(axis=1, keepdims=True)
    rate = 1.0 + 0.4 * season * np.cos(2 * np.pi * times / SEASON) + 0.5 * drift * (0.5 - times / steps)
    counts = generator.poisson(records * rate / rate.sum())
    classes = np.concatenate(
        [generator.choice(_CLASSES, count, p=own) for count, own in zip(counts, shares, strict=True)]
    )
    codes = np.empty((len(classes), len(SIZES)), np.int32)
    for column, table in enumerate(tables):
        edges = table.cumsum(axis=1)[classes]
        codes[:, column] = np.minimum(
            (generator.random(len(classes))[:, None] > edges).sum(axis=1), SIZES[column] - 1
        )
    if order == "sorted":
        codes = codes[np.lexsort(codes.T[::-1])]
    domain = Domain(tuple(f"c{i}" for i in range(len(SIZES))), SIZES)
    return Replay(f"invented-{order}", domain, codes, np.concatenate([[0], counts.cumsum()]))


def real(table: str, order: str, seed: int) -> Replay:
    """``adult`` (``shuffled``, ``sorted``: batches of 200), ``eviction`` (``week``, ``month``: four weeks), ``hotel``
    and ``satellites`` (their records as they come; ``month``, and of the hotels ``week``)."""
    if table == "adult":
        name = {"shuffled": "Adult-randomized-bs-200", "sorted": "Adult-ordered-bs-200"}[order]
        return kumar_stream(name, data_folder(None), seed=seed)
    whole = kumar_stream("Eviction-weekly", data_folder(None))
    if order == "week":
        return whole
    return Replay(
        "eviction-month", whole.domain, whole.codes, np.append(whole.borders[:-1:4], whole.borders[-1])
    )
