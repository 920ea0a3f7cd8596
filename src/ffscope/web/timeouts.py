"""Close connections that do not send a complete request in time; uvicorn itself only limits the time between two requests."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for all headers, from the connection or the first byte of the request
BODY_SECONDS = 20.0  # for the whole body, from the end of the headers
MAX_CONNECTIONS = 500  # open at once; processes are often limited to 1,024 open files


class TimedProtocol(H11Protocol):
    """One connection, with a deadline for the headers and one for the body of each request. Responses have no deadline.

    Received bytes do not extend a deadline, so a client that sends single bytes slowly is closed too.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._awaited: Any = None  # the part of the request that has a deadline now
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
        self._set_deadline()

    def handle_events(self) -> None:
        super().handle_events()
        self._set_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        """Start the deadline of the part of the request being received, once per part."""
        limits = {h11.IDLE: HEAD_SECONDS, h11.SEND_BODY: BODY_SECONDS}
        awaited = None if self.transport.is_closing() else self.conn.their_state
        # Between two requests, uvicorn's own limit for idle connections applies.
        if awaited is h11.IDLE and self.timeout_keep_alive_task is not None:
            awaited = None
        if awaited is self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited = awaited
        self._deadline = self.loop.call_later(limits[awaited], self._time_out) if awaited in limits else None

    def _time_out(self) -> None:
        if self.transport.is_closing():
            return
        received, _ = self.conn.trailing_data
        answered = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if (received or self._awaited is h11.SEND_BODY) and not answered and self.conn.our_state is not h11.DONE:
            self._refuse()
        self.transport.close()

    def _refuse(self) -> None:
        """Answer an incomplete request with status 408."""
        sentence = b"The request was not sent in time."
        headers = {
            "content-type": "text/plain; charset=utf-8",
            "content-length": str(len(sentence)),
            "connection": "close",
        }
        for event in (
            h11.Response(status_code=408, headers=list(headers.items()), reason=b"Request Timeout"),
            h11.Data(data=sentence),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
