"""Every reference of a stored kind to another object, and why it gives the next one nothing.

A reference is a text field of an object whose name or description says so (`references`). Each is
tried by a scenario (scenarios.py), held by a test elsewhere, or counts by name on purpose. A kind,
a field, a reference to an owner or a handler of AlreadyExists that is not here fails
`test_nothing_is_adopted.py`.
"""

import re
from collections.abc import Iterator
from typing import Final

from orchid.assembly.kinds import stored_kinds
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.schema import Fields, Leaf, Mapping, Node, Scalar, Sequence

AUTHORITY, INTERMEDIATE, SECRET_OF_KEY, BUNDLE, ACME_AUTHORITY, ACME_ACCOUNT, ACCOUNT, BOUND = (
    "authority",
    "intermediate",
    "Secret of a key",
    "published bundle",
    "authority of ACME accounts",
    "ACME account",
    "service account",
    "bound object",
)
REQUEST: Final = "certificate request"

# Why a reference by name alone is right.
IN_ITS_NAMESPACE: Final = "by name, as in Kubernetes: the Pod runs with what its namespace has"
BY_NAME: Final = "by name, as in Kubernetes: roles are given to names"
SHOWN: Final = "only shown"
RECORD: Final = "recorded with its uid, and never looked up by name to give a right"
USER: Final = "a user, whose name is the identity"
SIGNER: Final = "a signer is a name: the verbs `sign` and `attest` on it decide"
PATTERN: Final = "a pattern of names that may be requested"
CLUSTER: Final = "by uid: tests/security/test_clusters_again.py"
NO_REFERENCE: Final = "refers to nothing"

# Kinds and fields (`*` for any rest); the name of a scenario, a test, or a reason.
REFERENCES: Final[dict[str, str]] = {
    "AcmeAccount spec.authority": ACME_AUTHORITY,
    "AcmeAccount spec.authorityUID": ACME_AUTHORITY,
    "AcmeAccount spec.externalKey": "counted; the Secret names its account by uid",
    "AcmeAccount spec.serviceAccountName": ACCOUNT,
    "AcmeAccount spec.serviceAccountUID": ACCOUNT,
    "AcmeOrder spec.account": ACME_ACCOUNT,
    "ApprovalPolicy *": PATTERN,
    "CertificateAuthority spec.issues.names[]": PATTERN,
    "CertificateAuthority spec.parent.authority": INTERMEDIATE,
    "CertificateAuthority spec.secretRef.*": (
        "the Secret is the key: a user who may write it replaces the key (docs/rotation.md)"
    ),
    "CertificateAuthority spec.signerName": SIGNER,
    "CertificateAuthority spec.signerNames[]": SIGNER,
    "CertificateAuthority spec.subject.commonName": NO_REFERENCE,
    "CertificateAuthority status.keys[].name": AUTHORITY,
    "CertificateAuthority status.parent.*": INTERMEDIATE,
    "CertificateAuthority status.request": NO_REFERENCE,
    "CertificateAuthority status.trustBundle": AUTHORITY,
    "CertificateSigningRequest spec.signerName": SIGNER,
    "CertificateSigningRequest spec.uid": USER,
    "CertificateSigningRequest spec.username": USER,
    "Cluster spec.credential.name": SHOWN,
    "Cluster spec.inventory.secretName": "the Role of that Secret decides who reads it",
    "ClusterRole *": BY_NAME,
    "ClusterRoleBinding *": BY_NAME,
    "ClusterTrustBundle spec.signerName": SIGNER,
    "ClusterTrustBundle spec.trustBundle": NO_REFERENCE,
    "ConfigMap": NO_REFERENCE,
    "ConsoleSession spec.username": USER,
    "CredentialRevocation spec.account.name": (
        "tests/security/ends/table.py: it revokes what was issued until then"
    ),
    "CredentialRevocation spec.authority.signerName": SIGNER,
    "CredentialRevocation spec.certificate.*": "resolved to the fingerprint when it is created",
    "CredentialRevocation spec.cluster*": CLUSTER,
    "CredentialRevocation spec.key.name": "the key id counts, not the name",
    "CredentialRevocation spec.token.name": "the id of the token counts",
    "CredentialRevocation spec.user.username": USER,
    "Event *": SHOWN,
    "IssuedCertificate spec.approver.*": RECORD,
    "IssuedCertificate spec.authorityKey": "the id of a key",
    "IssuedCertificate spec.cluster*": CLUSTER,
    "IssuedCertificate spec.intermediate": "the fingerprint of its certificate is compared",
    "IssuedCertificate spec.names[]": NO_REFERENCE,
    "IssuedCertificate spec.pod.*": RECORD,
    "IssuedCertificate spec.request.*": REQUEST,
    "IssuedCertificate spec.requester.*": ACCOUNT,
    "IssuedCertificate spec.signerName": SIGNER,
    "IssuedCertificate spec.username": USER,
    "Lease": NO_REFERENCE,
    "Namespace": NO_REFERENCE,
    "Node *": NO_REFERENCE,
    "Pod spec.*": IN_ITS_NAMESPACE,
    "PodCertificateRequest spec.*": (
        "tests/unit/features/certificates/test_sign_pod_requests.py::test_everything_in_a_request_is_checked"
    ),
    "PublishedBundle spec.sources[].labelSelector.*": "the labels of trust bundles",
    "PublishedBundle spec.sources[].name": "any trust bundle of that name, as the source says",
    "PublishedBundle spec.sources[].signerName": SIGNER,
    "PublishedBundle status.consumers.longest[].name": BUNDLE,
    "Role *": BY_NAME,
    "RoleBinding *": BY_NAME,
    "Secret": ACCOUNT,  # of a token or an external key, by annotations with name and uid
    "ServiceAccount imagePullSecrets[].name": IN_ITS_NAMESPACE,
    "ServiceAccount secrets[].*": IN_ITS_NAMESPACE,
    "SigningKey spec.algorithm": NO_REFERENCE,
    "SigningKey spec.authority": AUTHORITY,
    "SigningKey spec.cluster": "owned by the Cluster, by uid, and selected for nothing of Orchid",
    "SigningKey spec.publicKey": NO_REFERENCE,
    "SigningKey spec.secretRef.*": SECRET_OF_KEY,
    "SigningKey status.*": NO_REFERENCE,
    "TokenExchangePolicy spec.account": (
        "by name: the account agrees by an annotation, and tokens end with the uid of the policy"
    ),
}

# Modules that create objects with an owner, and the scenario in which the owner is replaced.
OWNERS: Final[dict[str, str]] = {
    "features/acme/accounts.py": ACCOUNT,
    "features/acme/orders.py": ACME_ACCOUNT,
    "features/token_keys/policies/material.py": AUTHORITY,
    "features/token_keys/policies/key_companions.py": "the key that is stored in the same commit",
    "features/authorities/controllers/authority_bundles.py": AUTHORITY,
    "features/trust_bundles/controllers/publish_bundles.py": AUTHORITY,
    "features/authorities/file_authorities.py": "of the files of the server",
    "features/authorities/platform_key_import.py": "the authority of the platform is never deleted",
    "features/trust_bundles/stored_edition.py": BUNDLE,
}

# Modules that go on after AlreadyExists, and what they look at before.
AFTER_ALREADY_EXISTS: Final[dict[str, str]] = {
    "features/rights/reconcile.py": "reads the role or binding again, and compares its rules",
    "features/acme/accounts.py": "key, and authority and service account by uid",
    "features/acme/server.py": "whether the Secret has a key; the name is used for nothing else",
    "features/acme/orders.py": (
        "an order: all of its spec, and its account by uid; a request: the user by "
        "uid, the signer and the content"
    ),
    "features/acme/revoking.py": "the server names another revocation of this certificate",
    "features/revoking/policies/repeated_revocations.py": (
        "raises it, after comparing what is revoked"
    ),
    "features/accounts/controllers/create_default_accounts.py": (
        "any account of that name is the default one"
    ),
    "features/approving/controllers/keep_approvals.py": (
        "the server names another revocation of this certificate"
    ),
    "features/authorities/controllers/keep_authorities.py": "tries again with the next name",
    "features/trust_bundles/controllers/publish_bundles.py": "owner by uid, and sources or content",
    "features/trust_bundles/controllers/publish_root_ca.py": (
        "reads it again, and compares the content"
    ),
    "features/trust_bundles/controllers/publish_trust_bundles.py": (
        "reads it again, and compares the content"
    ),
    "features/clusters/controllers/record_cluster_certificates.py": (
        "the name is a hash of the certificate"
    ),
    "features/token_keys/controllers/rotate_keys.py": "tries again with the next name",
    "kernel/engine/internal_writes.py": "roles and namespaces, which have no owner",
    "kernel/engine/verbs/create.py": "raises it",
    "kernel/engine/verbs/patching.py": "applies to the object that is there, as the caller",
    "features/accounts/token_lifetimes.py": (
        "reads it again; other content makes the lifetimes unknown"
    ),
    "features/introspection/revocation.py": "the server names another revocation of this token",
}

_NAME = re.compile(
    r"(?i)(name|names|ref|uid|account|authority|parent|cluster|policy|secret|node|pod|bundle|key"
    r"|request)$"
)


def references() -> Iterator[str]:
    """Kind and path of every field that may name an object; the kind alone if it has none."""
    kinds = stored_kinds(ORCH)
    says = re.compile(rf"\b({'|'.join(kind.name for kind in kinds)})s?\b")
    for kind in kinds:
        found = [
            f"{kind.name} {path}"
            for path, name, text in _texts(kind.schema)
            if _NAME.search(name) or says.search(text)
        ]
        yield from found or [kind.name]


def _texts(node: Node, path: str = "", name: str = "", said: str = "") -> Iterator[tuple[str, ...]]:
    """Path, name and description of every text below a node."""
    match node:
        case Mapping():
            yield from _texts(node.values, f"{path}{{}}", name, said)
        case Sequence():
            yield from _texts(node.items, f"{path}[]", name, said)
        case Fields():
            for key, known in node.fields.items():
                if path or key not in ("metadata", "kind", "apiVersion"):
                    text = known.described.text if known.described else ""
                    yield from _texts(known.node, f"{path}.{key}".lstrip("."), key, text)
        case Leaf(scalar=Scalar.STRING, choices=()):
            yield path, name, said
