"""The roles and bindings of a new server, as data.

Start with `bootstrap_policy`. It joins what each feature declares in its roles.py, and adds what
belongs to none: the roles `admin`, `edit` and `view`, which are aggregated, and those of programs.
Each controller has a service account of its own and a role with the permissions in its
declaration. reconcile.py writes all this into the store at start.
"""

from collections.abc import Iterable
from typing import Any, Final

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
from orchid.kernel.wire.default_roles import AGGREGATED, DefaultRole
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, PolicyRule, may_record_events, rule
from orchid.kernel.wire.selectors.label_selectors import LabelSelector
from orchid.kernel.wire.struct import replace

LEADER_ELECTION: Final = "leader-election"  # the account that holds the controllers' Lease
READING, ACTING, WRITING = range(3)


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


def bootstrap_policy(
    naming: Naming, declared: Iterable[DefaultRole], controllers: Iterable[ControllerRights]
) -> BootstrapPolicy:
    """`declared`: what the features declare."""
    return _Writer(naming).policy(joined(declared), controllers)


def joined(declared: Iterable[DefaultRole]) -> list[DefaultRole]:
    """The roles of all features, each once."""
    parts: dict[str, list[DefaultRole]] = {}
    for part in declared:
        parts.setdefault(part.name, []).append(part)
    return [_join(same) if len(same) > 1 else same[0] for same in parts.values()]


def _join(parts: list[DefaultRole]) -> DefaultRole:
    """A role of several features: the order of its rules does not depend on that of features."""
    merged: dict[Any, PolicyRule] = {}
    for each in (each for part in parts for each in part.rules):
        key = each.verbs, each.api_groups, each.resource_names, bool(each.resources)
        merged[key] = _merge(earlier, each) if (earlier := merged.get(key)) else each
    return DefaultRole(parts[0].name, tuple(sorted(merged.values(), key=_order)), parts[0].groups)


def _merge(first: PolicyRule, second: PolicyRule) -> PolicyRule:
    return replace(
        first,
        resources=tuple(sorted({*first.resources, *second.resources})),
        non_resource_urls=tuple(sorted({*first.non_resource_urls, *second.non_resource_urls})),
    )


def _order(rule: PolicyRule) -> tuple[Any, ...]:
    """By group; first reading, then acting as others, then writing, many verbs before few."""
    work = {"get": READING, "impersonate": ACTING}.get(rule.verbs[0], WRITING)
    return rule.api_groups[:1], work, -len(rule.verbs), rule.api_groups


class _Writer:
    """Collects roles and bindings, with the labels of objects that the server maintains."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._cluster_roles: list[ClusterRole] = []
        self._cluster_bindings: list[ClusterRoleBinding] = []
        self._roles: list[Role] = []
        self._bindings: list[RoleBinding] = []

    def policy(
        self, declared: Iterable[DefaultRole], controllers: Iterable[ControllerRights]
    ) -> BootstrapPolicy:
        self._aggregated("admin")
        self._aggregated("edit", to="admin")
        self._aggregated("view", to="edit")
        for each in declared:
            self._declared(each)
        self._delegates()
        self._controller_manager()
        self._certificate_controller()
        self._controllers(controllers)
        return BootstrapPolicy(
            tuple(self._cluster_roles),
            tuple(self._cluster_bindings),
            tuple(self._roles),
            tuple(self._bindings),
        )

    def _declared(self, role: DefaultRole) -> None:
        to = role.name.removeprefix(AGGREGATED) if role.name.startswith(AGGREGATED) else ""
        self._role(role.name, *role.rules, to=to)
        if role.groups is not None:
            self._bind(role.name, *map(self._group, role.groups))

    def _delegates(self) -> None:
        """Other servers that delegate authentication and authorization to this one."""
        naming = self._naming
        reader = "extension-apiserver-authentication-reader"
        seen = rule(READ, CORE, ("configmaps",), "extension-apiserver-authentication")
        self._system_role(reader, seen)
        users = (self._user(naming.controller_manager_user), self._user(naming.scheduler_user))
        self._bind_system(f"system::{reader}", reader, *users)

    def _controller_manager(self) -> None:
        naming = self._naming
        manager, scheduler = naming.controller_manager_user, naming.scheduler_user
        delegation = (
            rule(("create",), naming.authentication, ("tokenreviews",)),
            rule(("create",), naming.authorization, ("subjectaccessreviews",)),
        )
        self._role(
            manager,
            may_record_events(naming),
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
        locking = f"system::leader-locking-{naming.controller_lease}"
        self._system_role(locking, *self._leading())
        self._bind_system(locking, locking, self._account(LEADER_ELECTION))

    def _leading(self) -> tuple[PolicyRule, ...]:
        group, lease = self._naming.coordination, self._naming.controller_lease
        return (
            rule(("create",), group, ("leases",)),
            rule(("get", "update"), group, ("leases",), lease),
        )

    def _certificate_controller(self) -> None:
        """All three controllers of certificates in one, for a program made for Kubernetes."""
        naming = self._naming
        group, requests = naming.certificates, "certificatesigningrequests"
        self._controller(
            "certificate-controller",
            rule(("delete", *READ), group, (requests,)),
            rule(("update",), group, (f"{requests}/approval", f"{requests}/status")),
            rule(("approve",), group, ("signers",), naming.node_client_signer),
            rule(("sign",), group, ("signers",), *naming.signing_signers),
            rule(("create",), naming.authorization, ("subjectaccessreviews",)),
            may_record_events(naming),
        )

    def _controllers(self, controllers: Iterable[ControllerRights]) -> None:
        for controller in controllers:
            if controller.in_system_namespace:
                name = f"system:controller:{controller.account}"
                self._system_role(name, *controller.rules)
                self._bind_system(name, name, self._account(controller.account))
            else:
                self._controller(controller.account, *controller.rules)

    # --- builders ---------------------------------------------------------------------------------

    def _role(self, name: str, *rules: PolicyRule, to: str = "") -> None:
        self._cluster_roles.append(ClusterRole(metadata=self._meta(name, to=to), rules=rules))

    def _aggregated(self, name: str, *, to: str = "") -> None:
        selector = LabelSelector(match_labels=self._label(name))
        gathered = AggregationRule(cluster_role_selectors=(selector,))
        role = ClusterRole(metadata=self._meta(name, to=to), aggregation_rule=gathered)
        self._cluster_roles.append(role)

    def _bind(self, role: str, *subjects: Subject) -> None:
        reference = RoleRef(api_group=self._naming.rbac, kind="ClusterRole", name=role)
        self._cluster_bindings.append(
            ClusterRoleBinding(metadata=self._meta(role), subjects=subjects, role_ref=reference)
        )

    def _controller(self, account: str, *rules: PolicyRule) -> None:
        name = f"system:controller:{account}"
        self._role(name, *rules)
        self._bind(name, self._account(account))

    def _system_role(self, name: str, *rules: PolicyRule) -> None:
        meta = self._meta(name, namespace=self._naming.system_namespace)
        self._roles.append(Role(metadata=meta, rules=rules))

    def _bind_system(self, name: str, role: str, *subjects: Subject) -> None:
        reference = RoleRef(api_group=self._naming.rbac, kind="Role", name=role)
        meta = self._meta(name, namespace=self._naming.system_namespace)
        self._bindings.append(RoleBinding(metadata=meta, subjects=subjects, role_ref=reference))

    def _meta(self, name: str, *, namespace: str = "", to: str = "") -> ObjectMeta:
        naming = self._naming
        labels = {naming.bootstrapping_label: "rbac-defaults"}
        if to:
            labels |= self._label(to)
        marks = {naming.autoupdate_annotation: "true"}
        return ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=marks)

    def _label(self, role: str) -> dict[str, str]:
        return {f"{self._naming.rbac}/aggregate-to-{role}": "true"}

    def _group(self, name: str) -> Subject:
        return Subject(kind=GROUP, api_group=self._naming.rbac, name=name)

    def _user(self, name: str) -> Subject:
        return Subject(kind=USER, api_group=self._naming.rbac, name=name)

    def _account(self, name: str) -> Subject:
        home = self._naming.system_namespace
        return Subject(kind=SERVICE_ACCOUNT, name=name, namespace=home)
