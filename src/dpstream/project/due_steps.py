"""When a watched source is worth reading: steps become due by the clock, by new files, or by later records."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError
from dpstream.io.sources.kinds import duration

if TYPE_CHECKING:
    from dpstream.io.sources import Source
    from dpstream.io.sources.source_options import SourceOptions
    from dpstream.project.config import Config


def next_due(options: SourceOptions, last_step: int) -> str | None:
    """When the step after ``last_step`` is due by the clock (UTC, ISO 8601): its period is over, and the grace period
    too. None where the data or the files decide it, and after the last step."""
    grid, final = options.grid, options.final_step()
    if grid is None or options.end == "data" or (final is not None and last_step >= final):
        return None
    period = grid.period(last_step + 1)
    if period is None:
        return None
    over = datetime.datetime.combine(period[1], datetime.time(), datetime.UTC)
    late = datetime.timedelta() if options.lag is None else duration(options.lag, "lag")
    return (over + late).isoformat(timespec="minutes")


class Watch:
    """Decides without reading records whether there may be a new step.

    Args:
        until: the last step that is wanted.
        waits: whether somebody waits for the next step.

    Errors:
        ConfigError: standard input; or, where somebody waits, a source whose steps are all due at once.
    """

    def __init__(self, config: Config, until: int | None = None, *, waits: bool = True) -> None:
        options = config.source_options
        if options.stdin:
            raise ConfigError(
                "standard input is read until it ends, without watching",
                where=f"{config.path} [source] path",
                allowed="run without --watch",
            )
        if waits and options.every is None and options.rows is None and options.end != "data":
            raise ConfigError(
                "all step numbers up to end are due at once, so there is nothing to wait for",
                where=f"{config.path} [source] end",
                allowed='a calendar, every = "files", rows, or end = "data" (a step is then taken when a record '
                "of a later one is there)",
            )
        self._config = config
        self._last = min((n for n in (until, options.final_step()) if n is not None), default=None)
        self._seen: Any = None

    def source(self) -> Source:
        """The source as it is now."""
        return self._config.source(watched=True, schema=self._config.reading_schema)

    def finished(self, last_step: int) -> bool:
        """Whether there will be no further step."""
        return self._last is not None and last_step >= self._last

    def worth_reading(self, last_step: int, source: Source) -> bool:
        """False where public facts (the clock; names, sizes and times of files) say that nothing is due."""
        options = self._config.source_options
        due = options.last_step(options.clock())
        if due is not None and due <= last_step:
            if self._seen is None and last_step == 0 and options.kind.startswith("postgres"):
                self._seen = "looked for"  # once: a slot that is missing loses what is committed meanwhile
                return True
            return False
        signature = source.signature()
        if signature is not None and signature == self._seen:
            return False
        self._seen = signature
        return True

    def look_again(self) -> None:
        """Remember that the last reading failed: the source is read again even if nothing seems to have changed."""
        self._seen = None

    def next_step(self, last_step: int) -> str:
        """What is waited for, in public words.

        A calendar names the period; other cuts only the number.
        """
        number, grid = last_step + 1, self._config.source_options.grid
        return f"step {number}" + ("" if grid is None else f" ({grid.batch_id(number)})")
