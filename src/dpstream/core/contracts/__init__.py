"""What a family, its plans, batches and releases offer, so that nobody above has to know which one it is.

``stream_plan``: the contract between mechanisms and the streams that run them. ``batches``: what a step reads.
``user_counters``: what is known of users between steps. ``releases``: what a step gives; ``noisy_counts``: what it
measured; ``packing``: states as JSON and arrays. ``explanation``: what a plan says about itself; ``expectations``:
what it predicts for a table of a guessed size; ``asking``: what a plan offers
that answers questions between steps. ``recipe_options``: recipes whose fields say what a configuration file may hold.
``recipes``: what all recipes read alike. ``registry``: what a family says about itself, and which families there are.
"""

from dpstream.core.contracts.asking import AskedPlan, QuestionAnswer, QuestionsSoFar
from dpstream.core.contracts.batches import (
    BatchAccess,
    BatchBase,
    BatchReads,
    BatchRows,
    BoundedBatch,
    CancellingBatch,
    CheckedBatch,
    EngineBatch,
    Events,
    KeyedEffect,
    KeyedRows,
    KeyedShards,
    KeyedTable,
    PresentRecords,
    PrivateBatch,
    ReadRequest,
)
from dpstream.core.contracts.expectations import ExpectedErrors, ExpectedTable, MarginalError
from dpstream.core.contracts.explanation import Explanation, PrintedTable
from dpstream.core.contracts.noisy_counts import Counted, NoisyCounts, marginal_query
from dpstream.core.contracts.packing import UNPACKED, pack_fields, unpack_fields
from dpstream.core.contracts.public_prior import PublicPrior
from dpstream.core.contracts.recipe_options import (
    HEADLINE_SHARE,
    Headline,
    Key,
    Nested,
    Option,
    RecipeContext,
    SectionReader,
    build,
    located,
    option,
    read_fields,
    shown,
)
from dpstream.core.contracts.recipes import Recipe, Terms, check_share, check_unit, check_whole, check_words
from dpstream.core.contracts.registry import Alternative, Checks, Family, Limits
from dpstream.core.contracts.releases import (
    CellEstimate,
    Dealing,
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
    StartTable,
    StreamPlan,
    StreamRecipe,
)
from dpstream.core.contracts.user_counters import (
    CounterFile,
    CounterShards,
    PresentShards,
    ShardedEvents,
    UserCounters,
    UserEvents,
)

__all__ = [
    "HEADLINE_SHARE",
    "UNPACKED",
    "Alternative",
    "AskedPlan",
    "BatchAccess",
    "BatchBase",
    "BatchReads",
    "BatchRows",
    "BoundedBatch",
    "CancellingBatch",
    "CellEstimate",
    "CheckedBatch",
    "Checks",
    "Counted",
    "CounterFile",
    "CounterShards",
    "Dealing",
    "EngineBatch",
    "Events",
    "ExpectedErrors",
    "ExpectedTable",
    "Explanation",
    "Family",
    "GrowingTable",
    "Headline",
    "Key",
    "KeyedEffect",
    "KeyedRows",
    "KeyedShards",
    "KeyedTable",
    "Limits",
    "MarginalError",
    "Measured",
    "Nested",
    "NoisyCounts",
    "Option",
    "Packed",
    "Part",
    "PeopleEstimate",
    "PlacedRecords",
    "PresentRecords",
    "PresentShards",
    "PrintedTable",
    "PrivateBatch",
    "PublicPrior",
    "QuestionAnswer",
    "QuestionsSoFar",
    "ReadRequest",
    "Recipe",
    "RecipeContext",
    "SectionReader",
    "ShardedEvents",
    "StartTable",
    "StreamPlan",
    "StreamRecipe",
    "Synthesis",
    "SyntheticTable",
    "Terms",
    "UserCounters",
    "UserEvents",
    "build",
    "check_share",
    "check_unit",
    "check_whole",
    "check_words",
    "located",
    "marginal_query",
    "option",
    "pack_fields",
    "read_fields",
    "shown",
    "unpack_fields",
]
