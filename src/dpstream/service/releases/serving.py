"""The process that serves the feed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from dpstream.core.errors import ConfigError
from dpstream.service.guard import allow_many_files

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
            "the address cannot be used",
            where=f"{host}:{port}",
            allowed="a local address and a free port",
        ) from None
    # asyncio does so for its own sockets. Without it a body waits 40 ms until its headers were acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def server_of(app: FastAPI) -> uvicorn.Server:
    """The server of an application that ``make_app`` made; it is not started yet."""
    config = uvicorn.Config(
        app,
        access_log=False,
        http="h11",  # which limits the heads of a request
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    app.state.news.ends = lambda: server.should_exit
    return server


def serve(app: FastAPI, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until the process is told to stop (SIGINT, SIGTERM).

    Args:
        say: is told the address as soon as readers may come.

    Errors:
        As ``listen``.
    """
    allow_many_files()
    with listen(host, port) as listening, contextlib.suppress(KeyboardInterrupt):
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{listening.getsockname()[1]}")
        server_of(app).run(sockets=[listening])
