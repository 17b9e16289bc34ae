"""Nothing but what a catalogue lists leaves the server, and it has rights to nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from feed_server import BASE, served
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import StoreDamagedError
from dpstream.service.releases import ReleaseFolder, app

SECRET = b"nobody may read this"
NOBODY = 65534


@pytest.fixture(scope="module")
def feed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A folder with files that no catalogue lists, beside a secret one."""
    root = tmp_path_factory.mktemp("places")
    shutil.copytree(made / "releases", root / "releases")
    for name in (
        "secret.json",
        "releases/secret.json",
        "releases/step-000001/secret.json",
        "releases/.hidden",
    ):
        (root / name).write_bytes(SECRET)
    (root / "releases/step-000009").mkdir()
    (root / "releases/step-000009/manifest.json").write_bytes(SECRET)
    _others.append(str(root))
    with served(root / "releases") as client:
        yield client


#: Folders that other servers of this process look at meanwhile.
_others: list[str] = []
_WORDS = (
    ".. . %2e%2e ..%2f %00 ~ secret.json .hidden releases step-000001 step-000009 step-1 manifest.json catalogue.json "
    "catalogue errors steps 1 9 table.parquet \\.."
)
PARTS = st.sampled_from(["", *_WORDS.split()])


@settings(max_examples=150)
@given(st.lists(PARTS | st.text(max_size=6).map(lambda text: quote(text, safe="")), max_size=6))
def test_no_path_leads_out(feed: httpx.Client, parts: list[str]) -> None:
    answer = feed.get(f"{BASE}/{'/'.join(parts)}")
    assert SECRET not in answer.content
    assert answer.status_code in (200, 307, 400, 404, 410, 422), answer.text
    assert "bug" not in answer.text


@settings(max_examples=100)
@given(st.lists(PARTS.filter(lambda one: "%" not in one) | st.text(max_size=6), min_size=1, max_size=4))
def test_no_name_opens_what_is_outside(made: Path, parts: list[str]) -> None:
    try:
        file = ReleaseFolder("x", made / "releases").open(*parts)
    except (FileNotFoundError, StoreDamagedError):
        return
    opened = os.path.realpath(f"/dev/fd/{file.fd}")
    file.close()
    assert Path(opened).is_relative_to((made / "releases").resolve())


@pytest.mark.parametrize(
    "name", ["catalogue.json", "codebook.json", "step-000001", "step-000001/table.parquet"]
)
def test_links_are_not_followed(stream: Path, name: str) -> None:
    """Whatever stands behind the link, a file of the stream itself included."""
    at = stream / "releases" / name
    at.rename(stream / "moved")
    at.symlink_to(stream / "moved")
    paths = [
        *(name, "steps", "steps/1/table.csv", "steps/1/table.parquet"),
        *("answer?q=paid", "steps/3/table.csv"),
    ]
    with served(f"invented={stream / 'releases'}") as feed:
        answers = {path: feed.get(f"{BASE}/{path}") for path in paths}
    if name == "step-000001":
        name = "steps/1/table.csv"
    assert answers[name].status_code == 500, answers[name].text
    assert "a readable file" in answers[name].json()["detail"]
    assert {one.status_code for one in answers.values()} <= {200, 404, 500}


def test_no_file_but_a_fifo(stream: Path) -> None:
    """A pipe without a writer would stop a reader for good."""
    path = stream / "releases/codebook.json"
    path.unlink()
    os.mkfifo(path)
    with served(stream / "releases") as feed:
        assert feed.get(f"{BASE}/codebook.json").status_code == 500


_opened: list[str] = []
_recording = False


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _recording and event == "open" and isinstance(args[0], str | bytes):
        _opened.append(os.fsdecode(args[0]))


sys.addaudithook(_hook)


def test_nothing_else_is_opened(stream: Path) -> None:
    """Every file that Python opens while requests are answered lies in the folder; the state lies beside it."""
    global _recording
    paths = [
        *("steps/3/table.csv", "steps/3/table.parquet", "steps/1/table.ndjson"),
        *("changes", "steps", "manifest"),
    ]
    paths += ["answer?q=paid", "steps/3/manifest", "steps/4/measurements", "catalogue.json", "nothing", ""]
    with served(stream / "releases") as feed:
        for path in paths:
            feed.get(f"{BASE}/{path}")
        (stream / "releases/catalogue.json").touch()
    with served(stream / "releases") as feed:
        _opened.clear()
        _recording = True
        try:
            for path in paths:
                feed.get(f"{BASE}/{path}")
        finally:
            _recording = False
    releases, temporary = str(stream / "releases"), tempfile.gettempdir()
    # Names without a folder are opened below an open folder; files that are made for readers have no name.
    wrong = [
        one
        for one in _opened
        if not (one == releases or one.startswith((releases + "/", "/dev/fd/")) or "/" not in one)
        and Path(one).parent != Path(temporary)
        and one != temporary
        and not one.startswith(tuple(_others))
        and not one.endswith((".py", ".pyc", ".so"))
    ]
    assert wrong == []
    assert any(one.startswith(releases) for one in _opened)
    assert not any("state" in Path(one).name for one in _opened)


#: Python itself may lie where nobody else may read, so what the command needs is loaded before the rights are dropped.
AS_NOBODY = f"""
import os, sys
sys.path[:0] = {[str(Path(__file__).parents[i]) for i in (0, 2)]!r}
from feed_server import BASE, served
from dpstream.cli import main
paths, state, words = sys.argv[1].split(), sys.argv[2], sys.argv[3:]
with served(words[2]) as feed:
    for path in paths:
        feed.get(BASE + path)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
assert not os.access(state, os.R_OK) and not os.access(state, os.X_OK)
main(words)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_serves_without_rights_to_the_state(made: Path) -> None:
    """The command itself, as a user who may not read the state: all is there, and nothing was written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(made, folder / "stream")
        (folder / "stream").chmod(0o755)
        (folder / "stream/state").chmod(0o700)
        words = ["serve", "releases", str(folder / "stream/releases"), "--port", "0"]
        before = sorted(folder.rglob("*"))
        (folder / "home").mkdir()
        os.chown(folder / "home", NOBODY, NOBODY)
        environment = {**os.environ, "TMPDIR": str(folder / "home")}
        paths = ["/steps/3/table.csv", "/changes?after=1"]
        command = [sys.executable, "-c", AS_NOBODY, " ".join(paths), str(folder / "stream/state"), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"serving invented at (http://127\.0\.0\.1:\d+)", server.stdout.readline())
                assert found is not None
                with httpx.Client(base_url=found[1], timeout=60) as client:
                    assert [client.get(BASE + path).status_code for path in paths] == [200, 200]
            finally:
                server.terminate()
        shutil.rmtree(folder / "home")
        assert sorted(folder.rglob("*")) == before


def test_connections_that_say_nothing_keep_no_reader_out(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no requests; all that are being answered have a limit."""
    monkeypatch.setattr(app, "BUSIEST", 0)
    with served(stream / "releases", readers=2) as client, contextlib.ExitStack() as stack:
        address = (client.base_url.host, client.base_url.port)
        for sent in (b"", b"GET / HTTP/1.1\r\nhost: ") * 30:
            one = stack.enter_context(socket.create_connection(address, timeout=60))
            one.sendall(sent)
        assert client.get("/health").status_code == 200
        for _ in range(2):
            assert stack.enter_context(client.stream("GET", f"{BASE}/events")).status_code == 200
        refused = client.get("/health")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
