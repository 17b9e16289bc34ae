"""An Airflow DAG that publishes what is due every Monday, and says so when somebody should look.

Retries are safe: a step is drawn once, and a run that was stopped goes on where it stopped. Exit code 2 (input) and 3
(refused by the guarantee) do not get better by themselves, so they fail the task at once.
There is no execution_timeout: a kill that depends on how long a step takes selects what is released. To limit a run,
add "--steps", "1".
"""

from __future__ import annotations

import datetime
import shlex
import subprocess

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import dag, task

CONFIG = "/etc/dpstream/evictions.toml"
PLACES = ["--state", "/var/lib/dpstream/evictions", "--out", "/srv/releases/evictions"]
#: Locked, disk full; interrupted. Trying again may help.
PASSING = (4, 5)


def call(*words: str) -> None:
    """Run the command; its messages hold no private values, so they may go to the task's log."""
    command = ["dpstream", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="")
    if done.returncode:
        kind = AirflowException if done.returncode in PASSING else AirflowFailException
        raise kind(f"{shlex.join(command)} ended with exit code {done.returncode}")


@dag(
    schedule="15 6 * * 1",
    start_date=datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": datetime.timedelta(minutes=20)},
)
def dpstream_evictions() -> None:
    """Two tasks, one after the other."""

    @task
    def run() -> None:
        call("run", CONFIG, *PLACES, "--log-json", "-")

    @task(retries=0)
    def health() -> None:
        call("status", CONFIG, *PLACES, "--health", "--max-age", "8d")

    run() >> health()


dpstream_evictions()
