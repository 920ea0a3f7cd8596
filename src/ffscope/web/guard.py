"""Access control: a request needs the right host name, the same origin, and the token if one is set."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

PAGE_TOKEN = "x-page-token"
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_SAFE = {"GET", "HEAD"}
_MAX_BODY = 256 * 1024
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", re.ASCII)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # a URL may contain the token or a prompt
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Rules:
    """What a server accepts. `page_token` is embedded in its own pages; `token` is for users, where others can reach the server."""

    hosts: frozenset[str]
    any_address: bool  # accept any IP address as host, since the server listens on all
    page_token: str
    token: str | None

    @classmethod
    def of(cls, host: str, *, page_token: str, token: str | None, names: Iterable[str] = ()) -> "Rules":
        """The rules of a server that listens on `host` and is reached under `names`."""
        any_address = host in ("0.0.0.0", "::")
        hosts = _LOCAL | {name.lower() for name in (host, *names)}
        return cls(frozenset(hosts), any_address, page_token, token)

    @property
    def cookie(self) -> str:
        """The name of the cookie that holds the token; differs by token, since servers on two ports of a host share cookies."""
        return "ffscope-" + hashlib.sha256((self.token or "").encode()).hexdigest()[:12]


class Guard:
    """Middleware that refuses requests against the rules before they reach a route."""

    def __init__(self, app: App, rules: Rules, refuse: Callable[[Scope, int, str], Response]) -> None:
        self.app, self.rules, self.refuse = app, rules, refuse

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no web sockets
        headers = Headers(scope=scope)
        for status, message in self._violations(scope, headers):
            sign_in = self._sign_in(scope) if status == 401 else None
            await (sign_in or self.refuse(scope, status, message))(scope, receive, _with_headers(scope, send))
            return
        # The token is removed from the URL even if the cookie is already set.
        sign_in = self._sign_in(scope)
        await (self.app if sign_in is None else sign_in)(scope, receive, _with_headers(scope, send))

    def _sign_in(self, scope: Scope) -> Response | None:
        """For a URL with the token: a redirect to the URL without it that sets the cookie."""
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in parameters if name == "token"]
        if self.rules.token is None or not tokens or not _equal(tokens[-1], self.rules.token):
            return None
        query = urlencode([pair for pair in parameters if pair[0] != "token"])
        # A path with exactly one leading slash: //example.org would redirect to another site.
        response = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{query}" if query else ""), status_code=303)
        # Lax, so that links in a chat or mail work; requests that change something also need the page token.
        response.set_cookie(self.rules.cookie, self.rules.token, httponly=True, samesite="lax", path="/")
        return response

    def _violations(self, scope: Scope, headers: Headers) -> Iterator[tuple[int, str]]:
        host = headers.get("host", "").lower()
        if not self._is_own_host(host):
            yield 403, "This server does not answer under that host name. Open the link that ffscope serve printed."
        if not self._has_token(headers):
            yield 401, "This explorer needs its token. Open the link that ffscope serve printed."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            yield 403, "Requests from pages of other sites are refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_link(scope, headers):
            yield 403, "Requests from pages of other sites are refused."
        if scope["method"] not in _SAFE:
            yield from self._write_violations(headers)

    def _write_violations(self, headers: Headers) -> Iterator[tuple[int, str]]:
        if not _equal(headers.get(PAGE_TOKEN, ""), self.rules.page_token):
            yield 403, "Only this explorer's own pages may change data. Reload the page and try again."
        length = headers.get("content-length", "").lstrip("0") or "0"
        if "transfer-encoding" in headers or not headers.get("content-length", "").isascii() or not length.isdigit():
            yield 411, "The request needs a Content-Length header."
        elif len(length) > 9 or int(length) > _MAX_BODY:
            yield 413, f"The request body may have at most {_MAX_BODY:,} bytes."

    def _is_own_host(self, host: str) -> bool:
        """Names must be listed, against DNS rebinding; IP addresses cannot be rebound."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]")
        return name in self.rules.hosts or (self.rules.any_address and _is_address(name))

    def _has_token(self, headers: Headers) -> bool:
        if self.rules.token is None:
            return True
        tokens = [headers.get("authorization", "").removeprefix("Bearer ")]
        tokens += [cookie_parser(cookies).get(self.rules.cookie, "") for cookies in headers.getlist("cookie")]
        return any(_equal(token, self.rules.token) for token in tokens)


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Whether a user followed a link. Another site may link to a page, but not frame one or request JSON."""
    is_navigation = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", "document")) == (
        "navigate",
        "document",
    )
    return is_navigation and scope["method"] in _SAFE and not scope["path"].endswith(".json")


def _equal(token: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(scope: Scope, send: Any) -> Any:
    # Static files may be cached if revalidated at each request.
    caching = "no-cache" if scope["path"].startswith("/static/") else "no-store"

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", caching)
        await send(message)

    return send_with_headers
