"""The openai SDK, restricted to one server: no redirects, and only proxies from the environment. Needs ffscope[label]."""

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
_RETRY_COUNT = "x-stainless-retry-count"  # the SDK's retry counter
# The headers that a server needs. The SDK would add data on an OpenAI account from the environment.
_HEADERS = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "transfer-encoding"}
_RETRIED_STATUSES = (408, 409, 429)


class UnreachableError(openai.OpenAIError):
    """No connection. The SDK raises this at once instead of retrying."""


def connect(address: Address, *, timeout: float, retries: int, stopped: Event) -> openai.OpenAI:
    """A client for this server only. It retries by itself until `stopped` is set."""
    # It logs whole URLs, whose query may be secret.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    return openai.OpenAI(
        base_url=address.shown,
        api_key="none",  # each request gets the credentials of the address, or none
        default_query=address.query,
        max_retries=retries,
        http_client=_OneServer(address, timeout=timeout, retries=retries, stopped=stopped),
    )


class _OneServer(httpx2.Client):
    """Sends requests with only the necessary headers, and explains connection problems."""

    def __init__(self, address: Address, *, timeout: float, retries: int, stopped: Event) -> None:
        super().__init__(
            timeout=httpx2.Timeout(timeout, connect=min(10.0, timeout)),
            limits=httpx2.Limits(max_connections=64),
            follow_redirects=False,
            trust_env=not address.is_loopback,  # no proxy for this machine
        )
        self._address, self._tries, self._stopped = address, retries + 1, stopped

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if self._stopped.is_set():
            raise StoppedError("Not sent: the labelling was stopped.")
        sdk_headers = request.headers  # the SDK needs these for its retries
        tried = request.extensions["tried"] = int(sdk_headers.get(_RETRY_COUNT, 0)) + 1
        request.headers = httpx2.Headers(self._sent(sdk_headers))
        try:
            response = super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise UnreachableError(self._why(error)) from None
        except httpx2.TransportError as error:
            self._warn(f"failed ({type(error).__name__})", tried)
            raise
        finally:
            request.headers = sdk_headers
        if response.status_code in _RETRIED_STATUSES or response.status_code >= 500:
            self._warn(f"responded with {response.status_code}{message_in(self._address.hide(_body(response)))}", tried)
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
            return f"{self._address.shown} has no valid certificate: {visible(str(error), 160)}. Check the address."
        why = "connection refused" if "refused" in text else "unknown or unreachable host"
        return f"Nothing answers at {self._address.shown} ({why}). Is the server running, and is this its address?"


def _body(response: httpx2.Response) -> str:
    try:
        return response.read().decode("utf-8", "replace")
    except httpx2.TransportError:
        return ""
