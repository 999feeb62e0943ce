"""SigningKey: one key that signs tokens, or the certificates of an authority, as an object.

    main      where the key comes from, and its state; only the state changes       Rules
    status    key id, public key, times of the steps, dependents, conditions        StatusRules

    Published → Active → Verifying → Retired      Verifying → Active: back, while the key is there

The spec is in features/token_keys/key_source.py; features/token_keys/key_selection.py chooses the
signer and the verification keys. The private key is never here: it is in the Secret at
`key_location`, or in a hardware security module. Rights and the conditions of each step are
admission questions: features/token_keys/policies/material.py and
features/token_keys/policies/steps.py.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import field

from orchid.features.token_keys.key_source import (
    SPEC,
    KeyPurpose,
    SigningKeySpec,
    source_errors,
)
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.cross_certificates import CertifiedKey
from orchid.kernel.credentials.authorities.issuer_chain import spki_of, subject_key_id
from orchid.kernel.credentials.refusals import Refusal, UnreadableKey
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.credentials.x509.certificate_body import key_digest
from orchid.kernel.engine.condition_rules import ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.engine.tombstones import Tombstone
from orchid.kernel.wire.conditions import READY, is_true
from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    forbidden,
    immutable,
    invalid,
    too_long,
    unsupported,
)
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.options import seconds_of
from orchid.kernel.wire.references import (
    SecretReference,
)
from orchid.kernel.wire.revoked_credentials import RevokedKey
from orchid.kernel.wire.rules.key_names import CLUSTERS, TOKENS, is_key_name, key_prefix, number_of
from orchid.kernel.wire.signing_key_status import KeyDependents, SigningKeyStatus, key_tombstone
from orchid.kernel.wire.struct import describe, proto, replace
from orchid.kernel.wire.text import human_duration

STATE: Final = SPEC / "state"
LIST_NUMBER: Final = Path() / "status" / "revocationListNumber"

PUBLISHED, ACTIVE, VERIFYING, RETIRED = "Published", "Active", "Verifying", "Retired"
STATES: Final = (PUBLISHED, ACTIVE, VERIFYING, RETIRED)
# Every other change of the state is refused; features/token_keys/policies/steps.py judges these.
STEPS: Final = frozenset(
    {
        (PUBLISHED, ACTIVE),
        (ACTIVE, VERIFYING),
        (VERIFYING, ACTIVE),
        (VERIFYING, RETIRED),
        # These two only for a key that a CredentialRevocation names.
        (PUBLISHED, RETIRED),
        (ACTIVE, RETIRED),
    }
)
MADE, IMPORTED, FILE, PKCS11 = "Made", "Imported", "File", "PKCS11"
ACTIVATABLE, RETIRABLE = "Activatable", "Retirable"
PRIVATE_KEY: Final = "tls.key"  # in the data of a Secret
LONGEST_CHAIN: Final = 64 * 1024  # bytes of PEM
PUBLIC_ONLY: Final = "PublicKeyOnly"
PUBLIC_ONLY_TEXT: Final = (
    "Verifies tokens of every account, though Orchid has only its public key: a holder of the "
    "private key can issue them. An earlier key of Orchid is Retired when its tokens have ended. "
    "If it is the key of a cluster or of another issuer, revoke it: orchid revoke key/"
)
CHANGED_BY_STEPS: Final = ("certificate", "keyID", "publishTime", "times")


class SigningKey(Object):
    """A key that signs tokens of service accounts, or certificates of an authority."""

    spec: Annotated[SigningKeySpec, proto(2), describe("What the key is.", required=True)] = field(
        default_factory=SigningKeySpec
    )
    status: Annotated[SigningKeyStatus, proto(3), describe("What the server knows of it.")] = field(
        default_factory=SigningKeyStatus
    )

    @property
    def state(self) -> str:
        return self.spec.state

    @property
    def key_id(self) -> str:
        return self.status.key_id

    @property
    def is_file(self) -> bool:
        """Whether it only shows a key of the servers' files."""
        return self.status.source == FILE

    @property
    def signs(self) -> bool:
        """Whether there is, or was, a private key."""
        return not self.spec.public_key

    @property
    def is_public_only(self) -> bool:
        """Whether it verifies tokens of Orchid's accounts, and Orchid never had its private key.

        It is from a key file, or an earlier version imported it without a cluster.
        """
        return bool(self.spec.public_key) and not self.group and not self.is_file

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, READY)

    @property
    def purpose(self) -> KeyPurpose:
        return self.spec.purpose

    @property
    def group(self) -> str:
        return self.spec.group

    @property
    def number(self) -> int:
        return number_of(self.name)

    @property
    def hsm_label(self) -> str:
        """The label of a key in an HSM; empty for any other."""
        return self.spec.pkcs11.label if self.spec.pkcs11 else ""

    @property
    def is_first(self) -> bool:
        """Whether it is the first key of an authority, whose list has the authority's name."""
        return bool(self.spec.authority) and self.status.revocation_list == self.spec.authority

    @property
    def secret_name(self) -> str:
        """The Secret of the system namespace with a private key that the server stored."""
        return f"signing-key-{self.metadata.uid}"

    @property
    def public_key_sha256(self) -> str:
        """SHA-256 of the public key (SPKI), in hex: its identity, whatever a certificate says."""
        return keys.pem_sha256(self.status.public_key) if self.status.public_key else ""

    @property
    def certified(self) -> CertifiedKey:
        """The certificates of a key of an authority."""
        return CertifiedKey(self.status.certificate, self.status.cross_certificate)

    @property
    def publish_seconds(self) -> float:
        """The publish time that counts for its tokens; 0 if it never was Active."""
        return seconds_of(self.status.publish_time) if self.status.publish_time else 0.0

    @property
    def back_until(self) -> datetime | None:
        """Until when a Verifying key may become Active again; its private key is deleted then."""
        since = self.status.times.verifying
        return since + timedelta(seconds=self.publish_seconds) if since else None

    def is_revoked(self, revoked: Container[str]) -> bool:
        """Whether its id or its public key is among those of the revoked keys.

        The same key has one id as a token key, and another as that of an authority.
        """
        if self.key_id in revoked:
            return True
        try:
            return key_tombstone(self.public_key_sha256) in revoked
        except Refusal:
            return False  # unreadable, so that it is not used either


def revoked_identities(named: RevokedKey) -> tuple[str, ...]:
    """What `SigningKey.is_revoked` compares: the id of a key, and its public key if recorded.

    Of a key of a cluster only the id: a public key of somebody else can be named as one.
    """
    if not named.sha256 or named.name.startswith(CLUSTERS):
        return (named.key_id,)
    return named.key_id, key_tombstone(named.sha256)


def status_of(public: keys.VerificationKey, source: str) -> SigningKeyStatus:
    """The part of a status that follows from the key itself."""
    return SigningKeyStatus(
        key_id=public.kid, source=source, public_key=public.pem(), algorithm=public.algorithm
    )


def by_name(keys: Iterable[SigningKey]) -> dict[str, str]:
    """The group of each key by its name, for `next_name`."""
    return {key.name: key.group for key in keys}


def key_location(key: SigningKey, home: str) -> SecretReference:
    """The Secret with the private key; `home`: the system namespace.

    The imported key of an authority stays where its owner renews it.
    """
    if key.spec.authority and key.spec.secret_ref:
        return key.spec.secret_ref
    return SecretReference(name=key.secret_name, namespace=home)


def private_key_of(key: SigningKey, data: Mapping[str, bytes]) -> keys.TokenKey:
    """The private key in the data of a Secret; raises Refusal unless it belongs to the key."""
    private_key = keys.TokenKey(keys.read_private_key(data.get(PRIVATE_KEY, b""), key.secret_name))
    if private_key.kid != key.key_id:
        raise UnreadableKey(f"{key.secret_name} is not the private key of {key.name}")
    return private_key


class Rules(Strategy[SigningKey]):
    """The main endpoint: only the state changes."""

    def validate(self, new: SigningKey) -> Iterator[FieldError]:
        spec = new.spec
        if not is_key_name(new.name, new.group):
            text = f"must be {key_prefix(new.group)}- and a number without leading zeros"
            yield invalid(METADATA / "name", new.name, text)
        yield from source_errors(spec)
        if spec.chain:
            yield forbidden(SPEC / "chain", "a new key has no certificate yet")
        if spec.renew_by:
            yield forbidden(SPEC / "renewBy", "a new key has issued nothing")
        state = first_state(new)
        if spec.state in STATES and spec.state != state:
            yield invalid(STATE, spec.state, f"a new key of this source is {state}")
        elif spec.state not in STATES:
            yield unsupported(STATE, spec.state, STATES)

    def validate_update(self, new: SigningKey, old: SigningKey) -> Iterator[FieldError]:
        yield from immutable(SPEC, _constant(new.spec), _constant(old.spec))
        if len(new.spec.chain) > LONGEST_CHAIN:
            yield too_long(SPEC / "chain", LONGEST_CHAIN)
        elif new.spec.chain != old.spec.chain and not old.status.request:
            yield forbidden(SPEC / "chain", "the key has no request that another authority signs")
        if new.spec.renew_by and not new.spec.authority:
            yield forbidden(SPEC / "renewBy", "tokens have no time of renewal")
        if new.state == old.state:
            return
        if new.state not in STATES:
            yield unsupported(STATE, new.state, STATES)
        elif (old.state, new.state) not in STEPS:
            yield forbidden(STATE, f"a key does not change from {old.state} to {new.state}")
        elif new.state == ACTIVE and not new.signs:
            yield forbidden(STATE, "a key that was imported as a public key cannot sign")


class StatusRules(ConditionRules[SigningKey]):
    """The `status` endpoint."""

    def validate_status(self, new: SigningKey, old: SigningKey) -> Iterator[FieldError]:
        if new.status.certificate != old.status.certificate:
            yield from certificate_errors(new.status)
        number = new.status.revocation_list_number
        if number < old.status.revocation_list_number:
            yield invalid(LIST_NUMBER, number, "must not decrease")


def declare(naming: Naming) -> Kind[SigningKey]:
    return Kind(
        type=SigningKey,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1beta1",),
        plural="signingkeys",
        scope=Scope.CLUSTER,
        counts_generation=True,
        keeps_dependents=True,
        refuses_owners=lambda key: not (key.spec.authority or key.spec.cluster),
        rules=Rules(),
        defaults=with_defaults,
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        # The server fills in the status whatever was sent: see
        # features/token_keys/policies/material.py and features/token_keys/policies/steps.py.
        creates=("metadata", "spec", "status"),
        writes=("metadata", "spec", *(f"status.{field}" for field in CHANGED_BY_STEPS)),
        columns=COLUMNS,
        selectable={
            "spec.authority": lambda key: key.spec.authority,
            "spec.cluster": lambda key: key.spec.cluster,
            "spec.state": lambda key: key.state,
        },
        records=key_changes,
        tombstones=past_keys,
        endpoints=(
            Endpoint(
                "status",
                writes=(
                    "status.certificate",
                    "status.conditions",
                    "status.dependents",
                    "status.found",
                    "status.revocationListNumber",
                    "status.times.published",
                ),
                rules=StatusRules(),
            ),
        ),
    )


def _constant(spec: SigningKeySpec) -> SigningKeySpec:
    """The part of a spec that never changes."""
    return replace(spec, state="", chain="", renew_by=None)


def with_defaults(new: SigningKey) -> SigningKey:
    if new.spec.state:
        return new
    return replace(new, spec=replace(new.spec, state=first_state(new)))


def first_state(new: SigningKey) -> str:
    """The state of a new key: the present key of an authority is Active already."""
    if new.spec.public_key:
        return VERIFYING
    return ACTIVE if new.status.times.active else PUBLISHED


def certificate_errors(status: SigningKeyStatus) -> Iterator[FieldError]:
    """A renewed certificate is for the same key."""
    path = Path() / "status" / "certificate"
    try:
        public = authority_public_key(status.certificate)
        # The issuer of a certificate chooses its key identifier: alone it proves nothing.
        if authority_key_id(status.certificate) != status.key_id or public != status.public_key:
            yield invalid(path, "<certificate data>", "must be for the same key")
    except Refusal as refusal:
        yield invalid(path, "<certificate data>", str(refusal))


def authority_key_id(chain: str) -> str:
    """The id of the key of an authority, from its chain in PEM; raises Refusal."""
    issuing = certificates.parse_blocks(chain)[0]
    return (subject_key_id(issuing) or key_digest(spki_of(issuing))).hex()


def authority_public_key(chain: str) -> str:
    """The public key of an authority in PEM, from its chain in PEM; raises Refusal."""
    issuing = certificates.parse_blocks(chain)[0]
    return pem.encode(pem.PUBLIC_KEY, spki_of(issuing)).decode("ascii")


def key_changes(new: SigningKey | None, old: SigningKey | None, request: Request) -> Iterator[Fact]:
    """For the ledger: a key that was made, began to sign, or no longer verifies.

    Keys of files are recorded by features/ledger/known_keys.py, and the first certificate of an
    authority with its CertificateAuthority.
    """
    about = new or old
    assert about is not None
    if about.is_file or (old is None and about.is_first):
        return
    if about.spec.authority and not about.status.certificate:
        return  # a successor whose request waits for a signature elsewhere
    word = about.purpose.ledger
    before, after = old.state if old else "", new.state if new else RETIRED
    if new is not None and (old is None or new.status.certificate != old.status.certificate):
        yield Fact(f"{word}.made", {**_named(new), "algorithm": new.status.algorithm})
    if after == ACTIVE and before != ACTIVE:
        yield Fact(f"{word}.activated", _named(about))
    if after == RETIRED and before != RETIRED:
        yield Fact(f"{word}.retired", _named(about))


def past_keys(new: SigningKey | None, old: SigningKey | None) -> Iterator[Tombstone]:
    """A Retired key is remembered, so that no Secret, file or import brings it back."""
    key = new or old
    if key is not None and key.state == RETIRED and key.public_key_sha256:
        yield Tombstone(key_tombstone(key.public_key_sha256), key.name)


def _named(key: SigningKey) -> dict[str, str]:
    """A token key is named by its id, the key of an authority by the SHA-256 of its certificate."""
    if key.spec.cluster:
        return {"key": key.key_id, "cluster": key.spec.cluster}
    if not key.spec.authority:
        return {"key": key.key_id}
    issuing = certificates.parse_blocks(key.status.certificate)[0]
    return {"key": certificates.fingerprint(issuing), "authority": key.spec.authority}


# --- tables -----------------------------------------------------------------------------------


def _live_cell(key: SigningKey, now: datetime) -> int:
    return key.status.dependents.live if key.status.dependents else 0


def _until_cell(key: SigningKey, now: datetime) -> str:
    dependents = key.status.dependents or KeyDependents()
    if dependents.secrets:
        return "never"
    end = max(
        (moment for moment in (dependents.end, dependents.unknown_until) if moment), default=None
    )
    return human_duration((end - now).total_seconds()) if end and end > now else ""


COLUMNS: Final = (
    NAME,
    Column("For", lambda key, now: key.group or TOKENS, description="What it signs."),
    Column("State", lambda key, now: key.state, description="The step of its life."),
    Column("Algorithm", lambda key, now: key.status.algorithm, description="How it signs."),
    Column("Live", _live_cell, type="integer", description="Credentials that depend on it."),
    Column("Until", _until_cell, description="How long until the last of them ends."),
    AGE,
)
