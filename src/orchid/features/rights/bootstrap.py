"""The roles and bindings of a new server, as data.

Start with `bootstrap_policy`. Roles for people come first, then for certificates, then for
programs: each controller has a service account of its own and a role with the permissions in its
declaration. reconcile.py writes all this into the store at start.

The rules of nodes (`node_rules`) are bound to nobody: features/nodes/authorizers/node.py applies
them, to nodes only, and limited to their own Pods.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from orchid.features.rights.kinds.role import AggregationRule, ClusterRole, Role
from orchid.features.rights.kinds.role_binding import (
    GROUP,
    SERVICE_ACCOUNT,
    USER,
    ClusterRoleBinding,
    RoleBinding,
    RoleRef,
    Subject,
)
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import (
    CORE,
    FULL_AUTHORITY,
    READ,
    PolicyRule,
    may_record_events,
    rule,
)
from orchid.kernel.wire.selectors.label_selectors import LabelSelector
from orchid.kernel.wire.user import AUTHENTICATED, MASTERS, UNAUTHENTICATED

WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")

LEADER_ELECTION: Final = "leader-election"  # the account that holds the controllers' Lease

HEALTH_URLS: Final = ("/healthz", "/livez", "/readyz")
VERSION_URLS: Final = ("/version", "/version/")
DISCOVERY_URLS: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
MONITORING_URLS: Final = (
    "/flagz",
    *HEALTH_URLS,
    *(f"{url}/*" for url in HEALTH_URLS),
    "/metrics",
    "/metrics/slis",
    "/statusz",
)
OPENID_URLS: Final = (
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
)


class BootstrapPolicy(msgspec.Struct, frozen=True):
    """All objects of the first start; roles come before the bindings that refer to them."""

    cluster_roles: tuple[ClusterRole, ...]
    cluster_role_bindings: tuple[ClusterRoleBinding, ...]
    roles: tuple[Role, ...]
    role_bindings: tuple[RoleBinding, ...]


class ControllerRights(msgspec.Struct, frozen=True):
    """The service account, in the system namespace, of one controller, and its permissions."""

    account: str
    rules: tuple[PolicyRule, ...]
    in_system_namespace: bool = False  # whether its permissions are limited to it


def bootstrap_policy(names: Naming, controllers: Iterable[ControllerRights]) -> BootstrapPolicy:
    return _Writer(names).policy(controllers)


def urls(*paths: str) -> PolicyRule:
    return PolicyRule(verbs=("get",), non_resource_urls=tuple(sorted(paths)))


def node_rules(names: Naming) -> tuple[PolicyRule, ...]:
    """Permissions of a node itself; features/nodes/authorizers/node.py decides about its Pods."""
    requests = "certificatesigningrequests"
    reviews = ("subjectaccessreviews", "localsubjectaccessreviews")
    return (
        rule(("create",), names.authentication, ("tokenreviews",)),
        rule(("create",), names.authorization, reviews),
        rule(("create", *READ), names.certificates, (requests,)),
        rule(("create", *READ), names.certificates, ("podcertificaterequests",)),
        rule(READ, names.certificates, ("clustertrustbundles",)),
        rule(("create", *READ), CORE, ("nodes",)),
        rule(("patch", "update"), CORE, ("nodes", "nodes/status")),
        rule(("create", "delete", *READ), CORE, ("pods",)),
        rule(("patch", "update"), CORE, ("pods/status",)),
        rule(("create",), CORE, ("pods/eviction",)),
        rule(READ, CORE, ("configmaps", "secrets")),
        rule(("get",), CORE, ("serviceaccounts",)),
        rule(("create",), CORE, ("serviceaccounts/token",)),
        rule(("create", "delete", "get", "patch", "update"), names.coordination, ("leases",)),
        may_record_events(names),
    )


class _Writer:
    """Collects roles and bindings, with the labels of objects that the server maintains."""

    def __init__(self, names: Naming) -> None:
        self._names = names
        self._cluster_roles: list[ClusterRole] = []
        self._cluster_bindings: list[ClusterRoleBinding] = []
        self._roles: list[Role] = []
        self._bindings: list[RoleBinding] = []

    def policy(self, controllers: Iterable[ControllerRights]) -> BootstrapPolicy:
        self._everybody()
        self._people()
        self._delegates()
        self._certificates()
        self._identity_staff()
        self._controller_manager()
        self._certificate_controller()
        self._controllers(controllers)
        return BootstrapPolicy(
            tuple(self._cluster_roles),
            tuple(self._cluster_bindings),
            tuple(self._roles),
            tuple(self._bindings),
        )

    def _everybody(self) -> None:
        names = self._names
        self._role("cluster-admin", *FULL_AUTHORITY)
        self._bind("cluster-admin", self._group(MASTERS))
        self._role("system:discovery", urls(*DISCOVERY_URLS, *HEALTH_URLS, *VERSION_URLS))
        self._bind("system:discovery", self._group(AUTHENTICATED))
        self._role("system:public-info-viewer", urls(*HEALTH_URLS, *VERSION_URLS))
        public = (self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        self._bind("system:public-info-viewer", *public)
        own = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
        self._role(
            "system:basic-user",
            rule(("create",), names.authorization, own),
            rule(("create",), names.authentication, ("selfsubjectreviews",)),
        )
        self._bind("system:basic-user", self._group(AUTHENTICATED))
        self._role(
            "system:monitoring", urls(*MONITORING_URLS), rule(("get",), CORE, ("nodes/metrics",))
        )
        self._bind("system:monitoring", self._group("system:monitoring"))

    def _people(self) -> None:
        """Roles to grant in a namespace, aggregated by label."""
        names = self._names
        self._aggregated("admin")
        self._aggregated("edit", to="admin")
        self._aggregated("view", to="edit")
        written = ("configmaps", "pods", "secrets", "serviceaccounts")
        self._role(
            "system:aggregate-to-view",
            rule(
                READ,
                CORE,
                ("configmaps", "namespaces", "pods", "pods/status", "serviceaccounts"),
            ),
            rule(READ, (CORE, names.events), ("events",)),
            to="view",
        )
        self._role(
            "system:aggregate-to-edit",
            rule(READ, CORE, ("secrets",)),
            rule(("impersonate",), CORE, ("serviceaccounts",)),
            rule(WRITE, CORE, written),
            rule(WRITE, (CORE, names.events), ("events",)),
            rule(("create",), CORE, ("serviceaccounts/token",)),
            rule((*READ, *WRITE), names.coordination, ("leases",)),
            rule((*READ, *WRITE), names.identity, ("tokenexchangepolicies",)),
            rule(("create",), names.identity, ("tokenexchangereviews",)),
            to="edit",
        )
        self._role(
            "system:aggregate-to-admin",
            rule(("create",), names.authorization, ("localsubjectaccessreviews",)),
            rule((*READ, *WRITE), names.rbac, ("rolebindings", "roles")),
            to="admin",
        )

    def _delegates(self) -> None:
        """For other servers that delegate authentication and authorization to this one."""
        names = self._names
        self._role(
            "system:auth-delegator",
            rule(("create",), names.authentication, ("tokenreviews",)),
            rule(("create",), names.authorization, ("subjectaccessreviews",)),
        )
        discovery = "system:service-account-issuer-discovery"
        self._role(discovery, urls(*OPENID_URLS))
        # Relying parties fetch the keys without credentials; nothing in them is secret.
        self._bind(discovery, self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        # A CRL is signed and public.
        lists = "system:revocation-list-reader"
        self._role(lists, PolicyRule(verbs=("get", "head"), non_resource_urls=("/crl/*",)))
        self._bind(lists, self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        # The certificates of authorities are public.
        bundles = "system:published-bundle-reader"
        self._role(bundles, PolicyRule(verbs=("get", "head"), non_resource_urls=("/trust/*",)))
        self._bind(bundles, self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        # A window in which to renew a certificate that the client has already.
        renewal = "system:renewal-information-reader"
        self._role(
            renewal, PolicyRule(verbs=("get", "head"), non_resource_urls=("/renewal-info/*",))
        )
        self._bind(renewal, self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        # ACME requests are signed with the keys of their accounts.
        acme = "system:acme-client"
        self._role(acme, PolicyRule(verbs=("get", "head", "post"), non_resource_urls=("/acme/*",)))
        self._bind(acme, self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        # OAuth endpoints authenticate and authorize their callers themselves.
        endpoints = "system:oauth-client"
        self._role(
            endpoints,
            urls("/.well-known/oauth-authorization-server"),
            PolicyRule(
                verbs=("post",),
                non_resource_urls=("/oauth2/introspect", "/oauth2/revoke", "/oauth2/token"),
            ),
        )
        self._bind(endpoints, self._group(AUTHENTICATED), self._group(UNAUTHENTICATED))
        reader = "extension-apiserver-authentication-reader"
        seen = rule(READ, CORE, ("configmaps",), "extension-apiserver-authentication")
        self._system_role(reader, seen)
        users = (self._user(names.controller_manager_user), self._user(names.scheduler_user))
        self._bind_system(f"system::{reader}", reader, *users)

    def _certificates(self) -> None:
        names = self._names
        group, requests = names.certificates, "certificatesigningrequests"
        self._role("system:node-bootstrapper", rule(("create", *READ), group, (requests,)))
        for word in ("nodeclient", "selfnodeclient"):
            asked = rule(("create",), group, (f"{requests}/{word}",))
            self._role(f"system:{group}:{requests}:{word}", asked)
        for signer in (
            names.legacy_signer,
            names.node_serving_signer,
            names.client_signer,
            names.node_client_signer,
        ):
            word = signer.partition("/")[2]
            approve = rule(("approve",), group, ("signers",), signer)
            self._role(f"system:{group}:{word}-approver", approve)
        # Every authenticated user may read trust anchors; in Kubernetes only service accounts may.
        discovery = "system:cluster-trust-bundle-discovery"
        self._role(discovery, rule(READ, group, ("clustertrustbundles",)))
        self._bind(discovery, self._group(AUTHENTICATED))
        # The holder of a certificate may revoke it. Other revocations need the verb revoke: see
        # features/revoking/policies/revocation_permission.py.
        revoker = "system:own-certificate-revoker"
        self._role(revoker, rule(("create",), names.identity, ("credentialrevocations",)))
        self._bind(revoker, self._group(AUTHENTICATED))
        self._role("system:node", *node_rules(names))
        self._bind("system:node")

    def _identity_staff(self) -> None:
        """Roles for people who request, approve, look up and revoke credentials; bound to
        nobody.

        A role of your own with resourceNames limits approving and revoking to some signers.
        """
        group, identity = self._names.certificates, self._names.identity
        requests = "certificatesigningrequests"
        asking = (
            rule(("create", *READ), group, (requests,)),
            rule(("create",), identity, ("approvalreviews",)),
        )
        recorded = ("clusters", "credentialrevocations", "issuedcertificates")
        inventory = rule(READ, identity, recorded)
        self._role("certificate-requester", *asking)
        # ACME clients get their certificates from /acme/, and read no requests.
        self._role("acme-requester", rule(("create",), group, (requests,)))
        self._role(
            "certificate-approver",
            rule(READ, group, (requests,)),
            rule(("update",), group, (f"{requests}/approval",)),
            rule(("approve",), group, ("signers",)),
            rule(("create",), identity, ("approvalreviews",)),
            rule(READ, identity, ("approvalpolicies", "certificateauthorities")),
        )
        self._role("certificate-inventory-viewer", inventory)
        self._role(
            "credential-revoker",
            inventory,
            rule(("create", "delete"), identity, ("credentialrevocations",)),
            rule(("revoke",), group, ("signers",)),
            rule(("revoke",), CORE, ("serviceaccounts", "users")),
            rule(("revoke",), identity, ("clusters",)),
        )
        self._role("ledger-viewer", urls("/ledger/*"))
        # Importing or revoking a key takes more: see docs/rotation.md.
        self._role(
            "system:key-operator",
            rule(
                ("activate", "create", "patch", "retire", "update", *READ),
                identity,
                ("signingkeys",),
            ),
        )

    def _controller_manager(self) -> None:
        names = self._names
        manager, scheduler = names.controller_manager_user, names.scheduler_user
        delegation = (
            rule(("create",), names.authentication, ("tokenreviews",)),
            rule(("create",), names.authorization, ("subjectaccessreviews",)),
        )
        self._role(
            manager,
            may_record_events(names),
            *self._leading(),
            rule(("create",), CORE, ("secrets", "serviceaccounts")),
            rule(("delete",), CORE, ("secrets",)),
            rule(("get",), CORE, ("configmaps", "namespaces", "secrets", "serviceaccounts")),
            rule(("update",), CORE, ("secrets", "serviceaccounts")),
            *delegation,
            rule(("list", "watch"), "*", ("*",)),
            rule(("create",), CORE, ("serviceaccounts/token",)),
        )
        self._bind(manager, self._user(manager))
        self._role(scheduler, *delegation)
        self._bind(scheduler, self._user(scheduler))
        locking = f"system::leader-locking-{names.controller_lease}"
        self._system_role(locking, *self._leading())
        self._bind_system(locking, locking, self._account(LEADER_ELECTION))

    def _leading(self) -> tuple[PolicyRule, ...]:
        group, lease = self._names.coordination, self._names.controller_lease
        return (
            rule(("create",), group, ("leases",)),
            rule(("get", "update"), group, ("leases",), lease),
        )

    def _certificate_controller(self) -> None:
        """All three controllers of certificates in one, for a program made for Kubernetes."""
        names = self._names
        group, requests = names.certificates, "certificatesigningrequests"
        self._controller(
            "certificate-controller",
            rule(("delete", *READ), group, (requests,)),
            rule(("update",), group, (f"{requests}/approval", f"{requests}/status")),
            rule(("approve",), group, ("signers",), names.node_client_signer),
            rule(("sign",), group, ("signers",), *names.signing_signers),
            rule(("create",), names.authorization, ("subjectaccessreviews",)),
            may_record_events(names),
        )

    def _controllers(self, controllers: Iterable[ControllerRights]) -> None:
        for one in controllers:
            if one.in_system_namespace:
                name = f"system:controller:{one.account}"
                self._system_role(name, *one.rules)
                self._bind_system(name, name, self._account(one.account))
            else:
                self._controller(one.account, *one.rules)

    # --- builders ---------------------------------------------------------------------------------

    def _role(self, name: str, *rules: PolicyRule, to: str = "") -> None:
        self._cluster_roles.append(ClusterRole(metadata=self._meta(name, to=to), rules=rules))

    def _aggregated(self, name: str, *, to: str = "") -> None:
        selector = LabelSelector(match_labels=self._label(name))
        gathered = AggregationRule(cluster_role_selectors=(selector,))
        role = ClusterRole(metadata=self._meta(name, to=to), aggregation_rule=gathered)
        self._cluster_roles.append(role)

    def _bind(self, role: str, *subjects: Subject) -> None:
        reference = RoleRef(api_group=self._names.rbac, kind="ClusterRole", name=role)
        self._cluster_bindings.append(
            ClusterRoleBinding(metadata=self._meta(role), subjects=subjects, role_ref=reference)
        )

    def _controller(self, account: str, *rules: PolicyRule) -> None:
        name = f"system:controller:{account}"
        self._role(name, *rules)
        self._bind(name, self._account(account))

    def _system_role(self, name: str, *rules: PolicyRule) -> None:
        meta = self._meta(name, namespace=self._names.system_namespace)
        self._roles.append(Role(metadata=meta, rules=rules))

    def _bind_system(self, name: str, role: str, *subjects: Subject) -> None:
        reference = RoleRef(api_group=self._names.rbac, kind="Role", name=role)
        meta = self._meta(name, namespace=self._names.system_namespace)
        self._bindings.append(RoleBinding(metadata=meta, subjects=subjects, role_ref=reference))

    def _meta(self, name: str, *, namespace: str = "", to: str = "") -> ObjectMeta:
        names = self._names
        labels = {names.bootstrapping_label: "rbac-defaults"}
        if to:
            labels |= self._label(to)
        marks = {names.autoupdate_annotation: "true"}
        return ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=marks)

    def _label(self, role: str) -> dict[str, str]:
        return {f"{self._names.rbac}/aggregate-to-{role}": "true"}

    def _group(self, name: str) -> Subject:
        return Subject(kind=GROUP, api_group=self._names.rbac, name=name)

    def _user(self, name: str) -> Subject:
        return Subject(kind=USER, api_group=self._names.rbac, name=name)

    def _account(self, name: str) -> Subject:
        home = self._names.system_namespace
        return Subject(kind=SERVICE_ACCOUNT, name=name, namespace=home)
