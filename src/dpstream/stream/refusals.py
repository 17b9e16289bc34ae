"""Why a stream takes no step, or not before its owner has decided."""

from __future__ import annotations

from collections.abc import Sequence

from dpstream.core.errors import ConfigError, HorizonError, StepError
from dpstream.stream.predecessor_cost import Broken
from dpstream.stream.store.step_rows import RESTORED, Reservation, Step


def all_steps_done(step: int, horizon: int) -> HorizonError:
    """The plan pays for no further step."""
    return HorizonError(
        f"the plan pays for {horizon} steps and all are done",
        where=f"step {step}",
        allowed="a successor with a plan of its own (dpstream init --after)",
    )


def broken_border(broken: Sequence[Broken], where: str) -> ConfigError:
    """What the earlier streams and this one cost together is more than their manifests say."""
    return ConfigError(
        f"{'; '.join(one.words for one in broken)}: records cost more than the manifests say",
        where=where,
        allowed="no further step of this stream, whose releases can be withdrawn; a new one after the last step of "
        "the earlier one",
    )


def no_place(verb: str) -> StepError:
    """The stream publishes nothing, because it was opened without a sink."""
    return StepError(
        "the stream was opened without a place for releases",
        where=verb,
        allowed="opening it with publish_to, or with [output]",
    )


def undecided(step: int, kind: str, batch_id: str) -> StepError:
    """The step failed after noise was drawn for it, or the store that knew whether it did was lost."""
    if kind == RESTORED:
        return StepError(
            "the store was lost and a copy of it was taken in; whether this step was begun before, or failed after "
            "noise was drawn for it, the copy cannot know",
            where=f"step {step}",
            allowed="discard_reservation() or run --discard-reserved, once",
        )
    return StepError(
        f"step {step} stopped with {kind} after noise was drawn for it; whether it stops "
        "may depend on that noise, so it is not drawn again before you decide",
        where=f"batch {batch_id!r}",
        allowed="discard_reservation() or run --discard-reserved, once the cause is found; each "
        "repetition shows readers that the one before stopped",
    )


def other_batch(held: Reservation, batch_id: str) -> StepError:
    """The process stopped while it worked on another batch, or on other records."""
    what = "other records under this id" if held.batch_id == batch_id else f"the batch {held.batch_id!r}"
    return StepError(
        f"step {held.step} was reserved for {what} when the process stopped",
        where=f"batch {batch_id!r}",
        allowed="the reserved batch, or discard_reservation() first (nothing was released or spent)",
    )


def other_records(known: Step) -> StepError:
    """The id of a committed step came again, with other records."""
    return StepError(
        f"this id was used at step {known.step} for other records",
        where=f"batch {known.batch_id!r}",
        allowed="a new id for new records",
    )
