"""The address of an endpoint and its credentials. Secrets never appear in messages or files."""

import ipaddress
import os
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ffscope.errors import LabellerError
from ffscope.tokens import visible

KEYS = ("FFSCOPE_LABELLER_KEY", "OPENAI_API_KEY")
_CHAT_PATH = "/chat/completions"
_NEARBY = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
_SECRET = 8  # characters; shorter keys, such as the EMPTY of local servers, also occur in ordinary text


@dataclass(frozen=True)
class Address:
    """An endpoint's address as it may be shown, and separately the parts that must not be shown."""

    shown: str
    query: dict[str, str] = field(default_factory=dict, repr=False)
    authorization: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    is_loopback: bool = False  # the address is this machine

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse a URL; `http://host`, with or without `/v1` and `/chat/completions`, is the same address."""
        parts = _split(url)
        path = parts.path.rstrip("/").removesuffix(_CHAT_PATH).rstrip("/") or "/v1"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
        authorization, secrets = _basic(parts) if parts.username else _bearer()
        if authorization and parts.scheme == "http" and not _is_nearby(parts.hostname or ""):
            raise LabellerError(
                f"Your key would be sent to {host} unencrypted, over http. Give its https address or, if it needs no key, set "
                f"{KEYS[0]} to an empty value."
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
        """A server's message without the secrets that it may repeat."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return text


def _split(url: str) -> SplitResult:
    url = url.strip()
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        _ = parts.port  # raises ValueError here if it is not a number
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.scheme not in ("http", "https") or not parts.hostname or any(map(str.isspace, url)) or not url.isascii():
        public_part = visible(url.rpartition("@")[2].partition("?")[0])
        raise LabellerError(
            f"{public_part!r} is not the address of a labeller. Expected one such as http://localhost:8000/v1 or https://api.openai.com/v1."
        )
    return parts


def _basic(parts: SplitResult) -> tuple[str, tuple[str, ...]]:
    """The credentials in an address, which take precedence over a key in the environment."""
    password = unquote(parts.password or "")
    pair = b64encode(f"{unquote(parts.username or '')}:{password}".encode()).decode()
    return f"Basic {pair}", (pair, password, parts.password or "")


def _bearer() -> tuple[str | None, tuple[str, ...]]:
    # A variable that is set to an empty value means that no key is sent, whatever the value of the other one.
    name = next((name for name in KEYS if name in os.environ), KEYS[0])
    key = os.environ.get(name, "").strip()
    if not key:
        return None, ()
    if not (key.isascii() and key.isprintable()):  # http.client would refuse it with an error that contains it
        raise LabellerError(f"The key in {name} contains characters that a key cannot have. Set it again.")
    return f"Bearer {key}", (key,)


def _is_nearby(host: str) -> bool:
    """Whether a host is this machine or on a private network, judging by its name."""
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
