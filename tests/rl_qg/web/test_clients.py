"""Who a client is for limits, behind proxies and with IPv6, and which forms are read."""

import asyncio
import logging
from encodings.aliases import aliases
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from rl_qg.runtime.errors import InputError
from rl_qg.settings.keys import Section
from rl_qg.settings.web import RateServeSettings, ServeSettings
from rl_qg.web.requests import form_of, network_of, once
from rl_qg.web.server import configuration


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::7", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),  # of a server that listens on host=::
        ("unix:", "unix:"),  # what a proxy has written
    ],
)
def test_an_address_of_ipv6_is_that_of_its_network(address: str, network: str) -> None:
    assert network_of({"client": (address, 1)}) == network
    assert network_of({"client": None}) == "unknown"


@pytest.mark.parametrize(
    ("trusted", "peer", "header", "counted"),
    [
        ("", "192.0.2.9", "198.51.100.1", "192.0.2.9"),
        ("10.0.0.1", "192.0.2.9", "198.51.100.1", "192.0.2.9"),
        ("10.0.0.1", "10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "10.0.0.1", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # the client has written the first one
        ("10.0.0.0/8", "10.1.1.1", "6.6.6.6, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "10.0.0.1", "6.6.6.6, 2001:db8::7", "2001:db8::/64"),
        ("*", "10.0.0.1", "6.6.6.6, 198.51.100.1", "6.6.6.6"),  # as docs/how-to/serve.md says
    ],
)
def test_x_forwarded_for_is_believed_of_trusted_proxies_alone(
    trusted: str, peer: str, header: str, counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # which uvicorn reads
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    seen = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(network_of(scope))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def ask() -> None:
        served = configuration(application, trusted, lifespan="off")
        served.load()
        transport = ASGITransport(served.loaded_app, client=(peer, 1))  # type: ignore[arg-type]
        async with AsyncClient(transport=transport, base_url="http://server") as client:
            await client.get("/", headers={"X-Forwarded-For": header})

    asyncio.run(ask())
    assert seen == [counted]


@pytest.mark.parametrize("section", [ServeSettings, RateServeSettings])
def test_proxies_are_named_by_addresses(section: type[Section]) -> None:
    for usable in ("", "*", "10.0.0.5", "10.0.0.0/8, ::1"):
        section(trusted_proxies=usable).check()  # type: ignore[call-arg]
    for wrong in ("nginx", "10.0.0.1/8", "10.0.0.1,*", "10.0.0.1,,::1", "[::1]"):
        with pytest.raises(InputError, match=r"trusted_proxies: .* is no address; give them as"):
            section(trusted_proxies=wrong).check()  # type: ignore[call-arg]


def field(charset: str, value: bytes) -> Any:
    """The value of a field of a multipart form, as it is read."""
    body = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + value + b"\r\n--b--\r\n"
    kind = f"multipart/form-data; boundary=b{charset}".encode()
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", kind)], "app": None}

    async def left() -> Any:
        return {"type": "http.disconnect"}

    return asyncio.run(form_of(Request(scope, once(body, left)), 0, 5, 1000))["text"]


@pytest.mark.parametrize(
    "name", [*sorted({*aliases.values()} - {"utf_8"}), "idna", "undefined", "unicode_escape", "\0", "x"]
)
def test_forms_are_read_by_no_other_codec_than_utf_8(name: str) -> None:
    """punycode takes quadratic time, unicode_escape makes halves of pairs, undefined raises what nobody expects."""
    for written in (f"; charset={name}", f"; CHARSET={name.upper()}"):
        with pytest.raises(HTTPException, match="send it as UTF-8"):
            field(written, b"a-b")


def test_forms_are_read_as_utf_8() -> None:
    for charset in ("", "; charset=UTF-8"):
        assert field(charset, "„Faust“?".encode()) == "„Faust“?"
    assert field("", rb"\ud800") == r"\ud800" and field("", b"\xed\xa0\x80").encode(), "no half of a pair"
