"""The process that serves the feed."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from dpstream.core.errors import ConfigError
from dpstream.service.releases.connections import FeedConnection

if TYPE_CHECKING:
    from fastapi import FastAPI


def listen(host: str, port: int) -> socket.socket:
    """A socket that readers may connect to; port 0 takes a free one.

    Errors:
        ConfigError: the address cannot be used.
    """
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=kind, backlog=2048)
    except (OSError, OverflowError):
        raise ConfigError(
            "this address cannot be used",
            where=f"{host}:{port}",
            allowed="an address of this machine and a free port",
        ) from None
    # asyncio does so for its own sockets. Without it a body waits 40 ms until its headers were acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class Server(uvicorn.Server):
    """The server of an application that ``make_app`` made."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                http=FeedConnection,
                # Who waits for news is counted beside the requests.
                limit_concurrency=FeedConnection.most_silent + FeedConnection.most_busy + app.state.news.most,
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._news = app.state.news

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let those go who wait for news: they would wait for ever."""
        self._news.end()
        await super().shutdown(sockets)


def serve(app: FastAPI, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until the process is told to stop (SIGINT, SIGTERM).

    Args:
        say: is told the address as soon as readers may come.

    Errors:
        As ``listen``.
    """
    _many_files()
    with listen(host, port) as listening, contextlib.suppress(KeyboardInterrupt):
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{listening.getsockname()[1]}")
        Server(app).run(sockets=[listening])


def _many_files() -> None:
    """Let this process open as many files as it may: each reader has a connection and perhaps a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
