"""What a family, its plans, batches and releases offer, so that nobody above has to know which one it is.

``stream_plan``: the contract between mechanisms and the streams that run them. ``batches``: what a step reads.
``releases``: what it gives. ``explanation``: what a plan says about itself. ``asking``: what a plan offers that is
asked between steps. ``options``: recipes whose fields say what a configuration file may hold. ``families``: what a
family says about itself. ``registry``: which families there are.
"""

from dpstream.core.contracts.asking import AskedPlan, QuestionAnswer, QuestionsSoFar
from dpstream.core.contracts.batches import (
    BatchRows,
    BoundedBatch,
    CancellingBatch,
    EngineBatch,
    Granted,
    PresentRecords,
    PrivateBatch,
    Reads,
    UserEvents,
    Wanted,
)
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
from dpstream.core.contracts.releases import (
    CellEstimate,
    GrowingTable,
    Measured,
    Packed,
    PeopleEstimate,
    PlacedRecords,
    Synthesis,
    SyntheticTable,
)
from dpstream.core.contracts.stream_plan import (
    Part,
    PredictedError,
    StartTable,
    StreamPlan,
    StreamRecipe,
)

__all__ = [
    "AskedPlan",
    "BatchRows",
    "BoundedBatch",
    "CancellingBatch",
    "CellEstimate",
    "Checks",
    "EngineBatch",
    "Explanation",
    "Family",
    "Given",
    "Granted",
    "GrowingTable",
    "Key",
    "Limits",
    "Measured",
    "Nested",
    "Option",
    "Packed",
    "Part",
    "PeopleEstimate",
    "PlacedRecords",
    "PredictedError",
    "PresentRecords",
    "PrivateBatch",
    "QuestionAnswer",
    "QuestionsSoFar",
    "Reads",
    "SectionReader",
    "StartTable",
    "StreamPlan",
    "StreamRecipe",
    "Synthesis",
    "SyntheticTable",
    "Table",
    "UserEvents",
    "Wanted",
    "build",
    "located",
    "option",
    "read_fields",
    "shown",
]
