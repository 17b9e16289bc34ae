"""``dpstream up`` and the verbs beside it: drafts, people, tokens, and processes that end together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_stream import dpstream
from desks import ANNA, OWNER, make_service

from dpstream.service.desk import Desk
from dpstream.service.desk.worker import Worker
from dpstream.service.tokens import TokenFile


def said(*words: object, code: int = 0) -> str:
    return dpstream(*words, code=code).output


def test_a_token_for_programs_and_readers_is_printed_once(tmp_path: Path) -> None:
    """A line of the file, which holds no token; the lines before stay, and a file of something else is refused."""
    file = tmp_path / "tokens.txt"
    first, second = (said("serve", "token", file, note).strip() for note in ("the office", "nightly"))
    assert [line.split(" ", 1)[1] for line in file.read_text().splitlines()] == ["the office", "nightly"]
    tokens = TokenFile(file)
    assert [tokens.allow(f"Bearer {one}") for one in (first, second, first[:-1])] == [True, True, False]
    assert first not in file.read_text()
    assert "cannot be a note" in said("serve", "token", file, "two\nlines", code=2)
    file.write_text(first)
    assert "entry 1 must be a token's hash" in said("serve", "token", file, "x", code=2)
    assert "cannot be written" in said("serve", "token", tmp_path / "nowhere" / "tokens", "x", code=2)


PROXY = '[proxy]\naddress = "10.0.0.1"\nheader = "X-User"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[service]\nlisten_at = 1\n", "unknown key 'listen_at'"),
        ("[services]\n", "unknown key 'services'"),
        ("service = 3\n", "a section [service]"),
        ('[service]\ntokens = "none"\n', "the tokens cannot be read"),
        ('[service]\nlook_every = "5 fortnights"\n', "look_every = '5 fortnights' cannot be used"),
        ("[service]\nidle_minutes = 0\n", "a whole number from 1 to 1440"),
        ("[service]\n", "[[stream]] with a key config"),
        ('[[stream]]\nconfig = "../stream/dpstream.toml"\napprovals = true\n', "a whole number from 1 to 10"),
        ('[proxy]\naddress = "10.0.0.0/8"\nheader = "X-User"\n', "allowed: an address"),
        ('[proxy]\naddress = "10.0.0.1"\nheader = "X User"\n', "allowed: a header"),
        (PROXY, "other programs could pose as anybody"),
        (f'{PROXY}secret_file = "short"\nsecret_header = "x-user"\n', "both headers have one name"),
        (f'{PROXY}secret_file = "short"\nsecret_header = "X:"\n', "secret_header = 'X:' cannot be used"),
        (f'{PROXY}secret_file = "none"\n', "the proxy's secret cannot be read"),
        (f'{PROXY}secret_file = "open"\n', "others may read the proxy's secret (mode 0640)"),
        (f'{PROXY}secret_file = "short"\n', "secret is malformed"),
    ],
)
def test_settings_are_read_strictly(tmp_path: Path, text: str, message: str) -> None:
    make_service(tmp_path / "stream")
    folder = tmp_path / "service"
    folder.mkdir()
    none = "stream" in message or "[[stream]]" in text
    stream = "" if none else '[[stream]]\nconfig = "../stream/dpstream.toml"\n'
    for name, secret, mode in (("open", "s" * 32, 0o640), ("short", "s" * 31, 0o600)):
        (folder / name).write_text(secret)
        (folder / name).chmod(mode)
    (folder / "service.toml").write_text(text + stream, encoding="utf-8")
    assert message in said("ledger", "verify", folder, code=2)


def test_both_end_together_and_the_worker_ends_at_a_signal(tmp_path: Path) -> None:
    folder = make_service(tmp_path / "service", steps=1)
    command = [sys.executable, "-m", "dpstream", "up", str(folder)]
    # Pages that cannot be served: the worker ends, too, and the exit code says it.
    done = subprocess.run(
        [*command, "--listen", "nowhere"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "error: the server of pages ended (exit code 2), and so does the rest" in done.stderr
    desk = Desk.open(folder)
    Worker(desk).close()  # nobody holds the service any more
    with subprocess.Popen([*command, "--worker-only"], stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        if desk.card(OWNER, "test").steps == 0:
            assert json.loads(child.stderr.readline())["state"] == "taken"
        else:
            desk.decide(ANNA, "test", 1, "approve")
            assert json.loads(child.stderr.readline())["event"] == "approve"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    Worker(desk).close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_children_end_when_their_parent_is_killed() -> None:
    """The parent is killed as ``up`` can be, its child does what the children of ``up`` do first."""
    program = (
        "import subprocess, sys, os, signal\n"
        "from dpstream.cli.up import _end_with_parent\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True,"
        " preexec_fn=_end_with_parent())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        # The pipe ends when the last process that has it does; the child would have it for a minute.
        assert parent.communicate(timeout=30)[0] == b""
        assert parent.returncode == -signal.SIGKILL
