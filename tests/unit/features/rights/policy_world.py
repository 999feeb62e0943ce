"""A world with roles and bindings, and short words to write them with."""

import itertools
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from orchid.features.accounts.kinds import service_account
from orchid.features.certificates.kinds import pod_certificate_request
from orchid.features.objects.kinds import lease, namespace, node, secret
from orchid.features.objects.kinds.pod import pod
from orchid.features.rights.kinds import role, role_binding
from orchid.features.rights.kinds.role import ClusterRole, Role
from orchid.features.rights.kinds.role_binding import (
    ClusterRoleBinding,
    RoleBinding,
    RoleRef,
    Subject,
)
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import PolicyRule
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.world import World, world_of

UIDS = itertools.count(1)
BOB = UserInfo(username="bob", groups=("dev", "system:authenticated"))


def meta(name: str, namespace: str = "", **more: Any) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, uid=f"uid-{next(UIDS)}", **more)


def rule(verbs: str, resources: str, group: str = "", names: Iterable[str] = ()) -> PolicyRule:
    """`rule("get list", "pods secrets")`"""
    return PolicyRule(
        verbs=tuple(verbs.split()),
        api_groups=(group,),
        resources=tuple(resources.split()),
        resource_names=tuple(names),
    )


def urls(verbs: str, paths: str) -> PolicyRule:
    return PolicyRule(verbs=tuple(verbs.split()), non_resource_urls=tuple(paths.split()))


def a_role(namespace: str, name: str, *rules: PolicyRule) -> Role:
    return Role(metadata=meta(name, namespace), rules=rules)


def a_cluster_role(name: str, *rules: PolicyRule, **labels: str) -> ClusterRole:
    return ClusterRole(metadata=meta(name, labels=labels), rules=rules)


def user(name: str) -> Subject:
    return Subject(kind="User", api_group=ORCH.rbac, name=name)


def group(name: str) -> Subject:
    return Subject(kind="Group", api_group=ORCH.rbac, name=name)


def account(namespace: str, name: str) -> Subject:
    return Subject(kind="ServiceAccount", name=name, namespace=namespace)


def role_ref(name: str, kind: str = "ClusterRole") -> RoleRef:
    return RoleRef(api_group=ORCH.rbac, kind=kind, name=name)


def bound(name: str, role_name: str, *subjects: Subject) -> ClusterRoleBinding:
    return ClusterRoleBinding(metadata=meta(name), subjects=subjects, role_ref=role_ref(role_name))


def bound_in(
    namespace: str, name: str, role_name: str, *subjects: Subject, kind: str = "Role"
) -> RoleBinding:
    return RoleBinding(
        metadata=meta(name, namespace), subjects=subjects, role_ref=role_ref(role_name, kind)
    )


def ask(
    verb: str,
    resource: str,
    namespace: str = "",
    name: str = "",
    group: str = "",
    **more: str,
) -> Target:
    """`ask("get", "pods/status", "ci", "web")`"""
    resource, _, subresource = resource.partition("/")
    return Target(
        verb=verb,
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        **more,
    )


def ask_path(verb: str, path: str) -> Target:
    return Target(verb=verb, path=path)


def policy_world() -> AbstractAsyncContextManager[World]:
    """An empty world whose kinds are those that authorization and admission look at."""
    return world_of(
        *role.declare(ORCH),
        *role_binding.declare(ORCH),
        service_account.declare(ORCH),
        pod_certificate_request.declare(ORCH),
        *(k.declare(ORCH) for k in (pod, secret, node, namespace, lease)),
    )
