"""What published noisy counts would be without noise, and how much likelier they are if a record was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import CubeNoise, DiscreteLaplace, HistogramsNoise
from dpstream.core.schema.domain import Domain
from dpstream.tools.evaluate.array_types import Codes, Ints


def counts_of(query: Mapping[str, Any], codes: Codes, domain: Domain) -> Ints | None:
    """The exact answer to a query on records; None for a kind of query that attackers do not understand here."""
    kind = query["kind"]
    if kind == "marginal":
        return _marginal(query["columns"], codes, domain)
    if kind == "marginals":
        return np.concatenate([_marginal(columns, codes, domain) for columns in query["columns"]])
    if kind == "cell":
        clique = [domain.names.index(name) for name in query["columns"]]
        return np.array([(codes[:, clique] == query["codes"]).all(axis=1).sum()], np.int64)
    if kind == "signs":
        signs = 2 * codes.astype(np.int64) - 1
        terms = [[domain.names.index(name) for name in term] for term in query["terms"]]
        return np.array([signs[:, term].prod(axis=1).sum() for term in terms], np.int64)
    return None


def _marginal(columns: Sequence[str], codes: Codes, domain: Domain) -> Ints:
    clique = [domain.names.index(name) for name in columns]
    if not clique:
        return np.array([len(codes)], np.int64)
    sizes = domain.shape(tuple(clique))
    cells = np.ravel_multi_index(tuple(codes[:, clique].T), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).astype(np.int64)


def log_likelihood_ratio(noisy: NoisyCounts, noise: Ints, added: Ints) -> float:
    """How much likelier the values are with ``added`` than without, as a logarithm.

    Exact for independent Laplace and Gaussian noise and for joint draws; sums of draws count as normal.

    Args:
        noise: the values less what was counted without the record.
    """
    law = noisy.noise
    if isinstance(law, CubeNoise):
        return float((np.abs(noise).max() - np.abs(noise - added).max()) / law.scale)
    if isinstance(law, HistogramsNoise):
        return float((law.norm(noise) - law.norm(noise - added)) / law.scale)
    touched = np.flatnonzero(added)
    own, more = noise[touched], added[touched]
    if isinstance(law, DiscreteLaplace):
        return float((np.abs(own) - np.abs(own - more)).sum() / law.scale)
    return float((2 * own * more - more**2).sum() / (2 * max(noisy.variance, 1e-9)))
