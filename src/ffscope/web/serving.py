"""Start the explorer: bind a port, print the link, load the model in the background."""

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

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PORTS_TRIED = 20  # from 8765 upwards
_MIN_TOKEN = 8


@dataclass(frozen=True)
class Address:
    """Where the explorer listens, and the token and host names it accepts."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: the first free port from 8765 upwards
    token: str | None = None
    names: tuple[str, ...] = ()  # further host names under which it is reached


def serve(folder: Path, address: Address, queue: ModelQueue, *, started: Callable[[str], None]) -> None:
    """Serve a study until interrupted. `started` is called with the link as soon as pages can be opened."""
    Study.open(folder).need("triggers")
    if not address.host.strip():
        raise InputError(
            "--host must be an address of this machine: 127.0.0.1 for local access only, 0.0.0.0 for all networks."
        )
    token = _token(address)
    rules = Rules.of(
        address.host,
        page_token=secrets.token_urlsafe(32),
        token=token,
        names=[
            *checked_names(address.names),
            *(() if address.host in _LOOPBACK else (socket.gethostname(), socket.getfqdn())),
        ],
    )
    app = make_app(folder, rules=rules, queue=queue)
    app.state.study.check()  # fail here rather than on every page
    listening = _listen(address)
    link = _link(address.host, listening.getsockname()[1], token)
    with suppress(KeyboardInterrupt):  # Ctrl-C is how a user stops the server
        Server(app, started=lambda: started(link)).run(sockets=[listening])


class Server(uvicorn.Server):
    """A uvicorn server that calls `started` when pages can be opened, and closes the model queue before it stops."""

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
        self._on_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._queue.close()
        super().handle_exit(sig, frame)


def exit_now() -> NoReturn:
    """End the process at once: a thread that is loading a model cannot be stopped otherwise."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _token(address: Address) -> str | None:
    """The token; generated if none is set and other machines can reach the server."""
    if address.token is not None and len(address.token) < _MIN_TOKEN:
        raise InputError(
            f"A token needs at least {_MIN_TOKEN} characters, so that it cannot be guessed; this one has {len(address.token)}. "
            "Without --token, one is generated."
        )
    if address.token is not None and not re.fullmatch("[A-Za-z0-9._~-]+", address.token):
        raise InputError("A token may contain only letters, digits and . _ ~ -, since it is used in links and cookies.")
    if address.token is None and (address.host not in _LOOPBACK or address.names):
        return secrets.token_urlsafe(24)
    return address.token


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Raise unless all are host names without scheme and port."""
    for name in names:
        if not re.fullmatch("[A-Za-z0-9_.-]+", name):
            raise InputError(
                f"--name must be a host name such as explorer.example.org, without https:// and port; found {name!r}."
            )
    return names


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    ports = [address.port] if address.port is not None else range(8765, 8765 + _PORTS_TRIED)
    failure: OSError | None = None
    for port in ports:
        # asyncio sets TCP_NODELAY only if the protocol is named; without it small responses are delayed by 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address.host, port))
            listening.listen(128)
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            failure = error if isinstance(error, OSError) else OSError(str(error))
    reason = (failure.strerror or str(failure)) if failure else "no port was tried"
    raise InputError(
        f"The explorer cannot listen on port {ports[0]} of {address.host!r}: {reason}. Choose another port with --port "
        "(0: any free port), or an address of this machine with --host."
    )


def _link(host: str, port: int, token: str | None) -> str:
    """The link to print; for 0.0.0.0 and :: it uses this machine's name."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token)}" if token else "")
