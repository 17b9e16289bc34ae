"""Types of the arrays that evaluations, reports and the laboratory work on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Records as codes, shape (records, columns).
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
