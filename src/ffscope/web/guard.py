"""Who may ask: the right address, from this site's own pages, with the token where one is needed. Nothing else gets through."""

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
_LONGEST_BODY = 256 * 1024
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", re.ASCII)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # a link may hold the token, or a prompt
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Rules:
    """What a server lets through. `page_token` is in its own pages alone; `token` is for people, where others can reach it."""

    hosts: frozenset[str]
    any_address: bool  # whether every numeric address is its own, since it listens on all
    page_token: str
    token: str | None

    @classmethod
    def of(cls, host: str, *, page_token: str, token: str | None, names: Iterable[str] = ()) -> "Rules":
        """The rules of a server that listens on an address, and is known under some names."""
        every = host in ("0.0.0.0", "::")
        hosts = _LOCAL | {name.lower() for name in (host, *names)}
        return cls(frozenset(hosts), every, page_token, token)

    @property
    def cookie(self) -> str:
        """Where the token is kept: another for every token, since cookies do not tell the ports of a machine apart."""
        return "ffscope-" + hashlib.sha256((self.token or "").encode()).hexdigest()[:12]


class Guard:
    """Refuses what breaks the rules, before anything else of the server sees it."""

    def __init__(self, app: App, rules: Rules, refuse: Callable[[Scope, int, str], Response]) -> None:
        self.app, self.rules, self.refuse = app, rules, refuse

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no web sockets here
        headers = Headers(scope=scope)
        for status, said in self._objections(scope, headers):
            answer = self._welcome(scope) if status == 401 else None
            await (answer or self.refuse(scope, status, said))(scope, receive, _with_headers(scope, send))
            return
        # The token leaves the address also of whoever has the cookie already.
        welcome = self._welcome(scope)
        await (self.app if welcome is None else welcome)(scope, receive, _with_headers(scope, send))

    def _welcome(self, scope: Scope) -> Response | None:
        """Whoever comes with the token in the link gets it as a cookie, and the link without it."""
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in asked if name == "token"]
        if self.rules.token is None or not given or not _same(given[-1], self.rules.token):
            return None
        left = urlencode([pair for pair in asked if pair[0] != "token"])
        # Of the path alone, and one slash: //elsewhere would lead to another site.
        answer = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{left}" if left else ""), status_code=303)
        # Lax, so that a link in a chat or a mail works; what changes something needs the page's own token beside.
        answer.set_cookie(self.rules.cookie, self.rules.token, httponly=True, samesite="lax", path="/")
        return answer

    def _objections(self, scope: Scope, headers: Headers) -> Iterator[tuple[int, str]]:
        host = headers.get("host", "").lower()
        if not self._is_own(host):
            yield 403, "This server is not known under that name. Open it by the link that ffscope serve printed."
        if not self._is_let_in(headers):
            yield 401, "This explorer needs its token. Open it by the link that ffscope serve printed."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            yield 403, "This was asked from another site's page, and is refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_link(scope, headers):
            yield 403, "This was asked from another site's page, and is refused."
        if scope["method"] not in _SAFE:
            yield from self._objections_to_change(headers)

    def _objections_to_change(self, headers: Headers) -> Iterator[tuple[int, str]]:
        if not _same(headers.get(PAGE_TOKEN, ""), self.rules.page_token):
            yield 403, "Only this explorer's own pages may change something. Reload the page and try again."
        length = headers.get("content-length", "").lstrip("0") or "0"
        if "transfer-encoding" in headers or not headers.get("content-length", "").isascii() or not length.isdigit():
            yield 411, "What is sent must say how long it is."
        elif len(length) > 9 or int(length) > _LONGEST_BODY:
            yield 413, f"What is sent may have {_LONGEST_BODY:,} bytes at most."

    def _is_own(self, host: str) -> bool:
        """A name that a stranger's site could be given too must be known; a numeric address cannot be taken over that way."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]")
        return name in self.rules.hosts or (self.rules.any_address and _is_address(name))

    def _is_let_in(self, headers: Headers) -> bool:
        if self.rules.token is None:
            return True
        given = [headers.get("authorization", "").removeprefix("Bearer ")]
        given += [cookie_parser(cookies).get(self.rules.cookie, "") for cookies in headers.getlist("cookie")]
        return any(_same(one, self.rules.token) for one in given)


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Another site may link to a page, which a person then opens; it may not frame one, nor ask for what takes work."""
    opened = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", "document")) == ("navigate", "document")
    return opened and scope["method"] in _SAFE and not scope["path"].endswith(".json")


def _same(given: str, expected: str) -> bool:
    """In a time that does not tell how much of it was right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(scope: Scope, send: Any) -> Any:
    # What pages are made of may be kept, if it is asked each time whether it is still the same.
    keeping = "no-cache" if scope["path"].startswith("/static/") else "no-store"

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", keeping)
        await send(message)

    return sending
