"""What a family, its plans, batches and releases offer, so that nobody above has to know which one it is.

``stream_plan``: the contract between mechanisms and the streams that run them: what a step reads, what a plan is, and
what one offers that is asked questions. ``releases``: what a step gives; ``noisy_counts``: what it measured;
``packing``: states as JSON and arrays. ``explanation``: what a plan says about itself; ``expectations``: what it
predicts for a table of a guessed size. ``recipe_options``: recipes whose fields say what a configuration file may
hold; ``recipes``: what all recipes read alike. ``family``: what a family says about itself. ``plugins``: what is
found through entry points.
"""

from dpstream.core.contracts.asked_plan import AskedPlan, QuestionAnswer, QuestionsSoFar
from dpstream.core.contracts.expectations import ExpectedErrors, ExpectedTable, MarginalError
from dpstream.core.contracts.family import (
    Alternative,
    Checks,
    Family,
    Limits,
    Recipe,
    Terms,
    check_share,
    check_unit,
    check_whole,
    check_words,
)
from dpstream.core.contracts.noisy_counts import Counted, NoisyCounts, marginal_query
from dpstream.core.contracts.packing import UNPACKED, pack_fields, unpack_fields
from dpstream.core.contracts.private_batch import (
    BatchReads,
    CancellingBatch,
    Events,
    PresentRecords,
    PrivateBatch,
    UndiscoveredCounts,
)
from dpstream.core.contracts.public_prior import PublicPrior
from dpstream.core.contracts.recipe_options import (
    HEADLINE_SHARE,
    NUMBER_SHARE,
    Headline,
    Key,
    Option,
    RecipeContext,
    SectionReader,
    build,
    located,
    option,
    shown,
)
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
from dpstream.core.privacy.periods import EACH_STEP, Periods, StepPeriods, ends, first_step, next_end
