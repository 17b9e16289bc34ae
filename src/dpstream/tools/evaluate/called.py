"""What an evaluation calls: whoever waits for it, and the offline run that it compares with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpstream.core.tables import Workload
    from dpstream.project import Config
    from dpstream.tools.evaluate.array_types import Codes

#: Is given how many of the steps to be evaluated are done, and how many there are.
EvaluationProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class OfflineCeiling:
    """What a table could look like if it were released once: an offline run with the whole budget of the stream.

    Attributes:
        sample: gives so many rows, as codes; its noise is predictable, and what it gives is for evaluation only. Its
            arguments are the configuration, the marginals to keep, the private table and the number of rows.
    """

    sample: Callable[[Config, Workload, Codes, int], Codes]
