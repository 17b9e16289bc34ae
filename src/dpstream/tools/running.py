"""Runs a configuration for a program, and does what follows a run: of a program, a command or a service."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dpstream.core.errors import ConfigError, DpstreamError

if TYPE_CHECKING:
    from dpstream.core.privacy import Randomness
    from dpstream.io.sources import Source
    from dpstream.project import Config, TakenStep
    from dpstream.stream import Release, Stream

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
        ConfigError: until or steps below 1, and as of ``Config.open_stream``. DataError, SchemaError: records do not
        fit. StepError: released steps whose records have changed since. StoreError: see ``Stream.step``.
    """
    from dpstream.project import Config

    for name, value in (("until", until), ("steps", steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{value!r} cannot be used", where=name, allowed="a whole number from 1")
    loaded = config if isinstance(config, Config) else Config.load(config)
    every = run_steps(loaded, until=until, steps=steps, recheck=recheck, randomness=randomness)
    return (taken.release for taken in every if not taken.released)


def _warn(warning: str) -> None:
    _log.warning("%s", warning)


def run_steps(
    config: Config,
    *,
    source: Source | None = None,
    until: int | None = None,
    steps: int | None = None,
    recheck: bool = True,
    confirm: bool = False,
    randomness: Randomness | None = None,
    prepare: Callable[[Stream], object] = lambda stream: stream.publish_again(),
    expect: Callable[[int | None], object] = lambda _: None,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], object] = _warn,
) -> Generator[TakenStep]:
    """What ``run`` does, with the steps that are released already; more arguments for who shows it, and may stop it.

    Args:
        source: where the steps come from, where it is open already.
        confirm: as of ``taken_steps``.
        prepare: gets the stream once it is open. expect: gets how many steps there will be, where that is known.
        during: entered while a step is taken, or errors are simulated.
        stop: asked while errors are simulated. warn: gets what its owner should know of that.
    """
    from dpstream.project import expected_steps, last_wanted, taken_steps

    with config.open_stream(randomness=randomness) as stream:
        prepare(stream)
        first = stream.last_step + 1
        last = last_wanted(stream, until, steps)
        source = config.source(schema=config.reading_schema) if source is None else source
        expect(expected_steps(config, source, last))
        yield from taken_steps(
            config, stream, source, until=last, recheck=recheck, confirm=confirm, during=during
        )
        taken = range(first, stream.last_step + 1)
    # It reads releases only: nobody needs to wait for the stream's lock meanwhile.
    from dpstream.tools.folder import explain

    with during():
        warnings = [explain(config), simulate_border(config, taken, stop)]
    for warning in filter(None, warnings):
        warn(warning)


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
        what = str(error)
    except (OSError, ValueError, ArithmeticError, LookupError, MemoryError) as error:
        what = type(error).__name__
    else:
        if len(simulation.runs) == runs:
            return None
        what = f"{len(simulation.runs)} of {runs} runs; dpstream errors {config.path} --until {borders[-1]} continues"
    return f"errors were not simulated: {what}"
