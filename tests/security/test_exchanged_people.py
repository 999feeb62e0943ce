"""The attack: to go on for a person who was revoked, with a token that was exchanged for theirs."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import ISSUER, Api
from tests.e2e.outside_issuer import OutsideIssuer
from tests.security.exchanging import POLICIES, exchange, exchanging, make_policy, review
from tests.security.test_revocations import known, revoked
from tests.security.test_token_exchange import claims_of
from tests.unit.features.beside import MovingClock

API = "https://api.example"
CARLA = "corp:carla@corp.example"


@pytest.fixture(scope="module")
def issuer() -> Iterator[OutsideIssuer]:
    with OutsideIssuer() as made:
        yield made


@pytest.fixture
async def server(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path, clock: MovingClock
) -> AsyncIterator[Api]:
    """A server whose people may have their tokens exchanged, also for one of the API."""
    authority = tmp_path / "authority.crt"
    authority.write_text(issuer.trusted)
    people: dict[str, Any] = {
        "oidc_issuer_url": issuer.url,
        "oidc_client_id": API,
        "oidc_username_claim": "email",
        "oidc_username_prefix": "corp:",
        "oidc_ca_file": str(authority),
        "oidc_required_claim": ["office=berlin"],
    }
    async with exchanging(server_files, issuer, tmp_path, **people) as made:
        yield made


def person(issuer: OutsideIssuer, clock: MovingClock, **claims: Any) -> str:
    """A token of carla for the exchange, which is not one for the API."""
    now = int(clock.now().timestamp())
    times = {"iat": now, "nbf": now, "exp": now + 300}
    who = {"sub": "248289761001", "email": "carla@corp.example"}
    return issuer.token(**{**who, **times, **claims})


async def exchanged(server: Api, issuer: OutsideIssuer, clock: MovingClock) -> tuple[str, str]:
    """A token of carla, and one of the account that was exchanged for it."""
    await make_policy(server, issuer, claims={"sub": "248289761001"}, audiences=[ISSUER])
    subject = person(issuer, clock)
    answer = await exchange(server, subject)
    assert answer.status == 200, answer.text
    return subject, answer.json["access_token"]


async def introspected(server: Api, token: str) -> bool:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = await server.call(
        "POST", "/oauth2/introspect", f"token={token}".encode(), headers=form
    )
    assert answer.status == 200, answer.text
    active: bool = answer.json["active"]
    return active


async def test_the_token_of_a_revoked_person_is_not_exchanged(
    server: Api, issuer: OutsideIssuer, clock: MovingClock
) -> None:
    """Nor explained as if it were; a token after a new sign-in is exchanged."""
    subject, _ = await exchanged(server, issuer, clock)
    await revoked(server, "stolen", user={"username": CARLA})

    refused = await exchange(server, subject)
    path = POLICIES.format("ci").replace("policies", "reviews")
    explained = await server.call("POST", path, {"spec": {"token": subject}})
    clock.ahead += timedelta(seconds=2)
    later = await exchange(server, person(issuer, clock))

    assert (refused.status, refused.json["error"]) == (400, "invalid_request")
    assert "the credentials of this user have been revoked" in refused.json["error_description"]
    assert explained.json["status"].get("allowed", False) is False
    assert "have been revoked" in explained.json["status"]["message"]
    assert later.status == 200, later.text


async def test_an_exchanged_token_ends_with_the_person(
    server: Api, issuer: OutsideIssuer, clock: MovingClock
) -> None:
    """At the API, in reviews and in introspection, although all of them had accepted it."""
    subject, token = await exchanged(server, issuer, clock)
    other = await exchange(server, person(issuer, clock, email="joe@corp.example"))
    before = await known(server, token=token), await introspected(server, token)

    await revoked(server, "stolen", user={"username": CARLA})

    assert before == (201, True)
    assert claims_of(token)["orch.io"]["exchange"]["user"] == CARLA
    assert claims_of(token)["orch.io"]["exchange"]["iat"] == claims_of(subject)["iat"]
    assert await known(server, token=token) == 401
    assert (await review(server, token, ISSUER)).get("authenticated", False) is False
    assert await introspected(server, token) is False
    assert await known(server, token=other.json["access_token"]) == 201


async def test_a_person_whose_revocation_was_lifted_has_the_token_again(
    server: Api, issuer: OutsideIssuer, clock: MovingClock
) -> None:
    """Nothing of the end is remembered in a cache of verified tokens."""
    _, token = await exchanged(server, issuer, clock)
    await revoked(server, "stolen", user={"username": CARLA})
    ended = await known(server, token=token)
    await server.call("DELETE", "/apis/identity.orch.io/v1alpha1/credentialrevocations/stolen")

    assert (ended, await known(server, token=token)) == (401, 201)


async def test_a_job_of_that_issuer_has_no_person(
    server: Api, issuer: OutsideIssuer, clock: MovingClock
) -> None:
    """Its token has no claim from which the name of a user is made."""
    await make_policy(server, issuer, claims={"sub": "job"}, audiences=[ISSUER])

    answer = await exchange(server, person(issuer, clock, sub="job", email=None))

    assert answer.status == 200, answer.text
    assert "user" not in claims_of(answer.json["access_token"])["orch.io"]["exchange"]


@pytest.mark.parametrize("value", [{"sub": "agent"}, {"sub": "a", "act": {"sub": "b"}}, None, "x"])
@pytest.mark.parametrize("name", ["act", "may_act"])
async def test_a_token_that_acts_for_others_is_refused(
    server: Api, issuer: OutsideIssuer, clock: MovingClock, name: str, value: Any
) -> None:
    """The exchanged token would have lost the agent, or who may be one (RFC 8693)."""
    await make_policy(server, issuer, claims={"sub": "248289761001"}, audiences=[ISSUER])
    claims = claims_of(person(issuer, clock))

    refused = await exchange(server, issuer.signed({**claims, name: value}))

    assert (refused.status, refused.json["error"]) == (400, "invalid_request")
    assert f"it has the claim {name}" in refused.json["error_description"]
    assert "access_token" not in refused.json
