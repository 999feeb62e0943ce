"""The attack: to go on under a user name whose credentials were revoked, by any credential."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import timestamp
from tests.api.world import ADMIN, ALICE, BOB, Api
from tests.security.certified import cluster_authority, issued
from tests.security.test_revocations import (
    REVIEWS,
    REVOCATIONS,
    known,
    on_record,
    revoke,
    revoked,
)
from tests.security.test_watches_end import prepared, watching
from tests.unit.features.beside import MovingClock

FRACTION = 200_000  # microseconds
RBAC = "/apis/rbac.authorization.orch.io/v1"


async def grant(server: Api, user: str, *rules: dict[str, Any]) -> None:
    await server.make(
        f"{RBAC}/clusterroles", {"metadata": {"name": f"of-{user}"}, "rules": [*rules]}
    )
    role = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": f"of-{user}"}
    subjects = [{"kind": "User", "name": user, "apiGroup": ORCH.rbac}]
    body = {"metadata": {"name": f"of-{user}"}, "subjects": subjects, "roleRef": role}
    await server.make(f"{RBAC}/clusterrolebindings", body)


def allowed(resource: str, *verbs: str, group: str = "", names: tuple[str, ...] = ()) -> Any:
    found = {"apiGroups": [group], "resources": [resource], "verbs": [*verbs]}
    return {**found, "resourceNames": [*names]} if names else found


async def test_every_certificate_of_a_revoked_user_is_refused_and_a_new_one_works(
    server: Api, clock: MovingClock
) -> None:
    """On record or not. A certificate on record has the time of issue of its record."""
    _, recorded = await on_record(server, "jane", "first")
    authority = cluster_authority(server.server.files.path)
    unrecorded, other = issued(authority, "jane"), issued(authority, "joe")

    made = await revoked(server, "stolen", user={"username": "jane"}, reason="keyCompromise")
    clock.ahead += timedelta(seconds=1)
    _, new = await on_record(server, "jane", "second")

    assert made["spec"]["user"]["issuedBefore"]
    assert await known(server, peer=recorded) == 401
    assert await known(server, peer=unrecorded.peer) == 401
    assert await known(server, peer=other.peer) == 201
    assert await known(server, peer=new) == 201


async def test_a_certificate_that_came_after_one_revocation_is_no_exception_to_the_next(
    server: Api,
) -> None:
    """All within a second: it counted as issued in the next one, because its signer was revoked."""
    while server.server.clock.now().microsecond > FRACTION:  # noqa: ASYNC110 -- a second begins
        await asyncio.sleep(0.01)
    await revoked(server, "signer", authority={"signerName": ORCH.client_signer})
    _, peer = await on_record(server, "jane")
    before = await known(server, peer=peer)

    await revoked(server, "stolen", user={"username": "jane"})

    assert (before, await known(server, peer=peer)) == (201, 401)


async def test_a_static_token_is_refused_as_long_as_the_revocation_exists(server: Api) -> None:
    """The token has no time of issue. The same connection had used it before."""
    before = await known(server, token=ALICE)
    await revoked(server, "alice", user={"username": "alice"})
    refused = await known(server, token=ALICE), await known(server, token=ALICE)
    review = await server.call("POST", REVIEWS, {"spec": {"token": ALICE}})
    others = await known(server, token=BOB)

    lifted = await server.call("DELETE", f"{REVOCATIONS}/alice")

    assert (before, refused, others) == (201, (401, 401), 201)
    assert "the credentials of this user have been revoked" in review.json["status"]["error"]
    assert lifted.status == 200
    assert await known(server, token=ALICE) == 201


async def test_a_time_in_the_future_locks_a_user_out_until_then(
    server: Api, clock: MovingClock
) -> None:
    """New credentials do not help; after that time they work."""
    moment = timestamp(clock.now() + timedelta(minutes=10))
    await revoked(server, "out", user={"username": "jane", "issuedBefore": moment})
    _, new = await on_record(server, "jane", "first")
    early = await known(server, peer=new)
    clock.ahead += timedelta(minutes=10, seconds=1)

    _, later = await on_record(server, "jane", "second")

    assert early == 401
    assert await known(server, peer=later) == 201


async def test_impersonation_of_a_revoked_user_goes_on(server: Api) -> None:
    """It uses the credential of the impersonator."""
    await revoked(server, "alice", user={"username": "alice"})

    assert await known(server, token=ADMIN, headers={"impersonate-user": "alice"}) == 201


async def test_open_watches_of_a_revoked_user_end(server: Api) -> None:
    """Those of others go on."""
    await prepared(server)
    authority = cluster_authority(server.server.files.path)
    jane = issued(authority, "jane")
    async with watching(server, peer=jane.peer) as hers:
        await revoked(server, "stolen", user={"username": "jane"})
        await server.server.watches.check_all()

        assert hers.ended == "finish"


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        (allowed("users", "revoke", names=("jane",)), 201),
        (allowed("users", "revoke"), 201),
        (allowed("users", "revoke", names=("joe",)), 403),
        (allowed("users", "impersonate"), 403),
        (allowed("serviceaccounts", "revoke"), 403),
        (allowed("signers", "revoke", group=ORCH.certificates), 403),
    ],
)
async def test_revoking_a_user_takes_the_verb_on_that_user(
    server: Api, rule: dict[str, Any], status: int
) -> None:
    """No other verb and no other resource implies it; deleting takes the same right."""
    write = allowed("credentialrevocations", "create", "delete", group="identity.orch.io")
    await grant(server, "bob", write, rule)

    created = await revoke(server, "by-bob", {"user": {"username": "jane"}}, token=BOB)
    if status != 201:
        await revoked(server, "by-bob", user={"username": "jane"})
    deleted = await server.call("DELETE", f"{REVOCATIONS}/by-bob", token=BOB)

    assert created.status == status, created.text
    assert deleted.status == (200 if status == 201 else 403), deleted.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "spec.user.username: Required value"),
        ("x" * 1025, "Too long"),
        ("system:serviceaccount:ci:builder", "is a service account: name it as account"),
        ("system:anonymous", "anonymous requests have no credential"),
    ],
)
async def test_a_name_that_no_credential_can_be_revoked_of_is_refused(
    server: Api, name: str, text: str
) -> None:
    """With the field and the reason."""
    answer = await revoke(server, "bad", {"user": {"username": name}})

    assert answer.status == 422, answer.text
    assert text in answer.json["message"]


async def test_a_second_revocation_of_a_user_needs_a_later_time(
    server: Api, clock: MovingClock
) -> None:
    """One that revokes no more is refused, and the first one is named."""
    await revoked(server, "first", user={"username": "jane"})
    past = timestamp(clock.now() - timedelta(hours=1))
    repeated = await revoke(server, "b", {"user": {"username": "jane", "issuedBefore": past}})
    clock.ahead += timedelta(seconds=5)

    later = await revoke(server, "c", {"user": {"username": "jane"}})

    assert repeated.status == 409
    assert '\\"first\\" already revokes this' in repeated.text
    assert later.status == 201
