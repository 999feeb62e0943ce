"""The approving controller, against a real server in memory."""

import pytest

from orchid.features.approving.controllers.approve_requests import ApproveRequests
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.rights.kinds.role_binding import ClusterRoleBinding, RoleRef, Subject
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedUser
from orchid.kernel.wire.user import AUTHENTICATED, UserInfo
from tests.unit.features.beside import Beside, policies_loaded
from tests.unit.kernel.credentials import samples

NODE = samples.request("system:node:n1", ("system:nodes",))
BOOT = UserInfo(username="boot", groups=(AUTHENTICATED,))
SELF = UserInfo(username="system:node:n1", groups=("system:nodes", AUTHENTICATED))
REQUESTS = f"system:{ORCH.certificates}:certificatesigningrequests"


async def grant(world: Beside, role: str, user: UserInfo) -> None:
    binding = ClusterRoleBinding(
        metadata=ObjectMeta(name=f"{role}-{user.username}"),
        subjects=(Subject(kind="User", api_group=ORCH.rbac, name=user.username),),
        role_ref=RoleRef(api_group=ORCH.rbac, kind="ClusterRole", name=role),
    )
    await world.admin.create(binding)
    await world.server.feed.fresh()  # the next authorization includes it


@pytest.mark.parametrize(
    ("user", "role", "message"),
    [
        (BOOT, "nodeclient", "Auto approving orchlet client certificate"),
        (SELF, "selfnodeclient", "Auto approving self orchlet client certificate"),
    ],
)
async def test_node_request_is_approved_when_its_requester_may(
    world: Beside, user: UserInfo, role: str, message: str
) -> None:
    """A node's first and its renewed request each need a right of their own."""
    await grant(world, "system:node-bootstrapper", user)
    await grant(world, f"{REQUESTS}:{role}", user)
    async with world.running("csrapproving"):
        await world.request("n", NODE, signer=ORCH.node_client_signer, user=user)

        approved = await world.until_like(Request, "n", condition=lambda csr: csr.is_approved)

    (condition,) = approved.status.conditions
    assert condition.reason == "AutoApproved"
    assert condition.message == f"{message} after SubjectAccessReview."
    assert condition.last_update_time is not None


async def test_request_of_a_revoked_requester_is_denied(world: Beside) -> None:
    """It waited, or was just sent: nobody has to look at it again."""
    await grant(world, "system:node-bootstrapper", BOOT)
    await grant(world, f"{REQUESTS}:nodeclient", BOOT)
    await world.request("n", NODE, signer=ORCH.node_client_signer, user=BOOT)
    spec = CredentialRevocationSpec(user=RevokedUser(username=BOOT.username))
    await world.admin.create(CredentialRevocation(metadata=ObjectMeta(name="r"), spec=spec))

    async with world.running("csrapproving"):
        decided = await world.until_like(Request, "n", condition=lambda csr: csr.is_decided)

    (condition,) = decided.status.conditions
    assert (condition.type, condition.reason) == ("Denied", "RequesterRevoked")
    assert "have been revoked" in condition.message


async def test_recognised_request_waits_while_its_requester_may_not(world: Beside) -> None:
    """It is neither approved nor denied, and looked at again later."""
    await grant(world, "system:node-bootstrapper", BOOT)
    made = await world.request("n", NODE, signer=ORCH.node_client_signer, user=BOOT)
    (controller,) = world.made("csrapproving")
    assert isinstance(controller, ApproveRequests)

    await policies_loaded(controller)

    with pytest.raises(TryAgain, match="but subject access review was not approved"):
        await controller.reconcile(made)

    assert await world.admin.get(Request, "n") == made


@pytest.mark.parametrize(
    ("signer", "request_", "usages"),
    [
        (ORCH.client_signer, samples.request("alice"), ("client auth",)),
        (ORCH.node_client_signer, NODE, ("server auth",)),
        (ORCH.node_client_signer, samples.request("system:node:n1", ("dev",)), ("client auth",)),
    ],
)
async def test_other_requests_are_left_for_people(
    world: Beside, signer: str, request_: bytes, usages: tuple[str, ...]
) -> None:
    """Only a node's client request is recognised, even of one who may do everything."""
    made = await world.request("p", request_, signer=signer, usages=usages)
    (controller,) = world.made("csrapproving")
    assert isinstance(controller, ApproveRequests)
    await policies_loaded(controller)

    await controller.reconcile(made)

    assert await world.admin.get(Request, "p") == made
