"""A node requests certificates for its own Pods, as their accounts, and only those they mount."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
)
from orchid.features.nodes.policies.node_restriction import NodeRestriction
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.asking import Rights, a_request
from tests.unit.features.rights.policy_world import BOB, ask, policy_world
from tests.unit.kernel.access.world import World

N1 = UserInfo(username="system:node:n1", groups=("system:nodes", "system:authenticated"))
SIGNER = "example.com/pods"
CREATE = ask("create", "podcertificaterequests", "ci", group=ORCH.certificates)
MOUNTS = [{"name": "c", "projected": {"sources": [{"podCertificate": {"signerName": SIGNER}}]}}]


def a_pod(name: str = "web", node: str = "n1", **meta: Any) -> Pod:
    spec = {"nodeName": node, "serviceAccountName": "app", "volumes": MOUNTS}
    return Pod(metadata=ObjectMeta(name=name, namespace="ci", uid=f"uid-{name}", **meta), spec=spec)


def requested(**spec: str) -> PodCertificateRequest:
    fields = {
        "signer_name": SIGNER,
        "pod_name": "web",
        "pod_uid": "uid-web",
        "service_account_name": "app",
        "service_account_uid": "uid-app",
        "node_name": "n1",
        "node_uid": "uid-n1",
    }
    return PodCertificateRequest(
        metadata=ObjectMeta(name="req-1", namespace="ci"),
        spec=PodCertificateRequestSpec(**(fields | spec)),
    )


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """Two nodes, a Pod on each, a mirror Pod and an account."""
    async with policy_world() as made:
        await made.put(a_pod())
        await made.put(a_pod("far", "n2"))
        await made.put(a_pod("mirror", annotations={"orch.io/config.mirror": "x"}))
        for name in ("n1", "n2"):
            await made.put(Node(metadata=ObjectMeta(name=name, uid=f"uid-{name}")))
        account = ObjectMeta(name="app", namespace="ci", uid="uid-app")
        await made.put(ServiceAccount(metadata=account))
        yield made


async def admit(
    here: World,
    new: PodCertificateRequest,
    old: PodCertificateRequest | None = None,
    *,
    by: UserInfo = N1,
    rights: Rights | None = None,
) -> None:
    policy = NodeRestriction(ORCH, here.feed, rights or Rights())
    kind = here.catalog.of(PodCertificateRequest)
    assert await policy.admit(a_request(CREATE, by), kind, new, old) is new


async def test_a_node_requests_what_its_pod_mounts(here: World) -> None:
    """Callers that are no nodes pass: the signer checks Pod, account and Node again."""
    await admit(here, requested())
    await admit(here, requested(node_name="elsewhere"), by=BOB)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"node_name": "n2"},
            'PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"',
        ),
        (
            {"node_uid": "old"},
            'PodCertificateRequest for pod "ci/web" names node UID "old", inconsistent with the '
            'running node ("uid-n1")',
        ),
        (
            {"pod_name": "gone"},
            'pod "ci/gone" named in the PodCertificateRequest not found',
        ),
        (
            {"pod_uid": "old"},
            'PodCertificateRequest for pod "ci/web" contains pod UID ("old") which differs from '
            'running pod "uid-web"',
        ),
        (
            {"pod_name": "far", "pod_uid": "uid-far"},
            'pod "ci/far" is not running on node "n1" named in the PodCertificateRequest',
        ),
        (
            {"pod_name": "mirror", "pod_uid": "uid-mirror"},
            'pod "ci/mirror" is a mirror pod',
        ),
        (
            {"service_account_name": "admin"},
            'PodCertificateRequest for pod "ci/web" contains serviceAccountName ("admin") that '
            'differs from running pod ("app")',
        ),
        (
            {"service_account_uid": "old"},
            'PodCertificateRequest for pod "ci/web" names service account UID "old", which differs '
            'from the running service account ("uid-app")',
        ),
        (
            {"signer_name": "example.com/other"},
            'pod "ci/web" does not mount a podCertificate projected volume for signer '
            '"example.com/other"',
        ),
    ],
)
async def test_everything_else_is_refused(here: World, spec: dict[str, str], text: str) -> None:
    """Each refusal is a 403 that names the difference."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, requested(**spec))

    about = 'podcertificaterequests.certificates.orch.io "req-1" is forbidden: '
    assert caught.value.message == about + text


async def test_a_right_replaces_the_mount(here: World) -> None:
    """The signer is named with a colon, and the account is the object."""
    right = ("request-serviceaccounts-podcertificate-signer", "example.com:other", "app")
    rights = Rights(right)

    await admit(here, requested(signer_name="example.com/other"), rights=rights)

    (asked,) = rights.asked
    assert (asked.group, asked.namespace) == (ORCH.certificates, "ci")


async def test_a_node_neither_changes_nor_deletes_requests(here: World) -> None:
    """The outcome is for the signer to write, and the cleaner deletes."""
    policy = NodeRestriction(ORCH, here.feed, Rights())
    kind = here.catalog.of(PodCertificateRequest)

    with pytest.raises(Forbidden, match="can only create"):
        await admit(here, requested(), requested())
    with pytest.raises(Forbidden, match="can only create"):
        await policy.review(a_request(CREATE, N1), kind, None, requested())


async def test_an_account_that_is_gone_gets_no_certificate(here: World) -> None:
    """Also while its Pod is still there."""
    await here.delete(here.feed.of(ServiceAccount).get("ci", "app").object)

    with pytest.raises(Forbidden, match='service account "ci/app" named in the'):
        await admit(here, requested())
