"""Token keys rotate under a verifier that is not ours, and on three servers: none is rejected."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import joserfc.jwt
import jwt
import pytest
from joserfc.jwk import KeySet

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.serving import Server, free_port, running_server, sealing_flags
from tests.e2e.test_openid import trust_in
from tests.unit.kernel.store import etcd_process

KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
ACCOUNTS = "/api/v1/namespaces/ci/serviceaccounts"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
OWN_REVIEWS = "/apis/authentication.orch.io/v1/selfsubjectreviews"
ADMIN = tokens_by_user()["admin"]
AUDIENCE = "https://vault.example"
PATIENCE = 60.0
QUICK = ("--token-auth-file", str(TOKENS), "--service-account-jwks-max-age", "1s")


def until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "not within its time"
        time.sleep(0.05)


def states(https: Https) -> dict[str, str]:
    found = https.send("GET", KEYS, token=ADMIN).json["items"]
    return {one["metadata"]["name"]: one["spec"]["state"] for one in found}


def live_tokens(https: Https, key: str) -> int:
    status = https.send("GET", f"{KEYS}/{key}", token=ADMIN).json["status"]
    return int(status.get("dependents", {}).get("live", 0))


def issue(https: Https, **spec: Any) -> str:
    body = {"spec": {"audiences": [AUDIENCE], **spec}}
    reply = https.send("POST", f"{ACCOUNTS}/builder/token", body, token=ADMIN)
    assert reply.status == 201, reply.body
    return str(reply.json["status"]["token"])


def is_accepted(https: Https, token: str) -> bool:
    body = {"spec": {"token": token, "audiences": [AUDIENCE]}}
    review = https.send("POST", REVIEWS, body, token=ADMIN).json
    return bool(review["status"].get("authenticated"))


def trusting(server: Server, issuer: str) -> tuple[str, ...]:
    """The flags of an API server that accepts the tokens of another by OpenID Connect."""
    authority = str(server.data_dir / "ca.crt")
    named = ("--oidc-issuer-url", issuer, "--oidc-client-id", AUDIENCE, "--oidc-ca-file", authority)
    return (*named, "--oidc-signing-algs", "ES256", "--controllers", "")


def signs_in(https: Https, token: str) -> bool:
    """Whether a server accepts a token as the credential of a request."""
    return https.send("POST", OWN_REVIEWS, {"metadata": {}}, token=token).status == 201


def test_a_rotation_rejects_no_token(tmp_path: Path) -> None:
    """Three verifiers accept old and new tokens through it; a retired key has no live token.

    PyJWT fetches the keys when it meets a new one, joserfc has those of before the rotation alone,
    and another server knows the issuer by OpenID Connect.
    """
    port = free_port()
    issuer = f"https://127.0.0.1:{port}"
    flags = ("--service-account-issuer", issuer, "--token-key-publish-time", "3s", *QUICK)
    with (
        running_server(tmp_path / "data", *flags, port=port) as server,
        Https(server.port) as https,
        running_server(tmp_path / "other", *trusting(server, issuer)) as other,
        Https(other.port) as relying,
    ):
        https.send("POST", ACCOUNTS, {"metadata": {"name": "builder"}}, token=ADMIN)
        until(lambda: states(https).get("tokens-2") == "Published")
        cached = KeySet.import_key_set(https.send("GET", "/openid/v1/jwks").json)
        verifier = jwt.PyJWKClient(f"{issuer}/openid/v1/jwks", ssl_context=trust_in(server))
        tokens = [issue(https)]
        rejected: list[str] = []

        def verify() -> None:
            tokens.append(issue(https))
            for token in (tokens[0], tokens[-1]):
                key = verifier.get_signing_key_from_jwt(token).key
                jwt.decode(token, key, algorithms=["ES256"], audience=AUDIENCE, issuer=issuer)
                joserfc.jwt.decode(token, cached, algorithms=["ES256"])
                if not is_accepted(https, token) or not signs_in(relying, token):
                    rejected.append(token)

        def activated() -> bool:
            verify()
            key = https.send("GET", f"{KEYS}/tokens-2", token=ADMIN).json
            key["spec"]["state"] = "Active"
            return https.send("PUT", f"{KEYS}/tokens-2", key, token=ADMIN).status == 200

        until(activated)
        until(lambda: (verify(), states(https)["tokens-1"] == "Verifying")[1])
        kids = [jwt.get_unverified_header(token)["kid"] for token in tokens]

        assert rejected == []
        assert len(set(kids)) == 2
        assert kids == sorted(kids, key=kids.index)  # never back to the old key
        until(lambda: states(https).get("tokens-3") == "Published")
        until(lambda: live_tokens(https, "tokens-1") >= 1)  # counted from time to time


@pytest.mark.system_package("etcd")
def test_three_servers_rotate_together(tmp_path: Path) -> None:
    """No key file is copied; each token of each server is accepted by all, through a rotation."""
    flags = ("--service-account-issuer", "https://orchid.test", "--token-key-publish-time", "3s")
    flags += ("--token-key-rotation", "6s", *QUICK, *sealing_flags(tmp_path))
    with ExitStack() as running:
        cluster = running.enter_context(etcd_process.running())
        asyncio.run(cluster.wait_healthy())
        servers = []
        for name in ("one", "two", "three"):
            flags_of_one = ("--etcd-servers", cluster.urls[0], *flags)
            servers.append(running.enter_context(running_server(tmp_path / name, *flags_of_one)))
        clients = [running.enter_context(Https(server.port)) for server in servers]
        first = clients[0]
        first.send("POST", ACCOUNTS, {"metadata": {"name": "builder"}}, token=ADMIN)
        tokens: list[str] = []
        rejected: list[str] = []

        def verify() -> None:
            for https in clients:
                tokens.append(issue(https))
                rejected.extend(
                    token
                    for token in (tokens[0], tokens[-1])
                    for other in clients
                    if not is_accepted(other, token)
                )

        def kids() -> set[str]:
            return {jwt.get_unverified_header(token)["kid"] for token in tokens}

        until(lambda: (verify(), len(kids()) > 1)[1])
        verify()
        published = [
            {key["kid"] for key in https.send("GET", "/openid/v1/jwks").json["keys"]}
            for https in clients
        ]

    assert rejected == []
    assert all(kids() <= one for one in published)
    assert not (tmp_path / "two" / "token-signing.key").exists()
