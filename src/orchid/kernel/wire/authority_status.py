"""Status of a CertificateAuthority: its conditions, its certificate and its keys."""

from typing import Annotated

from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.struct import Wire, always, describe, merge_key, proto


class AuthorityKeyReference(Wire):
    """A key of an authority that verifiers trust."""

    name: Annotated[str, proto(1), describe("The name of the SigningKey.")] = always(str)
    state: Annotated[str, proto(2), describe("Its state.")] = ""
    revocation_list: Annotated[
        str, proto(3), describe("The name of its revocation list, below /crl/.")
    ] = ""


class AuthorityParentReference(Wire):
    """The authority above an intermediate one. Another one may have its name later."""

    uid: Annotated[str, proto(1), describe("Its uid.")] = always(str)
    signer_name: Annotated[str, proto(2), describe("Its signer name.")] = always(str)


class CertificateAuthorityStatus(Wire):
    """The conditions of an authority and the material to verify its certificates."""

    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(1),
        describe(
            "Ready: it issues. Expiring: the last third of its life has begun. "
            "SignsRevocationLists: its key usage permits it. BundleTaken: the PublishedBundle of "
            "its name belongs to somebody else. ParentReplaced: another authority has the name of "
            "its parent."
        ),
    ] = ()
    certificate: Annotated[
        str, proto(2), describe("Its certificate and the chain above it, in PEM.")
    ] = ""
    not_after: Annotated[Time | None, proto(3), describe("The earliest expiry in that chain.")] = (
        None
    )
    trust_bundle: Annotated[
        str, proto(4), describe("The ClusterTrustBundle that verifies its certificates.")
    ] = ""
    keys: Annotated[
        tuple[AuthorityKeyReference, ...],
        proto(5),
        describe("Its SigningKeys that are not Retired; the first one signs."),
    ] = ()
    cross_certificates: Annotated[
        str,
        proto(6),
        describe(
            "Certificates that issued chains contain besides, in PEM, for verifiers that trust "
            "only an earlier key."
        ),
    ] = ""
    request: Annotated[
        str,
        proto(7),
        describe("A certificate request in PEM that an external parent has to sign."),
    ] = ""
    parent: Annotated[
        AuthorityParentReference | None,
        proto(8),
        describe(
            "The authority that `spec.parent` named when this one was created. Another one of that "
            "name certifies no key of it. Immutable."
        ),
    ] = None
