"""A node writes only what is its own."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    TokenRequest,
    TokenRequestSpec,
)
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.nodes.policies.node_restriction import NodeRestriction
from orchid.features.objects.kinds.lease import Lease
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import ApiError, Forbidden, NotFound
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.asking import SIGNING_REQUESTS, TOKENS, Rights, a_request
from tests.unit.features.rights.policy_world import BOB, ask, policy_world
from tests.unit.kernel.access.world import World
from tests.unit.kernel.credentials.samples import request as signing_request

N1 = UserInfo(username="system:node:n1", groups=("system:nodes", "system:authenticated"))
NAMELESS = UserInfo(username="system:node:", groups=("system:nodes",))
MIRROR = {"orch.io/config.mirror": "x"}
PODS = ask("create", "pods", "ci")
STATUS = ask("update", "pods/status", "ci", "web")

VOLUMES = [
    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}},
    {"name": "u", "projected": {"sources": [{"serviceAccountToken": {}}, {"configMap": {}}]}},
    {"name": "v", "projected": None},
]


def a_pod(name: str = "web", node: str = "n1", **meta: Any) -> Pod:
    spec = {"nodeName": node, "serviceAccountName": "default", "volumes": VOLUMES}
    return Pod(metadata=ObjectMeta(name=name, namespace="ci", uid=f"uid-{name}", **meta), spec=spec)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """One Pod on each of two nodes."""
    async with policy_world() as made:
        await made.put(a_pod())
        await made.put(a_pod("far", "n2"))
        await made.put(Node(metadata=ObjectMeta(name="n1", uid="uid-n1")))
        yield made


async def admit(
    here: World,
    target: Target,
    new: Any,
    old: Any = None,
    *,
    by: UserInfo = N1,
    rights: Rights | None = None,
    kind: Any = None,
) -> None:
    policy = NodeRestriction(ORCH, here.feed, rights or Rights())
    kind = kind or here.catalog.of(type(new))
    assert await policy.admit(a_request(target, by), kind, new, old) is new
    await policy.review(a_request(target, by), kind, new, old)


async def delete(here: World, old: Any) -> None:
    kind = here.catalog.of(type(old))
    request = a_request(ask("delete", kind.plural, old.namespace, old.name), N1)
    await NodeRestriction(ORCH, here.feed, Rights()).review(request, kind, None, old)


# --- tokens ---------------------------------------------------------------------------------------

TOKEN = ask("create", "serviceaccounts/token", "ci", "app")


def wants(*audiences: str, **reference: str) -> TokenRequest:
    fields = {"api_version": "v1", "kind": "Pod", "name": "web", "uid": "uid-web"} | reference
    bound = BoundObjectReference(**fields)
    return TokenRequest(spec=TokenRequestSpec(audiences=audiences, bound_object_ref=bound))


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (TokenRequest(), "node requested token not bound to a pod"),
        (wants(kind="Secret"), "node requested token not bound to a pod"),
        (wants(api_version="v2"), "node requested token not bound to a pod"),
        (wants(name=""), "node requested token not bound to a pod"),
        (wants(uid=""), "node requested token with a pod binding without a uid"),
        (
            wants(uid="old"),
            "the UID in the bound object reference (old) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        ),
        (
            wants(name="far", uid="uid-far"),
            "node requested token bound to a pod scheduled on a different node",
        ),
        (wants("vault", "b"), "node may only request 0 or 1 audiences"),
        (
            wants("other"),
            'audience "other" not found in pod spec volume, system:node:n1 is not authorized to '
            "request tokens for this audience",
        ),
    ],
)
async def test_tokens_are_for_its_own_pods_only(here: World, new: TokenRequest, text: str) -> None:
    """Every refusal is a 403 about the account."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, TOKEN, new, kind=TOKENS)

    assert caught.value.message == f'serviceaccounts "app" is forbidden: {text}'


async def test_a_pod_that_is_not_there_is_not_found(here: World) -> None:
    """The 404 speaks of a pod in the singular, as the reference does."""
    with pytest.raises(NotFound) as caught:
        await admit(here, TOKEN, wants(name="gone"), kind=TOKENS)

    assert caught.value.message == 'pod "gone" not found'
    assert caught.value.details is not None
    assert caught.value.details.kind == "pod"


async def test_audiences_come_from_the_pods_volumes_or_from_a_right(here: World) -> None:
    """The audiences of a projected volume are free; any other needs a right for that audience."""
    right = Rights(("request-serviceaccounts-token-audience", "other", "app"))

    await admit(here, TOKEN, wants("vault"), kind=TOKENS)
    await admit(here, TOKEN, wants(), kind=TOKENS)
    await admit(here, TOKEN, wants("other"), rights=right, kind=TOKENS)

    assert [(t.group, t.namespace) for t in right.asked] == [("", "ci")]


async def test_others_ask_for_tokens_freely(here: World) -> None:
    """Callers that are no nodes are none of this policy's business."""
    await admit(here, TOKEN, TokenRequest(), by=BOB, kind=TOKENS)


# --- certificate requests -------------------------------------------------------------------------

CREATE_CSR = ask("create", "certificatesigningrequests", group=ORCH.certificates)


def asked(text: bytes | None, signer: str) -> CertificateSigningRequest:
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="c"),
        spec=CertificateSigningRequestSpec(request=text, signer_name=signer),
    )


OWN = signing_request("system:node:n1", ("system:nodes",))
OTHERS = signing_request("system:node:n2", ("system:nodes",))


@pytest.mark.parametrize("signer", [ORCH.node_client_signer, ORCH.node_serving_signer])
async def test_a_node_asks_for_its_own_name_only(here: World, signer: str) -> None:
    """The common name must be the caller's own user name, and readable."""
    await admit(here, CREATE_CSR, asked(OWN, signer), kind=SIGNING_REQUESTS)

    with pytest.raises(Forbidden, match=r"can only create a node CSR with CN=system:node:n1$"):
        await admit(here, CREATE_CSR, asked(OTHERS, signer), kind=SIGNING_REQUESTS)
    for text in (None, b"x"):
        with pytest.raises(Forbidden, match="unable to parse csr: "):
            await admit(here, CREATE_CSR, asked(text, signer), kind=SIGNING_REQUESTS)


async def test_whose_name_is_asked_before_whether_the_signature_fits(here: World) -> None:
    """A changed request is refused for its name here, and for its signature by its own rules."""
    block = pem.first(OTHERS)
    assert block is not None
    broken = pem.encode(block.label, block.data[:-1] + bytes([block.data[-1] ^ 1]))

    with pytest.raises(Forbidden, match=r"can only create a node CSR with CN=system:node:n1$"):
        await admit(here, CREATE_CSR, asked(broken, ORCH.node_client_signer), kind=SIGNING_REQUESTS)


async def test_other_signers_and_callers_are_free(here: World) -> None:
    """Only the two signers of nodes are guarded, and only against nodes."""
    await admit(here, CREATE_CSR, asked(OTHERS, "example.com/x"), kind=SIGNING_REQUESTS)
    await admit(
        here, CREATE_CSR, asked(OTHERS, ORCH.node_client_signer), by=BOB, kind=SIGNING_REQUESTS
    )


async def test_a_node_without_a_name_writes_nothing(here: World) -> None:
    """Being a node without saying which is not enough."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, ask("create", "nodes"), Node(metadata=ObjectMeta(name="n1")), by=NAMELESS)

    assert caught.value.message == (
        'nodes "n1" is forbidden: could not determine node from user "system:node:"'
    )


# --- its Node, its lease, its Pods ----------------------------------------------------------------


def a_node(name: str = "n1", **spec: Any) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=spec)


OWNER = OwnerReference(api_version="v1", kind="Node", name="n1", uid="uid-n1", controller=True)
ONLY = 'node "n1" can only create pods with '
REFERS = 'node "n1" can not create pods that reference '


def mirror(account: str = "", **spec: Any) -> Pod:
    made = a_pod("new", annotations=MIRROR, owner_references=(OWNER,))
    return replace(made, spec={"nodeName": "n1", "serviceAccountName": account} | spec)


TAINTED = a_node(taints=[{"key": "a", "effect": "NoSchedule"}])
RESERVED = {"node-restriction.orch.io/tier": "secret"}


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [
        (a_node("n2"), None, 'node "n1" is not allowed to modify node "n2"'),
        (a_node("n2"), a_node("n2"), 'node "n1" is not allowed to modify node "n2"'),
        (
            a_node().with_meta(labels=RESERVED),
            None,
            'node "n1" is not allowed to set the following labels: node-restriction.orch.io/tier',
        ),
        (
            a_node().with_meta(labels={"b.orch.io/x": "1", "orch.io/a": "1", "free": "1"}),
            None,
            'node "n1" is not allowed to set the following labels: b.orch.io/x, orch.io/a',
        ),
        (
            a_node(),
            a_node().with_meta(labels=RESERVED),
            "is not allowed to modify labels: node-restriction.orch.io/tier",
        ),
        (
            a_node(configSource={}),
            None,
            'node "n1" is not allowed to create pods with a non-nil configSource',
        ),
        (
            a_node(configSource={}),
            a_node(),
            'node "n1" is not allowed to update configSource to a new non-nil configSource',
        ),
        (a_node(), TAINTED, 'node "n1" is not allowed to modify taints'),
        (
            a_node().with_meta(owner_references=(OwnerReference(uid="u"),)),
            a_node(),
            'node "n1" is not allowed to modify ownerReferences',
        ),
    ],
)
async def test_a_node_changes_only_its_own_node(
    here: World, new: Node, old: Node | None, text: str
) -> None:
    """Neither another Node, nor what keeps workloads away from it."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, ask("update", "nodes", name=new.name), new, old)

    assert caught.value.message == f'nodes "{new.name}" is forbidden: {text}'


async def test_a_node_may_register_and_keep_its_own_node(here: World) -> None:
    """A node may create itself with taints and the labels that describe it."""
    labels = {"orch.io/hostname": "n1", "topology.orch.io/zone": "z", "x.node.orch.io/y": "1"}
    await admit(here, ask("create", "nodes"), TAINTED.with_meta(labels=labels))
    await admit(
        here, ask("update", "nodes", name="n1"), a_node().with_meta(labels={"a": "b"}), a_node()
    )
    await delete(here, a_node())


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (
            a_pod("new"),
            'pod does not have "orch.io/config.mirror" annotation, node "n1" can only create '
            "mirror pods",
        ),
        (
            a_pod("new", "n2", annotations=MIRROR),
            'node "n1" can only create pods with spec.nodeName set to itself',
        ),
        (mirror(account="admin"), REFERS + "serviceaccounts"),
        (mirror(imagePullSecrets=[{"name": "s"}]), REFERS + "secrets"),
        (
            mirror(containers=[{"env": [{"valueFrom": {"configMapKeyRef": {"name": "c"}}}]}]),
            REFERS + "configmaps",
        ),
        (mirror(resourceClaims=[{}]), REFERS + "resourceclaims"),
        (mirror(volumes=[{"persistentVolumeClaim": {}}]), REFERS + "persistentvolumeclaims"),
        (mirror(volumes=[{"secret": {}}]), REFERS + "secrets (via secret volumes)"),
        (mirror(volumes=VOLUMES), REFERS + "serviceaccounts (via projected volumes)"),
    ],
)
async def test_a_node_creates_only_mirrors_of_its_own_pods(
    here: World, new: Pod, text: str
) -> None:
    """A Pod that a node makes up proves no identity."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, PODS, new)

    assert caught.value.message == f'pods "new" is forbidden: {text}'


@pytest.mark.parametrize(
    ("owners", "text"),
    [
        ((), ONLY + "an owner reference set to itself"),
        ((OWNER, OWNER), ONLY + "a single owner reference set to itself"),
        ((replace(OWNER, name="n2"),), ONLY + "an owner reference set to itself"),
        ((replace(OWNER, kind="Pod"),), ONLY + "an owner reference set to itself"),
        ((replace(OWNER, controller=None),), ONLY + "a controller owner reference set to itself"),
        (
            (replace(OWNER, block_owner_deletion=True),),
            'node "n1" must not set blockOwnerDeletion on an owner reference',
        ),
        ((replace(OWNER, uid="old"),), "node n1 UID mismatch: expected old got uid-n1"),
    ],
)
async def test_a_mirror_belongs_to_its_node(
    here: World, owners: tuple[OwnerReference, ...], text: str
) -> None:
    """To that very Node and to nothing else, so that both go together."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, PODS, mirror().with_meta(owner_references=owners))

    assert caught.value.message == f'pods "new" is forbidden: {text}'


async def test_a_node_that_is_not_registered_mirrors_nothing(here: World) -> None:
    """There is no Node that the Pod could belong to."""
    stranger = UserInfo(username="system:node:n9", groups=("system:nodes",))
    owner = replace(OWNER, name="n9")
    new = replace(mirror(), spec={"nodeName": "n9"}).with_meta(owner_references=(owner,))

    with pytest.raises(NotFound, match=r'^node "n9" not found$'):
        await admit(here, PODS, new, by=stranger)


@pytest.mark.parametrize(
    ("target", "new", "old", "text"),
    [
        (
            STATUS,
            a_pod(node="n2"),
            a_pod(node="n2"),
            'node "n1" can only update pod status for pods with spec.nodeName set to itself',
        ),
        (
            STATUS,
            a_pod(),
            a_pod(annotations=MIRROR),
            'node "n1" can not change the "orch.io/config.mirror" annotation',
        ),
        (
            STATUS,
            a_pod(labels={"a": "b"}),
            a_pod(),
            'node "n1" cannot update labels through pod status',
        ),
        (
            ask("update", "pods", "ci", "web"),
            a_pod(),
            a_pod(),
            'unexpected operation "UPDATE", node "n1" can only create and delete mirror pods',
        ),
    ],
)
async def test_a_node_changes_only_the_status_of_its_pods(
    here: World, target: Target, new: Pod, old: Pod, text: str
) -> None:
    """And not the mark that keeps a mirror from opening secrets to it."""
    with pytest.raises(Forbidden) as caught:
        await admit(here, target, new, old)

    assert caught.value.message == f'pods "web" is forbidden: {text}'


async def test_a_node_handles_its_own_pods(here: World) -> None:
    """Mirrors, status and deletion of what runs on it."""
    await admit(here, PODS, mirror(volumes=[{"hostPath": {"path": "/x"}}]))
    await admit(here, STATUS, a_pod(), a_pod())
    await delete(here, a_pod())

    with pytest.raises(Forbidden, match=r"can only delete pods with spec\.nodeName set to itself"):
        await delete(here, a_pod("far", "n2"))
    with pytest.raises(Forbidden, match='is not allowed to modify node "n2"'):
        await delete(here, a_node("n2"))


@pytest.mark.parametrize(
    ("namespace", "name", "text"),
    [
        ("ci", "n1", 'can only access leases in the "orch-node-lease" system namespace'),
        (
            "orch-node-lease",
            "n2",
            "can only access node lease with the same name as the requesting node",
        ),
    ],
)
async def test_a_node_holds_its_own_lease_only(
    here: World, namespace: str, name: str, text: str
) -> None:
    """Another node's lease would make that node look alive."""
    lease = Lease(metadata=ObjectMeta(name=name, namespace=namespace))

    for attempt in (admit(here, ask("create", "leases", namespace), lease), delete(here, lease)):
        with pytest.raises(ApiError) as caught:
            await attempt
        assert caught.value.message.endswith(f"is forbidden: {text}")
    own = Lease(metadata=ObjectMeta(name="n1", namespace="orch-node-lease"))
    await admit(here, ask("create", "leases", "orch-node-lease"), own)


async def test_news_of_a_pod_counts_before_its_token_is_made(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server deleted the Pod; this one receives the change during the request."""
    entry = here.feed.of(Pod).get("ci", "web")
    assert entry is not None
    fresh = here.feed.fresh

    async def with_news() -> int:
        monkeypatch.setattr(here.feed, "fresh", fresh)
        await here.delete(entry.object)
        return await fresh()

    monkeypatch.setattr(here.feed, "fresh", with_news)

    with pytest.raises(NotFound):
        await admit(here, TOKEN, wants("vault"), kind=TOKENS)
