"""The attack: an approval of one certificate counts for more than what was approved.

Somebody approves a request of an ACME client, and nobody fetches the certificate. The next order of
the client is approved by the earlier approval. It had a common name that nobody approved, or the
service account sent the request of that order through the API, with other usages or a longer
lifetime; and the approval counted although its approver was revoked or might not approve any more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid.features.acme.kinds.acme_order import REQUEST_PREFIX, AcmeOrder
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.request_conditions import APPROVED
from orchid.kernel.wire.text import timestamp
from orchid.kernel.wire.user import ACCOUNT_PREFIX, UserInfo, groups_of_accounts
from tests.api.world import BOB, Answer, Api
from tests.security.test_revocations import jti_of, revoked
from tests.unit.features.acme.acme_client import AcmeClient, request_for
from tests.unit.features.acme.conftest import AUTHORITIES, SIGNER, World, issuing_world, prepared
from tests.unit.features.acme.test_acme_accounts import problem
from tests.unit.features.acme.test_orders import ISSUED, NAME, REQUESTS, approve, issued, settled
from tests.unit.features.beside import beside

RBAC = f"/apis/{ORCH.rbac}/v1"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
USAGES = ["digital signature", "server auth"]
RULES = [
    {
        "apiGroups": [ORCH.certificates],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"],
        "verbs": ["get", "update"],
    },
    {
        "apiGroups": [ORCH.certificates],
        "resources": ["signers"],
        "resourceNames": [SIGNER],
        "verbs": ["approve"],
    },
    {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
]


@pytest.fixture
async def issuing(server_files: Path) -> AsyncIterator[World]:
    async with issuing_world(server_files) as world:
        yield world


def name_of(order: Answer) -> str:
    """The name of the request of an order."""
    return "acme-" + (order.header("location") or "").rpartition("/")[2]


async def approved(world: World, client: AcmeClient, **more: Any) -> Answer:
    """An order that a person approves, and whose certificate nobody fetches."""
    order = await client.order(NAME, **more)
    await client.finalize(order, NAME)
    await approve(world, order)
    assert (await settled(client, order)).json["status"] == "valid"
    return order


def frontend(world: World) -> UserInfo:
    meta = world.account["metadata"]
    username = f"{ACCOUNT_PREFIX}web:frontend"
    return UserInfo(username=username, uid=meta["uid"], groups=groups_of_accounts("web"))


async def ask(world: World, order: Answer, der: bytes, user: UserInfo, **spec: Any) -> None:
    """Create the request of an order through the API."""
    text = pem.encode(pem.CERTIFICATE_REQUEST, der)
    asked = {"signer": SIGNER, "usages": (), **spec}
    await world.beside.request(name_of(order), text, user=user, **asked)


async def require_refused(world: World, client: AcmeClient, order: Answer) -> None:
    """An equal order counts the approval; the undecided request before it is deleted."""
    await issued(client, NAME)
    assert await world.beside.admin.find(Request, name_of(order)) is None
    records = (await world.api.call("GET", ISSUED)).json["items"]
    assert name_of(order) not in [one["spec"]["request"]["name"] for one in records]


async def test_the_common_name_is_among_the_alternative_names(issuing: World) -> None:
    """`payments-admin` was in the order and in the request, and in no name that was compared."""
    client = await issuing.client()
    await approved(issuing, client)

    order = await client.order(NAME, "payments-admin")
    answer = await client.finalize(order, NAME, common_name="payments-admin")

    assert problem(answer) == (400, "badCSR")
    assert "payments-admin" in answer.json["detail"]


async def test_an_approval_is_not_for_another_common_name(issuing: World) -> None:
    """The account sends the request itself."""
    client = await issuing.client()
    await approved(issuing, client)

    order = await client.order(NAME, "payments-admin")
    request = request_for(NAME, common_name="payments-admin")
    await ask(issuing, order, request, frontend(issuing))

    await require_refused_or_waiting(issuing, client, order)


async def require_refused_or_waiting(world: World, client: AcmeClient, order: Answer) -> None:
    """The order has other names, so that the next one does not replace its request."""
    await issued(client, NAME)
    found = await world.beside.admin.find(Request, name_of(order))
    assert found is None or not found.is_decided


async def test_an_approval_is_not_for_a_longer_time(issuing: World) -> None:
    """A request for 2160 hours, after an approval for the usual 720."""
    client = await issuing.client()
    await approved(issuing, client)

    order = await client.order(NAME)
    seconds = 2160 * 3600
    await ask(issuing, order, request_for(NAME), frontend(issuing), seconds=seconds)

    await require_refused(issuing, client, order)


async def test_an_approval_for_ten_minutes_is_not_for_the_usual_time(issuing: World) -> None:
    """A request without a lifetime gets the default of the authority."""
    client = await issuing.client()
    order, user = await client.order(NAME), frontend(issuing)
    await ask(issuing, order, request_for(NAME), user, seconds=600, usages=tuple(USAGES))
    await approve(issuing, order)
    await settled(client, order)

    longer = await client.order(NAME)
    await ask(issuing, longer, request_for(NAME), user, usages=tuple(USAGES))
    equal = await client.order(NAME)
    await ask(issuing, equal, request_for(NAME), user, seconds=600, usages=tuple(USAGES))

    assert (await settled(client, equal)).json["status"] == "valid"
    assert await issuing.beside.admin.find(Request, name_of(longer)) is None


async def test_an_approval_is_not_for_other_usages(issuing: World) -> None:
    """Client authentication, after an approval of a server certificate."""
    usages = {"issuing": {"usages": [*USAGES, "client auth"]}}
    patched = await issuing.api.call(
        "PATCH",
        f"{AUTHORITIES}/servers",
        {"spec": usages},
        headers={"content-type": "application/merge-patch+json"},
    )
    assert patched.status == 200, patched.text
    client, user = await issuing.client(), frontend(issuing)
    order = await client.order(NAME)
    await ask(issuing, order, request_for(NAME), user, usages=tuple(USAGES))
    await approve(issuing, order)
    await settled(client, order)

    more = await client.order(NAME)
    await ask(issuing, more, request_for(NAME), user, usages=(*USAGES, "client auth"))
    equal = await client.order(NAME)
    await ask(issuing, equal, request_for(NAME), user, usages=tuple(USAGES))

    assert (await settled(client, equal)).json["status"] == "valid"
    assert await issuing.beside.admin.find(Request, name_of(more)) is None


async def test_an_approval_is_not_for_another_kind_of_key(issuing: World) -> None:
    client = await issuing.client()
    await approved(issuing, client)

    order = await client.order(NAME)
    key = rsa.generate_private_key(65537, 2048)
    await ask(issuing, order, request_for(NAME, key=key), frontend(issuing))

    await require_refused(issuing, client, order)


# -- the approver -----------------------------------------------------------------------------


@pytest.fixture
async def bob(issuing: World) -> UserInfo:
    """A user who may approve for the signer."""
    server = issuing.api
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": "approver"}, "rules": RULES})
    await server.make(f"{RBAC}/clusterrolebindings", binding("bob", kind="User", name="bob"))
    return UserInfo(username="bob")


def binding(title: str, **subject: str) -> dict[str, Any]:
    return {
        "metadata": {"name": title},
        "roleRef": {"kind": "ClusterRole", "name": "approver", "apiGroup": ORCH.rbac},
        "subjects": [subject],
    }


async def approved_by(
    world: World, client: AcmeClient, headers: dict[str, str] | None = None, token: str = BOB
) -> Answer:
    order = await client.order(NAME)
    await client.finalize(order, NAME)
    asked = await world.api.call("GET", f"{REQUESTS}/{name_of(order)}")
    condition = {"type": APPROVED, "status": "True", "reason": "ByPerson", "message": "fine"}
    body = {**asked.json, "status": {"conditions": [condition]}}
    target = f"{REQUESTS}/{name_of(order)}/approval"
    answer = await world.api.call("PUT", target, body, token=token, headers=headers or {})
    assert answer.status == 200, answer.text
    assert (await settled(client, order)).json["status"] == "valid"
    return order


async def outcome(client: AcmeClient, order: Answer, caplog: pytest.LogCaptureFixture) -> str:
    """The status of an order, once its request was approved or an approval did not count."""
    async with asyncio.timeout(20):
        while True:
            shown = await client.post(order.header("location") or "")
            status = str(shown.json["status"])
            refused = [one for one in caplog.records if "does_not_count" in one.message]
            if status != "processing" or refused:
                return status
            await asyncio.sleep(0.01)


async def next_order(client: AcmeClient, caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level("INFO", logger="orchid.features.approving.controllers.keep_approvals")
    order = await client.order(NAME)
    await client.finalize(order, NAME)
    return await outcome(client, order, caplog)


async def lose_right(world: World) -> None:
    await world.api.call("DELETE", f"{RBAC}/clusterrolebindings/bob")


async def lose_credentials(world: World) -> None:
    await revoked(world.api, "bob", user={"username": "bob"})


@pytest.mark.parametrize("end", [lose_right, lose_credentials])
async def test_an_approval_ends_with_its_approver(
    issuing: World,
    bob: UserInfo,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[World], Awaitable[None]],
) -> None:
    """Bob is dismissed, or his credentials were stolen when he approved."""
    client = await issuing.client()
    await approved_by(issuing, client)
    await end(issuing)

    status = await next_order(client, caplog)

    assert status == "processing"


async def test_an_approval_of_an_approver_in_office_counts(
    issuing: World, bob: UserInfo, caplog: pytest.LogCaptureFixture
) -> None:
    client = await issuing.client()
    await approved_by(issuing, client)
    yesterday = timestamp(datetime.now(UTC) - timedelta(days=1))
    await revoked(issuing.api, "bob", user={"username": "bob", "issuedBefore": yesterday})

    status = await next_order(client, caplog)

    assert status == "valid"


async def test_an_approval_by_impersonation_is_not_kept(
    issuing: World, bob: UserInfo, caplog: pytest.LogCaptureFixture
) -> None:
    """The server does not know whether the impersonator may still act as the approver."""
    client = await issuing.client()
    await issuing.api.make(
        f"{RBAC}/clusterrolebindings", binding("carol", kind="User", name="carol")
    )
    await approved_by(issuing, client, {"impersonate-user": "carol"})

    (record,) = (await issuing.api.call("GET", ISSUED)).json["items"]

    status = await next_order(client, caplog)

    assert record["spec"]["approver"] == {"username": "carol", "impersonator": "bob"}
    assert status == "processing"


@pytest.mark.parametrize("end", ["none", "token", "key", "account", "deleted", "recreated"])
async def test_an_approval_of_an_account_ends_with_its_credential(
    issuing: World, bob: UserInfo, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """Its token of then is revoked, its key, or all of them, or it is another account."""
    await issuing.api.account("deployer", "web")
    subject = {"kind": "ServiceAccount", "name": "deployer", "namespace": "web"}
    await issuing.api.make(f"{RBAC}/clusterrolebindings", binding("deployer", **subject))
    token = await issuing.api.token("deployer", "web")
    client = await issuing.client()
    await approved_by(issuing, client, token=token)
    named = {"namespace": "web", "name": "deployer"}
    if end == "token":
        await revoked(issuing.api, "stolen", token={"jti": jti_of(token), **named})
    elif end == "key":
        await revoked(issuing.api, "stolen", key={"name": "tokens-1"})
    elif end == "account":
        await revoked(issuing.api, "stolen", account=named)
    elif end != "none":
        await issuing.api.call("DELETE", "/api/v1/namespaces/web/serviceaccounts/deployer")
        if end == "recreated":
            await issuing.api.account("deployer", "web")

    status = await next_order(client, caplog)

    assert status == ("valid" if end == "none" else "processing")


async def created_again(world: World, order: Answer) -> None:
    """Somebody who may write AcmeOrders deletes an order that was fetched, and creates it again."""
    admin, name = world.beside.admin, name_of(order).removeprefix(REQUEST_PREFIX)
    old = await world.beside.until_like(
        AcmeOrder, name, "web", lambda one: one.status.fetched is not None
    )
    await admin.delete_gone(AcmeOrder, old)
    owners = old.metadata.owner_references
    meta = ObjectMeta(name=name, namespace="web", owner_references=owners)
    await admin.create(AcmeOrder(metadata=meta, spec=old.spec))


async def test_an_order_that_is_created_again_keeps_no_approval(issuing: World) -> None:
    """Its certificate was fetched: the approval was used. The new order says nothing of that."""
    client = await issuing.client()
    order = await approved(issuing, client)
    await client.post((await settled(client, order)).json["certificate"])
    await created_again(issuing, order)

    later = [await client.order(NAME) for _ in range(3)]
    for each in later:
        await client.finalize(each, NAME)
    for each in later[:2]:  # the next one deletes it, since nobody has approved it
        await issuing.beside.until_gone(Request, name_of(each))

    records = (await issuing.api.call("GET", ISSUED)).json["items"]
    assert [one["spec"]["request"]["name"] for one in records] == [name_of(order)]


async def test_an_approval_is_for_one_certificate_at_a_time(server_files: Path) -> None:
    """Requests that came before the certificate of the one before counted the approval, too.

    Now the newest of them waits until that certificate is there, and supersedes it.
    """
    async with beside(server_files) as made, made.running("certificate-authority"):
        world = await prepared(Api(made.server), made)
        await made.until_like(CertificateAuthority, "servers", "", lambda one: one.is_ready)
        async with made.running("acme-approvals"):
            client, user = await world.client(), frontend(world)
            async with made.running("csrsigning"):
                await approved(world, client)
            orders = [await client.order(NAME) for _ in range(3)]
            for order in orders:
                await ask(world, order, request_for(NAME), user, usages=tuple(USAGES))
                if order is orders[0]:
                    await made.until_like(Request, name_of(order), "", lambda one: one.is_decided)
            await made.until_gone(Request, name_of(orders[1]))

            async with made.running("csrsigning"):
                last = await settled(client, orders[2])

                async def superseded() -> list[Any]:
                    found = await world.api.call("GET", REVOCATIONS)
                    return [] if len(found.json["items"]) < 2 else found.json["items"]

                revoked_ones = await made.until(superseded)

    assert last.json["status"] == "valid"
    assert len(revoked_ones) == 2
