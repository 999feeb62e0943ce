"""The checks of `orchid cluster doctor`: a revocation takes effect in a cluster.

`examined` compares the Cluster with the cluster itself, then tests it: two tokens of a scratch
account are requested and used, one is revoked and must get 403 while the other works. Account and
revocation are removed again. If the revoked token still works, the counts of the API server and of
Orchid show why (webhook_counts.py): not configured, failing calls, or calls that Orchid refused.
"""

import functools
import secrets
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from orchid.features.accounts.commands import token as tokens
from orchid.features.clusters.commands import cluster_facts, cluster_setup
from orchid.features.clusters.commands.webhook_counts import FAULTS, WebhookCounts, counted
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import (
    FORBIDDEN,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.findings import Finding, good, note, soon, wrong
from orchid.kernel.terminal.kubeconfig_file import FLAG, FoundKubeconfig
from orchid.kernel.terminal.output import Complaint

OLDEST: Final = 32  # minor version: the first that reports the ids of certificates
NAMESPACE: Final = "default"
LIFETIME: Final = 600  # seconds
PATIENCE: Final = 5.0  # seconds


def examined(
    server: ServerConnection, cluster: ServerConnection, name: str
) -> list[tuple[str, Finding]]:
    """Every finding with the name of its check."""
    record = server.get(cluster_facts.object_url(server, name))
    results: list[tuple[str, Finding]] = []
    for check, findings in (
        ("credential", _credential(record)),
        ("version", _version(cluster)),
        ("issuer", _issuer(record, cluster)),
        ("authorities", _authorities(record, cluster)),
        ("revocation", _revocation(server, cluster, record)),
        # After the proof, which makes the first calls of a new cluster.
        ("calls", _calls(lambda: server.get(cluster_facts.object_url(server, name)))),
    ):
        try:
            results += [(check, finding) for finding in findings]
        except Complaint as problem:
            results.append((check, wrong(f"this could not be checked: {problem}")))
    return results


def _credential(record: Json) -> Iterator[Finding]:
    end = times.parse((record["spec"].get("credential") or {}).get("expires"))
    if end is None:
        yield note("no credential of its API server is on record")
        return
    left = (end - times.now()).total_seconds()
    advice = f"run: orchid cluster credential {record['metadata']['name']}"
    if left <= 0:
        yield wrong(f"the token of its API server has expired, {times.until(end)}", advice)
    elif left < cluster_setup.RENEW_BEFORE:
        yield soon(f"the token of its API server expires {times.until(end)}", advice)
    else:
        yield good(f"the token of its API server expires {times.until(end)}")


def _version(cluster: ServerConnection) -> Iterator[Finding]:
    minor = cluster_setup.minor_version(cluster)
    if minor and minor < OLDEST:
        yield wrong(
            f"the API server is of version 1.{minor}, and 1.{OLDEST} is the first that reports the "
            "ids of all credentials",
            "revoke users and accounts, or upgrade it",
        )
    else:
        yield good(f"the API server is of version 1.{minor}")


def _issuer(record: Json, cluster: ServerConnection) -> Iterator[Finding]:
    expected, actual = record["spec"].get("issuer", ""), cluster_facts.issuer_of(cluster)
    if expected == actual:
        yield good(f"the issuer is {actual}")
    else:
        yield wrong(f"the issuer is {actual}, and here {expected}", "run: orchid cluster add")


def _authorities(record: Json, cluster: ServerConnection) -> Iterator[Finding]:
    expected, actual = (
        record["spec"].get("clientAuthorities", ""),
        cluster_facts.authorities_of(cluster),
    )
    if expected.split() == actual.split():
        yield good("the client authorities are the same as here")
    else:
        yield wrong("the client authorities are others than here", "run: orchid cluster add")


def _calls(read: Callable[[], Json]) -> Iterator[Finding]:
    status = read().get("status") or {}
    last, malformed = times.parse(status.get("lastCall")), status.get("malformed", 0)
    if last is None:
        yield soon("its API server has never called", "configure it: see orchid cluster add")
    else:
        text = f"{status.get('calls', 0)} calls, {status.get('denials', 0)} denials"
        yield good(f"{text}; the last one {times.until(last)}")
    if malformed:
        text = f"{malformed} calls were no reviews, since the cluster was registered"
        yield soon(text, "is another program configured with its webhook.kubeconfig?")


# -- the proof ---------------------------------------------------------------------------------


def _revocation(
    server: ServerConnection, cluster: ServerConnection, record: Json
) -> Iterator[Finding]:
    url = (record["spec"].get("credential") or {}).get("url", "")
    account = f"orchid-doctor-{secrets.token_hex(4)}"
    accounts = path("api", "v1", "namespaces", NAMESPACE, "serviceaccounts")
    count = functools.partial(counted, server, cluster, url)
    before = count()
    cluster.post(
        accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    )
    try:
        stolen, other = (
            tokens.request(cluster, NAMESPACE, account, audiences=[], seconds=LIFETIME)["status"]
            for _ in range(2)
        )
        proof = Proof(cluster, record["metadata"]["name"], stolen["token"], other["token"], count)
        yield from _try(server, proof, before)
    finally:
        cluster.delete(f"{accounts}/{account}")


class Proof(NamedTuple):
    """Two tokens of an account of a cluster: one is revoked."""

    there: ServerConnection
    cluster: str
    stolen: str
    other: str
    counts: Callable[[], WebhookCounts]


def _try(server: ServerConnection, proof: Proof, before: WebhookCounts) -> Iterator[Finding]:
    for token in (proof.stolen, proof.other):
        if refusal := _refusal(proof.there, token):
            text = f"a new token does not work: {refusal}"
            reason, advice = proof.counts().refusal(before, proof.cluster) or ("", "")
            yield wrong(f"{text}; {reason}" if reason else text, advice)
            return
    revocations = path("apis", server.naming.identity, "v1", "credentialrevocations")
    claims = tokens.decode(proof.stolen)[1]
    # A hold, so that it can be deleted again.
    spec = {
        "cluster": proof.cluster,
        "token": {"jti": str(claims.get("jti", "")), "expires": times.text_of(claims["exp"])},
        "reason": "certificateHold",
        "message": "orchid cluster doctor",
    }
    revocation = server.post(
        revocations,
        {
            "apiVersion": f"{server.naming.identity}/v1",
            "kind": "CredentialRevocation",
            "metadata": {"generateName": "doctor-"},
            "spec": spec,
        },
    )
    try:
        yield from _judged(proof, revocation["metadata"]["name"], before)
    finally:
        server.delete(f"{revocations}/{revocation['metadata']['name']}")


def _judged(proof: Proof, revocation: str, before: WebhookCounts) -> Iterator[Finding]:
    """Whether the one token is refused by the revocation, and the other is not."""
    monotonic = SystemClock.monotonic
    begun, refusal = monotonic(), ""
    while not refusal and monotonic() - begun < PATIENCE:
        refusal = _refusal(proof.there, proof.stolen)
    took = (monotonic() - begun) * 1000
    if revocation in refusal:
        yield good(f"a revoked token got 403 after {took:.0f} ms")
    elif refusal:
        yield wrong(f"a revoked token was refused for another reason: {refusal}")
    else:
        yield _why(before, proof.counts(), proof.cluster)
    if refusal := _refusal(proof.there, proof.other):
        yield wrong(f"another token of the same account is refused: {refusal}")
    else:
        yield good("another token of the same account works")
    yield from _failures(proof.counts())


def _why(before: WebhookCounts, after: WebhookCounts, cluster: str) -> Finding:
    """Why a revoked token works, as far as the counts of both sides show it."""
    text = f"a revoked token still worked after {PATIENCE:g} seconds"
    if refusal := after.refusal(before, cluster):
        return wrong(f"{text}: {refusal[0]}", refusal[1])
    if before.failed is None or after.failed is None:
        return wrong(f"{text}; the metrics of the API server cannot be read", FAULTS)
    if after.failed > before.failed:
        count = after.failed - before.failed
        return wrong(f"{text}: {count} calls of the webhook failed, and were passed over", FAULTS)
    if after.succeeded == before.succeeded:
        name = cluster_setup.AUTHORIZER
        return wrong(
            f"{text}: the API server has no webhook {name!r}, or does not ask it here",
            "is it started with --authorization-config, and the webhook before RBAC?",
        )
    return wrong(
        f"{text}, though the webhook answered",
        "are its caches off, and is its address of this Orchid and this cluster?",
    )


def _failures(now: WebhookCounts) -> Iterator[Finding]:
    if now.failed is None or now.succeeded is None:
        yield note("the metrics of the API server cannot be read, so failed calls are not counted")
    elif now.failed:
        text = f"{now.failed} of {now.failed + now.succeeded} calls of the webhook have failed"
        yield soon(f"{text} since the API server started", FAULTS)
    else:
        yield good(f"none of {now.succeeded} calls of the webhook has failed")


def _refusal(cluster: ServerConnection, token: str) -> str:
    """Why a token is refused; "" if it works."""
    access = cluster.access
    bearer = ServerAccess(
        server=access.server,
        user="the scratch account",
        authority=access.authority,
        server_name=access.server_name,
        insecure=access.insecure,
        given_token=SecretValue(token),
    )
    caller = ServerConnection(bearer, FoundKubeconfig((), FLAG))
    naming = cluster.naming
    body = {"apiVersion": f"{naming.authentication}/v1", "kind": "SelfSubjectReview"}
    try:
        caller.post(path("apis", naming.authentication, "v1", "selfsubjectreviews"), body)
    except CommandRefused as refused:
        text = str(refused).splitlines()[0]
        return text if refused.status == FORBIDDEN else f"status {refused.status}: {text}"
    finally:
        caller.close()
    return ""
