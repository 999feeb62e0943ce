"""Trust bundles and revocation lists of signers, as the server publishes them."""

import hashlib

from orchid.features.hosts.agent.calls import NOT_MODIFIED, ServerCalls
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.credentials.x509.trust import trust_anchors
from orchid.kernel.outbound.api_connection import path


def bundle_of(calls: ServerCalls, signer: str) -> bytes:
    """All trust anchors of a signer as PEM, in a stable order; b"" if it has no bundle."""
    url = calls.group("certificates", "v1beta1", "clustertrustbundles")
    response = calls.get(url, {"fieldSelector": f"spec.signerName={signer}"})
    blocks: dict[bytes, None] = {}
    bundles = response.get("items") or []
    for bundle in sorted(bundles, key=lambda entry: str(entry["metadata"]["name"])):
        text = str((bundle.get("spec") or {}).get("trustBundle") or "")
        blocks.update(dict.fromkeys(trust_anchors.anchors(text)))
    return b"".join(pem.encode(pem.CERTIFICATE, der) for der in blocks)


def has_common_anchor(one: bytes, other: bytes) -> bool:
    """Whether two bundles share an anchor."""
    first, second = (set(trust_anchors.anchors(text.decode("latin-1"))) for text in (one, other))
    return bool(first & second)


def revocation_list(calls: ServerCalls, authority: str, present: bytes) -> bytes:
    """The revocation lists of an authority, as PEM; `present` itself if it is the current one.

    The entity tag of a list is its SHA-256, so a restarted agent does not fetch it again.
    """
    tag = f'"{hashlib.sha256(present).hexdigest()}"' if present else ""
    reply = calls.page(path("crl", f"{authority}.pem"), tag)
    return present if reply.status == NOT_MODIFIED else reply.data
