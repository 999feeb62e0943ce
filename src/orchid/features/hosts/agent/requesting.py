"""Certificate requests of the agent: sent once, found again after a restart, waited for.

`obtain` returns the certificate of a request, or raises `Waiting` or `Denied`. The key is on disk
before the request is sent, and the name of the request is a hash of the host and the key: a
response that was lost costs nothing, the agent finds its request again.
"""

import base64
import binascii
import datetime
import hashlib
import os
from typing import Final, NamedTuple

from orchid.features.hosts.agent.calls import CLOCK_ERROR, FORBIDDEN, ApiRefused, ServerCalls
from orchid.features.hosts.agent.held_certificate import (
    HeldCertificate,
    RequestedNames,
    new_key,
    read_held,
)
from orchid.features.hosts.agent.running.schedule import AFTER_DENIAL
from orchid.features.hosts.agent.state_directory import SavedRequest, StateDirectory
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.credentials.x509.certificate_request import AlternativeNames, build_request
from orchid.kernel.outbound.api_connection import Json, path

HASH_DIGITS: Final = 40
_SETTLED_BADLY: Final = ("Denied", "Failed")


class Waiting(Exception):
    """The request is undecided, or approved and not signed yet."""


class Denied(Exception):
    """The request was denied, or its signer refused it; the next one follows after `seconds`."""

    def __init__(self, text: str, seconds: float = AFTER_DENIAL) -> None:
        super().__init__(text)
        self.seconds = seconds


class Placement(NamedTuple):
    """The Pod that places an account on this host, with the uids that a request names."""

    namespace: str
    pod: str
    pod_uid: str
    account: str
    account_uid: str
    node: str
    node_uid: str


class WantedCertificate(NamedTuple):
    """A certificate that an item of the agent needs."""

    item: str
    host: str
    signer: str
    key_type: str
    names: RequestedNames = RequestedNames()
    groups: tuple[str, ...] = ()
    usages: tuple[str, ...] = ()
    seconds: int = 0
    placement: Placement | None = None  # request by PodCertificateRequest

    @property
    def purpose(self) -> str:
        """A digest; a request for another purpose is not continued."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()


def obtain(
    calls: ServerCalls,
    state: StateDirectory,
    requested: WantedCertificate,
    reused_key: keys.PrivateKey | None = None,
    *,
    keeps_denial: bool = True,
) -> HeldCertificate:
    """The certificate of the request of this item, which is created if there is none.

    With `keeps_denial`, a denial is stored: the next request follows an hour later, also after a
    restart.
    """
    now = calls.clocks.now()
    pending, url, record = _continued(state, requested, now), _url(calls, requested), None
    if pending is None:
        pending = _new_pending(requested, reused_key)
        state.save_request(requested.item, pending)
    else:
        record = _find(calls, f"{url}/{pending.name}")
    if record is None:
        key = keys.read_private_key(pending.key.encode())
        body = _body(calls, requested, pending.name, key)
        record = calls.create(url, body) or calls.get(f"{url}/{pending.name}")
    status = record.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") in _SETTLED_BADLY:
            reason, message = condition.get("reason", ""), condition.get("message", "")
            text = f"request {pending.name}: {condition['type']}: {reason}: {message}"
            if keeps_denial:
                state.deny_request(requested.item, pending, now, text)
            else:
                state.drop_request(requested.item)
            raise Denied(text)
    chain = _chain(status)
    if not chain:
        raise Waiting(f"request {pending.name} waits for approval")
    held = read_held(chain, pending.key.encode())
    if held is None:
        state.drop_request(requested.item)
        raise Denied(f"request {pending.name}: the certificate is not for our key")
    return held


def _continued(
    state: StateDirectory, requested: WantedCertificate, now: datetime.datetime
) -> SavedRequest | None:
    """The request under way, unless it is for something else or damaged."""
    pending = state.request(requested.item)
    if pending is None or pending.purpose != requested.purpose:
        return None
    if pending.denied is not None:
        left = AFTER_DENIAL - (now - pending.denied).total_seconds()
        if 0 < left <= AFTER_DENIAL + CLOCK_ERROR:
            raise Denied(pending.reason, min(left, AFTER_DENIAL))
        return None
    try:
        keys.read_private_key(pending.key.encode())
    except Refusal:
        return None
    return pending


def _find(calls: ServerCalls, url: str) -> Json | None:
    """A request, or None. A node may not even learn that a PodCertificateRequest is missing."""
    try:
        return calls.find(url)
    except ApiRefused as refused:
        if refused.status != FORBIDDEN:
            raise
        return None


def _new_pending(requested: WantedCertificate, reused_key: keys.PrivateKey | None) -> SavedRequest:
    key = reused_key or new_key(requested.key_type)
    digest = hashlib.sha256(f"{requested.host}\0{requested.item}\0".encode())
    digest.update(keys.spki(key.public_key()))
    if reused_key is not None:
        digest.update(os.urandom(16))  # the name of the previous request may still exist
    name = f"agent-{digest.hexdigest()[:HASH_DIGITS]}"
    return SavedRequest(name=name, key=keys.encode_private(key), purpose=requested.purpose)


def _url(calls: ServerCalls, wanted: WantedCertificate) -> str:
    if wanted.placement is None:
        return calls.group("certificates", "v1", "certificatesigningrequests")
    namespace = wanted.placement.namespace
    return calls.group("certificates", "v1", "namespaces", namespace, "podcertificaterequests")


def _body(
    calls: ServerCalls, requested: WantedCertificate, name: str, key: keys.PrivateKey
) -> Json:
    names = AlternativeNames(requested.names.hosts, requested.names.addresses, requested.names.uris)
    request = build_request(key, requested.names.common_name, requested.groups, names)
    kind, spec = "CertificateSigningRequest", _spec(requested, request)
    if requested.placement is not None:
        kind, spec = "PodCertificateRequest", _pod_spec(requested, requested.placement, request)
    return {
        "apiVersion": f"{calls.naming.certificates}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _spec(requested: WantedCertificate, request: bytes) -> Json:
    spec: Json = {"request": base64.b64encode(request).decode(), "signerName": requested.signer}
    if requested.usages:
        spec["usages"] = list(requested.usages)
    if requested.seconds:
        spec["expirationSeconds"] = requested.seconds
    return spec


def _pod_spec(requested: WantedCertificate, placement: Placement, request: bytes) -> Json:
    (block,) = pem.split(request)
    spec: Json = {
        "signerName": requested.signer,
        "podName": placement.pod,
        "podUID": placement.pod_uid,
        "serviceAccountName": placement.account,
        "serviceAccountUID": placement.account_uid,
        "nodeName": placement.node,
        "nodeUID": placement.node_uid,
        "stubPKCS10Request": base64.b64encode(block.data).decode(),
    }
    if requested.seconds:
        spec["maxExpirationSeconds"] = requested.seconds
    return spec


def _chain(status: Json) -> bytes:
    if chain := status.get("certificateChain"):
        return str(chain).encode()
    try:
        return base64.b64decode(status.get("certificate") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


def placement_of(calls: ServerCalls, pod: Json, host: str) -> Placement:
    """The uids of a Pod, its account and its Node."""
    meta, account = pod["metadata"], pod["spec"]["serviceAccountName"]
    namespace = meta["namespace"]
    service_account = calls.get(
        path("api", "v1", "namespaces", namespace, "serviceaccounts", account)
    )
    node = calls.get(path("api", "v1", "nodes", host))
    return Placement(
        namespace=namespace,
        pod=meta["name"],
        pod_uid=meta["uid"],
        account=account,
        account_uid=service_account["metadata"]["uid"],
        node=host,
        node_uid=node["metadata"]["uid"],
    )
