"""A Dagster asset: the releases of a stream. One materialisation takes what is due, and tells public numbers only.

`dagster dev -f dpstream_assets.py`. A run that stopped is finished by the next one, so retries are safe where it was
locked or interrupted (exit codes 4 and 5); wrong input (2) and a spent budget (3) do not get better by themselves.
There is no timeout: a kill that depends on how long a step takes selects what is released.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import dagster

CONFIG = "/etc/dpstream/evictions.toml"
PLACES = ["--state", "/var/lib/dpstream/evictions", "--out", "/srv/releases/evictions"]
#: Locked, disk full; interrupted. Trying again may help.
PASSING = (4, 5)


def call(*words: str) -> str:
    """Run the command and give its standard output; its messages hold no private values."""
    command = ["dpstream", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr, end="")
    if done.returncode in PASSING:
        raise dagster.RetryRequested(max_retries=3, seconds_to_wait=1200)
    if done.returncode:
        raise dagster.Failure(f"{shlex.join(command)} ended with exit code {done.returncode}", allow_retries=False)
    return done.stdout


@dagster.asset(group_name="dpstream")
def evictions() -> Any:
    """Differentially private synthetic evictions; no row is a person."""
    call("run", CONFIG, *PLACES)
    facts = json.loads(call("status", CONFIG, *PLACES, "--json"))
    told = {"steps": facts["steps"], "spent": str(facts["spent"]), "unfit": str(facts["unfit"] or "no")}
    return dagster.MaterializeResult(metadata=told)


weekly = dagster.ScheduleDefinition(
    name="weekly", job=dagster.define_asset_job("take_what_is_due", [evictions]), cron_schedule="15 6 * * 1"
)
defs = dagster.Definitions(assets=[evictions], schedules=[weekly])
