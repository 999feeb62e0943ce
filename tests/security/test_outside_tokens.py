"""The attack: to go on with a revoked token of an issuer that is not this server."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jwt
import pytest

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https, Reply
from tests.e2e.serving import free_port, running_server
from tests.e2e.test_commands import Person

REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
ACCOUNTS = "/api/v1/namespaces/ci/serviceaccounts"
AUDIENCE = "https://second.example"
ADMIN = tokens_by_user()["admin"]


@dataclass(frozen=True)
class Pair:
    """A server, and another one whose tokens it accepts."""

    issuer: str
    first: Https
    second: Https
    person: Person

    def token(self) -> str:
        """A new token of the issuer."""
        wanted = {"spec": {"audiences": [AUDIENCE]}}
        reply = self.first.send("POST", f"{ACCOUNTS}/builder/token", wanted, token=ADMIN)
        found: str = reply.json["status"]["token"]
        return found

    def known(self, token: str) -> int:
        return self.second.send("POST", WHO, {}, token=token).status

    def revoke(self, name: str, /, **token: Any) -> Reply:
        body = {"metadata": {"name": name}, "spec": {"token": token}}
        return self.second.send("POST", REVOCATIONS, body, token=ADMIN)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("pair")
    port = free_port()
    issuer = f"https://127.0.0.1:{port}"
    people = ("--token-auth-file", str(TOKENS))
    own = ("--service-account-issuer", issuer)
    outside = ("--oidc-issuer-url", issuer, "--oidc-client-id", AUDIENCE)
    trusted = ("--oidc-ca-file", str(place / "first" / "ca.crt"), "--oidc-signing-algs", "ES256")
    (place / "home").mkdir()
    with ExitStack() as running:
        enter = running.enter_context
        enter(running_server(place / "first", *people, *own, port=port))
        server = enter(running_server(place / "second", *people, *outside, *trusted))
        first, second = enter(Https(port)), enter(Https(server.port))
        for one in (first, second):
            one.send("POST", ACCOUNTS, {"metadata": {"name": "builder"}}, token=ADMIN)
        yield Pair(issuer, first, second, Person(place / "home", server.kubeconfig))


def jti_of(token: str) -> str:
    found: str = jwt.decode(token, options={"verify_signature": False})["jti"]
    return found


@pytest.mark.parametrize("with_issuer", [True, False])
def test_a_revoked_token_of_an_outside_issuer_is_refused(pair: Pair, with_issuer: bool) -> None:
    """In requests and in reviews, on the same connection; other tokens stay valid."""
    token, other = pair.token(), pair.token()
    before = pair.known(token)

    named = {"issuer": pair.issuer} if with_issuer else {}
    made = pair.revoke(f"outside-{with_issuer}".lower(), jti=jti_of(token), **named)

    review = pair.second.send("POST", REVIEWS, {"spec": {"token": token}}, token=ADMIN).json
    assert (before, made.status) == (201, 201)
    assert pair.known(token) == 401
    assert pair.known(other) == 201
    assert "has been revoked" in review["status"]["error"]
    assert "expires" not in made.json["status"], "nobody here knows when the token ends"


def test_the_command_revokes_an_outside_token_by_issuer_and_id(pair: Pair) -> None:
    """It knows the issuer of the server, and sends neither the token nor an account."""
    token = pair.token()

    pair.person.types("revoke", "token", "--yes", given=token)

    [found] = [
        one
        for one in pair.person.gets("revocations")
        if one["spec"].get("token", {}).get("jti") == jti_of(token)
    ]
    assert found["spec"]["token"]["issuer"] == pair.issuer
    assert found["status"]["expires"] == found["spec"]["token"]["expires"]
    assert pair.known(token) == 401


def test_the_id_of_another_issuers_token_does_not_count(pair: Pair) -> None:
    """Two issuers may give the same id; and one that is not accepted cannot be named."""
    token = pair.token()

    account = {"namespace": "ci", "name": "builder"}
    unknown = pair.revoke("a", jti=jti_of(token), issuer="https://other.example")
    both = pair.revoke("b", jti=jti_of(token), issuer=pair.issuer, **account)

    assert (unknown.status, both.status) == (422, 422)
    assert "spec.token.issuer: Not found" in unknown.json["message"]
    assert "must not be given together with an account" in both.json["message"]
    assert pair.known(token) == 201
