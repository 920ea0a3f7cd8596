"""Only connections that do not send their request in time are closed; over raw sockets."""

import asyncio
import socket
import time
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from explorer import served
from ffscope.web import timeouts
from ffscope.web.model_queue import ModelQueue

HEAD, BODY = 0.6, 0.9  # seconds allowed here
GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


async def _echo(request):
    with suppress(ClientDisconnect):
        return PlainTextResponse((await request.body()).decode())
    return PlainTextResponse("")


async def _slow(request):
    await asyncio.sleep(3 * BODY)
    return PlainTextResponse("at last")


async def _big(request):
    return Response(b"x" * 2**24)


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setattr(timeouts, "HEAD_SECONDS", HEAD)
    monkeypatch.setattr(timeouts, "BODY_SECONDS", BODY)
    app = Starlette(routes=[Route("/echo", _echo, methods=["POST"]), Route("/slow", _slow), Route("/big", _big)])
    app.state.queue = ModelQueue(None)
    with served(app) as url:
        yield "127.0.0.1", urlsplit(url).port


def connected(address):
    return closing(socket.create_connection(address, timeout=10))


def rest(connection):
    """All that the server still sends, and how long it keeps the connection open."""
    begun, pieces = time.monotonic(), []
    while piece := connection.recv(2**16):
        pieces.append(piece)
    return b"".join(pieces), time.monotonic() - begun


def drip(connection, pieces, every):
    """Send piece after piece until the server closes the connection; returns the seconds that took."""
    begun = time.monotonic()
    for piece in pieces:
        try:
            connection.sendall(piece)
        except OSError:
            break
        connection.settimeout(every)
        try:
            if not connection.recv(2**16):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begun


def test_a_connection_that_sends_nothing_is_closed_without_a_response(address):
    with connected(address) as connection:
        response, seconds = rest(connection)
    assert response == b""
    assert HEAD / 2 < seconds < HEAD + 3


def test_half_a_header_and_half_a_body_are_answered_with_408(address):
    for sent, limit in ((b"GET /slow HTTP/1.1\r\nHo", HEAD), (POST + b"half", BODY)):
        with connected(address) as connection:
            connection.sendall(sent)
            response, seconds = rest(connection)
        assert response.startswith(b"HTTP/1.1 408 ")
        assert response.endswith(b"The request was not sent in time.")
        assert limit / 2 < seconds < limit + 3


def test_single_bytes_do_not_put_the_deadline_off(address):
    for start, limit in ((b"", HEAD), (POST, BODY)):
        with connected(address) as connection:
            connection.sendall(start)
            letters = [b"G", *[b"E"] * 8, *[b"T"] * 200] if not start else [b"x"] * 9
            assert drip(connection, letters, every=limit / 4) < limit + 3


def test_a_long_answer_and_a_slow_reader_take_as_long_as_they_like(address):
    with connected(address) as connection:
        connection.sendall(GET % b"/slow")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200 ")
    with connected(address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        connection.sendall(GET % b"/big")
        received = 0
        for _ in range(4):
            received += len(connection.recv(2**14))
            time.sleep(BODY / 2)
        while received < 2**24:
            piece = connection.recv(2**18)
            assert piece
            received += len(piece)


def test_a_kept_connection_gets_a_deadline_for_each_request(address):
    with connected(address) as connection:
        for _ in range(3):
            connection.sendall(POST + b"0123456789")
            answer = b""
            while not answer.endswith(b"0123456789"):
                answer += connection.recv(2**16)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(1.5 * HEAD)  # between two requests only uvicorn's longer limit applies
        connection.sendall(b"GET /slow HT")
        response, seconds = rest(connection)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert seconds < HEAD + 3


def test_no_more_connections_than_the_process_can_have(address, monkeypatch):
    monkeypatch.setattr(timeouts, "HEAD_SECONDS", 30.0)
    monkeypatch.setattr(timeouts, "MAX_CONNECTIONS", 2)
    with connected(address) as first, connected(address) as second, connected(address) as third:
        assert rest(third)[0] == b""
        first.sendall(POST + b"0123456789")
        assert first.recv(2**16).startswith(b"HTTP/1.1 200 ")
        second.close()
        time.sleep(0.2)
        with connected(address) as fourth:
            fourth.sendall(POST + b"0123456789")
            assert fourth.recv(2**16).startswith(b"HTTP/1.1 200 ")
