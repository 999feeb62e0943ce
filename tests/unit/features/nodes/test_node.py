"""The node authorizer: a node reaches what its Pods refer to, and nothing of other nodes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.certificates.kinds.pod_certificate_request import (
    PodCertificateRequest,
    PodCertificateRequestSpec,
)
from orchid.features.nodes.authorizers.node import NodeAuthorizer
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.engine.interfaces import Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import BOB, ask, ask_path, meta, policy_world
from tests.unit.kernel.access.world import World

REQUESTS = "podcertificaterequests"
N1 = UserInfo(username="system:node:n1", groups=("system:nodes",))
N2 = UserInfo(username="system:node:n2", groups=("system:nodes",))
UNRELATED = "no relationship found between node 'n1' and this object"

SPEC: dict[str, Any] = {
    "nodeName": "n1",
    "serviceAccountName": "app",
    "imagePullSecrets": [{"name": "pull"}],
    "volumes": [
        {"name": "a", "secret": {"secretName": "vol"}},
        {"name": "b", "configMap": {"name": "conf"}},
        {
            "name": "c",
            "projected": {
                "sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "pconf"}}]
            },
        },
    ],
    "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "init"}}]}],
    "containers": [
        {
            "name": "c",
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cenv", "key": "k"}}},
            ],
        }
    ],
}


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A world without Pods."""
    async with policy_world() as made:
        yield made


@pytest.fixture
def nodes(here: World) -> NodeAuthorizer:
    """The authorizer over that world."""
    return NodeAuthorizer(ORCH, here.feed)


def a_pod(name: str = "web", **more: Any) -> Pod:
    return Pod(metadata=meta(name, "ci", **more), spec=dict(SPEC))


@pytest.mark.parametrize("name", ["pull", "vol", "proj", "init", "env"])
async def test_secrets_of_its_pods_are_open_to_a_node(
    here: World, nodes: NodeAuthorizer, name: str
) -> None:
    """Every place in a Pod that can name a secret counts, for its own node only."""
    await here.put(a_pod())

    assert (await nodes.authorize(N1, ask("get", "secrets", "ci", name))).allowed
    assert not (await nodes.authorize(N2, ask("get", "secrets", "ci", name))).allowed
    assert not (await nodes.authorize(N1, ask("get", "secrets", "other", name))).allowed


@pytest.mark.parametrize("name", ["conf", "pconf", "cenv"])
async def test_config_maps_of_its_pods_are_open_to_a_node(
    here: World, nodes: NodeAuthorizer, name: str
) -> None:
    """The same holds for config maps."""
    await here.put(a_pod())

    assert (await nodes.authorize(N1, ask("watch", "configmaps", "ci", name))).allowed
    assert not (await nodes.authorize(N1, ask("get", "secrets", "ci", name))).allowed


async def test_the_relation_ends_with_the_last_pod_that_refers(
    here: World, nodes: NodeAuthorizer
) -> None:
    """References are counted: one Pod less is not yet none."""
    one, two = a_pod("one"), a_pod("two")
    question = ask("create", "serviceaccounts/token", "ci", "app")
    await here.put(one)
    await here.put(two)

    await here.delete(one)
    assert (await nodes.authorize(N1, question)).allowed
    await here.delete(two)
    assert not (await nodes.authorize(N1, question)).allowed


async def test_a_mirror_pod_opens_nothing(here: World, nodes: NodeAuthorizer) -> None:
    """A node writes its mirror Pods itself, so what they refer to proves nothing."""
    await here.put(a_pod(annotations={"orch.io/config.mirror": "x"}))

    assert not (await nodes.authorize(N1, ask("get", "secrets", "ci", "vol"))).allowed
    assert (await nodes.authorize(N1, ask("get", "pods", "ci", "web"))).allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n1", "volumes": "text"},
        {"nodeName": "n1", "volumes": [None, 3, {"secret": ["x"]}]},
        {"nodeName": ["n1"]},
        {"nodeName": "n1", "containers": {"env": [[]]}},
        {},
    ],
)
async def test_odd_pods_are_no_trouble(here: World, nodes: NodeAuthorizer, spec: Any) -> None:
    """A Pod keeps whatever it is given; what makes no sense refers to nothing."""
    await here.put(Pod(metadata=meta("odd", "ci"), spec=spec))

    assert not (await nodes.authorize(N1, ask("get", "secrets", "ci", "x"))).allowed


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (ask("update", "secrets", "ci", "vol"), "can only read resources of this type"),
        (ask("list", "secrets", "ci"), "No Object name found"),
        (ask("list", "configmaps"), "can only read namespaced object of this type"),
        (ask("get", "secrets", "ci", "other"), UNRELATED),
        (
            ask("create", "serviceaccounts", "ci"),
            "can only create tokens for individual service accounts",
        ),
        (
            ask("list", "serviceaccounts", "ci"),
            "can only create tokens for individual service accounts",
        ),
        (
            ask("create", "serviceaccounts/other", "ci", "app"),
            "can only create token subresource of serviceaccount",
        ),
        (ask("create", "serviceaccounts/token", "ci", "other"), UNRELATED),
        (ask("get", "serviceaccounts", "ci", "other"), UNRELATED),
        (ask("get", "pods", "ci", "other"), UNRELATED),
        (ask("list", "pods"), "can only list/watch pods with spec.nodeName field selector"),
        (
            ask("list", "pods", field_selector="spec.nodeName=n2"),
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (ask("list", "pods", "ci", "other"), UNRELATED),
        (ask("get", "serviceaccounts"), "can only read namespaced object of this type"),
        (ask("get", "nodes", name="n2"), "node 'n1' cannot read 'n2', only its own Node object"),
        (ask("update", "clusterroles", name="x", group=ORCH.rbac), ""),
        (
            ask("get", "leases", "orch-node-lease", "n2", ORCH.coordination),
            "can only access node lease with the same name as the requesting node",
        ),
        (
            ask("get", "leases", "ci", "n1", ORCH.coordination),
            'can only access leases in the "orch-node-lease" system namespace',
        ),
    ],
)
async def test_refusals_say_why(
    here: World, nodes: NodeAuthorizer, target: Target, reason: str
) -> None:
    """A refusal is no opinion, so that RBAC may still allow it, and has a reason."""
    await here.put(a_pod())

    decision = await nodes.authorize(N1, target)

    assert (decision.verdict, decision.reason) == (Verdict.NO_OPINION, reason)


@pytest.mark.parametrize(
    "target",
    [
        ask("create", "certificatesigningrequests", group=ORCH.certificates),
        ask("watch", "clustertrustbundles", group=ORCH.certificates),
        ask("create", "tokenreviews", group=ORCH.authentication),
        ask("create", "subjectaccessreviews", group=ORCH.authorization),
        ask("get", "nodes", name="n1"),
        ask("create", "nodes"),
        ask("patch", "nodes/status", name="n1"),
        ask("list", "pods", field_selector="spec.nodeName=n1"),
        ask("patch", "pods/status", "ci", "web"),
        ask("update", "leases", "orch-node-lease", "n1", ORCH.coordination),
        ask("get", "serviceaccounts", "ci", "app"),
        ask("create", "events", "ci"),
    ],
)
async def test_what_every_node_needs_is_allowed(
    here: World, nodes: NodeAuthorizer, target: Target
) -> None:
    """Its own objects and the fixed rules of nodes."""
    await here.put(a_pod())

    assert (await nodes.authorize(N1, target)).allowed


async def test_a_node_reads_no_other_node(nodes: NodeAuthorizer) -> None:
    """Its own Node is all it may see."""
    assert not (await nodes.authorize(N1, ask("get", "nodes", name="n2"))).allowed
    assert not (await nodes.authorize(N1, ask("list", "nodes"))).allowed


async def test_only_nodes_are_judged(nodes: NodeAuthorizer) -> None:
    """A node needs the user name and the group; the refusal of a node without a name says so."""
    for caller in (
        BOB,
        UserInfo(username="system:node:n1"),
        UserInfo("x", groups=("system:nodes",)),
    ):
        decision = await nodes.authorize(caller, ask("create", "nodes"))
        assert (decision.verdict, decision.reason) == (Verdict.NO_OPINION, "")
    nameless = UserInfo(username="system:node:", groups=("system:nodes",))

    decision = await nodes.authorize(nameless, ask("create", "nodes"))

    assert decision.reason == 'unknown node for user "system:node:"'
    assert (await nodes.authorize(nameless, ask_path("get", "/x"))).reason == decision.reason
    assert not (await nodes.authorize(N1, ask_path("get", "/metrics"))).allowed


def test_rules_of_nodes_cannot_be_listed(nodes: NodeAuthorizer) -> None:
    """For nodes the list is incomplete; for others this authorizer adds nothing."""
    listed = nodes.rules_for(N1, "ci")

    assert listed.incomplete
    assert listed.evaluation_error == "node authorizer does not support user rule resolution"
    assert not nodes.rules_for(BOB, "ci").incomplete


async def test_a_right_is_gone_before_all_others_have_heard_of_it(here: World) -> None:
    """A cache notifies its listeners in turn; a decision must include a change that is readable."""
    pod, cache = a_pod(), here.feed.of(Pod)
    verdicts = []

    def asked(_: object) -> None:
        # The first listener asks before the authorizer is notified.
        asking = nodes.authorize(N1, ask("get", "secrets", "ci", "vol"))
        try:
            while True:
                asking.send(None)
        except StopIteration as done:
            verdicts.append(done.value.allowed)

    cache.listen("first", asked)
    nodes = NodeAuthorizer(ORCH, here.feed)
    await here.put(pod)
    await here.delete(pod)
    cache.forget("first")

    assert verdicts == [True, False]


def certificates(verb: str, name: str = "", *, endpoint: str = "", selector: str = "") -> Target:
    resource = f"{REQUESTS}/{endpoint}" if endpoint else REQUESTS
    target = ask(verb, resource, "ci", name, group=ORCH.certificates)
    return replace(target, field_selector=selector)


async def test_a_node_creates_pod_certificate_requests_and_reads_its_own(
    here: World, nodes: NodeAuthorizer
) -> None:
    """By name while the request names the node, in lists by the field that names it."""
    spec = PodCertificateRequestSpec(node_name="n1")
    await here.put(PodCertificateRequest(metadata=meta("req-1", "ci"), spec=spec))
    own = "spec.nodeName=n1"

    for user, target, reason in (
        (N1, certificates("create"), None),
        (N1, certificates("get", "req-1"), None),
        (N2, certificates("get", "req-1"), UNRELATED.replace("n1", "n2")),
        (N1, certificates("get", "req-2"), UNRELATED),
        (N1, certificates("list", selector=own), None),
        (N1, certificates("watch", selector=own), None),
        (
            N2,
            certificates("list", selector=own),
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (
            N1,
            certificates("watch"),
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (N1, certificates("delete", "req-1"), "nodes may not delete podcertificaterequests"),
        (
            N1,
            certificates("update", "req-1", endpoint="status"),
            "nodes may not access the status subresource of PodCertificateRequests",
        ),
    ):
        decision = await nodes.authorize(user, target)
        assert decision.allowed == (reason is None), target
        assert decision.reason == (reason or ""), target
