"""``dpstream ledger`` on real streams: what it prints, its exit codes, and streams that share an account."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream, make, status, write_step
from small_configs import rewrite

ACCOUNT = '[budget]\naccount = "../account.jsonl"\n'


def shared(folder: Path, steps: int = 2, *, epsilon: str = "1", horizon: str = '"none"') -> Path:
    """A stream in the account beside its folder."""
    return rewrite(make(folder, steps, epsilon=epsilon), "[budget]\n", f"{ACCOUNT}horizon = {horizon}\n")


def printed(*args: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dpstream("ledger", *args, "--json", code=code).stdout)
    return found


def test_two_streams_share_a_limit_that_neither_may_cross(tmp_path: Path) -> None:
    account = tmp_path / "account.jsonl"
    first = shared(tmp_path / "one", horizon="2")
    second = shared(tmp_path / "two", epsilon="3/4")
    dpstream("run", first, code=2)  # there is no account yet
    dpstream("ledger", "account", "create", account, "--limit", "epsilon=3/2")
    dpstream("ledger", "account", "create", account, "--limit", "epsilon=9", code=2)
    assert "nothing was spent" in dpstream("run", first, "--dry-run").stdout
    dpstream("run", first)
    dpstream("run", first, "--dry-run")
    before = account.read_bytes()
    refused = dpstream("run", second, code=3)
    assert "epsilon = 1.75" in refused.stderr
    assert dpstream("run", second, "--dry-run", code=3).stderr == refused.stderr
    assert account.read_bytes() == before
    assert not (tmp_path / "two/state").exists()
    dpstream("ledger", "account", "raise", account, "--limit", "epsilon=1", code=2)
    dpstream("ledger", "account", "raise", account, "--limit", "epsilon=7/4")
    dpstream("run", second)

    facts = printed("account", "show", account)
    assert [one["charged"]["epsilon"] for one in facts["charges"]] == ["1", "3/4"]
    assert facts["total"]["epsilon"] == facts["limit"]["epsilon"] == "7/4"
    assert [one["limit"] for one in facts["raised"]] == [{"epsilon": "7/4"}]
    dpstream("ledger", "account", "show", account)
    assert printed("account", "verify", account, first, second) == {
        "format": 1, "sound": True, "findings": [], "other_charges": [],
    }  # fmt: skip
    assert len(printed("account", "verify", account, first)["other_charges"]) == 1
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    told = printed("account", "verify", account, first, tmp_path / "copy/dpstream.toml", second, code=4)
    assert ["a copy of the stream of" in one for one in told["findings"]] == [True]

    assert "2 streams together: epsilon = 1.75" in dpstream("ledger", "show", first).stdout
    assert status(first)["steps_left"] == 0

    stream_id = facts["charges"][1]["stream_id"]
    dpstream("ledger", "account", "close-stream", account, "0" * 32, code=2)
    dpstream("ledger", "account", "close-stream", account, stream_id)
    assert printed("show", second)["account"]["closed"]
    rewrite(second, "end = 2", "end = 3")
    write_step(tmp_path / "two", 3)
    assert "closed in its account" in dpstream("run", second, code=3).stderr
    assert "closed in its account" in dpstream("run", second, "--dry-run", code=3).stderr

    account.write_bytes(b"")
    for args in (["run", first], ["ledger", "account", "show", account], ["ledger", "show", first]):
        dpstream(*args, code=4)
    assert printed("account", "verify", account, code=4)["sound"] is False


def test_a_stream_that_was_there_before_its_account(tmp_path: Path) -> None:
    config = make(tmp_path / "one", 2)
    dpstream("run", config, "--until", 1)
    account = tmp_path / "account.jsonl"
    dpstream("ledger", "account", "create", account, "--limit", "rho=1")
    rewrite(config, "[budget]\n", ACCOUNT)
    assert "dpstream ledger account charge" in dpstream("run", config, code=2).stderr
    for _ in range(2):
        dpstream("ledger", "account", "charge", account, config)
    dpstream("run", config)
    assert printed("account", "show", account)["total"] == {"epsilon": "1", "rho": "1/2", "exceptions": "0"}
    assert dpstream("ledger", "verify", config).exit_code == 0


@pytest.mark.parametrize("place", ["state/account.jsonl", "releases/account.jsonl"])
def test_an_account_belongs_to_no_single_stream(tmp_path: Path, place: str) -> None:
    config = rewrite(make(tmp_path, 1), "[budget]\n", f'[budget]\naccount = "{place}"\n')
    assert "the account lies inside" in dpstream("plan", config, code=2).stderr
