"""Create the keys of certificate authorities, publish their trust bundles, and set their status.

Reads   certificateauthorities, their SigningKeys and Secrets; credentialrevocations that name a
        key; clustertrustbundles of their signers; the publishedbundles of their names
Writes  the SigningKey of the first key, which the server creates with it, or of the present key;
        a trust bundle for each key in use; /status: the keys and the certificate of the signer;
        Ready, with the problem; Expiring, in the last third of its life; whether it may sign
        revocation lists
Never   creates a successor (rotate_authority_keys.py), nor signs
        (features/certificates/controllers/sign_requests.py)

`reconcile` has the order of the steps. stored_authority_keys.py has the keys and their revocations;
authority_bundles.py publishes the trust bundles.

If a user replaces the key in the Secret of an authority, the new one becomes a SigningKey that
signs immediately. The key of an authority without SigningKeys, as an earlier version left it, is
imported by a user: the status is no reason to trust a Secret.

Keys and bundles are owned by their authority and deleted with it. A bundle is deleted when its key
is Retired, or when it expires: certificates may still need it. Secrets of the system namespace,
where keys usually are, are watched; a Secret elsewhere is read when its authority changes and every
half minute, so that the controller needs no permission to watch all Secrets. With more than 300
authorities each is read less often, so that the load does not grow with their number.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from orchid.features.authorities.authority_spec import AuthorityKeySpec
from orchid.features.authorities.controllers.authority_bundles import AuthorityBundles
from orchid.features.authorities.controllers.authority_conditions import (
    ABNORMAL,
    BUNDLE_TAKEN,
    PARENT_REPLACED,
    ChainMissing,
    KeyLost,
    KeyNotSealed,
    NoKey,
    SignerTaken,
    bundle_problem,
    of_certificate,
    of_relations,
    turning_points,
)
from orchid.features.authorities.controllers.follow_authorities import (
    AUTHORITIES,
    AuthoritiesBySigner,
    SecretMissing,
    cross_certificates,
    read_authority,
    read_secret,
)
from orchid.features.authorities.controllers.stored_authority_keys import StoredAuthorityKeys
from orchid.features.authorities.kinds.certificate_authority import (
    EXPIRING,
    UNSEALED_STORE,
    CertificateAuthority,
    parent_problem,
    parent_reference,
    secret_location,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    MADE,
    RETIRED,
    SigningKey,
    authority_public_key,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import ClusterTrustBundle
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.issuer_chain import refuse_out_of_time, spki_of
from orchid.kernel.credentials.refusals import AuthorityExpired, NotYetAuthority, Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import NORMAL, WARNING, EventRecorder
from orchid.kernel.runtime.loop import Controller, Key, Trigger, TryAgain
from orchid.kernel.wire.authority_status import (
    AuthorityKeyReference,
    AuthorityParentReference,
    CertificateAuthorityStatus,
)
from orchid.kernel.wire.conditions import FALSE, READY, TRUE, Condition, with_conditions
from orchid.kernel.wire.errors import AlreadyExists, Forbidden, Invalid
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.struct import replace

LOOK_AGAIN_SECONDS: Final = 30.0  # for a Secret that is not watched
LONGEST_PAUSE_SECONDS: Final = 3600.0  # in case the clock steps, or an old bundle expires
CLOCK_SECONDS: Final = 5.0  # while an authority is out of time: the clock may be wrong
SECONDS_EACH: Final = 0.1  # at most ten authorities are checked per second, however many there are
HOW_TO_SEAL: Final = "start every server with the same --encryption-provider-config"
ISSUING: Final = "Issuing"
OUT_OF_TIME: Final = NotYetAuthority.__name__, AuthorityExpired.__name__


class KeepAuthorities(Controller[CertificateAuthority]):
    name = "certificate-authority"
    workers = 2  # generating an RSA key keeps a processor busy for a while

    def __init__(
        self,
        client: Client,
        naming: Naming,
        clock: Clock,
        events: EventRecorder,
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        super().__init__(client, AUTHORITIES)
        self._hsm = hsm
        self._naming = naming
        self._clock = clock
        self._events = events
        self._index = AuthoritiesBySigner()
        self._secret_of: dict[str, SecretReference] = {}  # by the name of the authority
        self._kept: dict[SecretReference, set[str]] = {}  # the names of the authorities by Secret
        self._names_taken: set[str] = set()  # the names of all authorities
        self.listed = asyncio.Event()  # set once every authority is in the index
        self._home = home = naming.system_namespace
        self._keys = StoredAuthorityKeys(home)
        self._bundles = AuthorityBundles(client, self._keys, clock)
        self.triggers = (
            Trigger(ListSelection(SigningKey), self._key_changed),
            Trigger(ListSelection(CredentialRevocation), self._key_revoked),
            Trigger(ListSelection(ClusterTrustBundle), self._owner_of),
            Trigger(ListSelection(PublishedBundle, existing=False), self._published),
            # Every authority is processed at the start, so only changes matter.
            Trigger(ListSelection(Secret, home, existing=False, read_as=Object), self._kept_in),
        )

    def starting(self) -> None:
        self.listed.clear()
        self._index.clear()
        self._secret_of.clear()
        self._names_taken.clear()
        self._kept.clear()

    async def all_listed(self) -> None:
        self.listed.set()
        for signer in self._index.signers:
            for found in self._index.claims(signer):
                self.queue.add(("", found.name), found)

    def take(self, event: WatchedChange[CertificateAuthority]) -> None:
        authority = event.object
        if event.type == DELETED:
            self._names_taken.discard(authority.name)
        else:
            self._names_taken.add(authority.name)
        if authority.is_file:
            return
        self._index.take(event)
        self._move(
            authority.name,
            None if event.type == DELETED else secret_location(authority, self._naming),
        )
        if not self.listed.is_set():
            return  # the authority of each signer is not yet decided
        super().take(event)
        for signer in authority.signers:
            for rival in self._index.claims(signer):
                if rival.name != authority.name:  # it may have got the signer, or lost it
                    self.queue.add(("", rival.name))
        for below in self._index.below(authority.name):  # it may have got a parent, or lost it
            self.queue.add(("", below))

    def _move(self, name: str, location: SecretReference | None) -> None:
        """Index the Secret of an authority's key."""
        before = self._secret_of.pop(name, None)
        if before is not None:
            self._kept[before].discard(name)
            if not self._kept[before]:
                del self._kept[before]
        if location is not None:
            self._secret_of[name] = location
            self._kept.setdefault(location, set()).add(name)

    async def reconcile(self, record: CertificateAuthority) -> float | None:
        if record.is_file:
            return None
        if not self.listed.is_set():
            raise TryAgain("not every certificate authority is known yet")
        if record.metadata.deletion_timestamp is not None:
            await self._report(record, replace(record, status=self._own_certificate(record)))
            return None
        now = self._clock.now()
        status = replace(record.status, parent=self._remembered_parent(record))
        try:
            self._refuse_second(record)
            await self._adopt(record)
            status = replace(status, request=self._request(record))
            selection = self._keys.selection(record)
            # Computed first: an authority without a usable key shows none of the keys before.
            status = replace(status, keys=tuple(map(_reference, selection.verifying)))
            authority = await self._signer(record, selection)
            status = replace(
                status,
                certificate=authority.chain_pem.decode("ascii"),
                not_after=min(link.not_valid_after_utc for link in authority.chain),
                trust_bundle=await self._bundles.publish(record, selection),
                cross_certificates=cross_certificates(selection)
                + self._cross_of_parent(record, authority),
            )
            refuse_out_of_time(authority.chain, now)
            self._keys.refuse_revoked(authority, selection)
            ready = Condition(type=READY, status=TRUE, reason=ISSUING, message=_issues(record))
        except Refusal as refusal:
            # The exceptions are named after the problem: KeyMismatch, AuthorityExpired.
            reason, message = type(refusal).__name__, str(refusal)
            if self._keys.members(record):
                status = self._own_certificate(replace(record, status=status))
            ready = Condition(type=READY, status=FALSE, reason=reason, message=message)
        related = of_relations(record, await self._problems(record))
        conditions = ready, *of_certificate(status.certificate, now), *related
        reported = with_conditions(replace(record, status=status), conditions, now)
        await self._report(record, reported)
        return self._pause(reported, ready.reason, now)

    def _own_certificate(self, authority: CertificateAuthority) -> CertificateAuthorityStatus:
        """The status with the certificate of a key of the authority, or none.

        A user may write it while no key signs, or while a finalizer keeps the authority.
        """
        own = [key.status.certificate for key in self._keys.members(authority)]
        if authority.status.certificate in ("", *own):
            return authority.status
        return replace(authority.status, certificate=next(filter(None, own), ""))

    def _pause(self, authority: CertificateAuthority, reason: str, now: datetime) -> float:
        """Seconds until the authority is checked again without an event."""
        is_watched = secret_location(authority, self._naming).namespace == self._home
        key = authority.spec.key
        if (key and not key.is_made) or any(
            signing_key.hsm_label for signing_key in self._keys.members(authority)
        ):
            is_watched = False  # an HSM may fail, or come back, at any time
        least = LONGEST_PAUSE_SECONDS if is_watched else LOOK_AGAIN_SECONDS
        if reason in OUT_OF_TIME:
            least = CLOCK_SECONDS
        pause = max(least, len(self._secret_of) * SECONDS_EACH)
        moments = (moment - now for moment in turning_points(authority.status.certificate))
        return min([pause, *(left.total_seconds() for left in moments if left > timedelta())])

    async def _problems(self, authority: CertificateAuthority) -> dict[str, str]:
        """What belongs to somebody else, by the type of its condition."""
        bundle = await self._client.find(PublishedBundle, authority.name)
        named = self._index.parent(authority)
        replaced = parent_problem(authority, named) if named else ""
        return {BUNDLE_TAKEN: bundle_problem(authority, bundle), PARENT_REPLACED: replaced}

    def _remembered_parent(
        self, authority: CertificateAuthority
    ) -> AuthorityParentReference | None:
        """The parent, by uid; an earlier version of the server did not remember it."""
        named = self._index.parent(authority)
        if authority.status.parent or named is None or parent_problem(authority, named):
            return authority.status.parent
        return parent_reference(named)

    # -- the key -----------------------------------------------------------------------------

    def _refuse_second(self, found: CertificateAuthority) -> None:
        for signer in found.signers:
            for other in self._index.claims(signer):
                if other.seniority < found.seniority:
                    raise SignerTaken(f"the authority {other.name} has the signer {signer} already")

    def _request(self, found: CertificateAuthority) -> str:
        """The request that an authority elsewhere has to sign, if there is one."""
        requests = (key.status.request for key in self._keys.members(found) if _waits(key))
        return next(requests, "")

    def _cross_of_parent(self, record: CertificateAuthority, authority: Authority) -> str:
        """The cross certificates of the authority above, if its present key signed this one."""
        above = self._index.parent(record)
        cross = above.status.cross_certificates if above else ""
        if not cross or above is None or parent_problem(record, above):
            return ""
        certified = spki_of(certificates.parse_blocks(cross)[0])
        return cross if certified in map(spki_of, authority.chain[1:2]) else ""

    async def _adopt(self, authority: CertificateAuthority) -> None:
        """Have a SigningKey for the present key of an authority."""
        stored = self._keys.members(authority)
        if authority.spec.key is not None:
            if not stored:  # the others are created as SigningKeys
                await self._create_first(authority, authority.spec.key)
            return
        try:
            own = await read_secret(self._client, secret_location(authority, self._naming))
        except Refusal:
            if stored:
                return  # reported if the signer is in that Secret
            raise
        chain = own.chain_pem.decode("ascii")
        public = authority_public_key(chain)  # its issuer chooses the key identifier
        same = [key for key in stored if key.status.public_key == public]
        if not same:
            try:
                await self._create_key(authority, SigningKeySpec())
            except NoKey:
                if not stored:  # such as a retired key, in place of which another one signs
                    raise
        elif same[0].status.certificate != chain and same[0].state != RETIRED:
            renewed = replace(same[0], status=replace(same[0].status, certificate=chain))
            await self._client.update_status(renewed)
            self._keys.take(renewed)

    async def _create_first(self, authority: CertificateAuthority, key: AuthorityKeySpec) -> None:
        """Without a source, the server creates the first key, or takes that in the HSM.

        A key that an earlier version created is imported by a user who may: anybody who writes the
        status and Secrets could bring another one.
        """
        if key.is_made and authority.spec.parent is None and authority.status.certificate:
            raise _without_keys(authority, secret_location(authority, self._naming))
        await self._create_key(authority, SigningKeySpec())

    async def _create_key(self, authority: CertificateAuthority, spec: SigningKeySpec) -> None:
        name = next_name(self._keys.names, authority.name, self._names_taken)
        new = SigningKey(
            metadata=ObjectMeta(name=name), spec=replace(spec, authority=authority.name)
        )
        try:
            self._keys.take(await self._client.create(new))
        except AlreadyExists:
            raise TryAgain(f"there is a SigningKey {name} already") from None
        except Invalid as refused:
            raise NoKey(str(refused)) from None
        except Forbidden as refused:
            if UNSEALED_STORE in str(refused):
                raise KeyNotSealed(f"{UNSEALED_STORE}: {HOW_TO_SEAL}") from None
            raise

    async def _signer(self, authority: CertificateAuthority, selection: KeySelection) -> Authority:
        if selection.signer is None:
            waiting = [key.name for key in self._keys.members(authority) if _waits(key)]
            if waiting:
                raise ChainMissing(f"the request of {waiting[0]} waits for a signature elsewhere")
            raise NoKey("every key of the authority is revoked")
        try:
            return await read_authority(self._client, selection.signer, self._naming, hsm=self._hsm)
        except SecretMissing as missing:
            if selection.signer.status.source == MADE:
                raise _lost(missing) from None
            raise

    # -- events ------------------------------------------------------------------------------

    async def _key_changed(self, event: WatchedChange[SigningKey]) -> AsyncIterator[Key]:
        for authority in self._keys.key_changed(event):
            yield "", authority

    async def _key_revoked(self, event: WatchedChange[CredentialRevocation]) -> AsyncIterator[Key]:
        for authority in self._keys.revoked(event):
            yield "", authority

    async def _owner_of(self, event: WatchedChange[ClusterTrustBundle]) -> AsyncIterator[Key]:
        for authority in self._bundles.changed(event):
            yield "", authority

    async def _published(self, event: WatchedChange[PublishedBundle]) -> AsyncIterator[Key]:
        if event.object.name in self._secret_of:
            yield "", event.object.name

    async def _kept_in(self, event: WatchedChange[Secret]) -> AsyncIterator[Key]:
        changed = SecretReference(name=event.object.name, namespace=event.object.namespace)
        for name in tuple(self._kept.get(changed, ())):
            yield "", name
        if holder := self._keys.held_in(changed):
            yield "", holder

    # -- the status --------------------------------------------------------------------------

    async def _report(self, before: CertificateAuthority, after: CertificateAuthority) -> None:
        if after.status == before.status:
            return
        await self._client.update_status(after)
        old = {condition.type: condition for condition in before.status.conditions}
        for condition in after.status.conditions:
            previous = old.get(condition.type)
            present = condition.status, condition.reason
            if previous is None or (previous.status, previous.reason) != present:
                self._record(after, condition)

    def _record(self, about: CertificateAuthority, condition: Condition) -> None:
        is_good = condition.status == (FALSE if condition.type in ABNORMAL else TRUE)
        if condition.type == READY:
            type_ = NORMAL if is_good else WARNING
            self._events.record(self.name, about, condition.reason, condition.message, type_=type_)
        elif not is_good:
            reason = EXPIRING if condition.type == EXPIRING else condition.reason
            self._events.record(self.name, about, reason, condition.message, type_=WARNING)


def _waits(key: SigningKey) -> bool:
    """Whether a key waits for a certificate from elsewhere."""
    return bool(key.status.request) and not key.status.certificate and key.state != RETIRED


def _without_keys(authority: CertificateAuthority, secret: SecretReference) -> KeyLost:
    return KeyLost(
        "its status has a certificate, but it has no SigningKey: import the key that an earlier "
        f"version created (orchid key import --authority {authority.name} --secret {secret}), or "
        f"create a SigningKey with the authority {authority.name} for a new one"
    )


def _lost(missing: SecretMissing) -> KeyLost:
    return KeyLost(f"{missing}; restore it, or delete the authority")


def _reference(key: SigningKey) -> AuthorityKeyReference:
    return AuthorityKeyReference(
        name=key.name, state=key.state, revocation_list=key.status.revocation_list
    )


def _issues(found: CertificateAuthority) -> str:
    return f"Issues certificates for {', '.join(found.signers)}."


def build(client: Client, context: ControllerContext, events: EventRecorder) -> KeepAuthorities:
    return KeepAuthorities(client, context.naming, context.clock, events, context.hsm)


CONTROLLER = ControllerDeclaration(
    name="certificate-authority",
    long_name="certificateauthority-controller",
    account="certificate-authority-controller",
    rights=lambda naming: (
        rule((*READ, "attest"), naming.identity, ("certificateauthorities",)),
        rule(("attest",), naming.certificates, ("signers",), *naming.issuing_signers),
        rule(("update",), naming.identity, ("certificateauthorities/status", "signingkeys/status")),
        rule(("create", *READ), naming.identity, ("signingkeys",)),
        rule(("list", "watch"), naming.identity, ("credentialrevocations",)),
        rule(READ, naming.identity, ("publishedbundles",)),
        rule(("create", "delete", "update", *READ), naming.certificates, ("clustertrustbundles",)),
        may_record_events(naming),
    ),
    rights_at_home=lambda names: (rule(("list", "watch"), CORE, ("secrets",)),),
    reads_authority_keys=True,
    build=build,
)
