"""A cluster as its API server reports it: the issuer of its tokens and the CAs of its clients."""

from orchid.kernel.terminal.connection import NOT_FOUND, CommandRefused, ServerConnection, path
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.wire.naming import KUBERNETES


def object_url(server: ServerConnection, *parts: str) -> str:
    """The path of a Cluster object, or of all."""
    return path("apis", server.naming.identity, "v1beta1", "clusters", *parts)


def issuer_of(cluster: ServerConnection) -> str:
    try:
        issuer = cluster.get("/.well-known/openid-configuration").get("issuer")
    except CommandRefused as refused:
        raise Complaint(
            f"cannot read the issuer of the cluster ({refused}); add --issuer"
        ) from None
    if not isinstance(issuer, str) or not issuer:
        raise Complaint("the cluster does not report its issuer; add --issuer")
    return issuer


def authorities_of(cluster: ServerConnection) -> str:
    """The CAs of client certificates; none if the cluster accepts none."""
    system = path("api", "v1", "namespaces", KUBERNETES.system_namespace, "configmaps")
    try:
        config_map = cluster.get(f"{system}/extension-apiserver-authentication")
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        return ""
    return str((config_map.get("data") or {}).get("client-ca-file", ""))
