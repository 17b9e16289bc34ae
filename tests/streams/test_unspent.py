"""A state of which no step was ever begun takes another plan; every other one refuses it."""

from __future__ import annotations

import shutil
import signal
import warnings
from pathlib import Path

import pytest
from fault_harness import Fault, failing_with, faults_in, full_disk, in_child, kill
from toy_stream import ToyPlan, batch, run, start

from dpstream.core.errors import ConfigError, DataError, StoreDamagedError, StoreError
from dpstream.stream import Account, Batch, Limit, StateKey, Stream, read_status
from dpstream.stream.inspection import check_store

OTHER = ToyPlan(label="other")


def unspent(home: Path, **options: object) -> None:
    """A first run that failed at its data."""
    with start(home, **options) as stream, pytest.raises(DataError):
        stream.step(Batch({"zip": ["94102"], "paid": [True], "rent": [-7]}, None), "b1")


def plan_of(home: Path) -> str:
    return str(read_status(home / "state").plan["options"]["label"])


@pytest.mark.usefixtures("each_database")
def test_another_plan_takes_the_place_of_one_that_spent_nothing(tmp_path: Path) -> None:
    for key in (None, StateKey.generate()):
        home = tmp_path / str(key is None)
        unspent(home, key=key)
        assert read_status(home / "state").unspent
        with pytest.warns(UserWarning, match="without steps begins anew"):
            run(home, 2, plan=OTHER, key=key)
        assert plan_of(home) == "other"
        assert check_store(home / "state", home / "releases", key=key).problems == ()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(home, 3, plan=OTHER, key=key)
        with pytest.raises(ConfigError, match="init --after"):
            run(home, 3, key=key)


def stopped(home: Path, target: object, name: str, error: BaseException) -> None:
    """A first step in which this raises an error."""

    with start(home) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, failing_with(error))
        with pytest.raises(type(error)):
            stream.step(batch(1), "b1")


def discarded(home: Path) -> None:
    """Stopped while it drew, and given up by its owner: nothing of it is left but the note."""
    stopped(home, Stream, "_commit_and_publish", KeyboardInterrupt())
    with start(home) as stream:
        stream.discard_reservation()


def reserved(home: Path) -> None:
    def work() -> None:
        with start(home) as stream, pytest.MonkeyPatch.context() as patch:
            patch.setattr(ToyPlan, "step", lambda *_: kill("commit", lambda: None, ()))
            stream.step(batch(1), "b1")

    assert in_child(work) == -signal.SIGKILL


def failed(home: Path) -> None:
    stopped(home, Stream, "_prepare", ArithmeticError())


def failed_before_drawing(home: Path) -> None:
    stopped(home, ToyPlan, "step", ArithmeticError())


def charged(home: Path) -> None:
    home.mkdir()
    Account.create(home / "account", Limit.parse("epsilon=3"))
    unspent(home, account=home / "account")


@pytest.mark.parametrize(
    "begin", [discarded, reserved, failed, failed_before_drawing, charged, lambda home: run(home, 1)]
)
def test_whatever_was_begun_or_charged_stays(tmp_path: Path, begin: object) -> None:
    home = tmp_path / "home"
    begin(home)
    assert not read_status(home / "state").unspent
    for account in (None, home / "account") if begin is charged else (None,):
        with pytest.raises(ConfigError, match=r"belongs to another plan|account is missing"):
            run(home, 1, plan=OTHER, **({} if account is None else {"account": account}))
    assert plan_of(home) == "plain"


@pytest.mark.parametrize("fault", [kill, full_disk])
def test_stopped_anywhere_it_has_the_one_plan_or_the_other(tmp_path: Path, fault: Fault) -> None:
    failed = []

    def renew(home: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                start(home, plan=OTHER).close()
            except StoreError:
                failed.append(home)

    found, names = set(), []
    for home, name in faults_in(tmp_path, renew, fault=fault, prepare=unspent):
        found.add(plan_of(home))
        names.append(name)
        assert fault is kill or failed[-1] == home
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(home, 2, plan=OTHER)
        assert check_store(home / "state", home / "releases").problems == ()
        assert read_status(home / "state").last_step == 2
    assert {"commit", "unlink", "rename"} <= set(names)
    assert found == {"plain", "other"}


def test_an_old_copy_beside_releases_is_refused_before_it_is_changed(tmp_path: Path) -> None:
    """The copy is whole and unspent; that it is old is seen in the releases alone."""
    start(tmp_path).close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    run(tmp_path, 2)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    head = (tmp_path / "state" / "head.json").read_bytes()
    pinned = read_status(tmp_path / "state").plan
    with pytest.raises(StoreDamagedError, match="rolled back"):
        start(tmp_path, plan=OTHER)
    assert plan_of(tmp_path) == "plain"
    assert read_status(tmp_path / "state").plan == pinned
    assert (tmp_path / "state" / "head.json").read_bytes() == head
    shutil.rmtree(tmp_path / "releases")  # the control: nothing was published
    with pytest.warns(UserWarning, match="begins anew"):
        start(tmp_path, plan=OTHER).close()
    assert plan_of(tmp_path) == "other"
