"""The cluster CA of files becomes the CertificateAuthority `cluster`, and a new one gets its key.

Start with `PlatformKeyImport.run`, once at each start of a server that stores the authority. The
pair ca.crt and ca.key becomes the first SigningKey, which is Active: an upgrade keeps key and
certificate. Without files a pair is created. The different pair of another server over the same
store becomes a key that is Verifying: what it signed stays accepted. If the Secret of the key in
the files is lost, it is stored again. Authority, key and Secret are one commit: a crash leaves all
or none, and of two servers that start together one is first.
"""

import logging
from collections.abc import Callable, Container
from datetime import timedelta
from typing import Any

import msgspec
from cryptography import x509

from orchid.features.authorities.authority_spec import (
    DURATION,
    LONGEST_NAME,
    AuthorityKeySpec,
    AuthoritySubject,
    CertificateAuthoritySpec,
)
from orchid.features.authorities.kinds.certificate_authority import CLUSTER, CertificateAuthority
from orchid.features.ledger.known_keys import noted_keys
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    IMPORTED,
    MADE,
    PRIVATE_KEY,
    RETIRED,
    VERIFYING,
    SigningKey,
    authority_key_id,
    by_name,
)
from orchid.features.token_keys.policies.key_companions import owner_of, private_key_secret
from orchid.kernel.base.clock import Clock, whole_seconds
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import FIRST_NAME, Authority
from orchid.kernel.credentials.authorities.authority_keys import (
    ALGORITHMS,
    ECDSA_P256,
    algorithm_name,
)
from orchid.kernel.credentials.authorities.issuer_chain import spki_of
from orchid.kernel.credentials.authorities.validity import BACKDATE
from orchid.kernel.credentials.refusals import AuthorityUnusable
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.tombstones import read_tombstone
from orchid.kernel.store.interface import ABSENT, Change, RevisionConflict, Store
from orchid.kernel.wire.authority_status import AuthorityKeyReference, CertificateAuthorityStatus
from orchid.kernel.wire.conditions import READY, TRUE, Condition
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.signing_key_status import (
    KeyDependents,
    SigningKeyStatus,
    SigningKeyTimes,
    key_tombstone,
)
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

CERTIFICATE = "tls.crt"
NEW = timedelta(minutes=10)
AUTHORITY = "authority"  # the beginning of the types of ledger entries


class PlatformFiles(msgspec.Struct, frozen=True):
    """The cluster CA in the files of a server."""

    load: Callable[[], Authority | None]  # None if there is no pair; raises Refusal
    require: Callable[[], Authority]  # the pair, created if there are no files; raises Refusal


class PlatformKeyImport:
    """Brings the cluster CA of one server's files into the store."""

    def __init__(
        self,
        naming: Naming,
        files: PlatformFiles,
        feed: Feed,
        store: Store,
        randomness: Randomness,
        *,
        clock: Clock,
        publish_time: str,
        longest: timedelta,
        revoked: Callable[[], Container[str]],
    ) -> None:
        """`longest`: the longest lifetime of certificates that the authority issues. `revoked`: the
        ids of revoked keys, which are not imported.
        """
        self._naming = naming
        self._files = files
        self._feed = feed
        self._store = store
        self._random = randomness
        self._clock = clock
        self._publish_time = publish_time
        self._longest = longest
        self._revoked = revoked
        self._keys = feed.of(SigningKey)
        self._authorities = feed.of(CertificateAuthority)

    async def run(self) -> None:
        """Store the pair of the files if no object has it; raises Refusal if it is unusable."""
        while True:
            await self._feed.fresh()
            entry = self._authorities.get("", CLUSTER)
            try:
                if entry is None or entry.object.is_file:
                    await self._store_first()
                elif not await self._store_other(entry.object):
                    return
            except RevisionConflict:
                continue  # another server was faster

    async def _store_first(self) -> None:
        pair = self._files.require()
        if past := await self._past_name(pair):
            text = f"the key of {past}, which was retired or revoked, is in the files: replace them"
            raise AuthorityUnusable(text)
        authority = self._authority(pair)
        # Nothing was issued before the server itself created it, a moment ago.
        age = self._clock.now() - pair.certificate.not_valid_before_utc - BACKDATE
        source = MADE if age < NEW and _common_name(pair) == FIRST_NAME else IMPORTED
        key, secret = self._key(authority, pair, ACTIVE, source)
        digest = certificates.fingerprint(pair.certificate)
        facts = []
        if digest not in await noted_keys(self._store, AUTHORITY):
            facts.append(Fact(f"{AUTHORITY}.made", {"key": digest, "signers": _listed(authority)}))
        authority = replace(authority, status=_status(authority, key, pair))
        await self._commit([authority, key, secret], facts)
        level = logging.DEBUG if source == MADE else logging.INFO  # a new installation is no news
        log.log(level, "authority.imported", extra={"key": key.name, "state": key.state})

    async def _store_other(self, authority: CertificateAuthority) -> bool:
        """Store the pair of another server, if it is one; return whether it was stored."""
        pair = self._files.load()
        if pair is None:
            return False
        key_id, public = authority_key_id(pair.chain_pem.decode("ascii")), _public_key(pair)
        stored = [key for key in self._stored() if not key.is_file]
        same = [key for key in stored if key.status.public_key == public]
        if same:
            return await self._put_back(same[0], pair)
        if any(key.key_id == key_id for key in stored) or key_id in self._revoked():
            return False  # an identifier can be chosen
        if past := await self._past_name(pair):
            log.warning("authority.past_key_in_file", extra={"key": past})
            return False
        key, secret = self._key(authority, pair, VERIFYING, IMPORTED)
        await self._commit([key, secret], [])
        log.warning("authority.imported", extra={"key": key.name, "state": key.state})
        return True

    async def _put_back(self, key: SigningKey, pair: Authority) -> bool:
        """Store the private key of the files again, if its Secret is lost."""
        secret = self._feed.of(Secret).get(self._naming.system_namespace, key.secret_name)
        if secret is not None or key.state == RETIRED or key.hsm_label:
            return False
        try:
            await self._commit([self._secret(key, pair)], [])
        except RevisionConflict:
            return False  # another server was faster, or this one cannot open the Secret
        log.warning("authority.secret_restored", extra={"key": key.name})
        return True

    async def _past_name(self, pair: Authority) -> str | None:
        """The name of the retired or revoked key that the pair has; None if it never was one."""
        return await read_tombstone(self._store, key_tombstone(keys.pem_sha256(_public_key(pair))))

    def _authority(self, pair: Authority) -> CertificateAuthority:
        algorithm, kind = algorithm_name(pair.public_key), self._authorities.kind
        return CertificateAuthority(
            kind=kind.name,
            api_version=kind.api_version,
            metadata=self._meta(CLUSTER, self._authorities.get("", CLUSTER)),
            spec=CertificateAuthoritySpec(
                signer_names=tuple(self._naming.issuing_signers),
                key=AuthorityKeySpec(
                    algorithm=algorithm if algorithm in ALGORITHMS else ECDSA_P256
                ),
                subject=AuthoritySubject(
                    common_name=_common_name(pair) or FIRST_NAME,
                ),
                duration=DURATION,
            ),
        )

    def _stored(self) -> list[SigningKey]:
        """The keys of the authority, with those that only show files."""
        entries = (entry.object for entry in self._keys.entries.values())
        return [key for key in entries if key.spec.authority == CLUSTER]

    def _key(
        self,
        authority: CertificateAuthority,
        pair: Authority,
        state: str,
        source: str,
    ) -> tuple[SigningKey, Secret]:
        now, kind, stored = whole_seconds(self._clock.now()), self._keys.kind, self._stored()
        key_id = authority_key_id(pair.chain_pem.decode("ascii"))
        shown = next(
            (
                signing_key.name
                for signing_key in stored
                if signing_key.is_file and signing_key.key_id == key_id
            ),
            "",
        )
        is_first = all(signing_key.is_file for signing_key in stored)
        keys = by_name(entry.object for entry in self._keys.entries.values())
        authorities = {entry.object.name for entry in self._authorities.entries.values()}
        name = shown or next_name(keys, CLUSTER, authorities)
        meta = self._meta(name, self._keys.get("", name))
        meta = replace(meta, owner_references=(owner_of(self._authorities.kind, authority),))
        times = SigningKeyTimes(published=now, active=now)
        if state == VERIFYING:
            times = SigningKeyTimes(verifying=now)
        key = SigningKey(kind=kind.name, api_version=kind.api_version, metadata=meta)
        unknown = KeyDependents(unknown_until=now + self._longest)
        key = replace(
            key,
            spec=SigningKeySpec(
                authority=CLUSTER,
                secret_ref=SecretReference(
                    name=key.secret_name, namespace=self._naming.system_namespace
                ),
                state=state,
            ),
            status=SigningKeyStatus(
                key_id=key_id,
                source=source,
                public_key=_public_key(pair),
                algorithm=algorithm_name(pair.public_key),
                times=times,
                publish_time=self._publish_time,
                dependents=unknown if source == IMPORTED else None,
                certificate=pair.chain_pem.decode("ascii"),
                revocation_list=CLUSTER if is_first else name,
            ),
        )
        return key, self._secret(key, pair)

    def _secret(self, key: SigningKey, pair: Authority) -> Secret:
        data = {CERTIFICATE: pair.chain_pem, PRIVATE_KEY: pair.key_pem().reveal().encode()}
        uid = self._random.uid()
        return private_key_secret(self._naming, self._keys.kind, key, data, uid)

    def _meta(self, name: str, shown: Entry[Any] | None) -> ObjectMeta:
        """New metadata; an object that showed a file is replaced."""
        uid = shown.meta.uid if shown else self._random.uid()
        now = whole_seconds(self._clock.now())
        return ObjectMeta(name=name, uid=uid, creation_timestamp=now, generation=1)

    async def _commit(self, objects: list[Object], facts: list[Fact]) -> None:
        changes = []
        for object_ in objects:
            cache = self._feed.of(type(object_))
            entry = (
                None if isinstance(object_, Secret) else cache.get(object_.namespace, object_.name)
            )
            revision = entry.revision if entry else ABSENT
            key = cache.kind.key(object_.namespace, object_.name)
            changes.append(Change(key, stored_form(object_), revision))
        pending = store_keys.pending(facts, objects[0].metadata.uid, self._clock.now())
        await self._store.commit([*changes, *pending])


def _status(
    authority: CertificateAuthority, key: SigningKey, pair: Authority
) -> CertificateAuthorityStatus:
    """The status of an authority whose first key was stored; the controller completes it."""
    ready = Condition(
        type=READY,
        status=TRUE,
        reason="Issuing",
        message=f"Issues certificates for {', '.join(authority.signers)}.",
        observed_generation=1,
        last_transition_time=key.status.times.active,
    )
    reference = AuthorityKeyReference(
        name=key.name, state=key.state, revocation_list=key.status.revocation_list
    )
    return CertificateAuthorityStatus(
        conditions=(ready,),
        certificate=key.status.certificate,
        not_after=min(link.not_valid_after_utc for link in pair.chain),
        keys=(reference,),
    )


def _public_key(pair: Authority) -> str:
    return pem.encode(pem.PUBLIC_KEY, spki_of(pair.certificate)).decode("ascii")


def _listed(authority: CertificateAuthority) -> list[str]:
    return sorted(authority.signers)


def _common_name(pair: Authority) -> str:
    found = pair.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(found[0].value)[:LONGEST_NAME] if found else ""
