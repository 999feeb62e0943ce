"""The account by which Orchid reads the certificate requests of a cluster.

`prepare` creates it in the cluster, with the right to read certificatesigningrequests and to renew
its own token. `store` stores its kubeconfig in a Secret of the system namespace of Orchid, which
belongs to the Cluster. Only the controller that records certificates may read that Secret, by a
Role for this cluster alone.
"""

import base64
from typing import Final

from orchid.features.accounts.commands import token as tokens
from orchid.features.clusters.commands import cluster_setup
from orchid.features.clusters.commands.cluster_setup import delete_if_there, ensure
from orchid.features.clusters.kinds.cluster import inventory_secret
from orchid.kernel.terminal.connection import (
    CONFLICT,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.wire.naming import CLIENT, KUBERNETES

ACCOUNT: Final = "orchid-inventory"
NAMESPACE: Final = KUBERNETES.system_namespace
CONTROLLER: Final = "cluster-inventory"  # the account of the controller, in Orchid
LIFETIME: Final = 30 * 86_400  # seconds; the controller renews the token
DELETION: Final = (
    f"{CLIENT} -n {NAMESPACE} delete serviceaccount,role,rolebinding {ACCOUNT}; "
    f"{CLIENT} delete clusterrole,clusterrolebinding {ACCOUNT}"
)


def prepare(cluster: ServerConnection, name: str) -> str:
    """Create the account in the cluster; give its kubeconfig."""
    _grant_in_cluster(cluster)
    token = tokens.request(cluster, NAMESPACE, ACCOUNT, audiences=[], seconds=LIFETIME)["status"]
    access = cluster.access
    entry: Json = {"server": access.server}
    if access.authority:
        entry["certificate-authority-data"] = base64.b64encode(access.authority).decode()
    if access.server_name:
        entry["tls-server-name"] = access.server_name
    return cluster_setup.kubeconfig_of(entry, {"token": token["token"]}, name)


def remove(server: ServerConnection, name: str) -> None:
    namespace = server.naming.system_namespace
    for plural in ("rolebindings", "roles"):
        delete_if_there(server, f"{_roles(server, plural)}/{role_name(name)}")
    delete_if_there(
        server, path("api", "v1", "namespaces", namespace, "secrets", inventory_secret(name))
    )


def role_name(cluster: str) -> str:
    return f"cluster-inventory:{cluster}"


def _grant_in_cluster(cluster: ServerConnection) -> None:
    """An account that may read certificate requests, and get tokens of its own."""
    accounts = path("api", "v1", "namespaces", NAMESPACE, "serviceaccounts")
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    try:
        cluster.post(accounts, body)
    except CommandRefused as refused:
        if refused.status != CONFLICT:
            raise
    reads = {
        "apiGroups": [cluster.naming.certificates],
        "resources": ["certificatesigningrequests"],
        "verbs": ["get", "list", "watch"],
    }
    renews = {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": [ACCOUNT],
        "verbs": ["create"],
    }
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ACCOUNT}
    _bind(cluster, "", ACCOUNT, reads, subject)
    _bind(cluster, NAMESPACE, ACCOUNT, renews, subject)


def store(server: ServerConnection, cluster: Json, kubeconfig: str) -> None:
    """Store the Secret of a Cluster, and the Role for it."""
    namespace, meta = server.naming.system_namespace, cluster["metadata"]
    name = meta["name"]
    owner = {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "name": name,
        "uid": meta["uid"],
        "controller": True,
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": inventory_secret(name), "ownerReferences": [owner]},
        "type": "Opaque",
        "data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()},
    }
    ensure(server, path("api", "v1", "namespaces", namespace, "secrets"), secret)
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [inventory_secret(name)],
        "verbs": ["get", "update"],
    }
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": CONTROLLER}
    _bind(server, namespace, role_name(name), rule, subject)


def _bind(server: ServerConnection, namespace: str, name: str, rule: Json, subject: Json) -> None:
    """Give an account one rule, in a namespace or everywhere."""
    rbac = server.naming.rbac
    kind = "Role" if namespace else "ClusterRole"
    role = {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": {"name": name}, "rules": [rule]}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": kind, "name": name},
        "subjects": [subject],
    }
    within = ("namespaces", namespace) if namespace else ()
    plural = f"{kind.lower()}s"
    group = "rbac.authorization"
    ensure(server, server.group(group, "v1", *within, plural), role)
    ensure(server, server.group(group, "v1", *within, f"{kind.lower()}bindings"), binding)


def _roles(server: ServerConnection, plural: str) -> str:
    within = ("namespaces", server.naming.system_namespace)
    return server.group("rbac.authorization", "v1", *within, plural)
