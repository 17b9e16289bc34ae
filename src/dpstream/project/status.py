"""How far a stream is and what it has cost: what ``dpstream status`` and ``ledger show`` tell, and the service's pages
show.
"""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, InputError, StoreError, counted
from dpstream.core.privacy import amount_words
from dpstream.io.sources.source_keys import duration
from dpstream.project.planning import lives_words
from dpstream.stream.declared import told_records
from dpstream.stream.inspection import StreamStatus, read_status
from dpstream.stream.templates import Words

if TYPE_CHECKING:
    from dpstream.io.sinks import Publisher
    from dpstream.io.sources import Source, SourceOptions
    from dpstream.project.config import Config
    from dpstream.stream.ledger.reading import Ledger


_WORDS = Words(Path(__file__).with_name("words.j2"))
#: Of a stream that was not started.
_NOTHING = StreamStatus({}, 0, Fraction(0), (), (), (), (), None, None, False, False, True, ())


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
                "standard input cannot be watched",
                where=f"{config.path} [source] path",
                allowed="run without --watch",
            )
        if waits and options.every is None and options.rows is None and options.end != "data":
            raise ConfigError(
                "all steps up to end are due at once",
                where=f"{config.path} [source] end",
                allowed='a calendar, every = "files", rows, or end = "data"',
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


def status_facts(config: Config) -> dict[str, Any]:
    """What ``status`` tells, JSON-able; public but for a step that was begun or failed."""
    from dpstream.stream.store.place import has_store

    folder, releases, plan = config.state_dir, config.output.dir, config.plan()
    started = has_store(folder, server=config.server)
    stored = read_status(folder, server=config.server) if started else _NOTHING
    base = config.base() if started else None
    facts: dict[str, Any] = {
        "format": 1,
        "stream": config.name,
        "started": started,
        "steps": stored.last_step,
        **released_facts(releases if started else None),
        "next_due": next_due(config.source_options, stored.last_step),
        "spent": amount_words(type(plan.budget)(stored.spent), plan.delta) if stored.last_step else None,
        "planned": amount_words(plan.budget, plan.delta),
        "protects": plan.unit.describe(),
        **told_records(config.unit, config.schema()),
        "horizon": plan.horizon,
        "steps_left": None if plan.horizon is None else plan.horizon - stored.last_step,
        "begun": stored.reserved,
        "failed": stored.failed,
        "restored": stored.restored,
        "unpublished": list(stored.unpublished),
        "held": list(stored.held),
        "withdrawn": list(stored.withdrawn),
        "rejected": list(stored.rejected),
        "decisions": [vars(decision) for decision in stored.decisions],
        "made_with_test_seed": stored.made_with_test_seed,
        "broken_borders": [] if base is None else [border.words for border in base.broken],
        "same_plan": True,
        "remedy": None,
        "releases": str(releases),
    }
    # Where no step was ever begun, the next run begins anew.
    if started and not (stored.unspent and config.account is None):
        facts |= _compared(config.facts(), stored.plan)
    return facts


def steps_words(facts: dict[str, Any]) -> str:
    """How many steps there are, and how many of them readers cannot have."""
    apart = [f"{len(facts[state])} {state}" for state in ("held", "withdrawn", "rejected") if facts[state]]
    return counted(facts["steps"], "step") + (f", {', '.join(apart)}" if apart else " released")


def _compared(facts: dict[str, Any], pinned: dict[str, Any]) -> dict[str, Any]:
    """Whether the file still says what the stream began with; where it names another mechanism, also what to write."""
    from dpstream.stream.identity import mechanism_remedy, plan_hash

    return {
        "same_plan": plan_hash(facts) == plan_hash(pinned),
        "remedy": mechanism_remedy(str(pinned.get("mechanism")), str(facts["mechanism"])),
    }


def released_facts(releases: Path | None) -> dict[str, Any]:
    """Of the newest release that was not withdrawn: step, period, records, when it was written, and what its table is
    fit for; None where there is none, or where it cannot be read (the health line says why)."""
    from dpstream.io.sinks import read_catalogue, read_manifest
    from dpstream.io.sinks.target import MANIFEST, step_name
    from dpstream.stream.release.fitness import Fitness, fitness_of
    from dpstream.stream.release.manifest import cut_of

    fit = Fitness() if releases is None else fitness_of(releases)
    found: dict[str, Any] = dict.fromkeys(("last_step", "last_period", "holds", "cut", "released_at"))
    found |= {"unfit": fit.unfit, "verdicts": [verdict.as_dict() for verdict in fit.verdicts]}
    if releases is None or not (releases / "catalogue.json").exists():
        return found
    try:
        entries = read_catalogue(releases)["steps"]
        last = max((int(entry["step"]) for entry in entries if entry["state"] != "withdrawn"), default=None)
        if last is None:
            return found
        manifest = read_manifest(releases, last)
        written = (releases / step_name(last) / MANIFEST).stat().st_mtime
    except (StoreError, OSError):
        return found
    moment = datetime.datetime.fromtimestamp(written, datetime.UTC).isoformat(timespec="seconds")
    newest = {"last_step": last, "last_period": manifest.get("period"), "holds": manifest.get("holds")}
    return {**found, **newest, "cut": cut_of(manifest), "released_at": moment}


def ledger_facts(config: Config, ledger: Ledger) -> dict[str, Any]:
    """JSON-able; no batch id and no count is in it. Times are the owner's."""
    unit, exceptions = ledger.facts["unit"], Fraction(ledger.facts.get("exceptions", 0))
    return {
        "format": 1,
        "stream": ledger.facts["stream"],
        "stream_id": ledger.stream_id,
        "mechanism": ledger.facts["mechanism"],
        "unit": unit,
        "protects": config.unit.describe() if unit == config.unit.name else unit,
        "lives": lives_words(config, ledger.planned) if unit == config.unit.name else "",
        "planned": ledger.planned.as_dict(),
        "planned_words": amount_words(ledger.planned, exceptions),
        "total": str(ledger.total.amount),
        "total_words": amount_words(ledger.total, exceptions) if ledger.spends else "nothing",
        "steps": len(ledger.spends),
        "horizon": ledger.facts["horizon"],
        "steps_left": ledger.steps_left,
        "used_up": ledger.steps_left == 0,
        "account": _account(config, ledger),
        "spends": [
            {
                **{name: getattr(spend, name) for name in ("step", "period", "unit_period", "definition")},
                "spent": str(spend.spent),
                "parts": list(spend.parts),
                "manifest_sha256": spend.manifest_sha256,
                "made_with_test_seed": spend.test_seed,
                "time": spend.time,
            }
            for spend in ledger.spends
        ],
    }


def _account(config: Config, ledger: Ledger) -> dict[str, Any] | None:
    """The account in which the stream adds up with others; None without one."""
    if config.account is None:
        return None
    from dpstream.stream.ledger.account import Account

    state = Account(config.account).read()
    charge = state.find(ledger.stream_id)
    return {
        "file": str(config.account),
        "charged": None if charge is None else str(charge.charged),
        "closed": charge is not None and charge.closed,
        "total": str(state.total),
        "limit": str(state.limit),
        "unit": state.unit,
        "streams": len(state.charges),
    }


#: Every word there is.
WORDS = (
    "healthy",
    "not-started",
    "state",
    "begun",
    "unpublished",
    "releases",
    "held",
    "failed",
    "restored",
    "stale",
    "unfit",
    "used-up",
    "other-plan",
    "no-guarantee",
)
_LOCKS = Path("/proc/locks")
#: Where the codebook may say that a table is.
_TABLE = re.compile(r"(step-[0-9]{6,}/)?table[.][a-z]+")


def health(
    config: Config,
    facts: dict[str, Any],
    max_age: float | None = None,
    *,
    deep: bool = False,
) -> tuple[str, str]:
    """A word and a sentence; the word is ``healthy`` where nobody has to act.

    Args:
        facts: what ``status`` knows.
        max_age: seconds that the newest release may be old.
        deep: read all releases, and not only the last few.

    Errors:
        StoreError: a place of releases cannot be read.
        ConfigError: an age is asked for, and the releases are not files.
    """
    from dpstream.stream.inspection import wrong_state

    sink, state = config.publisher(), config.state_dir
    older = wrong_state(state, sink.directory, server=config.server)
    if older is not None:
        return _said("state", why=older)
    if not facts["started"]:
        return _said("not-started")
    for word in ("failed", "restored"):
        if facts[word]:
            return _said(word, **facts)
    if not facts["same_plan"]:
        return _said("other-plan", **facts)
    if facts["made_with_test_seed"] or facts["broken_borders"]:
        return _said("no-guarantee", **facts)
    wrong = _wrong_releases(config, sink, deep)
    if wrong is not None:
        return _said("releases", **wrong)
    if facts["steps_left"] == 0:
        return _said("used-up")
    running = is_running(state)
    if facts["unpublished"] and not running:
        return _said("unpublished")
    if facts["begun"] is not None and not running:
        return _said("begun", **facts)
    if facts.get("held"):
        return _said("held")
    if max_age is not None and _too_old(config, Path(facts["releases"]), max_age):
        return _said("stale")
    if facts["unfit"] is not None:
        return _said("unfit", **facts)
    return _said("healthy", words=steps_words(facts), running=running)


def _said(word: str, **facts: Any) -> tuple[str, str]:
    """A word of health, and what it means here."""
    return word, _WORDS.text(f"health_{word.replace('-', '_')}", **facts)


def is_running(state: Path) -> bool:
    """Whether some process holds the state's lock, as the kernel lists it (Linux; elsewhere False).

    Trying the lock would answer it everywhere, but for that moment a run that starts would find it taken.
    """
    try:
        folder = state.stat()
        locks = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    device = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    return any(
        " FLOCK " in line and "->" not in line and f" {device} " in line for line in locks.splitlines()
    )


def _wrong_releases(config: Config, sink: Publisher, deep: bool) -> dict[str, Any] | None:
    """What of the published steps, the catalogue or the codebook is not as it was published."""
    from dpstream.stream.inspection import compare_releases

    committed, differences = compare_releases(config.state_dir, sink, server=config.server, deep=deep)
    for how in ("withdrawn", "changed", "missing"):
        places = sorted(place for place, found in differences.items() if how in ("missing", found))
        if places and (committed or how == "withdrawn"):
            step, name = places[0]
            return {"how": how, "step": step, "name": name, "more": len(places) - 1}
    index = _wrong_index(config, sink, committed) if committed else None
    return None if index is None else {"how": index}


def _wrong_index(config: Config, sink: Publisher, committed: dict[int, dict[str, str]]) -> str | None:
    """Whether readers find every published step in the catalogue, and their columns in the codebook."""
    from dpstream.core.paths import parse_json
    from dpstream.io.sinks import read_catalogue, read_manifest
    from dpstream.io.sinks.target import MANIFEST
    from dpstream.stream.release.manifest import describe_tables, pretty_json, values_of

    try:
        entries = read_catalogue(sink.directory)["steps"]
        listed = {
            int(entry["step"]): entry["manifest_sha256"]
            for entry in entries
            if entry["kept"] and entry["state"] in ("full", "change")
        }
    except (InputError, StoreError, KeyError, TypeError, ValueError):
        entries, listed = [], {}
    if any(listed.get(step) != files[MANIFEST] for step, files in committed.items()):
        return "catalogue"
    plan, output = config.plan(), config.output
    with_ids = output.publishing.records == "persistent"
    schema = config.schema()
    if schema.open_columns:
        steps = [int(entry["step"]) for entry in entries]
        manifests = (read_manifest(sink.directory, step) for step in steps)
        schema = schema.grown(values_of(manifest.get("discovered", {}) for manifest in manifests))
    columns = plan.released_schema(schema)
    path = sink.directory / "codebook.json"
    try:
        written = path.read_bytes()
        table = str(parse_json(written)["resources"][0]["path"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        written, table = b"", ""
    book = pretty_json(describe_tables(plan, columns, config.name, table, with_ids=with_ids))
    # Where no table is kept, the path is that of none.
    lost = table != sink.table_name and not (sink.directory / table).is_file()
    if written != book or not _TABLE.fullmatch(table) or lost:
        return "codebook"
    return None


def _too_old(config: Config, releases: Path, max_age: float) -> bool:
    if getattr(config.output, "sink", "folder") != "folder":
        raise ConfigError(
            "only releases in a folder have an age",
            where="--max-age",
            allowed='[output] sink = "folder"',
        )
    times = [path.stat().st_mtime for path in releases.glob("step-*/manifest.json")]
    # A file from the future (a clock that was wrong) tells no age.
    return not times or not 0 <= time.time() - max(times) <= max_age


#: name -> what it is, in its unit.
_ABOUT = {
    "dpstream_steps": "Committed steps of the stream.",
    "dpstream_steps_left": "Steps that the plan still pays for; none without a horizon.",
    "dpstream_spent": "Privacy loss of all steps so far: epsilon or rho, as the label says.",
    "dpstream_planned": "Privacy loss that the plan allows, in the same unit.",
    "dpstream_health": "1 for the word of dpstream status --health, 0 for others.",
    "dpstream_release_time_seconds": "When the newest release was written, as Unix time.",
    "dpstream_told_time_seconds": "When a service's worker last looked, as Unix time.",
}


#: The values of one stream: labels and number of each line, by metric. JSON-able.
Values = dict[str, list[tuple[dict[str, str], float]]]


def metric_values(config: Config, facts: dict[str, Any], word: str) -> Values:
    """The public numbers of a stream.

    Args:
        facts: what ``status`` knows.
        word: of the stream's health.

    Errors: those of reading the state.
    """
    from dpstream.core.privacy import ZCDP

    budget = config.plan().budget
    spent = read_status(config.state_dir, server=config.server).spent if facts["started"] else 0
    loss = {"loss": "rho" if isinstance(budget, ZCDP) else "epsilon"}
    times = [path.stat().st_mtime for path in Path(facts["releases"]).glob("step-*/manifest.json")]
    left = facts["steps_left"]
    return {
        "dpstream_steps": [({}, facts["steps"])],
        "dpstream_steps_left": [] if left is None else [({}, left)],
        "dpstream_spent": [(loss, float(spent))],
        "dpstream_planned": [(loss, float(budget.amount))],
        "dpstream_health": [({"word": one}, float(one == word)) for one in WORDS],
        "dpstream_release_time_seconds": [({}, max(times))] if times else [],
    }


def metrics_text(streams: Mapping[str, Values]) -> str:
    """The text, of one stream or of several: each metric's lines stand together, as the format wants it."""
    return "".join(f"{line}\n" for name in _ABOUT for line in _lines(name, streams))


def _lines(name: str, streams: Mapping[str, Values]) -> Iterator[str]:
    found = [(stream, *one) for stream, values in streams.items() for one in values.get(name, ())]
    if found:
        yield f"# HELP {name} {_ABOUT[name]}"
        yield f"# TYPE {name} gauge"
    for stream, labels, value in found:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"stream": stream, **labels}.items())
        yield f"{name}{{{shown}}} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
