"""The source of a SigningKey, its purpose and its state: the spec, and the errors in it.

What differs between token keys and keys of authorities is declared in `KeyPurpose`.
"""

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS
from orchid.kernel.credentials.refusals import Refusal, UnreadableKey
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.references import (
    HsmKeyReference,
    SecretReference,
    hsm_key_errors,
    reference_errors,
)
from orchid.kernel.wire.rules.key_names import CLUSTERS
from orchid.kernel.wire.struct import Wire, always, describe, proto

SPEC: Final = Path() / "spec"
LONGEST_PUBLIC_KEY: Final = 16 * 1024  # bytes of PEM
NO_CLUSTER: Final = (
    "the Cluster whose tokens the key verifies: it never verifies tokens of Orchid's accounts; "
    "earlier keys of those are named by --service-account-key-file"
)


class KeyPurpose(NamedTuple):
    """The purpose of a key: its algorithms, and its words in messages and in the ledger."""

    algorithms: tuple[str, ...]  # of keys that the server creates
    has_public_keys: bool  # whether a public key alone may be imported
    signs: str  # what it signs, for messages
    ledger: str  # the beginning of the types of its ledger entries


FOR_TOKENS: Final = KeyPurpose(
    algorithms=keys.MADE_ALGORITHMS, has_public_keys=True, signs="tokens", ledger="token-key"
)
FOR_CERTIFICATES: Final = KeyPurpose(
    algorithms=ALGORITHMS, has_public_keys=False, signs="certificates", ledger="authority"
)


class SigningKeySpec(Wire):
    """The source of a key, and its state. Only the state changes."""

    authority: Annotated[
        str,
        proto(1),
        describe("The CertificateAuthority that the key signs for; empty for a token key."),
    ] = ""
    algorithm: Annotated[
        str,
        proto(2),
        describe(
            "Have the server create the key: ES256, ES384, RS256 or EdDSA; for an authority, an "
            "algorithm of CertificateAuthority."
        ),
    ] = ""
    secret_ref: Annotated[
        SecretReference | None,
        proto(3),
        describe(
            "Import the private key `tls.key` of a Secret. A token key is copied once, at "
            "creation; the key of an authority, with its chain `tls.crt`, stays in that Secret."
        ),
    ] = None
    public_key: Annotated[
        str,
        proto(4),
        describe(
            "Import a public key in PEM, which never signs. It verifies tokens of `cluster` only."
        ),
    ] = ""
    state: Annotated[
        str,
        proto(5),
        describe("Published, Active, Verifying or Retired. A new key is Published."),
    ] = always(str)
    chain: Annotated[
        str,
        proto(6),
        describe(
            "The certificate for the request in the status, and the chain above it, in PEM; it may "
            "be renewed."
        ),
    ] = ""
    pkcs11: Annotated[
        HsmKeyReference | None,
        proto(7),
        describe(
            "Of an authority: use the key of this label in the hardware security module of the "
            "server; see --pkcs11-module."
        ),
    ] = None
    renew_by: Annotated[
        Time | None,
        proto(8),
        describe(
            "Of an authority, once another key signs: clients should renew the certificates of "
            "this one in the hour before this time. It may change."
        ),
    ] = None

    cluster: Annotated[
        str,
        proto(9),
        describe(
            "The Cluster to which a public key belongs. It verifies no token of Orchid's accounts."
        ),
    ] = ""

    @property
    def purpose(self) -> KeyPurpose:
        return FOR_CERTIFICATES if self.authority else FOR_TOKENS

    @property
    def group(self) -> str:
        """The keys of which one signs: of an authority, or of a cluster; empty for token keys."""
        return f"{CLUSTERS}{self.cluster}" if self.cluster else self.authority


def source_errors(spec: SigningKeySpec) -> Iterator[FieldError]:
    """Check that a key has one source, and that it can be used."""
    purpose = spec.purpose
    names = ("algorithm", "secretRef", "publicKey" if purpose.has_public_keys else "pkcs11")
    if sum(map(bool, (spec.algorithm, spec.secret_ref, spec.public_key, spec.pkcs11))) != 1:
        yield required(SPEC, f"exactly one of {', '.join(names[:-1])} and {names[-1]}")
        return
    if spec.pkcs11 and not spec.authority:
        yield forbidden(SPEC / "pkcs11", "only keys of authorities can be in an HSM")
    elif spec.pkcs11:
        yield from hsm_key_errors(spec.pkcs11, SPEC / "pkcs11")
    if spec.algorithm and spec.algorithm not in purpose.algorithms:
        yield unsupported(SPEC / "algorithm", spec.algorithm, purpose.algorithms)
    if spec.public_key and not purpose.has_public_keys:
        yield forbidden(SPEC / "publicKey", "an authority needs its private key")
        return
    if bool(spec.cluster) != bool(spec.public_key):
        yield (
            required(SPEC / "cluster", NO_CLUSTER)
            if spec.public_key
            else forbidden(
                SPEC / "cluster", "a key that signs is Orchid's: only a public key is of a cluster"
            )
        )
    if spec.secret_ref:
        yield from reference_errors(spec.secret_ref, SPEC / "secretRef")
    if len(spec.public_key) > LONGEST_PUBLIC_KEY:
        yield too_long(SPEC / "publicKey", LONGEST_PUBLIC_KEY)
    elif spec.public_key:
        try:
            read_public_key(spec.public_key)
        except Refusal as refusal:
            yield invalid(SPEC / "publicKey", "<key data>", str(refusal))


def read_public_key(text: str) -> keys.VerificationKey:
    """The one public key of a PEM text; raises Refusal. A private key is never stored here."""
    blocks = [block.label for block in pem.split(text.encode())]
    if len(blocks) != 1 or not blocks[0].endswith("PUBLIC KEY"):
        raise UnreadableKey("must be one PEM block with a public key")
    return keys.read_verification_keys(text.encode(), "publicKey")[0]
