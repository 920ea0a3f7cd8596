"""Access control of the explorer."""

import socket

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from ffscope.errors import InputError
from ffscope.web.app import _refuse
from ffscope.web.guard import HEADERS, PAGE_TOKEN, Guard, Rules
from ffscope.web.serving import Address, _link, _listen, _token, checked_names

TOKEN = "a-token-of-some-length"


async def _yes(scope, receive, send):
    await PlainTextResponse("yes")(scope, receive, send)


def guarded_client(host="127.0.0.1", token=None, names=()):
    rules = Rules.of(host, page_token="page", token=token, names=names)
    return TestClient(Guard(_yes, rules, _refuse), base_url="http://127.0.0.1:8765", follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765"])
def test_its_own_host_names_are_accepted(host):
    assert guarded_client().get("/", headers={"host": host}).text == "yes"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8765",
        "",
        "[::1",
        "10.0.0.9",
        "127.0.0.1@evil.example",
        "x@localhost",
        "localhost/evil",
        "127.0.0.1:8765, evil.example",
        "127.0.0.1:port",
    ],
)
def test_another_name_is_refused_though_it_leads_here(host):
    """DNS rebinding: another site can resolve its own name to this machine, and would then read the answers."""
    assert guarded_client().get("/", headers={"host": host}).status_code == 403


def test_listening_everywhere_takes_addresses_and_known_names():
    client = guarded_client("0.0.0.0", names=["Workstation"])
    assert client.get("/", headers={"host": "192.168.1.7:8765"}).status_code == 200
    assert client.get("/", headers={"host": "workstation:8765"}).status_code == 200
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "https://127.0.0.1.evil.example",
        "http://[",
        "javascript://127.0.0.1:8765",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(origin, method):
    client = guarded_client()
    answer = client.request(method, "/x.json", headers={"origin": origin, PAGE_TOKEN: "page"}, json={})
    assert answer.status_code == 403
    assert "other sites" in answer.json()["error"]


def test_another_site_may_link_here_but_ask_nothing():
    client = guarded_client()
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/L3/17", headers=link).status_code == 200
    assert client.get("/prompt.json", headers={**link, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert client.get("/prompt.json", headers=link).status_code == 403
    assert client.get("/L3/17", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403
    assert client.post("/x", headers={**link, PAGE_TOKEN: "page"}, json={}).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_change_needs_the_pages_own_token(method):
    client = guarded_client()
    assert client.request(method, "/x", json={}).status_code == 403
    assert client.request(method, "/x", json={}, headers={PAGE_TOKEN: "pagé".encode("latin-1")}).status_code == 403
    assert client.request(method, "/x", json={}, headers={PAGE_TOKEN: "page"}).status_code == 200


def test_a_body_says_how_long_it_is_and_is_not_long():
    client = guarded_client()
    assert client.post("/x", content=b"x" * 300_000, headers={PAGE_TOKEN: "page"}).status_code == 413
    assert client.post("/x", content=iter([b"x"]), headers={PAGE_TOKEN: "page"}).status_code == 411
    for length in ("9" * 40, "0000000000003000038"):
        assert (
            client.post("/x", content=b"x", headers={PAGE_TOKEN: "page", "content-length": length}).status_code == 413
        )
    chunked = {PAGE_TOKEN: "page", "content-length": "1", "transfer-encoding": "chunked"}
    assert client.post("/x", content=b"x", headers=chunked).status_code == 411


def test_a_token_is_needed_once_and_then_kept():
    client = guarded_client("0.0.0.0", TOKEN)
    assert client.get("/L3/17").status_code == 401
    assert client.get("/L3/17", params={"token": TOKEN + "x"}).status_code == 401
    answer = client.get("/L3/17", params={"token": TOKEN, "tab": "random"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/L3/17?tab=random")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie  # a link in a mail must work, after its redirect too
    assert client.get("/L3/17").text == "yes"
    again = client.get("/L3/17", params={"token": TOKEN, "tab": "random"})  # the same link, with the cookie kept
    assert (again.status_code, again.headers["location"]) == (303, "/L3/17?tab=random")
    assert guarded_client("0.0.0.0", TOKEN).get("/", headers={"authorization": f"Bearer {TOKEN}"}).text == "yes"
    name = Rules.of("0.0.0.0", page_token="page", token=TOKEN).cookie
    others = {"cookie": 'settings={"a": 1}; bad name=é; x'.encode("latin-1")}
    assert guarded_client("0.0.0.0", TOKEN).get("/", headers=others).status_code == 401
    with_it = [(b"cookie", others["cookie"]), (b"cookie", f'{name}="{TOKEN}"'.encode())]
    assert guarded_client("0.0.0.0", TOKEN).get("/", headers=with_it).text == "yes"
    assert name != Rules.of("0.0.0.0", page_token="page", token="another token").cookie


def test_the_token_opens_nothing_under_another_name():
    answer = guarded_client("0.0.0.0", TOKEN).get("/", params={"token": TOKEN}, headers={"host": "evil.example"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_token_redirect_stays_on_this_host():
    answer = guarded_client(token=TOKEN).get("http://127.0.0.1:8765//evil.example/x", params={"token": TOKEN})
    assert answer.headers["location"] == "/evil.example/x"


def test_every_answer_has_the_headers():
    client = guarded_client(token=TOKEN)
    for answer in (
        client.get("/"),
        client.get("/", headers={"host": "evil.example"}),
        client.get("/", params={"token": TOKEN}),
    ):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_other_addresses_get_a_token_and_short_ones_are_refused():
    assert _token(Address()) is None
    generated = _token(Address(host="0.0.0.0"))
    assert generated is not None
    assert len(generated) >= 24
    assert generated != _token(Address(host="0.0.0.0"))
    assert f"token={generated}" in _link("0.0.0.0", 8765, generated)
    assert _token(Address(names=("explorer.example",))) is not None  # where a proxy lets others in
    with pytest.raises(InputError, match="at least 8 characters"):
        _token(Address(token="short"))
    for token in ("пароль-длинный", "with a space in it", 'with"quotes"'):
        with pytest.raises(InputError, match="letters, digits"):
            _token(Address(token=token))
    for name in ("https://explorer.example", "explorer.example:443", ""):
        with pytest.raises(InputError, match="--name"):
            checked_names((name,))


def test_small_answers_are_sent_at_once():
    """asyncio sends them at once only where a socket names its protocol; else each waits 40 ms."""
    with _listen(Address(port=0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP
