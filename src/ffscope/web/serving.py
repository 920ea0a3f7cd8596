"""Start the explorer: choose an address, print the link, load the model meanwhile."""

import os
import re
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import uvicorn

from ffscope.errors import InputError
from ffscope.study.folder import Study
from ffscope.web.app import make_app
from ffscope.web.guard import Rules
from ffscope.web.model_queue import ModelQueue
from ffscope.web.timeouts import TimedProtocol

_HERE = ("127.0.0.1", "localhost", "::1")
_TRIES = 20  # ports, one after another, where the wanted one is taken
_SHORTEST_TOKEN = 8


@dataclass(frozen=True)
class Address:
    """Where the explorer listens, and who may come."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: the first that is free from 8765 on
    token: str | None = None
    names: tuple[str, ...] = ()  # under which others reach it


def serve(folder: Path, address: Address, queue: ModelQueue, *, started: Callable[[str], None]) -> None:
    """Serve a study until interrupted. `started` is told the link as soon as pages can be opened."""
    Study.open(folder).need("triggers")
    if not address.host.strip():
        raise InputError(
            "--host is an address of this machine: 127.0.0.1 for this machine alone, 0.0.0.0 for all networks."
        )
    token = _token(address)
    rules = Rules.of(
        address.host,
        page_token=secrets.token_urlsafe(32),
        token=token,
        names=[
            *checked_names(address.names),
            *(() if address.host in _HERE else (socket.gethostname(), socket.getfqdn())),
        ],
    )
    app = make_app(folder, rules=rules, queue=queue)
    app.state.studied.check()  # what is wrong with the study is said here, not on a page
    listening = _listen(address)
    link = _link(address.host, listening.getsockname()[1], token)
    with suppress(KeyboardInterrupt):  # how a server is meant to end
        Server(app, started=lambda: started(link)).run(sockets=[listening])


class Server(uvicorn.Server):
    """Says when pages can be opened; before it ends, tells those who wait for the model."""

    def __init__(self, app: Any, *, started: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=TimedProtocol,
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._queue: ModelQueue = app.state.queue
        self._tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell_started()

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._queue.close()
        super().handle_exit(sig, frame)


def leave() -> NoReturn:
    """End the process at once. A model may be half loaded in a thread of its own, which nothing can stop in a proper way."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _token(address: Address) -> str | None:
    """Who can be reached by others, under an address or a name, lets nobody in without a token."""
    if address.token is not None and len(address.token) < _SHORTEST_TOKEN:
        raise InputError(
            f"A token has at least {_SHORTEST_TOKEN} characters, so that nobody guesses it; this one has {len(address.token)}. "
            "Leave out --token for one that is made."
        )
    if address.token is not None and not re.fullmatch("[A-Za-z0-9._~-]+", address.token):
        raise InputError("A token is made of letters, digits and . _ ~ - alone, so that links and cookies can hold it.")
    if address.token is None and (address.host not in _HERE or address.names):
        return secrets.token_urlsafe(24)
    return address.token


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of machines alone: what a browser says in its Host line, without the port."""
    for name in names:
        if not re.fullmatch("[A-Za-z0-9_.-]+", name):
            raise InputError(
                f"--name is a machine's name such as explorer.example.org, without https:// and port; found {name!r}."
            )
    return names


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    ports = [address.port] if address.port is not None else range(8765, 8765 + _TRIES)
    refused: OSError | None = None
    for port in ports:
        # The protocol is named, since asyncio looks for it: otherwise small answers wait 40 ms for the other side's word.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address.host, port))
            listening.listen(128)
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            refused = error if isinstance(error, OSError) else OSError(str(error))
    said = (refused.strerror or str(refused)) if refused else "there is none"
    raise InputError(
        f"The explorer cannot listen on port {ports[0]} of {address.host!r}: {said}. Choose another port with --port "
        "(0: any that is free), or an address of this machine with --host."
    )


def _link(host: str, port: int, token: str | None) -> str:
    """Listening everywhere is reached here too."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/" + (f"?token={quote(token)}" if token else "")
