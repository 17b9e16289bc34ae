"""A released linear classifier; public."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Domain
from dpstream.families.growing.erm_features import FeatureMap
from dpstream.families.growing.erm_loss import Loss, LossName, loss_by_name

Floats = NDArray[np.float64]


def shrinkage(loss: Loss, standard_error: float) -> float:
    """``loss(0) / (2 smoothness noise^2)``, at most 1: what noisy coefficients are multiplied by.

    The noise in a record's margin has at most the variance of one coefficient's, and costs ``smoothness / 2`` times
    that in the mean loss. Shrunk, it never costs more than a quarter of what the classifier 0 loses.
    """
    cost = 2.0 * loss.smoothness * standard_error**2
    return 1.0 if cost <= loss.at_zero else loss.at_zero / cost


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """What one run of ``ERM`` gives.

    Attributes:
        features: from codes to features.
        loss: what was minimised.
        measured: the noisy minimiser: right in the mean (up to the solver's certified distance).
        standard_error: of the noise in one coefficient of ``measured``.
        t: number of records it was trained on.
        lam: strength of the regularisation.
    """

    features: FeatureMap
    loss: LossName
    measured: Floats
    standard_error: float
    t: int
    lam: float

    @property
    def shrinkage(self) -> float:
        """What ``measured`` is multiplied by; public."""
        return shrinkage(loss_by_name(self.loss), self.standard_error)

    @property
    def at_zero(self) -> float:
        """The loss of a classifier that knows nothing, all of whose coefficients are 0."""
        return loss_by_name(self.loss).at_zero

    @cached_property
    def coefficients(self) -> Floats:
        """What predictions are made with: ``shrinkage`` times ``measured``."""
        return self.measured * self.shrinkage

    def decision_function(self, records: NDArray[np.int32]) -> Floats:
        """``<x, coefficients>`` of each record; above 0 speaks for the positive class.

        Args:
            records: codes of all columns of the domain, shape (records, columns); the target's codes are not used.

        Errors:
            DataError: another shape, or a code outside its column's domain.
        """
        domain, codes = self.features.domain, np.asarray(records)
        if codes.ndim != 2 or codes.shape[1] != len(domain) or codes.dtype.kind not in "iu":
            raise DataError(
                "the records do not fit the classifier",
                where="predict",
                allowed=f"integer codes of shape (records, {len(domain)})",
            )
        for name, position in zip(self.features.columns or (), self.features.positions, strict=True):
            column = codes[:, position]
            if len(column) and (column.min() < 0 or column.max() >= domain.sizes[position]):
                raise DataError("a code is outside the domain", where=f"column {name!r}")
        return self.features.margins(codes, self.coefficients)

    def predict(self, records: NDArray[np.int32]) -> NDArray[np.bool_]:
        """For each record, whether it is taken to be of the positive class. See ``decision_function``."""
        return self.decision_function(records) > 0.0

    def predict_proba(self, records: NDArray[np.int32]) -> Floats:
        """Probability of the positive class for each record, shape (records,).

        Errors:
            ConfigError: the loss is ``svm``, whose margins are no probabilities.
        """
        if self.loss != "logistic":
            raise ConfigError(
                "a support vector machine gives no probabilities",
                where="predict_proba",
                allowed="loss = 'logistic', or decision_function",
            )
        return 1.0 / (1.0 + np.exp(-np.clip(self.decision_function(records), -700.0, 700.0)))

    def codes(self, table: Any, schema: Schema) -> NDArray[np.int32]:
        """Codes of a raw table that need not have the target, for ``predict`` and its neighbours.

        Args:
            table: as for ``Schema.encode``; columns that are not features are left out.
            schema: that of the private records.

        Errors:
            DataError, SchemaError: see ``Schema.encode``.
        """
        names = self.features.columns or ()
        part = Schema(tuple(schema[name] for name in names), null_values=schema.null_values)
        encoded = part.encode(table, where="predict", extra="ignore")
        codes = np.zeros((len(encoded), len(self.features.domain)), np.int32, order="F")
        codes[:, list(self.features.positions)] = encoded
        return codes

    def as_dict(self) -> dict[str, float]:
        """Every coefficient by the name of its feature."""
        return dict(zip(self.features.names(), self.coefficients.tolist(), strict=True))

    def pack(self) -> Packed:
        """Arrays and JSON."""
        meta = {
            "format": 1,
            "features": asdict(self.features),
            "loss": self.loss,
            "standard_error": self.standard_error,
            "t": self.t,
            "lam": self.lam,
        }
        # Through JSON once: tuples become lists here and not only in the store.
        return Packed(json.loads(json.dumps(meta)), {"measured": self.measured})

    @classmethod
    def unpack(cls, packed: Packed) -> LinearClassifier:
        """The inverse of ``pack``."""
        meta = packed.meta
        given = meta["features"]
        features = FeatureMap(
            Domain(tuple(given["domain"]["names"]), tuple(given["domain"]["sizes"])),
            given["target"],
            given["positive"],
            tuple(given["columns"]),
            tuple((name, bins) for name, bins in given["numbers"]),
        )
        measured = np.asarray(packed.arrays["measured"], dtype=np.float64)
        return cls(features, meta["loss"], measured, meta["standard_error"], meta["t"], meta["lam"])
