"""A server that exchanges tokens of an outside issuer, in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from orchid.features.exchange.ports import ConfiguredExchange
from orchid.features.sign_in.parts import OutsideIssuers
from orchid.kernel.http.messages import Peer
from tests.api.world import ADMIN, Answer, Api, api
from tests.e2e.outside_issuer import OWNER_ID, REPOSITORY_ID, OutsideIssuer

PATH = "/oauth2/token"
POLICIES = "/apis/identity.orch.io/v1alpha1/namespaces/{}/tokenexchangepolicies"
ACCOUNT = "ci/deployer"
VAULT, REGISTRY = "https://vault.example", "https://registry.example"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type:"
AGREES = {"identity.orch.io/token-exchange": "outside"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
GITHUB_CLAIMS = {
    "repository_id": REPOSITORY_ID,
    "repository_owner_id": OWNER_ID,
    "ref": "refs/heads/main",
}


@asynccontextmanager
async def exchanging(
    files: Path, issuer: OutsideIssuer, place: Path, *, waits: bool = True, **settings: Any
) -> AsyncIterator[Api]:
    """A server with the keys of the issuer, the account ci/deployer, and no policy.

    A file exchange.json that is already there is used as it is. With settings of --oidc, people of
    the issuer are users of the API, too.
    """
    path = place / "exchange.json"
    file = str(path) if path.exists() else issuer.exchange_configuration(path)
    async with api(files, token_exchange_config=file, **settings) as server:
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        running = asyncio.create_task(parts.run())
        if people := server.server.context.port(OutsideIssuers).authenticator:
            running = asyncio.gather(running, people.run())
        try:
            if waits:
                await keys_fetched(server)
            await server.account("deployer", "ci", annotations=AGREES)
            yield server
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def keys_fetched(server: Api) -> None:
    """Wait until the keys of every issuer are fetched."""
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    for one in parts.subjects._followed.values():
        await one.source.newer()
        assert one.source.ready, one.source.problem


def policy(outside: OutsideIssuer, name: str = "acme-deploy", /, **spec: Any) -> dict[str, Any]:
    usual = {
        "issuer": outside.url,
        "claims": GITHUB_CLAIMS,
        "account": "deployer",
        "audiences": [VAULT, REGISTRY],
    }
    return {"metadata": {"name": name}, "spec": {**usual, **spec}}


async def make_policy(
    server: Api,
    issuer: OutsideIssuer,
    name: str = "acme-deploy",
    namespace: str = "ci",
    **spec: Any,
) -> Any:
    return await server.make(POLICIES.format(namespace), policy(issuer, name, **spec))


async def exchange(
    server: Api,
    token: str,
    *,
    account: str | None = ACCOUNT,
    audiences: Iterable[str] = (),
    address: str = "192.0.2.1:4711",
    body: bytes | None = None,
    query: str | None = None,
    headers: dict[str, str] | None = None,
    **form: str,
) -> Answer:
    """POST /oauth2/token as an anonymous client."""
    pairs = {
        "grant_type": GRANT,
        "subject_token": token,
        "subject_token_type": f"{TYPE}jwt",
        **form,
    }
    fields = [*pairs.items(), *(("audience", one) for one in audiences)]
    sent = urlencode(fields).encode() if body is None else body
    asked = f"account={account}" if account else ""
    target = f"{PATH}?{asked if query is None else query}".rstrip("?")
    return await server.call(
        "POST", target, sent, token=None, headers={**FORM, **(headers or {})}, peer=Peer(address)
    )


async def review(server: Api, token: str, audience: str = VAULT) -> Any:
    body = {"spec": {"token": token, "audiences": [audience]}}
    path = "/apis/authentication.orch.io/v1/tokenreviews"
    return (await server.call("POST", path, body, token=ADMIN)).json["status"]
