"""The policy a server starts with: the roles of the contract, and what each caller gets of it."""

from collections.abc import AsyncIterator

import pytest

from orchid.assembly.components import controller_accounts, default_policy
from orchid.assembly.features import FEATURES
from orchid.features.nodes.roles import node_rules
from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.bootstrap import BootstrapPolicy, joined
from orchid.features.rights.kinds import role as role_kind
from orchid.features.rights.kinds import role_binding as binding_kind
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.default_roles import EDIT, DefaultRole
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming
from orchid.kernel.wire.policy_rules import READ, WRITE, rule
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import ask, ask_path, policy_world
from tests.unit.kernel.access.world import World

POLICY = default_policy(ORCH)
RULES = {role.name: role.rules for role in POLICY.cluster_roles}
CERTS, AUTHN, AUTHZ, RBAC_GROUP = (
    ORCH.certificates,
    ORCH.authentication,
    ORCH.authorization,
    ORCH.rbac,
)
SOMEBODY = UserInfo("jane", groups=("system:authenticated",))
STRANGER = UserInfo("system:anonymous", groups=("system:unauthenticated",))
ADMIN = UserInfo("root", groups=("system:masters", "system:authenticated"))


def all_objects(policy: BootstrapPolicy) -> list[Object]:
    return [
        *policy.cluster_roles,
        *policy.roles,
        *policy.cluster_role_bindings,
        *policy.role_bindings,
    ]


def by_name(role: DefaultRole) -> str:
    return role.name


def controller(word: str) -> UserInfo:
    name = controller_accounts(ORCH)[word]
    groups = (
        "system:serviceaccounts",
        "system:serviceaccounts:orch-system",
        "system:authenticated",
    )
    return UserInfo(f"system:serviceaccount:orch-system:{name}", groups=groups)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A world that holds the bootstrap policy."""
    async with policy_world() as made:
        for number, wanted in enumerate(all_objects(POLICY)):
            await made.put(wanted.with_meta(uid=f"u{number}"))
        yield made


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES], ids=lambda naming: naming.name)
def test_every_object_passes_its_own_rules(naming: Naming) -> None:
    """Objects that the server writes itself are valid in both namings."""
    policy = default_policy(naming)
    kinds = {
        kind.type: kind for kind in (*role_kind.declare(naming), *binding_kind.declare(naming))
    }

    problems = [
        (wanted.name, str(error))
        for wanted in all_objects(policy)
        for error in kinds[type(wanted)].rules.validate(wanted)
    ]

    assert problems == []


def test_the_order_of_features_changes_no_role() -> None:
    """A role to which several features add rules is the same bytes, whichever comes first."""
    parts = [part for feature in FEATURES for part in feature.roles(ORCH)]
    backwards = [part for feature in reversed(FEATURES) for part in feature.roles(ORCH)]

    assert len(parts) > len(joined(parts))
    assert sorted(joined(parts), key=by_name) == sorted(joined(backwards), key=by_name)


def test_rules_of_several_features_become_one_role() -> None:
    """Equal verbs on one group are one rule; reading comes before acting as others and writing."""
    accounts = DefaultRole(EDIT, (rule(WRITE, "", ("serviceaccounts",)), rule(READ, "", ("a",))))
    acting = DefaultRole(EDIT, (rule(("impersonate",), "", ("serviceaccounts",)),))
    named = DefaultRole(EDIT, (rule(WRITE, "", ("pods",), "x"), rule(WRITE, "b", ("pods",))))

    (role,) = joined([accounts, acting, named, DefaultRole(EDIT, (rule(READ, "", ("pods",)),))])

    assert role.rules == (
        rule(READ, "", ("a", "pods")),
        rule(("impersonate",), "", ("serviceaccounts",)),
        rule(WRITE, "", ("serviceaccounts",)),
        rule(WRITE, "", ("pods",), "x"),
        rule(WRITE, "b", ("pods",)),
    )


def test_names_are_given_once_and_every_binding_finds_its_role() -> None:
    """No object overwrites another and no binding points at nothing."""
    keys = [(type(o), o.namespace, o.name) for o in all_objects(POLICY)]
    roles = {role.name for role in POLICY.roles}

    assert len(keys) == len(set(keys))
    assert all(binding.role_ref.name in RULES for binding in POLICY.cluster_role_bindings)
    assert all(binding.role_ref.name in roles for binding in POLICY.role_bindings)


def test_every_object_carries_the_marks() -> None:
    """Label and annotation say that the server keeps these up to date."""
    for wanted in all_objects(POLICY):
        assert wanted.metadata.labels["orch.io/bootstrapping"] == "rbac-defaults"
        assert wanted.metadata.annotations["rbac.authorization.orch.io/autoupdate"] == "true"
    for wanted in all_objects(default_policy(KUBERNETES)):
        assert wanted.metadata.annotations["rbac.authorization.kubernetes.io/autoupdate"] == "true"


def test_lists_inside_rules_are_sorted() -> None:
    """Two servers write the same bytes."""
    for role in (*POLICY.cluster_roles, *POLICY.roles):
        for each in role.rules or ():
            for values in (each.verbs, each.api_groups, each.resources, each.non_resource_urls):
                assert list(values) == sorted(values)


def test_the_roles_of_the_contract_are_there() -> None:
    """Operators find the roles they know."""
    wanted = {
        "admin",
        "cluster-admin",
        "edit",
        "system:auth-delegator",
        "system:basic-user",
        "system:certificates.orch.io:certificatesigningrequests:nodeclient",
        "system:certificates.orch.io:certificatesigningrequests:selfnodeclient",
        "system:certificates.orch.io:legacy-unknown-approver",
        "system:certificates.orch.io:orch-apiserver-client-approver",
        "system:certificates.orch.io:orch-apiserver-client-orchlet-approver",
        "system:certificates.orch.io:orchlet-serving-approver",
        "system:cluster-trust-bundle-discovery",
        "system:controller:certificate-controller",
        "system:controller:orch-apiserver-serving-clustertrustbundle-publisher",
        "system:controller:root-ca-cert-publisher",
        "system:controller:service-account-controller",
        "system:discovery",
        "system:monitoring",
        "system:node",
        "system:node-bootstrapper",
        "system:orch-controller-manager",
        "system:orch-scheduler",
        "system:public-info-viewer",
        "system:service-account-issuer-discovery",
        "view",
    }

    assert wanted <= set(RULES)


def test_nodes_hold_their_role_through_the_node_authorizer_only() -> None:
    """The binding exists and has no subjects."""
    (binding,) = [b for b in POLICY.cluster_role_bindings if b.name == "system:node"]

    assert binding.subjects == ()
    assert RULES["system:node"] == node_rules(ORCH)


@pytest.mark.parametrize(
    ("caller", "target", "expected"),
    [
        (SOMEBODY, ask_path("get", "/api"), True),
        (SOMEBODY, ask_path("get", "/apis/x/v1"), True),
        (SOMEBODY, ask_path("get", "/metrics"), False),
        (SOMEBODY, ask("create", "selfsubjectreviews", group=AUTHN), True),
        (SOMEBODY, ask("create", "selfsubjectaccessreviews", group=AUTHZ), True),
        (SOMEBODY, ask("create", "tokenreviews", group=AUTHN), False),
        (SOMEBODY, ask("watch", "clustertrustbundles", group=CERTS), True),
        (SOMEBODY, ask("create", "clustertrustbundles", group=CERTS), False),
        (SOMEBODY, ask_path("get", "/openid/v1/jwks"), True),
        (STRANGER, ask_path("get", "/livez"), True),
        (STRANGER, ask_path("get", "/api"), False),
        (STRANGER, ask("list", "clustertrustbundles", group=CERTS), False),
        (ADMIN, ask("approve", "signers", name="orch.io/x", group=CERTS), True),
        (controller("csrapproving"), ask_path("get", "/openid/v1/jwks"), True),
        (
            controller("csrapproving"),
            ask("update", "certificatesigningrequests/approval", name="x", group=CERTS),
            True,
        ),
        (
            controller("csrapproving"),
            ask("approve", "signers", name=ORCH.node_client_signer, group=CERTS),
            True,
        ),
        (
            controller("csrapproving"),  # policies may speak of any signer
            ask("approve", "signers", name="example.com/x", group=CERTS),
            True,
        ),
        (
            controller("csrapproving"),
            ask("watch", "approvalpolicies", group=ORCH.identity),
            True,
        ),
        (
            controller("csrapproving"),
            ask("update", "approvalpolicies", name="x", group=ORCH.identity),
            False,
        ),
        (
            controller("csrapproving"),
            ask("sign", "signers", name=ORCH.node_client_signer, group=CERTS),
            False,
        ),
        (
            controller("csrsigning"),
            ask("sign", "signers", name=ORCH.client_signer, group=CERTS),
            True,
        ),
        (
            controller("csrsigning"),
            ask("sign", "signers", name="example.com/x", group=CERTS),
            False,
        ),
        (
            controller("csrsigning"),
            ask("sign", "certificateauthorities", name="web", group=ORCH.identity),
            True,
        ),
        (
            controller("csrsigning"),
            ask("update", "certificateauthorities/status", name="web", group=ORCH.identity),
            False,
        ),
        (
            controller("csrsigning"),
            ask("list", "secrets"),
            False,
        ),
        (
            controller("certificate-authority"),
            ask("attest", "certificateauthorities", name="web", group=ORCH.identity),
            True,
        ),
        (
            controller("certificate-authority"),
            ask("sign", "certificateauthorities", name="web", group=ORCH.identity),
            False,
        ),
        (
            controller("certificate-authority"),
            ask("attest", "signers", name="example.com/x", group=CERTS),
            False,
        ),
        (
            controller("certificate-authority"),
            ask("create", "secrets", namespace=ORCH.system_namespace),
            False,
        ),
        (
            controller("csrsigning"),
            ask("update", "certificatesigningrequests/approval", name="x", group=CERTS),
            False,
        ),
        (
            controller("csrcleaner"),
            ask("delete", "certificatesigningrequests", name="x", group=CERTS),
            True,
        ),
        (controller("csrcleaner"), ask("get", "secrets", "ci", "x"), False),
        (controller("serviceaccount"), ask("create", "serviceaccounts", "ci"), True),
        (controller("serviceaccount"), ask("create", "serviceaccounts/token", "ci", "x"), False),
        (controller("serviceaccount-token"), ask("update", "secrets", "ci", "x"), True),
        (controller("serviceaccount-token"), ask("create", "secrets", "ci"), False),
        (controller("root-ca-certificate-publisher"), ask("update", "configmaps", "ci", "x"), True),
        (controller("root-ca-certificate-publisher"), ask("get", "secrets", "ci", "x"), False),
        (controller("tokencleaner"), ask("delete", "secrets", "orch-system", "x"), True),
        (controller("tokencleaner"), ask("delete", "secrets", "ci", "x"), False),
        (controller("namespace"), ask("deletecollection", "secrets", "ci"), True),
        (controller("namespace"), ask("update", "secrets", "ci", "x"), False),
        (controller("garbagecollector"), ask("delete", "pods", "ci", "x"), True),
        (
            controller("trust-bundle-publisher"),
            ask("attest", "signers", name=ORCH.server_serving_signer, group=CERTS),
            True,
        ),
        (
            controller("leader-election"),
            ask("update", "leases", "orch-system", "orch-controller-manager", ORCH.coordination),
            True,
        ),
        (
            controller("leader-election"),
            ask("update", "leases", "ci", "orch-controller-manager", ORCH.coordination),
            False,
        ),
    ],
)
async def test_what_callers_get(
    here: World, caller: UserInfo, target: Target, expected: bool
) -> None:
    """Everybody gets what they need on the first day, and no more."""
    rbac = RBAC(ORCH, here.feed, here.offload)

    assert (await rbac.authorize(caller, target)).allowed is expected


@pytest.mark.parametrize(
    ("role", "target", "expected"),
    [
        ("view", ask("get", "serviceaccounts", "ci", "x"), True),
        ("view", ask("get", "secrets", "ci", "x"), False),
        ("edit", ask("get", "serviceaccounts", "ci", "x"), True),
        ("edit", ask("create", "serviceaccounts/token", "ci", "x"), True),
        ("edit", ask("impersonate", "serviceaccounts", "ci", "x"), True),
        ("edit", ask("create", "roles", "ci", group=RBAC_GROUP), False),
        ("admin", ask("create", "roles", "ci", group=RBAC_GROUP), True),
        ("admin", ask("get", "secrets", "ci", "x"), True),
        ("admin", ask("create", "clusterroles", group=RBAC_GROUP), False),
        ("admin", ask("create", "certificatesigningrequests", group=CERTS), False),
    ],
)
async def test_the_roles_to_hand_out_are_gathered_by_label(
    here: World, role: str, target: Target, expected: bool
) -> None:
    """view is part of edit and edit of admin, without a controller having filled them in."""
    (wanted,) = [r for r in POLICY.cluster_roles if r.name == role]
    await here.put(
        binding_kind.ClusterRoleBinding(
            metadata=wanted.with_meta(name="b", uid="b").metadata,
            subjects=(binding_kind.Subject(kind="User", api_group=RBAC_GROUP, name="jane"),),
            role_ref=binding_kind.RoleRef(RBAC_GROUP, "ClusterRole", role),
        )
    )

    decision = await RBAC(ORCH, here.feed, here.offload).authorize(UserInfo("jane"), target)

    assert decision.allowed is expected
