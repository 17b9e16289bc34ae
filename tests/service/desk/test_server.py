"""The service's database on a PostgreSQL server: the same desk, several writers, nothing of the server's texts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from desks import ANNA, BEN, OWNER, make_service, tell, work

from dpstream.core.errors import ConfigError, StoreError
from dpstream.service.desk import Desk

if TYPE_CHECKING:
    from postgres_server import Cluster


def on_server(folder: Path, url: str, **options: object) -> Path:
    return make_service(folder, more=f'database = "{url}"', **options)  # type: ignore[arg-type]


def test_the_whole_life_of_a_held_step(postgres: Cluster, tmp_path: Path) -> None:
    folder = on_server(tmp_path / "service", postgres.url, service="life", steps=1, approvals=2)
    desk = Desk.open(folder)
    assert not (folder / "service.sqlite").exists()
    for name in ("Anna", "Ben"):
        desk.add_person(OWNER, name, ["approver"])
    token = desk.make_sign_in_token(desk.operator("root"), "Anna")
    assert desk.person(desk.sign_in(token) or "") is not None
    assert desk.sign_in(token) is None
    work(desk)
    for person in (ANNA, BEN):
        desk.decide(person, "test", 1, "approve")
    work(Desk.open(folder))
    assert [one.state for one in desk.tasks(OWNER, "test")] == ["done"]
    assert desk.check_log()[0] == []
    assert desk.card(OWNER, "test").held == ()


def test_writers_at_once_make_one_chain(postgres: Cluster, tmp_path: Path) -> None:
    for folder in (
        on_server(tmp_path / "server", postgres.url, service="many"),
        make_service(tmp_path / "file"),
    ):
        desk = Desk.open(folder)
        tell(desk, held={step: str(step) for step in range(1, 21)})

        def decide(first: int, desk: Desk = desk) -> None:
            for step in range(first, 21, 4):
                desk.decide(ANNA, "test", step, "approve")

        threads = [threading.Thread(target=decide, args=(first,)) for first in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert desk.check_log()[:2] == ([], 20)
        assert len(desk.tasks(OWNER, "test")) == 20


def test_a_server_that_cannot_be_reached_and_a_password_in_the_file(tmp_path: Path) -> None:
    folder = on_server(tmp_path / "gone", f"postgresql:///x?host={tmp_path}")
    with pytest.raises(StoreError, match="the server cannot be reached"):
        Desk.open(folder)
    folder = on_server(tmp_path / "password", "postgresql://me:hush@localhost/x")
    with pytest.raises(ConfigError) as told:
        Desk.open(folder)
    assert "hush" not in str(told.value)
