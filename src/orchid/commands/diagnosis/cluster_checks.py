"""The checks of `orchid cluster doctor`: a revocation takes effect in a cluster.

`examined` compares the Cluster with the cluster itself, then tests it: two tokens of a scratch
account are requested and used, one is revoked and must get 403 while the other works. Account and
revocation are removed again. If the revoked token still works, the API server's metrics show why:
not configured, or failing calls.
"""

import re
import secrets
from collections.abc import Iterator
from typing import Final, NamedTuple

from orchid.clock import SystemClock
from orchid.commands.accounts import token as tokens
from orchid.commands.clusters import cluster_facts, cluster_setup
from orchid.commands.diagnosis.findings import Finding, good, note, soon, wrong
from orchid.commands.terminal import times
from orchid.commands.terminal.connection import (
    FORBIDDEN,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.commands.terminal.kubeconfig_file import FLAG, FoundKubeconfig
from orchid.commands.terminal.output import Complaint
from orchid.credentials.secret import SecretValue
from orchid.outbound.kubeconfig import ServerAccess

OLDEST: Final = 32  # minor version: the first that reports the ids of certificates
NAMESPACE: Final = "default"
LIFETIME: Final = 600  # seconds
PATIENCE: Final = 5.0  # seconds
EVALUATIONS: Final = "apiserver_authorization_webhook_evaluations_total"
FAILED_OPEN: Final = "apiserver_authorization_webhook_evaluations_fail_open_total"
FAULTS: Final = (
    "look for a wrong address or authority in webhook.kubeconfig, a token that has expired (orchid "
    "cluster credential), a network in between, or an Orchid that does not run"
)
_SAMPLE: Final = re.compile(r"^(\w+)\{(.*)\} ([0-9.e+]+)$")


class Evaluations(NamedTuple):
    """The API server's counts of webhook calls, from its metrics."""

    succeeded: int
    failed: int


def examined(
    server: ServerConnection, there: ServerConnection, name: str
) -> list[tuple[str, Finding]]:
    """Every finding with the name of its check."""
    found = server.get(cluster_facts.place(server, name))
    results: list[tuple[str, Finding]] = []
    for check, findings in (
        ("credential", _credential(found)),
        ("version", _version(there)),
        ("issuer", _issuer(found, there)),
        ("authorities", _authorities(found, there)),
        ("calls", _calls(found)),
        ("revocation", _revocation(server, there, name)),
    ):
        try:
            results += [(check, finding) for finding in findings]
        except Complaint as problem:
            results.append((check, wrong(f"this could not be checked: {problem}")))
    return results


def _credential(found: Json) -> Iterator[Finding]:
    end = times.parse((found["spec"].get("credential") or {}).get("expires"))
    if end is None:
        yield note("no credential of its API server is on record")
        return
    left = (end - times.now()).total_seconds()
    advice = f"run: orchid cluster credential {found['metadata']['name']}"
    if left <= 0:
        yield wrong(f"the token of its API server has expired, {times.until(end)}", advice)
    elif left < cluster_setup.RENEW_BEFORE:
        yield soon(f"the token of its API server expires {times.until(end)}", advice)
    else:
        yield good(f"the token of its API server expires {times.until(end)}")


def _version(there: ServerConnection) -> Iterator[Finding]:
    minor = cluster_setup.minor_version(there)
    if minor and minor < OLDEST:
        yield wrong(
            f"the API server is of version 1.{minor}, and 1.{OLDEST} is the first that reports the "
            "ids of all credentials",
            "revoke users and accounts, or upgrade it",
        )
    else:
        yield good(f"the API server is of version 1.{minor}")


def _issuer(found: Json, there: ServerConnection) -> Iterator[Finding]:
    known, actual = found["spec"].get("issuer", ""), cluster_facts.issuer_of(there)
    if known == actual:
        yield good(f"the issuer is {actual}")
    else:
        yield wrong(f"the issuer is {actual}, and here {known}", "run: orchid cluster add")


def _authorities(found: Json, there: ServerConnection) -> Iterator[Finding]:
    known, actual = found["spec"].get("clientAuthorities", ""), cluster_facts.authorities_of(there)
    if known.split() == actual.split():
        yield good("the client authorities are the same as here")
    else:
        yield wrong("the client authorities are others than here", "run: orchid cluster add")


def _calls(found: Json) -> Iterator[Finding]:
    status = found.get("status") or {}
    last, malformed = times.parse(status.get("lastCall")), status.get("malformed", 0)
    if last is None:
        yield soon("its API server has never called", "configure it: see orchid cluster add")
    else:
        text = f"{status.get('calls', 0)} calls, {status.get('denials', 0)} denials"
        yield good(f"{text}; the last one {times.until(last)}")
    if malformed:
        yield wrong(f"{malformed} calls were no reviews", "is the address another program's?")


# -- the proof ---------------------------------------------------------------------------------


def _revocation(server: ServerConnection, there: ServerConnection, name: str) -> Iterator[Finding]:
    account = f"orchid-doctor-{secrets.token_hex(4)}"
    accounts = path("api", "v1", "namespaces", NAMESPACE, "serviceaccounts")
    before = _evaluations(there)
    there.post(
        accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    )
    try:
        yield from _try(server, there, name, account, before)
    finally:
        there.delete(f"{accounts}/{account}")


def _try(
    server: ServerConnection,
    there: ServerConnection,
    name: str,
    account: str,
    before: Evaluations | None,
) -> Iterator[Finding]:
    stolen, other = (
        tokens.request(there, NAMESPACE, account, audiences=[], seconds=LIFETIME)["status"]["token"]
        for _ in range(2)
    )
    for token in (stolen, other):
        if refusal := _refusal(there, token):
            yield wrong(f"a new token does not work: {refusal}")
            return
    revocations = path("apis", server.names.identity, "v1alpha1", "credentialrevocations")
    claims = tokens.decode(stolen)[1]
    # A hold, so that it can be deleted again.
    spec = {
        "cluster": name,
        "token": {"jti": str(claims.get("jti", "")), "expires": times.text_of(claims["exp"])},
        "reason": "certificateHold",
        "message": "orchid cluster doctor",
    }
    made = server.post(
        revocations,
        {
            "apiVersion": f"{server.names.identity}/v1alpha1",
            "kind": "CredentialRevocation",
            "metadata": {"generateName": "doctor-"},
            "spec": spec,
        },
    )
    try:
        yield from _judged(there, stolen, other, made["metadata"]["name"], before)
    finally:
        server.delete(f"{revocations}/{made['metadata']['name']}")


def _judged(
    there: ServerConnection, stolen: str, other: str, revocation: str, before: Evaluations | None
) -> Iterator[Finding]:
    monotonic = SystemClock.monotonic
    begun, refusal = monotonic(), ""
    while not refusal and monotonic() - begun < PATIENCE:
        refusal = _refusal(there, stolen)
    took = (monotonic() - begun) * 1000
    if revocation in refusal:
        yield good(f"a revoked token got 403 after {took:.0f} ms")
    elif refusal:
        yield wrong(f"a revoked token was refused for another reason: {refusal}")
    else:
        yield _why(before, _evaluations(there))
    if refusal := _refusal(there, other):
        yield wrong(f"another token of the same account is refused: {refusal}")
    else:
        yield good("another token of the same account works")
    yield from _failures(_evaluations(there))


def _why(before: Evaluations | None, after: Evaluations | None) -> Finding:
    """Why a revoked token works, as far as the API server's metrics show it."""
    text = f"a revoked token still worked after {PATIENCE:g} seconds"
    if before is None or after is None:
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


def _failures(now: Evaluations | None) -> Iterator[Finding]:
    if now is None:
        yield note("the metrics of the API server cannot be read, so failed calls are not counted")
    elif now.failed:
        text = f"{now.failed} of {now.failed + now.succeeded} calls of the webhook have failed"
        yield soon(f"{text} since the API server started", FAULTS)
    else:
        yield good(f"none of {now.succeeded} calls of the webhook has failed")


def _refusal(there: ServerConnection, token: str) -> str:
    """Why a token is refused; "" if it works."""
    access = there.access
    bearer = ServerAccess(
        server=access.server,
        user="the scratch account",
        authority=access.authority,
        server_name=access.server_name,
        insecure=access.insecure,
        given_token=SecretValue(token),
    )
    caller = ServerConnection(bearer, FoundKubeconfig((), FLAG))
    names = there.names
    body = {"apiVersion": f"{names.authentication}/v1", "kind": "SelfSubjectReview"}
    try:
        caller.post(path("apis", names.authentication, "v1", "selfsubjectreviews"), body)
    except CommandRefused as refused:
        text = str(refused).splitlines()[0]
        return text if refused.status == FORBIDDEN else f"status {refused.status}: {text}"
    finally:
        caller.close()
    return ""


def _evaluations(there: ServerConnection) -> Evaluations | None:
    """The API server's count of calls; None without access to it."""
    status, page = there.text("/metrics")
    if status != 200:  # noqa: PLR2004 -- forbidden, or a server without metrics
        return None
    succeeded = failed = 0
    wanted = f'name="{cluster_setup.AUTHORIZER}"'
    for line in page.splitlines():
        sample = _SAMPLE.match(line) if line.startswith(EVALUATIONS) else None
        if sample is None or wanted not in sample.group(2):
            continue
        number = int(float(sample.group(3)))
        if 'result="success"' in sample.group(2):
            succeeded += number
        else:
            failed += number
    return Evaluations(succeeded, failed)
