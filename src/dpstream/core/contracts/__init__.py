"""What a family, its plans, batches and releases offer, so that nobody above has to know which one it is.

``stream_plan``: the contract between mechanisms and the streams that run them. ``explanation``: what a plan says about
itself. ``options``: recipes whose fields say what a configuration file may hold. ``families``: what a family says about
itself. ``registry``: which families there are.
"""

from dpstream.core.contracts.explanation import Explanation, Table
from dpstream.core.contracts.families import Checks, Family, Limits
from dpstream.core.contracts.options import (
    Given,
    Key,
    Nested,
    Option,
    SectionReader,
    build,
    located,
    option,
    read_fields,
    shown,
)
from dpstream.core.contracts.stream_plan import (
    CellEstimate,
    ClassifierRelease,
    Measured,
    Packed,
    Part,
    PeopleEstimate,
    PeopleSynthesis,
    PlacedSynthesis,
    PredictedError,
    PrivateBatch,
    SaysAccuracy,
    StartTable,
    StreamPlan,
    StreamRecipe,
    Synthesis,
)

__all__ = [
    "CellEstimate",
    "Checks",
    "ClassifierRelease",
    "Explanation",
    "Family",
    "Given",
    "Key",
    "Limits",
    "Measured",
    "Nested",
    "Option",
    "Packed",
    "Part",
    "PeopleEstimate",
    "PeopleSynthesis",
    "PlacedSynthesis",
    "PredictedError",
    "PrivateBatch",
    "SaysAccuracy",
    "SectionReader",
    "StartTable",
    "StreamPlan",
    "StreamRecipe",
    "Synthesis",
    "Table",
    "build",
    "located",
    "option",
    "read_fields",
    "shown",
]
