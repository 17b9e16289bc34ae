"""Files of a web server, read with the standard library: no other package is needed.

A token is sent to the host that was asked, never to one that it points to, and never without TLS but to this machine.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from dpstream.core.errors import ConfigError, StoreError

#: The variable with the token that a server asks for.
TOKEN = "DPSTREAM_TOKEN"
#: Seconds for a connection, and for each wait for more bytes.
TIMEOUT = 30.0
_HERE = ("localhost", "127.0.0.1", "::1")


def is_web_url(text: object) -> bool:
    """Whether a text is meant as the address of a web server."""
    return isinstance(text, str) and text.lower().startswith(("https://", "http://"))


def web_url(url: str, token: str | None = None) -> tuple[str, str]:
    """Scheme with host, and path, of an address below which files lie. Nothing is asked of the server.

    Errors:
        ConfigError: no such address; one with a name, a secret or a query in it; a token sent unencrypted.

    >>> web_url("https://example.org/v1/streams/evictions/")
    ('https://example.org', 'v1/streams/evictions')
    """
    allowed = "an address such as https://example.org/v1/streams/evictions"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("the address cannot be read", where="read", allowed=allowed) from None
    if "@" in parts.netloc:
        raise ConfigError(
            "the address holds a name and perhaps a secret", where="read", allowed=f"a token in {TOKEN}"
        )
    if not host or parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("the address cannot be used", where="read", allowed=allowed)
    if token and (not token.isascii() or not token.isprintable()):
        raise ConfigError(
            "the token holds characters that no token has", where="token", allowed="plain letters"
        )
    if token and parts.scheme.lower() == "http" and host not in _HERE:
        raise ConfigError(
            "a token would be sent without encryption", where=url, allowed="https://, or no token"
        )
    return f"{parts.scheme.lower()}://{parts.netloc}", parts.path.strip("/")


def fetched(url: str, token: str | None = None, *, timeout: float | None = None, head: bool = False) -> bytes:
    """What the server gives for an address that ``web_url`` has seen.

    Args:
        token: sent as a bearer token.
        head: only ask whether it is there.

    Errors:
        FileNotFoundError: the server says that there is no such file, or not any more.
        ConfigError: it asks for a token, or refuses this one. StoreError: it cannot be reached, or fails.
    """
    request = urllib.request.Request(url, method="HEAD" if head else "GET")
    request.add_header("User-Agent", "dpstream")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        # A proxy would read what goes to this machine unencrypted.
        through = not (token and url.startswith("http:"))
        with _opener(through).open(request, timeout=TIMEOUT if timeout is None else timeout) as answer:
            return b"" if head else bytes(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise FileNotFoundError(url) from None
        if error.code in (401, 403):
            raise ConfigError(
                "the server refuses this token" if token else "the server asks for a token",
                where=url,
                allowed=f"a token in {TOKEN}, or read(..., token=...)",
            ) from None
        what = f"the server answers with the error {error.code}"
    except ssl.SSLError:
        what = "the server's certificate or encryption is not trusted"
    except urllib.error.URLError as error:
        is_tls = isinstance(error.reason, ssl.SSLError)
        what = "the server's certificate is not trusted" if is_tls else "the server cannot be reached"
    except (OSError, http.client.HTTPException):
        what = "the server ended the connection, or did not answer in time"
    raise StoreError(what, where=url, allowed="a server that answers; trying again loses nothing")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirection away from encryption."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError("a redirection without encryption")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(through_proxies: bool) -> urllib.request.OpenerDirector:
    """One that speaks http and https only: neither files nor ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(None if through_proxies else {}),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def token_of(given: str | None) -> str | None:
    """The token that was given, or else the one of the environment."""
    return given if given is not None else os.environ.get(TOKEN) or None
