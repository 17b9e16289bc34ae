"""What people without a login, other sites and other programs of the machine can do to those who have one."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from offices import EVIL, Office

from dpstream.service.pages import serving
from dpstream.service.pages.visits import LARGEST


@pytest.fixture(scope="module")
def office(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """One for all tests here, each of which does nothing to the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "BUSIEST", 5)
        made = Office.of(released, tmp_path_factory.mktemp("outside") / "office")
    yield made
    made.close()


def test_connections_that_say_nothing_keep_nobody_out(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do those that send half a request, in its heads or in its body; of whole ones there is a limit."""
    host, port = office.address.removeprefix("http://").split(":")
    body = b"POST /sign-in HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n"
    body += b"content-type: application/x-www-form-urlencoded\r\n\r\na"
    with contextlib.ExitStack() as stack:
        for sent in (b"", b"GET / HTTP/1.1\r\nhost: ", body) * 20:
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            one.sendall(sent)
        assert httpx.get(f"{office.address}/sign-in", timeout=60).status_code == 200
    go_on = threading.Event()
    monkeypatch.setattr(office.desk, "health", lambda: {"waited": str(go_on.wait(60))})
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(httpx.get, f"{office.address}/health", timeout=60) for _ in range(20)]
        while sum(one.done() for one in asked) < 15:
            time.sleep(0.01)
        go_on.set()
        assert sorted(one.result().status_code for one in asked) == [200] * 5 + [503] * 15


def test_forms_that_are_longer_than_they_say(office: Office) -> None:
    """A form in chunks counts as it comes, whatever length its heads tell; so does a number of fields."""
    host, port = office.address.removeprefix("http://").split(":")
    heads = b"POST /sign-in HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    chunk = b"%x\r\n%s\r\n" % (LARGEST, b"x" * LARGEST)
    fields = b"&".join(b"a%d=" % i for i in range(200))
    for sent, status in (
        (b"content-length: 10\r\ntransfer-encoding: chunked\r\n\r\n" + 3 * chunk, b"413"),
        (b"content-length: %d\r\n\r\n%s" % (len(fields), fields), b"400"),
        (b"content-length: 8\r\n\r\nonce=%ff", b"400"),
    ):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(heads + sent)
            answer = connection.recv(65536)
            assert answer.split()[1] == status
            assert status == b"413" or b"form cannot be read" in answer + connection.recv(65536)


@pytest.mark.parametrize(
    ("heads", "secure"),
    [
        ([], False),
        ([("host", "pages.example")], True),
        ([("x-forwarded-proto", "https")], True),
        ([("x-forwarded-proto", "http"), ("x-forwarded-proto", "HTTPS, http")], True),
        ([("x-forwarded-proto", "http")], False),
    ],
)
def test_cookies_are_for_https_wherever_there_is_https(
    office: Office, heads: list[tuple[str, str]], secure: bool
) -> None:
    """Also behind a proxy that passes on 127.0.0.1 as the host."""
    page = httpx.get(f"{office.address}/sign-in", headers=heads)
    cookie = page.headers["set-cookie"]
    assert cookie.startswith("__Host-dpstream_form=" if secure else "dpstream_form=")
    assert ("; Secure" in cookie) == secure
    # A cookie that another host of the same site can set does not count there.
    value = re.findall(r"dpstream_form=([^;]+)", cookie)[0]
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page.text)
    assert found
    answer = httpx.post(
        f"{office.address}/sign-in",
        headers=[*heads, ("cookie", f"dpstream_form={value}")],
        data={"token": found[1], "once": "none"},
    )
    assert answer.status_code == (400 if secure else 403)
    form = {"token": found[1], "once": office.token_of("Ada"), "next": "https://evil.example/"}
    sent = [*heads, ("cookie", cookie.partition(";")[0])]
    answer = httpx.post(f"{office.address}/sign-in", headers=sent, data=form)
    kept = answer.headers["set-cookie"]
    assert (answer.headers["location"], "; Secure" in kept) == ("/", secure)
    assert kept.startswith("__Host-dpstream_login=" if secure else "dpstream_login=")
    shown = httpx.get(f"{office.address}/sign-in", headers=heads).text
    assert ("need https" in shown) == (heads == [("host", "pages.example")])


@pytest.mark.parametrize(
    ("origin", "ours"),
    [
        ("{address}", True),
        ("https://evil.example", False),
        ("http://127.0.0.1:1", False),
        ("null", False),
        ("", False),
    ],
)
def test_browsers_that_tell_the_origin_only(office: Office, origin: str, ours: bool) -> None:
    """The form's own token is right each time: what is refused is the place that it comes from."""
    client = office.client("Aldo")
    head = {"origin": origin.format(address=office.address)}
    answer = client.http.post("/run", data={"token": client.token(), "stream": EVIL}, headers=head)
    assert answer.status_code == (403 if ours else 400)
    assert ("too old or foreign" in answer.text) != ours


def test_what_is_decided_is_what_was_looked_at(office: Office) -> None:
    """The hash is compared where the decision is written; the page only hands it on."""
    ben = office.client("Ben")
    before = office.desk.decisions(office.desk.operator("root"))
    for manifest in ("", "0" * 64):
        answer = ben.post("/decide", stream=EVIL, step=5, kind="approve", manifest=manifest)
        assert answer.status_code == 400
        assert "has changed since" in answer.text
    assert office.desk.decisions(office.desk.operator("root")) == before


def test_nobody_is_told_where_something_is(released: Path, tmp_path: Path) -> None:
    """A database that is gone or broken, and releases that are gone: one sentence without a place."""
    office = Office.of(released, tmp_path / "office")
    anna = office.client("Anna")
    (tmp_path / "office/stream/releases").rename(tmp_path / "away")
    nobody = office.client()
    told = [anna.get(path, stream=EVIL) for path in ("/report", "/statement", "/withdraw")]
    file = tmp_path / "office/service.sqlite"
    for content in (None, b"no database" * 1000):
        for one in file.parent.glob("service.sqlite*"):
            one.unlink()
        if content:
            file.write_bytes(content)
        told += [nobody.get(path) for path in ("/health", "/sign-in")]
        told.append(anna.get("/"))
    assert {one.status_code for one in told} >= {503}
    for one in told:
        assert "office/" not in one.text
        assert str(tmp_path) not in one.text
    office.close()
