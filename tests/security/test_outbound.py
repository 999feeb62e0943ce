"""Nobody is sent elsewhere with credentials, and we go nowhere we are sent (CVE-2022-3172)."""

import json
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest

from orchid.features.rights.authorizers.webhook import Webhook, WebhookSettings
from orchid.features.sign_in.authenticators.webhook_token import (
    WebhookTimes,
    WebhookTokenAuthenticator,
)
from orchid.features.sign_in.oidc.configuration import ClaimMapping, IssuerSettings
from orchid.features.sign_in.oidc.keys import KeySource, fetching
from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.engine.request import Target
from orchid.kernel.outbound.remote import Remote, trusting
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.api.world import ADMIN, Api
from tests.unit.kernel.access.presenting import API, FakeClock
from tests.unit.kernel.outbound.loopback import OK, PEM, Server, serving

JANE = UserInfo(username="jane")
Call = Callable[[Server], Awaitable[None]]


def client_of(server: Server) -> JsonEndpoint:
    return JsonEndpoint(
        Remote(server.url, trusting(PEM), bearer=lambda: SecretValue("our-credential"))
    )


async def ask_token_webhook(server: Server) -> None:
    webhook = WebhookTokenAuthenticator(
        client_of(server).post, FakeClock(), API, ORCH, WebhookTimes()
    )
    with pytest.raises(Rejected):
        await webhook.authenticate_token("token-under-review", API)


async def ask_authorization_webhook(server: Server) -> None:
    webhook = Webhook(ORCH, client_of(server), monotonic, WebhookSettings())
    decision = await webhook.authorize(JANE, Target("get", is_resource=True, resource="pods"))
    assert not decision.allowed


async def fetch_keys(server: Server) -> None:
    settings = IssuerSettings(
        url=f"https://127.0.0.1:{server.port}",
        audiences=("orchid",),
        username=ClaimMapping("sub", ""),
        authorities=PEM,
    )
    reported: list[Any] = []
    source = KeySource(settings, fetching(settings), FakeClock(), lambda *new: reported.append(new))
    await source.refresh()
    assert source.problem
    assert not source.ready
    assert reported == []


def moved(elsewhere: Server, status: int) -> bytes:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


def document(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("call", [ask_token_webhook, ask_authorization_webhook, fetch_keys])
async def test_no_outbound_call_follows_a_redirect(call: Call, status: int) -> None:
    """A webhook or issuer cannot redirect the server to another host."""
    async with serving(OK) as elsewhere, serving(moved(elsewhere, status)) as server:
        await call(server)

        assert len(server.requests) == 1
        assert elsewhere.requests == []


async def test_the_address_of_the_keys_is_not_followed_further() -> None:
    """The configuration names where the keys are; that place cannot send us on."""
    async with serving(OK) as elsewhere, serving(b"") as server:
        issuer = f"https://127.0.0.1:{server.port}"
        found = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        server.answers[:] = [document(found), moved(elsewhere, 302)]

        await fetch_keys(server)

        assert len(server.requests) == 2
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    "where",
    [
        "http://127.0.0.1:{port}/keys",
        "file:///etc/passwd",
        "ftp://127.0.0.1/keys",
        "gopher://127.0.0.1:{port}/_x",
        "https://user:password@127.0.0.1:{port}/keys",
        "https://127.0.0.1:{port}/keys\r\nX-Injected: 1",
        "https:///keys",
        "//127.0.0.1:{port}/keys",
        "",
    ],
)
async def test_keys_are_fetched_over_https_from_a_plain_address_only(where: str) -> None:
    """No other protocol, no credentials in the address, no line of a request hidden in it."""
    async with serving(b"") as server:
        issuer = f"https://127.0.0.1:{server.port}"
        place = where.format(port=server.port)
        server.answers[:] = [document({"issuer": issuer, "jwks_uri": place})]

        await fetch_keys(server)

        assert len(server.requests) == 1


@pytest.mark.parametrize("call", [ask_token_webhook, ask_authorization_webhook])
async def test_our_credential_goes_to_the_configured_server_alone(call: Call) -> None:
    """It is sent there, and a server that cannot prove its name gets nothing."""
    refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    async with serving(refused) as server:
        await call(server)

    assert b"authorization: bearer our-credential" in server.requests[0].lower()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_no_answer_sends_a_client_to_another_host(method: str, server: Api) -> None:
    """No path, host or query causes a redirect to another host."""
    evil = {"host": "evil.test", "x-forwarded-host": "evil.test", "x-forwarded-proto": "http"}
    for target in (
        "/", "//evil.test", "//evil.test/api/v1", "/\\evil.test", "/api", "/api/", "/apis//",
        "/https://evil.test/", "/api/v1/namespaces/..%2f..%2fevil.test", "/openapi/v2/",
        "/openapi/v3//evil.test", "/openapi/v3/api/v1?hash=x", "/.well-known//evil.test",
        "/healthz/?url=https://evil.test", "/api/v1/namespaces/default/serviceaccounts/",
    ):  # fmt: skip
        answer = await server.call(method, target, headers=evil, token=ADMIN)
        location = answer.header("location")
        assert location is None or (answer.status == 301 and not_elsewhere(location)), target


async def test_the_only_redirect_is_to_our_own_openapi_document(server: Api) -> None:
    """A client with an old hash is sent to the new one, by a path without a host."""
    evil = {"host": "evil.test"}
    answer = await server.call("GET", "/openapi/v3/api/v1?hash=%0d%0aX:1//evil", headers=evil)

    assert answer.status == 301
    location = answer.header("location") or ""
    assert location.startswith("/openapi/v3/api/v1?hash=")
    assert "evil" not in location


def not_elsewhere(location: str) -> bool:
    parts = urlsplit(location)
    return not (parts.scheme or parts.netloc) and location.startswith("/openapi/v3/")
