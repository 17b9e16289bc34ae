"""A service with one stream whose names and values do their worst, for tests of pages."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from desks import make_service, work
from httpx import Client as Http
from httpx import Response
from small_configs import PAID, ZIP

from dpstream.service.desk import Desk, Person
from dpstream.service.desk.board import read_facts, write_board
from dpstream.service.pages.serving import server_of
from dpstream.service.releases import listen

#: Ends elements, attributes, comments and scripts; a template's own signs; and what a path or an address would read.
EVIL = (
    "</title><script>document.documentElement.dataset.owned='1'</script>"
    "\"'><img src=x onerror=owned> {{7*7}} ../&?=%2f"
)
EVIL_VALUE = "\"'></td><svg onload=document.documentElement.dataset.owned='2'>{{7*7}}"
#: In private files only.
PLANTED = "planted-4711"
PEOPLE = {"Anna": "approver", "Ben": "approver", "Olga": "owner", "Ada": "analyst", "Aldo": "auditor"}
STEPS = 6
#: Folders that only the worker reads.
PRIVATE = ("state", "data")
GUESS = '[expect]\nsize = 60\nrecords_per_step = 10\n[schema]\nconfirmed = true\nignore = ["note"]\n'
COLUMNS = GUESS + (ZIP + PAID).replace('"b"', json.dumps(EVIL_VALUE)).replace(
    ".zip]", f".{json.dumps(EVIL_VALUE)}]"
)


def make_office(folder: Path) -> Path:
    """The folder of a service: steps 1 to 4 are released, 5 and 6 held.

    The state and the private files are moved away: whatever a page shows, it does not read them.
    """
    quoted = '"' + EVIL_VALUE.replace('"', '""') + '"'
    rows = [f"{('a', quoted, 'c')[i % 3]},{('true', 'false')[i % 2]},{PLANTED}" for i in range(9)]
    stream = {"name": EVIL, "columns": COLUMNS, "head": f"{quoted},paid,note", "rows": rows, "times": 1}
    make_service(folder, steps=STEPS, approvals=2, private=PLANTED, place="stream", **stream)
    desk = Desk.open(folder)
    owner = desk.operator("root")
    for name, role in PEOPLE.items():
        desk.add_person(owner, name, [role])
    work(desk)
    for name in ("Anna", "Ben"):
        desk.decide(Person(name, frozenset(["approver"])), EVIL, [1, 2, 3, 4], "approve")
    work(desk)
    for private in PRIVATE:
        (folder / "stream" / private).rename(folder / f"private {private}")
    with desk.database.writing() as db:
        facts = read_facts(db, EVIL)[1]
        for key in ("why", "trouble", "last_period", "unfit", "cut"):
            facts[key] = EVIL_VALUE
        facts["verdicts"].append(EVIL_VALUE)
        account = {"file": f"/srv/{EVIL_VALUE}", "charged": "1", "closed": False, "total": "1", "limit": "2"}
        facts["account"] = {**account, "unit": "event", "streams": 1}
        write_board(db, EVIL, facts, [], None)
    return folder


@dataclass
class Office:
    """The service and its application, and a client for each person."""

    folder: Path
    desk: Desk
    app: Any
    address: str
    server: Any
    _clients: dict[str, Client] = field(default_factory=dict)

    @classmethod
    def of(cls, template: Path, folder: Path) -> Office:
        """A copy."""
        shutil.copytree(template, folder)
        return cls.served(folder)

    @classmethod
    def served(cls, folder: Path) -> Office:
        """One that is there already."""
        desk = Desk.open(folder)
        server, listening = server_of(desk), listen("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = listening.getsockname()[1]
        return cls(folder, desk, server.config.app, f"http://127.0.0.1:{port}", (server, thread))

    def work(self) -> None:
        """Let the worker do what was decided: it has the private files."""
        for private in PRIVATE:
            (self.folder / f"private {private}").rename(self.folder / "stream" / private)
        work(self.desk)

    def close(self) -> None:
        """End the server."""
        for one in self._clients.values():
            one.http.close()
        server, thread = self.server
        server.should_exit = True
        thread.join(30)

    def client(self, name: str = "") -> Client:
        """Of a person who has signed in; of nobody without a name."""
        if name not in self._clients:
            self._clients[name] = Client(self.address, self.token_of(name) if name else "")
        return self._clients[name]

    def token_of(self, name: str) -> str:
        """A one-time token."""
        return self.desk.make_sign_in_token(self.desk.operator("root"), name)

    def tasks(self) -> list[tuple[str, str]]:
        """Kinds and states of the worker's tasks."""
        owner = self.desk.operator("root")
        # After the four approvals that the office begins with.
        return [(one.kind, one.state) for one in self.desk.tasks(owner, EVIL)][4:]


class Client:
    """Sends forms as a browser does, with the token of a page."""

    def __init__(self, address: str, once: str) -> None:
        self.http = Http(base_url=address, follow_redirects=False, timeout=60)
        if once:
            answer = self.post("/sign-in", page="/sign-in", once=once)
            assert answer.status_code == 303, answer.text

    def get(self, path: str, **values: object) -> Response:
        """A page."""
        return self.http.get(path, params={key: str(value) for key, value in values.items()} or None)

    def token(self, page: str = "/") -> str:
        """What the forms of this visitor hold."""
        found = re.search(r'name="token" value="([0-9a-f]{64})"', self.get(page).text)
        assert found
        return found[1]

    def post(self, path: str, *, page: str = "/", token: str | None = None, **values: object) -> Response:
        """A form."""
        data = {key: str(value) for key, value in values.items()}
        return self.http.post(path, data={"token": self.token(page) if token is None else token, **data})
