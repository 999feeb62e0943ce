"""What a host can authenticate with, and how that ends.

Start with `end_credentials`. A host has certificates, join tokens and requests; the Pods that name
it are the accounts placed on it.
"""

import base64
from collections.abc import Callable, Iterator

from orchid.features.certificates.commands import issued
from orchid.features.revoking.commands import revocations
from orchid.kernel.terminal.connection import (
    CONFLICT,
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.wire.user import NODE_PREFIX

FORBIDDEN = 403
REQUESTS = "certificatesigningrequests"
RecordsOf = Callable[[ServerConnection, str], Iterator[Json]]


def end_credentials(
    server: ServerConnection, host: str, reason: str, message: str, records_of: RecordsOf
) -> tuple[int, int]:
    """Revoke everything that a host can authenticate with; return how many certificates and tokens.

    The holder of a stolen key may renew at the same time. So the join tokens and the user come
    first: nothing that was issued until then can request more. What was requested before is deleted
    or, if it was issued meanwhile, revoked. This is repeated until nothing new appears.
    """
    tokens = [token for name, token in join_tokens(server) if name == host]
    for token in tokens:
        _delete(server, token_url(server, token["metadata"]["name"]))
    revoked: set[str] = set()
    while True:
        revoke_user(server, host, reason, message)
        requests = requests_of(server, host)
        for url in requests:
            _delete(server, url)
        live = live_of(server, records_of(server, host))
        new = live.keys() - revoked
        for name in new:
            _revoke_certificate(server, live[name], reason, message)
        revoked |= new
        if not (new or requests):
            return len(revoked), len(tokens)


def all_of(server: ServerConnection, host: str) -> Iterator[Json]:
    """The certificates of a host, and those that it requested for others."""
    yield from certificates_of(server, host)
    yield from _requested(server, "username", f"{NODE_PREFIX}{host}")
    yield from _requested(server, "nodeName", host)


def live_of(server: ServerConnection, records: Iterator[Json]) -> dict[str, Json]:
    """The certificates that are valid or revoked with their user alone, by name."""
    return {one["metadata"]["name"]: one for one in revocations.without_own(server, records)}


def _delete(server: ServerConnection, url: str) -> None:
    """Delete an object, unless it is gone already."""
    try:
        server.delete(url)
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise


def revoke_user(server: ServerConnection, host: str, reason: str, message: str) -> None:
    """Revoke every credential of the host that was issued until now."""
    target = {"user": {"username": f"{NODE_PREFIX}{host}"}}
    _post_revocation(server, "user-", target, reason, message)


def _revoke_certificate(server: ServerConnection, record: Json, reason: str, message: str) -> None:
    spec = record["spec"]
    named = {"serialNumber": spec["serialNumber"], "signerName": spec["signerName"]}
    _post_revocation(server, "certificate-", {"certificate": named}, reason, message)


def _post_revocation(
    server: ServerConnection, prefix: str, target: Json, reason: str, message: str
) -> None:
    body: Json = {
        "apiVersion": f"{server.naming.identity}/v1",
        "kind": "CredentialRevocation",
        "metadata": {"generateName": prefix},
        "spec": {**target, "reason": reason, "message": message},
    }
    try:  # without the warning that this supersedes a revocation: it is repeated on purpose
        server.post(revocations.url(server), body, warnings=False)
    except CommandRefused as refused:
        # The server says CONFLICT only if a revocation covers the same credential.
        if refused.status != CONFLICT or not refused.about:
            raise


# -- what belongs to a host ------------------------------------------------------------------


def node_certificates(server: ServerConnection) -> Iterator[Json]:
    signer = server.naming.node_client_signer
    return server.items(issued.url(server), {"fieldSelector": f"spec.signerName={signer}"})


def certificates_of(server: ServerConnection, host: str) -> Iterator[Json]:
    """The certificates by which a host authenticates."""
    user = f"{NODE_PREFIX}{host}"
    return (one for one in node_certificates(server) if issued.common_name(one) == user)


def _requested(server: ServerConnection, field: str, value: str) -> Iterator[Json]:
    """The certificates that a user requested, or the accounts that are placed on a host."""
    query = {"fieldSelector": f"spec.requester.{field}={issued.escaped(value)}"}
    return server.items(issued.url(server), query)


def requests_of(server: ServerConnection, host: str) -> list[str]:
    """Requests without a certificate: of a host, its join tokens and the accounts placed on it.

    Also of tokens that have ended: a request that waits would be approved later.
    """
    url, naming = server.group("certificates", "v1", REQUESTS), server.naming
    urls = []
    for csr in server.items(url):
        spec, extra = csr["spec"], csr["spec"].get("extra") or {}
        is_own = spec.get("username") == f"{NODE_PREFIX}{host}"
        bound = [*extra.get(naming.bound_node_name, ()), *extra.get(naming.node_name_extra, ())]
        is_issued = bool((csr.get("status") or {}).get("certificate"))
        if not is_issued and (is_own or host in bound):
            urls.append(f"{url}/{csr['metadata']['name']}")
    return urls


def pods_of(server: ServerConnection, host: str) -> Iterator[Json]:
    query = {"fieldSelector": f"spec.nodeName={issued.escaped(host)}"}
    return server.items(path("api", "v1", "pods"), query)


def join_tokens(server: ServerConnection) -> list[tuple[str, Json]]:
    """Join tokens, each with its host; none if the caller may not read them."""
    kind = server.naming.bootstrap_token_type
    try:
        secrets = list(server.items(token_url(server), {"fieldSelector": f"type={kind}"}))
    except CommandRefused as refused:
        if refused.status != FORBIDDEN:
            raise
        return []
    named = ((secret.get("data", {}).get("node-name", ""), secret) for secret in secrets)
    return [
        (base64.b64decode(name).decode("utf-8", "replace"), secret)
        for name, secret in named
        if name
    ]


def token_url(server: ServerConnection, *parts: str) -> str:
    return path("api", "v1", "namespaces", server.naming.system_namespace, "secrets", *parts)
