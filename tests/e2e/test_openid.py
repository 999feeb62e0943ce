"""A relying party that knows nothing but the issuer's URL accepts our tokens."""

import base64
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from tests.conformance.exchanges import tokens_by_user
from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server, free_port, running_server

ACCOUNTS = "/api/v1/namespaces/ci/serviceaccounts"
AUDIENCE = "https://vault.example"


def trust_in(server: Server) -> ssl.SSLContext:
    """Trust exactly the authority that the server gave to its clients."""
    (cluster,) = yaml.safe_load(server.kubeconfig.read_text())["clusters"]
    authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    return ssl.create_default_context(cadata=authority)


def call(server: Server, path: str, body: Any = None, token: str = "") -> Any:
    """Ask for JSON; with a body, by POST."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(server.url + path, data, headers)
    with urllib.request.urlopen(request, context=trust_in(server), timeout=10) as answer:
        return json.load(answer)


def test_relying_party_verifies_a_token_knowing_only_the_issuer(start_server: StartServer) -> None:
    """Discovery, then the keys, then the signature, all by a library that is not ours."""
    port = free_port()
    issuer = f"https://127.0.0.1:{port}"
    server = start_server("--service-account-issuer", issuer, "--controllers", "", port=port)
    admin = tokens_by_user()["admin"]
    call(server, ACCOUNTS, {"metadata": {"name": "builder"}}, admin)
    wanted = {"spec": {"audiences": [AUDIENCE]}}
    token = call(server, f"{ACCOUNTS}/builder/token", wanted, admin)["status"]["token"]

    found = call(server, "/.well-known/openid-configuration")
    keys = jwt.PyJWKClient(found["jwks_uri"], ssl_context=trust_in(server))
    key = keys.get_signing_key_from_jwt(token).key
    algorithms = found["id_token_signing_alg_values_supported"]
    claims = jwt.decode(
        token,
        key,
        algorithms=algorithms,
        audience=AUDIENCE,
        issuer=issuer,
        options={"require": ["exp", "iat", "nbf", "iss", "sub", "aud", "jti"]},
    )

    assert found["issuer"] == issuer
    assert claims["sub"] == "system:serviceaccount:ci:builder"
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key, algorithms=algorithms, audience="https://other.example")


def test_a_server_accepts_tokens_of_another(start_server: StartServer, tmp_path: Path) -> None:
    """One Orchid is an outside issuer of the other, by nothing but its URL and its authority."""
    port = free_port()
    issuer = f"https://127.0.0.1:{port}"
    first = start_server("--service-account-issuer", issuer, "--controllers", "", port=port)
    admin = tokens_by_user()["admin"]
    call(first, ACCOUNTS, {"metadata": {"name": "builder"}}, admin)
    wanted = {"spec": {"audiences": [AUDIENCE]}}
    token = call(first, f"{ACCOUNTS}/builder/token", wanted, admin)["status"]["token"]
    flags = ("--oidc-issuer-url", issuer, "--oidc-client-id", AUDIENCE)
    trusted = ("--oidc-ca-file", str(first.kubeconfig.parent / "ca.crt"))
    algorithm = ("--oidc-signing-algs", jwt.get_unverified_header(token)["alg"])

    with running_server(tmp_path / "second", *flags, *trusted, *algorithm) as second:
        review = "/apis/authentication.orch.io/v1/selfsubjectreviews"
        found = call(second, review, {"metadata": {}}, token)

    assert found["status"]["userInfo"]["username"] == f"{issuer}#system:serviceaccount:ci:builder"


@pytest.mark.parametrize(
    ("accept", "sent"),
    [
        ("application/json", "application/json"),
        ("application/jwk-set+json", "application/jwk-set+json"),
        ("application/json, application/jwk-set+json, */*", "application/jwk-set+json"),
        ("text/html, */*;q=0.1", "application/jwk-set+json"),
    ],
)
def test_the_key_set_is_sent_as_json_too(start_server: StartServer, accept: str, sent: str) -> None:
    """Many clients accept application/json alone."""
    server = start_server("--controllers", "")
    request = urllib.request.Request(f"{server.url}/openid/v1/jwks", headers={"Accept": accept})

    with urllib.request.urlopen(request, context=trust_in(server), timeout=10) as answer:
        assert answer.headers["Content-Type"] == sent
        assert json.load(answer)["keys"]
