"""``dpstream status``: how far a stream is and what it has cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import config_argument, json_option, print_json

if TYPE_CHECKING:
    from dpstream.config import Config

__all__ = ["command"]


@click.command("status", short_help="Say how far the stream is and what it has cost.")
@config_argument
@click.option("--state", type=click.Path(), help="Another place for the secret state.")
@click.option("--out", type=click.Path(), help="Another place for the releases.")
@json_option
def command(config: str, state: str | None, out: str | None, as_json: bool) -> None:
    """Say how many steps are released, what they cost together, and what is left.

    Everything it prints is public. While a run holds the state, the published catalogue answers.

    \b
    Example:
      dpstream status dpstream.toml --json
    """
    from dpstream.config import Config

    facts = _facts(Config.load(config), state, out)
    if as_json:
        print_json(facts)
        return
    click.echo(f"stream {facts['stream']}: {facts['steps']} steps released ({facts['state']})")
    if facts["last_period"] is not None:
        click.echo(f"last period: {facts['last_period']}")
    spent = "nothing" if facts["spent"] is None else facts["spent"]
    click.echo(f"loss so far: {spent}; planned: {facts['planned']}, protecting {facts['protects']}")
    if facts["steps_left"] is not None:
        click.echo(f"steps left: {facts['steps_left']}")
    if facts["made_with_test_seed"]:
        click.echo("NO GUARANTEE: steps of this stream were made with a test seed")
    click.echo(f"releases: {facts['releases']}")


def _facts(config: Config, state: str | None, out: str | None) -> dict[str, Any]:
    from dpstream.errors import StoreLockedError

    folder = config.state_dir if state is None else Path(state)
    releases = config.output.dir if out is None else Path(out)
    plan = config.plan()
    if not (folder / "stream.sqlite").exists():
        kind, steps, manifest = "not started", 0, None
    else:
        try:
            kind, steps, manifest = _stored(config, folder, releases)
        except StoreLockedError:
            kind, steps, manifest = _published(releases)
    return {
        "format": 1,
        "stream": config.name,
        "state": kind,
        "steps": steps,
        "last_period": None if manifest is None else manifest["period"],
        # Every unit is in one step, so the whole budget is the loss after the first.
        "spent": str(plan.budget) if steps else None,
        "planned": str(plan.budget),
        "protects": plan.unit.describe(),
        "horizon": plan.horizon,
        "steps_left": None if plan.horizon is None else plan.horizon - steps,
        "made_with_test_seed": False if manifest is None else manifest["made_with_test_seed"],
        "releases": str(releases),
    }


def _stored(config: Config, folder: Path, releases: Path) -> tuple[str, int, dict[str, Any] | None]:
    with config.open_stream(state=folder, out=releases, publish=False) as stream:
        if not stream.last_step:
            return "ready", 0, None
        return "ready", stream.last_step, stream.release().manifest


def _published(releases: Path) -> tuple[str, int, dict[str, Any] | None]:
    from dpstream.sinks import read_catalogue, read_manifest

    if not (releases / "catalogue.json").exists():
        return "running", 0, None
    steps = [int(entry["step"]) for entry in read_catalogue(releases)["steps"]]
    return "running", max(steps, default=0), read_manifest(releases, max(steps)) if steps else None
