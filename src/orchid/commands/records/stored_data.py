"""Everything that a store holds, by the prefix of its keys, and what a restore does with it.

A backup has all of it. `STORED` has each kind and each record beside the objects; a test compares
it with the catalogue and with the source, so that nothing new is restored by accident.
"""

from typing import Final

import msgspec


class StoredData(msgspec.Struct, frozen=True):
    """What a restore does with the data below a prefix; nothing set: as in the backup."""

    # Its plural in reports, if it is a credential or decides about credentials: what was deleted
    # after the backup is reported, and what was changed.
    revived: str = ""
    kept: bool = False  # records of the replaced database that the backup lacks are kept
    newer: bool = False  # all records of the replaced database are kept
    dropped: bool = False  # it is not restored


PLAIN: Final = StoredData()
KEPT: Final = StoredData(kept=True)
STORED: Final = {
    "core/serviceaccounts/": StoredData("service accounts, with their tokens"),
    "core/secrets/": StoredData("Secrets, with tokens in them"),
    "core/pods/": StoredData("Pods, with tokens bound to them"),
    "core/nodes/": StoredData("Nodes, with tokens bound to them"),
    "core/namespaces/": StoredData("namespaces"),
    "core/configmaps/": PLAIN,
    "core/events/": PLAIN,
    "coordination/leases/": PLAIN,
    "rbac/roles/": StoredData("roles"),
    "rbac/clusterroles/": StoredData("cluster roles"),
    "rbac/rolebindings/": StoredData("role bindings"),
    "rbac/clusterrolebindings/": StoredData("cluster role bindings"),
    "certificates/certificatesigningrequests/": StoredData("certificate requests"),
    "certificates/podcertificaterequests/": StoredData("certificate requests of Pods"),
    "certificates/clustertrustbundles/": StoredData("trust bundles of clusters"),
    "identity/approvalpolicies/": StoredData("approval policies"),
    "identity/tokenexchangepolicies/": StoredData("policies of token exchange"),
    "identity/certificateauthorities/": StoredData("certificate authorities"),
    "identity/signingkeys/": StoredData("signing keys"),
    "identity/publishedbundles/": StoredData("published bundles"),
    "identity/clusters/": StoredData("clusters"),
    "identity/acmeaccounts/": StoredData("ACME accounts"),
    "identity/acmeorders/": StoredData("ACME orders"),
    "identity/issuedcertificates/": KEPT,  # they are valid
    "identity/credentialrevocations/": PLAIN,  # revocations.jsonl brings back later ones
    "identity/consolesessions/": StoredData(dropped=True),  # people sign in again
    "~tombstones/": KEPT,  # keys that were retired or revoked
    "~tokens/": StoredData(newer=True),  # tokens that depend on a key
    "~ledger/": PLAIN,  # it goes back, and is signed after that is accepted
    "~server/": PLAIN,  # the naming and the format of the store
}
REVIVED: Final = {prefix: data.revived for prefix, data in STORED.items() if data.revived}
DROPPED: Final = tuple(prefix for prefix, data in STORED.items() if data.dropped)
KEPT_PREFIXES: Final = tuple(prefix for prefix, data in STORED.items() if data.kept)
NEWER: Final = tuple(prefix for prefix, data in STORED.items() if data.newer)

# Not decisions about credentials: metadata, and what controllers observe. Approvals are in the
# status of certificate requests.
_OBSERVED: Final = ("metadata", "status", "note")
_DECIDED: Final = "conditions"


def is_other_decision(then: bytes, now: bytes) -> bool:
    """Whether two stored values may decide otherwise about credentials; encrypted ones may."""
    decision = _decisive(then)
    return decision is None or decision != _decisive(now)


def _decisive(value: bytes) -> object:
    """The part of a stored object that decides about credentials; None if it is encrypted."""
    try:
        stored = msgspec.json.decode(value, type=dict[str, object])
    except msgspec.MsgspecError:
        return None
    part = {name: content for name, content in stored.items() if name not in _OBSERVED}
    status = stored.get("status")
    if stored.get("kind") == "CertificateSigningRequest" and isinstance(status, dict):
        part[_DECIDED] = [
            (condition.get("type"), condition.get("status"))
            for condition in status.get(_DECIDED, ())
        ]
    return part
