"""The openai SDK, held to one server: no redirects, and nothing of the environment but its proxies. Needs ffscope[label]."""

import logging
from collections.abc import Mapping
from threading import Event
from typing import Any

import httpx2
import openai

from ffscope.labelling.address import Address
from ffscope.labelling.endpoint import StoppedError, message_in
from ffscope.tokens import visible

log = logging.getLogger(__name__)
_RETRIED = "x-stainless-retry-count"  # how the SDK counts its tries
# All that a server needs to know. The SDK would add what the environment says of an account at OpenAI.
_HEADERS = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "transfer-encoding"}
_TRIED_AGAIN = (408, 409, 429)


class UnreachableError(openai.OpenAIError):
    """No connection; the SDK passes this on at once, where it would otherwise try again."""


def connect(address: Address, *, timeout: float, retries: int, stopped: Event) -> openai.OpenAI:
    """A client of this server alone. It tries again by itself until `stopped` is set."""
    # Its lines hold whole addresses, and a query may be secret.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    return openai.OpenAI(
        base_url=address.shown,
        api_key="none",  # each request gets what the address says, or nothing
        default_query=address.query,
        max_retries=retries,
        http_client=_OneServer(address, timeout=timeout, retries=retries, stopped=stopped),
    )


class _OneServer(httpx2.Client):
    """Sends requests as they should reach the server, and says what goes wrong on the way."""

    def __init__(self, address: Address, *, timeout: float, retries: int, stopped: Event) -> None:
        super().__init__(
            timeout=httpx2.Timeout(timeout, connect=min(10.0, timeout)),
            limits=httpx2.Limits(max_connections=64),
            follow_redirects=False,
            trust_env=not address.is_loopback,  # no proxy leads to this machine itself
        )
        self._address, self._tries, self._stopped = address, retries + 1, stopped

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if self._stopped.is_set():
            raise StoppedError("Not asked: the labelling was stopped.")
        own = request.headers  # by which the SDK knows its request again
        tried = request.extensions["tried"] = int(own.get(_RETRIED, 0)) + 1
        request.headers = httpx2.Headers(self._sent(own))
        try:
            response = super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise UnreachableError(self._why(error)) from None
        except httpx2.TransportError as error:
            self._warn(f"failed ({type(error).__name__})", tried)
            raise
        finally:
            request.headers = own
        if response.status_code in _TRIED_AGAIN or response.status_code >= 500:
            self._warn(f"answers {response.status_code}{message_in(self._address.hide(_body(response)))}", tried)
        return response

    def _sent(self, headers: Mapping[str, str]) -> dict[str, str]:
        sent = {name: value for name, value in headers.items() if name in _HEADERS} | {"user-agent": "ffscope"}
        if self._address.authorization:
            sent["authorization"] = self._address.authorization
        return sent

    def _warn(self, what: str, tried: int) -> None:
        log.warning("%s %s (try %d of %d).", self._address.shown, what, tried, self._tries)

    def _why(self, error: httpx2.TransportError) -> str:
        text = str(error).lower()
        if "ssl" in text or "certificate" in text:
            return f"{self._address.shown} cannot be trusted: {visible(str(error), 160)}. Check the address."
        why = "connection refused" if "refused" in text else "no such host, or no way to it"
        return f"Nothing answers at {self._address.shown} ({why}). Is the server running, and is this its address?"


def _body(response: httpx2.Response) -> str:
    try:
        return response.read().decode("utf-8", "replace")
    except httpx2.TransportError:
        return ""
