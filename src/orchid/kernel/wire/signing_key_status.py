"""Status of a SigningKey: what the server knows of a key."""

from typing import Annotated, Final

from msgspec import field

from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.struct import Wire, always, at_most, describe, merge_key, proto

MOST_HOLDERS: Final = 5  # that the status names


def key_tombstone(sha256: str) -> str:
    """The name of the tombstone of a key that was retired or revoked; of its public key (SPKI)."""
    return f"keys/{sha256}"


class SigningKeyTimes(Wire):
    """When a key reached each state."""

    published: Annotated[
        Time | None, proto(1), describe("When every live server had the key for the first time.")
    ] = None
    active: Annotated[Time | None, proto(2), describe("When it became Active, last.")] = None
    verifying: Annotated[Time | None, proto(3), describe("When it became Verifying, last.")] = None
    retired: Annotated[Time | None, proto(4), describe("When it became Retired.")] = None


class TokenHolder(Wire):
    """An object whose deletion ends tokens: a Pod, Secret or Node, otherwise the account."""

    holder: Annotated[str, proto(1), describe("Kind, namespace and name.")] = always(str)
    count: Annotated[int, proto(2), describe("The number of its live tokens.")] = always(int)
    end: Annotated[Time | None, proto(3), describe("When the last of them ends.")] = None


class KeyDependents(Wire):
    """The live credentials that depend on a key."""

    live: Annotated[
        int,
        proto(1),
        describe("Live tokens that last longer than the publish time; valid certificates."),
    ] = always(int)
    holders: Annotated[int, proto(2), describe("The number of their holders.")] = always(int)
    end: Annotated[Time | None, proto(3), describe("When the last of them ends.")] = None
    unknown_until: Annotated[
        Time | None,
        proto(4),
        describe("Until then, credentials may be live that were issued before they were recorded."),
    ] = None
    longest: Annotated[
        tuple[TokenHolder, ...],
        at_most(MOST_HOLDERS),
        proto(5),
        describe("The holders whose tokens live longest, at most five."),
    ] = ()
    secrets: Annotated[
        int, proto(6), describe("Secrets that hold a token of the key. Such tokens never end.")
    ] = 0


class SigningKeyStatus(Wire):
    """The observed state of a key."""

    key_id: Annotated[
        str,
        proto(1),
        describe("The `kid` of tokens; of an authority, the subject key identifier in hex."),
    ] = field(name="keyID", default="")
    source: Annotated[str, proto(2), describe("Made, Imported, File or PKCS11.")] = ""
    public_key: Annotated[str, proto(3), describe("The public key, in PEM.")] = ""
    algorithm: Annotated[str, proto(4), describe("The signature algorithm.")] = ""
    times: Annotated[SigningKeyTimes, proto(5), describe("When it reached each state.")] = field(
        default_factory=SigningKeyTimes
    )
    publish_time: Annotated[
        str, proto(6), describe("The publish time when the key became Active, like 24h.")
    ] = ""
    dependents: Annotated[KeyDependents | None, proto(7), describe("What depends on it.")] = None
    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(8),
        describe("Ready, Activatable and Retirable; if False, with the message of a rejection."),
    ] = ()
    found: Annotated[
        Time | None,
        proto(9),
        describe("When the leader found the key at --service-account-jwks-uri, if that is set."),
    ] = None
    certificate: Annotated[
        str,
        proto(10),
        describe("Of an authority: its certificate and the chain above it, in PEM."),
    ] = ""
    cross_certificate: Annotated[
        str,
        proto(11),
        describe("A certificate for the same key by the previous key of the authority, in PEM."),
    ] = ""
    revocation_list: Annotated[
        str, proto(12), describe("The name of its revocation list, below /crl/.")
    ] = ""
    request: Annotated[
        str,
        proto(13),
        describe("Of an authority below another elsewhere: its certificate request, in PEM."),
    ] = ""
    revocation_list_number: Annotated[
        int,
        proto(14),
        describe(
            "The number of its newest revocation list. No server serves a list with a lower one; "
            "it never decreases."
        ),
    ] = 0
