"""``dp.read("https://...")``: the same release as from the folder, checked in the same way; tokens go nowhere else."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from feed_server import BASE, LAST, opened, served

import dpstream as dp
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.io.objects import fetched, web_path, web_url
from dpstream.service.tokens import TokenFile

TOKEN = "a-token-of-this-test"


@contextlib.contextmanager
def web(handler: object) -> Iterator[str]:
    """Any web server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_the_same_release(stream: Path) -> None:
    folder = dp.read(stream / "releases")
    with served(stream / "releases") as feed:
        release = dp.read(f"{feed.base_url}{BASE}/")
        assert (release.step, release.steps) == (LAST, folder.steps)
        assert repr(release) == f"PublicRelease('{feed.base_url}{BASE}', step={LAST})"
        assert release.manifest() == folder.manifest()
        for step in (3, LAST):
            assert release.table(step, ids=True).equals(folder.table(step, ids=True))
        assert release.answer("paid") == folder.answer("paid")
        assert release.measurements() == folder.measurements()
        with opened(stream) as one:
            one.withdraw(2, "sent twice")
        with pytest.raises(ConfigError, match="step 2 was withdrawn: sent twice"):
            dp.read(f"{feed.base_url}{BASE}", step=2)
        with pytest.raises(ConfigError, match="unknown step 5"):
            dp.read(f"{feed.base_url}{BASE}", step=LAST + 1)
        with pytest.raises(ConfigError, match="no releases found"):
            dp.read(f"{feed.base_url}/v1/streams/other")
        with pytest.raises(ConfigError, match=f"such as {feed.base_url}/v1/streams/NAME"):
            dp.read(str(feed.base_url))


def test_any_web_server_will_do_and_files_are_checked(stream: Path) -> None:
    with web(functools.partial(Silent, directory=str(stream))) as address:
        assert dp.read(f"{address}/releases").table().equals(dp.read(stream / "releases").table())
        path = stream / "releases/step-000004/table.parquet"
        path.write_bytes(path.read_bytes()[::-1])
        with pytest.raises(StoreDamagedError, match="differs from its published hash"):
            dp.read(f"{address}/releases").table()


def test_tokens(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    file.write_text(f"# who may read\n{digest} the statistics office\n")
    with served(made / "releases", tokens=TokenFile(file)) as feed:
        address = f"{feed.base_url}{BASE}"
        assert feed.get("/health").status_code == 200
        for path in ("/", "/openapi.json", BASE, f"{BASE}/events", "/nothing"):
            for given in ("", "Bearer x", f"Basic {TOKEN}", f"Bearer {digest}"):
                refused = feed.get(path, headers={"Authorization": given})
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
        with pytest.raises(ConfigError, match="token required"):
            dp.read(address)
        with pytest.raises(ConfigError, match="token refused") as told:
            dp.read(address, token="wrong")
        assert "wrong" not in str(told.value)
        assert dp.read(address, token=TOKEN).step == LAST
        assert TOKEN not in repr(web_path(address, TOKEN)) + str(web_path(address, TOKEN) / "x")
        monkeypatch.setenv("DPSTREAM_TOKEN", TOKEN)
        assert dp.read(address).table().num_rows > 0
        file.write_text("# nobody\n")
        with pytest.raises(ConfigError, match="token refused"):
            dp.read(address)
        file.unlink()
        with pytest.raises(ConfigError, match="token refused"):
            dp.read(address)


def test_a_token_is_not_sent_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []

    class Asked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(302 if self.path == "/a" else 200)
            self.send_header("Location", "/b")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with web(Asked) as address:
        assert fetched(f"{address}/a", TOKEN) == b"ok"
        asked = [("/a", f"Bearer {TOKEN}"), ("/b", None)]
        assert seen == asked
        # Nor to a proxy, which would read it; without one the proxy is asked, and there is none.
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        monkeypatch.delenv("no_proxy", raising=False)
        assert fetched(f"{address}/a", TOKEN) == b"ok"
        with pytest.raises(StoreError, match="cannot be reached"):
            fetched(f"{address}/a")
        assert seen == 2 * asked
    with pytest.raises(ConfigError, match="unencrypted"):
        dp.read("http://example.org/v1/streams/x", token=TOKEN)
    with pytest.raises(ConfigError, match="a token is for a web server"):
        dp.read("releases", token=TOKEN)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://me:hidden@example.org/x", "holds a name or secret"),
        ("https://example.org/x?token=hidden", "unusable address"),
        ("https:///x", "unusable address"),
        ("https://example.org/a b", "unusable address"),
        ("https://[::1/x", "unreadable address"),
        ("https://example.org:port/x", "unreadable address"),
    ],
)
def test_wrong_addresses(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        web_url(url)
    assert "hidden" not in str(told.value)
    with pytest.raises(ConfigError, match=words):
        dp.read(url)


def test_a_server_that_is_not_there() -> None:
    with web(Silent) as address:
        pass
    with pytest.raises(StoreError, match="the server cannot be reached"):
        dp.read(f"{address}/releases")
