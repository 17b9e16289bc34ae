"""Connections of browsers and of readers of the feed: whoever connects and says nothing keeps nobody else out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

_NUMBERS = itertools.count()


class Connection(H11Protocol):
    """HTTP as uvicorn speaks it; of connections that wait for the other side only the newest stay.

    uvicorn's own limit counts connections that have sent nothing, and never ends these: a few hundred of them, which
    need no login, would be all that the service has.
    """

    #: Connections that have sent no whole request, at most. Another one ends the oldest: a browser sends at once.
    most_silent = 400
    #: Requests beside these; more are refused until some are answered.
    most_busy = 200

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.number = next(_NUMBERS)

    @property
    def silent(self) -> bool:
        """Whether the other side owes us a request, or the rest of one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more."""
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.silent]
        if len(waiting) >= self.most_silent:
            min(waiting, key=lambda one: one.number).transport.abort()
        super().connection_made(transport)


class FeedConnection(Connection):
    """A connection of the feed, whose readers are programs that keep theirs open between requests."""

    most_silent = 2000
    most_busy = 1000
