"""Runs a configuration for a program, and does what follows a run: of a program, a command or a service."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpstream.core.errors import ConfigError, DpstreamError

if TYPE_CHECKING:
    from dpstream.core.privacy import Randomness
    from dpstream.project import Config
    from dpstream.stream import Release

_log = logging.getLogger("dpstream.streams")


def run(
    config: Config | str | Path,
    *,
    until: int | None = None,
    steps: int | None = None,
    recheck: bool = True,
    randomness: Randomness | None = None,
) -> Iterator[Release]:
    """Take every step that is due, publish each, and give its release: what ``dpstream run`` does.

    Steps that are released already are compared with the data and not given again, so a run that was stopped goes on
    where it stopped. The stream is open while the releases are iterated over.

    Args:
        config: a configuration, or the path of its file.
        until: the last step. steps: at most so many new ones.
        recheck: False begins after the last released step, and compares nothing.
        randomness: for tests; releases made with it say so.

    Errors:
        ConfigError: until or steps is no whole number from 1, and as of ``Config.open_stream``. DataError, SchemaError:
        records that do not fit. StepError: released steps whose records have changed since. StoreError: see
        ``Stream.step``.
    """
    from dpstream.project import Config

    for name, value in (("until", until), ("steps", steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{value!r} cannot be used", where=name, allowed="a whole number from 1")
    loaded = config if isinstance(config, Config) else Config.load(config)
    return _taken(loaded, until, steps, recheck, randomness)


def _taken(
    config: Config, until: int | None, steps: int | None, recheck: bool, randomness: Randomness | None
) -> Iterator[Release]:
    from dpstream.project import last_wanted, taken_steps

    with config.open_stream(randomness=randomness) as stream:
        stream.publish_again()
        first = stream.last_step + 1
        last = last_wanted(stream, until, steps)
        source = config.source(schema=config.reading_schema)
        for pending, release in taken_steps(config, stream, source, until=last, recheck=recheck):
            if not pending.released:
                yield release
        taken = range(first, stream.last_step + 1)
    # It reads releases only: nobody needs to wait for the stream's lock meanwhile.
    warning = simulate_border(config, taken)
    if warning is not None:
        _log.warning("%s", warning)


def simulate_border(
    config: Config, taken: Sequence[int], stop: Callable[[], bool] = lambda: False
) -> str | None:
    """After a run: what ``[accuracy] simulate`` asks for, where a step whose number doubles was taken.

    Never fails, because the steps are committed and published already.

    Args:
        taken: the new steps.
        stop: asked between runs of the simulation; True ends it.

    Returns:
        What its owner should know, if it is not complete: a sentence without a private value.
    """
    runs = config.accuracy.simulate
    borders = [step for step in taken if step & (step - 1) == 0]
    if runs is None or not borders or config.output.publishing.approve:
        return None
    from dpstream.tools import errors

    try:
        simulation = errors.simulate_errors(
            config, runs=runs, until=borders[-1], seconds=config.accuracy.simulate_seconds, stop=stop
        )
        errors.publish_errors(simulation)
    except DpstreamError as error:
        return f"errors were not simulated: {error}"
    except (OSError, ValueError, ArithmeticError, LookupError, MemoryError) as error:
        return f"errors were not simulated: {type(error).__name__}"
    if len(simulation.runs) == runs:
        return None
    return (
        f"errors by simulation: {len(simulation.runs)} of {runs} runs were done; "
        f"dpstream errors {config.path} --until {borders[-1]} does the others"
    )
