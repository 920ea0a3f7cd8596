"""Where an endpoint is, and what proves to it who asks. What is secret stays out of every message and file."""

import ipaddress
import os
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ffscope.errors import LabellerError
from ffscope.tokens import visible

KEYS = ("FFSCOPE_LABELLER_KEY", "OPENAI_API_KEY")
_QUESTIONS = "/chat/completions"
_NEARBY = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
_SECRET = 8  # characters; shorter ones, such as the EMPTY that local servers are given, also stand in plain text


@dataclass(frozen=True)
class Address:
    """An endpoint's address as it may be shown, and apart from it what may not."""

    shown: str
    query: dict[str, str] = field(default_factory=dict, repr=False)
    authorization: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    is_loopback: bool = False  # this machine itself

    @classmethod
    def parse(cls, url: str) -> "Address":
        """`http://host`, with `/v1`, with `/chat/completions`: the same address."""
        parts = _split(url)
        path = parts.path.rstrip("/").removesuffix(_QUESTIONS).rstrip("/") or "/v1"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
        authorization, secrets = _basic(parts) if parts.username else _bearer()
        if authorization and parts.scheme == "http" and not _is_nearby(parts.hostname or ""):
            raise LabellerError(
                f"{host} would be sent your key unencrypted, over http. Give its https address, or, where it asks for no key, "
                f"set {KEYS[0]} to nothing."
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(
            shown=visible(f"{parts.scheme}://{host}{port}{path}", longest=None),
            query=query,
            authorization=authorization,
            secrets=tuple(secret for secret in (*secrets, *query.values()) if len(secret) >= _SECRET),
            is_loopback=_is_loopback(parts.hostname or ""),
        )

    def hide(self, text: str) -> str:
        """What a server says, without the secrets that it may repeat."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return text


def _split(url: str) -> SplitResult:
    url = url.strip()
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        _ = parts.port  # which is read, and may be no number, only now
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.scheme not in ("http", "https") or not parts.hostname or any(map(str.isspace, url)) or not url.isascii():
        known = visible(url.rpartition("@")[2].partition("?")[0])
        raise LabellerError(
            f"{known!r} is no address of a labeller. Expected one such as http://localhost:8000/v1 or https://api.openai.com/v1."
        )
    return parts


def _basic(parts: SplitResult) -> tuple[str, tuple[str, ...]]:
    """What an address says of its user, which goes before a key of the environment."""
    password = unquote(parts.password or "")
    pair = b64encode(f"{unquote(parts.username or '')}:{password}".encode()).decode()
    return f"Basic {pair}", (pair, password, parts.password or "")


def _bearer() -> tuple[str | None, tuple[str, ...]]:
    # One that is set to nothing says that no key is to be sent, whatever the other one holds.
    name = next((name for name in KEYS if name in os.environ), KEYS[0])
    key = os.environ.get(name, "").strip()
    if not key:
        return None, ()
    if not (key.isascii() and key.isprintable()):  # http.client would refuse it and say what it was
        raise LabellerError(f"The key in {name} holds characters that no key has. Set it again.")
    return f"Bearer {key}", (key,)


def _is_nearby(host: str) -> bool:
    """Whether a host is this machine or on a network of one's own, as far as its name says."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        single = "." not in host and not host[:1].isdigit()  # localhost, or a container's name
        return single or host.endswith(_NEARBY)
    return address.is_loopback or address.is_private


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
