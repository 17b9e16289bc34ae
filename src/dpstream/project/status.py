"""How far a stream is and what it has cost: what ``dpstream status`` tells, and the service's pages show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import StoreError
from dpstream.project.due_steps import next_due

if TYPE_CHECKING:
    from dpstream.project.config import Config


def status_facts(config: Config, state: str | None = None, out: str | None = None) -> dict[str, Any]:
    """What ``status`` tells, JSON-able; public but for a step that was begun or failed."""
    from dpstream.stream import read_status
    from dpstream.stream.release.fitness import fitness_of
    from dpstream.stream.store.place import has_store

    folder = config.state_dir if state is None else Path(state)
    releases = config.output.dir if out is None else Path(out)
    plan = config.plan()
    facts: dict[str, Any] = {
        "format": 1,
        "stream": config.name,
        "started": has_store(folder, server=config.server),
        "steps": 0,
        "last_period": None,
        "holds": None,
        "next_due": next_due(config.source_options, 0),
        "unfit": None,
        "verdicts": [],
        "spent": None,
        "planned": str(plan.budget),
        "protects": plan.unit.describe(),
        "horizon": plan.horizon,
        "steps_left": plan.horizon,
        "begun": None,
        "failed": None,
        "restored": False,
        "unpublished": [],
        "held": [],
        "withdrawn": [],
        "rejected": [],
        "decisions": [],
        "made_with_test_seed": False,
        "broken_borders": [],
        "same_plan": True,
        "remedy": None,
        "releases": str(releases),
    }
    if facts["started"]:
        base = config.base(folder)
        stored, fit = read_status(folder, server=config.server), fitness_of(releases)
        facts |= {
            "steps": stored.last_step,
            **_newest(releases),
            "next_due": next_due(config.source_options, stored.last_step),
            "unfit": fit.unfit,
            "verdicts": [one.as_dict() for one in fit.verdicts],
            "spent": str(type(plan.budget)(stored.spent)) if stored.last_step else None,
            "steps_left": None if plan.horizon is None else plan.horizon - stored.last_step,
            "begun": stored.reserved,
            "failed": stored.failed,
            "restored": stored.restored,
            "unpublished": list(stored.unpublished),
            "held": list(stored.held),
            "withdrawn": list(stored.withdrawn),
            "rejected": list(stored.rejected),
            "decisions": [vars(one) for one in stored.decisions],
            "made_with_test_seed": stored.made_with_test_seed,
            "broken_borders": [] if base is None else [one.words for one in base.broken],
            **_compared(config.facts(folder), stored.plan),
        }
        if stored.unspent and config.account is None:
            facts |= {"same_plan": True, "remedy": None}  # no step was ever begun: the next run begins anew
    return facts


def steps_words(facts: dict[str, Any]) -> str:
    """How many steps there are, and how many of them readers cannot have."""
    apart = [f"{len(facts[state])} {state}" for state in ("held", "withdrawn", "rejected") if facts[state]]
    return f"{facts['steps']} steps" + (f", {', '.join(apart)}" if apart else " released")


def _compared(facts: dict[str, Any], pinned: dict[str, Any]) -> dict[str, Any]:
    """Whether the file still says what the stream began with; where it names another mechanism, also what to write."""
    from dpstream.stream.identity import mechanism_remedy, plan_hash
    from dpstream.stream.store.sealed_history import as_written_now

    same = plan_hash(facts) == plan_hash(as_written_now(pinned, facts))
    return {
        "same_plan": same,
        "remedy": mechanism_remedy(str(pinned.get("mechanism")), str(facts["mechanism"])),
    }


def _newest(releases: Path) -> dict[str, str | None]:
    """Period and records of the newest release; nothing where it cannot be read (the health line says why)."""
    from dpstream.io.sinks import read_catalogue, read_manifest

    if not (releases / "catalogue.json").exists():
        return {}
    try:
        steps = [int(entry["step"]) for entry in read_catalogue(releases)["steps"]]
        manifest = read_manifest(releases, max(steps)) if steps else {}
    except StoreError:
        return {}
    return {"last_period": manifest.get("period"), "holds": manifest.get("holds")}
