"""The credential and the configuration of a cluster's API server.

`credential` makes an account with the right to call one webhook, and a token of it;
`configuration` and `kubeconfig` are files that the API server reads when it starts. The token is in
a file of its own, which it reads again within a minute: a renewed one needs no restart.
"""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchid.features.accounts.commands import token as tokens
from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.terminal.connection import (
    CONFLICT,
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.flags import write_secret
from orchid.kernel.terminal.output import USAGE, Complaint, say
from orchid.kernel.wire.naming import KUBERNETES, REFERENCE

CONFIGURATION: Final = "authorization.yaml"
KUBECONFIG: Final = "webhook.kubeconfig"
CREDENTIAL: Final = "webhook.token"
DIRECTORY: Final = f"/etc/{REFERENCE.lower()}/orchid"  # beside the other files of an API server
AUTHORIZER: Final = "orchid"  # the name of the webhook in the API server's metrics
RENEW_BEFORE: Final = 30 * 86_400  # seconds
HAS_CACHE_SWITCH: Final = 35  # minor version; earlier ones have no switch, or not all of them

_CONFIGURATION: Final = """\
# Of the API server: --authorization-config={directory}/{name}
# (instead of --authorization-mode). The API server reads it again when its content changes.
apiVersion: {group}/v1
kind: AuthorizationConfiguration
authorizers:
# Before all others: a denial here is final, and no opinion leaves the decision to the others.
- type: Webhook
  name: {authorizer}
  webhook:
    connectionInfo:
      type: KubeConfigFile
      kubeConfigFile: {directory}/{kubeconfig}
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    # No caches: a cached answer would outlive a revocation.
{caches}
    timeout: 3s
    # While Orchid does not answer:
    # NoOpinion  requests are decided without it; revoked credentials work again meanwhile.
    # Deny       requests that match below are refused; nothing revoked works.
    failurePolicy: {policy}
    # The control plane is not asked about, so that a lost Orchid cannot lock the cluster.
    matchConditions:
    - expression: "!(request.user in ['{manager}', '{scheduler}', 'system:apiserver'])"
    - expression: "!('system:serviceaccounts:{system}' in request.groups)"
    # Remove this one to be able to revoke certificates of nodes. With failurePolicy Deny, nodes
    # then depend on Orchid.
    - expression: "!('system:nodes' in request.groups)"
- type: Node
  name: node
- type: RBAC
  name: rbac
"""
_SWITCHED_OFF: Final = """\
    cacheAuthorizedRequests: false
    cacheUnauthorizedRequests: false"""
_SHORTEST: Final = """\
    authorizedTTL: 1ns
    unauthorizedTTL: 1ns"""


def credential(server: ServerConnection, name: str, url: str, seconds: int) -> tuple[str, Json]:
    """A token that may only call the webhook of a cluster; and `spec.credential`."""
    namespace, account = server.naming.system_namespace, account_name(name)
    accounts = path("api", "v1", "namespaces", namespace, "serviceaccounts")
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    try:
        server.post(accounts, body)
    except CommandRefused as refused:
        if refused.status != CONFLICT:
            raise
    rbac, role = server.naming.rbac, role_name(name)
    rule = {"nonResourceURLs": [_webhook_path(name)], "verbs": ["post"]}
    ensure(server, _rbac(server, "clusterroles"), _named(rbac, "ClusterRole", role, rules=[rule]))
    binding = _named(
        rbac,
        "ClusterRoleBinding",
        role,
        roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    )
    ensure(server, _rbac(server, "clusterrolebindings"), binding)
    answer = tokens.request(server, namespace, account, audiences=[], seconds=seconds)["status"]
    expires = answer["expirationTimestamp"]
    record = {"namespace": namespace, "name": account, "expires": expires, "url": url}
    return str(answer["token"]), record


def remove_credential(server: ServerConnection, name: str) -> None:
    """Delete the account and its permission; its token becomes invalid."""
    namespace = server.naming.system_namespace
    accounts = path("api", "v1", "namespaces", namespace, "serviceaccounts")
    for where in (
        f"{_rbac(server, 'clusterrolebindings')}/{role_name(name)}",
        f"{_rbac(server, 'clusterroles')}/{role_name(name)}",
        f"{accounts}/{account_name(name)}",
    ):
        delete_if_there(server, where)


def account_name(cluster: str) -> str:
    """With a dot: neither a controller's account nor the name of a cluster has one."""
    return f"cluster-webhook.{cluster}"


def role_name(cluster: str) -> str:
    return f"cluster-webhook:{cluster}"


def webhook_url(server: str, name: str) -> str:
    parts = urlsplit(server)
    if parts.scheme != "https" or not parts.hostname:
        raise Complaint(f"--url: {server!r} is not an https URL", USAGE)
    return server.rstrip("/") + _webhook_path(name)


def _webhook_path(name: str) -> str:
    return f"/webhook/clusters/{name}/authorize"


def minor_version(cluster: ServerConnection) -> int:
    digits = re.match(r"\d+", str(cluster.get("/version").get("minor", "")))
    return int(digits.group()) if digits else 0


def configuration(policy: str, minor: int, directory: str) -> str:
    """The AuthorizationConfiguration of the API server, which has its files in a directory."""
    return _CONFIGURATION.format(
        name=CONFIGURATION,
        directory=directory,
        group=KUBERNETES.server_config,
        authorizer=AUTHORIZER,
        kubeconfig=KUBECONFIG,
        caches=_SWITCHED_OFF if minor >= HAS_CACHE_SWITCH else _SHORTEST,
        policy=policy,
        manager=KUBERNETES.controller_manager_user,
        scheduler=KUBERNETES.scheduler_user,
        system=KUBERNETES.system_namespace,
    )


def kubeconfig(access: ServerAccess, url: str, directory: str) -> str:
    """The kubeconfig by which the API server, which has its files in a directory, calls."""
    user = {"tokenFile": f"{directory}/{CREDENTIAL}"}
    return kubeconfig_of({**_trust(access), "server": url}, user, AUTHORIZER)


def kubeconfig_of(cluster: Json, user: Json, name: str) -> str:
    from orchid.kernel.wire.codec import yaml_text

    return yaml_text.dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    ).decode()


def _trust(access: ServerAccess) -> Json:
    fields: Json = {}
    if access.authority:
        fields["certificate-authority-data"] = base64.b64encode(access.authority).decode()
    if access.server_name:
        fields["tls-server-name"] = access.server_name
    return fields


def hand_out(
    files: dict[str, str], directory: Path | None, report: Callable[[str], None] = say
) -> None:
    """Write the files readable only by their owner, or print them."""
    for name, text in files.items():
        if directory is None:
            say(f"# {name}\n{text.rstrip()}\n---")
            continue
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Complaint(f"cannot create {directory}: {error.strerror}") from None
        write_secret(directory / name, text.encode())
        report(f"wrote {directory / name}")


def ensure(server: ServerConnection, collection: str, body: Json) -> Json:
    """Create an object, or replace the one of its name, keeping its other metadata."""
    try:
        return server.post(collection, body)
    except CommandRefused as refused:
        if refused.status != CONFLICT:
            raise
    where = f"{collection}{path(body['metadata']['name'])}"
    metadata = {**server.get(where)["metadata"], **body["metadata"]}
    return server.put(where, {**body, "metadata": metadata})


def delete_if_there(server: ServerConnection, where: str) -> None:
    try:
        server.delete(where)
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise


def _rbac(server: ServerConnection, plural: str) -> str:
    return server.group("rbac.authorization", "v1", plural)


def _named(group: str, kind: str, name: str, **rest: object) -> Json:
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, **rest}
