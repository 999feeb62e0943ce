"""SigningKey: one key that signs or verifies tokens, as an object.

    main      where the key comes from, and its state; only the state changes       Rules
    status    key id, public key, times of the steps, dependents, conditions        StatusRules

    Published → Active → Verifying → Retired      Verifying → Active: back, while the key is there

`select` is the one function that chooses the signer and the verification keys from the stored
objects; it reads no clock. The private key is never here: it is in the Secret that `key_secret`
names. Rights and the conditions of each step are admission questions:
admission/signing_key_material.py and admission/signing_key_steps.py.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NamedTuple

from msgspec import field

from orchid.credentials import keys
from orchid.credentials.refusals import Refusal, UnreadableKey
from orchid.credentials.x509 import pem
from orchid.engine.kind import Column, Endpoint, Kind, Scope
from orchid.engine.request import Request
from orchid.engine.strategy import Strategy
from orchid.engine.tables import AGE, NAME
from orchid.ledger.entries import Fact
from orchid.wire.conditions import READY, Condition, condition_errors, is_true
from orchid.wire.fields import (
    METADATA,
    FieldError,
    Path,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    unsupported,
)
from orchid.wire.meta import Object, Time
from orchid.wire.naming import Naming
from orchid.wire.options import seconds_of
from orchid.wire.references import SecretReference, reference_errors
from orchid.wire.struct import Wire, always, at_most, describe, merge_key, proto, replace
from orchid.wire.text import human_duration

SPEC: Final = Path() / "spec"
STATE: Final = SPEC / "state"
CONDITIONS: Final = Path() / "status" / "conditions"

PUBLISHED, ACTIVE, VERIFYING, RETIRED = "Published", "Active", "Verifying", "Retired"
STATES: Final = (PUBLISHED, ACTIVE, VERIFYING, RETIRED)
# Every other change of the state is refused; admission/signing_key_steps.py judges these.
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
MADE, IMPORTED, FILE = "Made", "Imported", "File"
ACTIVATABLE, RETIRABLE = "Activatable", "Retirable"
TOKENS: Final = "tokens"
PRIVATE_KEY: Final = "tls.key"  # in the data of a Secret
LONGEST_PUBLIC_KEY: Final = 16 * 1024  # bytes of PEM
MOST_HOLDERS: Final = 5  # that the status names
NO_TIME: Final = datetime.min.replace(tzinfo=UTC)

_token_key_name = re.compile(rf"{TOKENS}-([1-9][0-9]{{0,8}})").fullmatch


class SigningKeySpec(Wire):
    """Where a key comes from, and its state. Only the state changes."""

    authority: Annotated[
        str,
        proto(1),
        describe("The CertificateAuthority that the key signs for; empty for a token key."),
    ] = ""
    algorithm: Annotated[
        str, proto(2), describe("Have the server create the key: ES256, ES384, RS256 or EdDSA.")
    ] = ""
    secret_ref: Annotated[
        SecretReference | None,
        proto(3),
        describe("Import the private key `tls.key` of a Secret. It is copied once, at creation."),
    ] = None
    public_key: Annotated[
        str,
        proto(4),
        describe("Import a public key in PEM. It verifies tokens and never signs."),
    ] = ""
    state: Annotated[
        str,
        proto(5),
        describe("Published, Active, Verifying or Retired. A new key is Published."),
    ] = always(str)


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
        int, proto(1), describe("Live tokens that last longer than the publish time.")
    ] = always(int)
    holders: Annotated[int, proto(2), describe("The number of their holders.")] = always(int)
    end: Annotated[Time | None, proto(3), describe("When the last of them ends.")] = None
    unknown_until: Annotated[
        Time | None,
        proto(4),
        describe("Until then, tokens may be live that were issued before they were recorded."),
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
    """What the server knows of a key."""

    key_id: Annotated[str, proto(1), describe("The `kid` of tokens that it signs.")] = field(
        name="keyID", default=""
    )
    source: Annotated[str, proto(2), describe("Made, Imported or File.")] = ""
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


class SigningKey(Object):
    """A key that signs or verifies tokens of service accounts."""

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
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, READY)

    @property
    def number(self) -> int:
        found = _token_key_name(self.name)
        return int(found[1]) if found else 0

    @property
    def publish_seconds(self) -> float:
        """The publish time that counts for its tokens; 0 if it never was Active."""
        return seconds_of(self.status.publish_time) if self.status.publish_time else 0.0

    @property
    def back_until(self) -> datetime | None:
        """Until when a Verifying key may become Active again; its private key is deleted then."""
        since = self.status.times.verifying
        return since + timedelta(seconds=self.publish_seconds) if since else None


class KeySelection(NamedTuple):
    """The signer and the verification keys of one set of stored objects."""

    signers: tuple[SigningKey, ...]  # the first one signs; the others if it cannot be loaded
    verifying: tuple[SigningKey, ...]  # in the order of the JWKS document: the signer first

    @property
    def signer(self) -> SigningKey | None:
        return self.signers[0] if self.signers else None


def select(stored: Iterable[SigningKey], revoked: Container[str]) -> KeySelection:
    """Choose the signer and the verification keys; `revoked` are the ids of revoked keys."""
    usable = [
        key
        for key in sorted(stored, key=_seniority)
        if key.state in (PUBLISHED, ACTIVE, VERIFYING)
        and not key.is_file
        and key.key_id
        and key.key_id not in revoked
    ]
    active = sorted((key for key in usable if key.state == ACTIVE), key=_activation, reverse=True)
    published = [key for key in usable if key.state == PUBLISHED]
    signers = (*active, *published)
    first = signers[:1]
    rest = [key for key in usable if key.state != PUBLISHED and key not in first]
    waiting = [key for key in published if key not in first]
    return KeySelection(signers, (*first, *waiting, *rest))


def _seniority(key: SigningKey) -> tuple[datetime, str]:
    return key.metadata.creation_timestamp or NO_TIME, key.metadata.uid


def _activation(key: SigningKey) -> tuple[datetime, str]:
    return key.status.times.active or NO_TIME, key.metadata.uid


def status_of(public: keys.VerificationKey, source: str) -> SigningKeyStatus:
    """The part of a status that follows from the key itself."""
    return SigningKeyStatus(
        key_id=public.kid, source=source, public_key=public.pem(), algorithm=public.algorithm
    )


def next_name(stored: Iterable[SigningKey]) -> str:
    """The name of the next token key."""
    return f"{TOKENS}-{max((key.number for key in stored), default=0) + 1}"


def key_secret(key: SigningKey) -> str:
    """The name of the Secret with the private key, in the system namespace."""
    return f"signing-key-{key.metadata.uid}"


def private_key_of(key: SigningKey, data: Mapping[str, bytes]) -> keys.TokenKey:
    """The private key in the data of a Secret; raises Refusal unless it belongs to the key."""
    found = keys.TokenKey(keys.read_private_key(data.get(PRIVATE_KEY, b""), key_secret(key)))
    if found.kid != key.key_id:
        raise UnreadableKey(f"{key_secret(key)} is not the private key of {key.name}")
    return found


class Rules(Strategy[SigningKey]):
    """The main endpoint: only the state changes."""

    def prepare_for_create(self, new: SigningKey, request: Request) -> SigningKey:
        return new.with_meta(generation=1)

    def prepare_for_update(self, new: SigningKey, old: SigningKey, request: Request) -> SigningKey:
        if new.spec == old.spec:
            return new
        return new.with_meta(generation=old.metadata.generation + 1)

    def validate(self, new: SigningKey) -> Iterator[FieldError]:
        spec = new.spec
        if not _token_key_name(new.name):
            text = "must be tokens- and a number without leading zeros"
            yield invalid(METADATA / "name", new.name, text)
        if spec.authority:
            text = "keys of authorities are not supported yet; leave it out for a token key"
            yield forbidden(SPEC / "authority", text)
        yield from source_errors(spec)
        wanted = VERIFYING if spec.public_key else PUBLISHED
        if spec.state in STATES and spec.state != wanted:
            yield invalid(STATE, spec.state, f"a new key of this source is {wanted}")
        elif spec.state not in STATES:
            yield unsupported(STATE, spec.state, STATES)

    def validate_update(self, new: SigningKey, old: SigningKey) -> Iterator[FieldError]:
        yield from immutable(SPEC, replace(new.spec, state=""), replace(old.spec, state=""))
        if new.state == old.state:
            return
        if new.state not in STATES:
            yield unsupported(STATE, new.state, STATES)
        elif (old.state, new.state) not in STEPS:
            yield forbidden(STATE, f"a key does not change from {old.state} to {new.state}")
        elif new.state == ACTIVE and not new.signs:
            yield forbidden(STATE, "a key that was imported as a public key cannot sign")


class StatusRules(Strategy[SigningKey]):
    """The `status` endpoint."""

    def validate_update(self, new: SigningKey, old: SigningKey) -> Iterator[FieldError]:
        if new.status != old.status:
            yield from condition_errors(new.status.conditions, CONDITIONS)


def declare(names: Naming) -> Kind[SigningKey]:
    return Kind(
        type=SigningKey,
        group=names.identity,
        version="v1alpha1",
        plural="signingkeys",
        scope=Scope.CLUSTER,
        rules=Rules(),
        defaults=with_defaults,
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        # The server fills in the status whatever was sent: see admission/signing_key_material.py
        # and admission/signing_key_steps.py.
        creates=("metadata", "spec", "status"),
        writes=("metadata", "spec", "status.times", "status.publishTime"),
        columns=COLUMNS,
        selectable={"spec.state": lambda key: key.state},
        records=key_changes,
        endpoints=(
            Endpoint(
                "status",
                writes=(
                    "status.conditions",
                    "status.dependents",
                    "status.found",
                    "status.times.published",
                ),
                rules=StatusRules(),
            ),
        ),
    )


def with_defaults(new: SigningKey) -> SigningKey:
    if new.spec.state:
        return new
    state = VERIFYING if new.spec.public_key else PUBLISHED
    return replace(new, spec=replace(new.spec, state=state))


def source_errors(spec: SigningKeySpec) -> Iterator[FieldError]:
    """Check that a key has one source, and that it can be used."""
    if sum(map(bool, (spec.algorithm, spec.secret_ref, spec.public_key))) != 1:
        yield required(SPEC, "exactly one of algorithm, secretRef and publicKey")
        return
    if spec.algorithm and spec.algorithm not in keys.MADE_ALGORITHMS:
        yield unsupported(SPEC / "algorithm", spec.algorithm, keys.MADE_ALGORITHMS)
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


def key_changes(new: SigningKey | None, old: SigningKey | None, request: Request) -> Iterator[Fact]:
    """For the ledger: a key that was made, began to sign, or no longer verifies.

    Keys of files are recorded by ledger/known_keys.py.
    """
    about = new or old
    assert about is not None
    if about.is_file:
        return
    before, after = old.state if old else "", new.state if new else RETIRED
    if old is None:
        yield Fact("token-key.made", {"key": about.key_id, "algorithm": about.status.algorithm})
    if after == ACTIVE and before != ACTIVE:
        yield Fact("token-key.activated", {"key": about.key_id})
    if after == RETIRED and before != RETIRED:
        yield Fact("token-key.retired", {"key": about.key_id})


# --- tables -----------------------------------------------------------------------------------


def _live_cell(key: SigningKey, now: datetime) -> int:
    return key.status.dependents.live if key.status.dependents else 0


def _until_cell(key: SigningKey, now: datetime) -> str:
    found = key.status.dependents or KeyDependents()
    if found.secrets:
        return "never"
    end = max((moment for moment in (found.end, found.unknown_until) if moment), default=None)
    return human_duration((end - now).total_seconds()) if end and end > now else ""


COLUMNS: Final = (
    NAME,
    Column("For", lambda key, now: key.spec.authority or TOKENS, description="What it signs."),
    Column("State", lambda key, now: key.state, description="The step of its life."),
    Column("Algorithm", lambda key, now: key.status.algorithm, description="How it signs."),
    Column("Live", _live_cell, type="integer", description="Recorded tokens that depend on it."),
    Column("Until", _until_cell, description="How long until the last of them ends."),
    AGE,
)
