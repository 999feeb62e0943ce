"""The material of a new SigningKey: created or imported, and stored together with its object.

Start with `SigningKeyMaterial.admit`. It creates the key, or reads the one that is imported, and
fills in the status: key id, public key, algorithm. The Secret with the private key is part of the
same commit as the object (`companions`), so that there is never one without the other; so is the
first revocation list of a new key. Importing
takes the verb `import` on the key, and the right to get the Secret that is named: a caller who
knows the private key can issue a token of any account. Importing the key of an authority takes the
rights of a user who creates that authority, too. A key of an authority without any source is the
key that the authority has now (features/token_keys/policies/authority_material.py).
"""

import asyncio
import operator
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    parent_problem,
)
from orchid.features.certificates.kinds.issued_certificate import (
    Approval,
    IssuedCertificate,
    Requester,
    record_of,
)
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.key_source import (
    SPEC,
    SigningKeySpec,
    read_public_key,
    source_errors,
)
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    IMPORTED,
    MADE,
    PRIVATE_KEY,
    SigningKey,
    by_name,
    status_of,
)
from orchid.features.token_keys.policies.authority_material import (
    AuthorityKeysOf,
    FirstList,
    NewKey,
    PrivateKeys,
    SignerReference,
    SignerReferences,
    authority_material,
)
from orchid.features.token_keys.policies.chains import require_import
from orchid.features.token_keys.policies.key_companions import (
    first_list_map,
    owner_of,
    private_key_secret,
)
from orchid.kernel.access.rights import CallerRights
from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities import rsa_process
from orchid.kernel.credentials.refusals import AuthorityUnusable, Refusal
from orchid.kernel.credentials.x509.issued_facts import read_issued
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer, Randomness
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_found,
    unsupported,
)
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference
from orchid.kernel.wire.rules.key_names import next_name
from orchid.kernel.wire.signing_key_status import KeyDependents, SigningKeyStatus, SigningKeyTimes
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

# Tokens of an imported key may have been issued elsewhere; Pods get tokens for a year.
LONGEST_UNRECORDED: Final = timedelta(days=365)
SECOND: Final = timedelta(seconds=1)
# Of the authority of the platform: the server verifies client certificates by no others.
FOR_CLIENTS: Final = ("ECDSA-P256", "ECDSA-P384", "ECDSA-P521", "RSA-3072", "RSA-4096")


class SigningKeyMaterial(AdmissionPolicy):
    admits = (SigningKey,)
    accompanies_new = (SigningKey,)

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        authorizer: Authorizer,
        randomness: Randomness,
        *,
        publish_time: str,
        authority_keys: AuthorityKeysOf,
        revoked: Callable[[], Container[str]],
        past: Callable[[str], Awaitable[str | None]],
        key_problem: Callable[[str], str],
        references: SignerReferences,
        private_keys: PrivateKeys,
        unsealed: str = "",
    ) -> None:
        """`authority_keys`: the keys of an authority. `revoked`: the ids of revoked keys. `past`:
        the name of the key that had a public key (SHA-256) and was retired or revoked.
        `key_problem`: why a public key (SHA-256) is never used again, or "".
        `references`: where private keys are. `unsealed`: why no private key may be stored here;
        empty if it may.
        """
        self._naming = naming
        self._feed = feed
        self._keys = feed.of(SigningKey)
        self._authorities = feed.of(CertificateAuthority)
        self._clusters = feed.of(Cluster)
        self._secrets = feed.of(Secret)
        self._rights = CallerRights(naming, authorizer)
        self._random = randomness
        self._publish_time = publish_time
        self._authority_keys = authority_keys
        self._revoked = revoked
        self._past = past
        self._key_problem = key_problem
        self._references = references
        self._unsealed = unsealed
        self._private_keys = private_keys
        self._private: WeakKeyDictionary[Request, Mapping[str, bytes]] = WeakKeyDictionary()
        self._certified: WeakKeyDictionary[Request, list[Object]] = WeakKeyDictionary()
        self._lists: WeakKeyDictionary[Request, FirstList] = WeakKeyDictionary()

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Any:
        if old is not None:
            return new
        await self._require_import(request, kind, new)
        new = replace(new, status=SigningKeyStatus())
        await self._feed.fresh()
        if new.spec.authority:
            return await self._admit_authority_key(request, kind, new)
        if any(source_errors(new.spec)):
            return new  # the rules of the kind refuse it
        if not new.spec.public_key and self._unsealed:
            raise Forbidden(kind.about(new.name), self._unsealed)
        if new.spec.cluster:
            new = self._of_cluster(kind, new)
        stored = [entry.object for entry in self._keys.entries.values()]
        self._refuse_other_name(kind, new)
        status = await self._status(request, kind, new)
        await self._refuse_same(kind, new, status, stored)
        return replace(new, status=status)

    def _of_cluster(self, kind: Kind[Any], new: SigningKey) -> SigningKey:
        """A public key belongs to its Cluster, by uid: none of that name gets it later."""
        cluster = self._clusters.get("", new.spec.cluster)
        if cluster is None:
            _refuse(kind, new, not_found(SPEC / "cluster", new.spec.cluster))
        return new.with_meta(owner_references=(owner_of(self._clusters.kind, cluster.object),))

    def _refuse_other_name(self, kind: Kind[Any], new: SigningKey) -> None:
        keys_by_name = by_name(entry.object for entry in self._keys.entries.values())
        authorities = {entry.object.name for entry in self._authorities.entries.values()}
        expected_name = next_name(keys_by_name, new.group, authorities)
        if new.name != expected_name and self._keys.get("", new.name) is None:
            text = f"the next key is {quote(expected_name)}"
            _refuse(kind, new, invalid(METADATA / "name", new.name, text))

    async def _refuse_same(
        self,
        kind: Kind[Any],
        new: SigningKey,
        status: SigningKeyStatus,
        stored: Sequence[SigningKey],
    ) -> None:
        """Refuse a key that is stored, or ever was: by public key, since ids can be chosen."""
        identity = status.key_id, status.public_key
        for key in stored:
            counts = (
                not key.is_file or new.spec.cluster
            )  # no cluster claims a key of Orchid's files
            if counts and _is_any_same(identity, (key.key_id, key.status.public_key)):
                _refuse(kind, new, duplicate(SPEC, f"{key.name} has the same key"))
        sha256 = keys.pem_sha256(status.public_key)
        past = await self._past(sha256)
        if past is not None:
            text = f"it is the key of {past}, which was retired or revoked, and never counts again"
            _refuse(kind, new, forbidden(_source(new), text))
        if problem := self._key_problem(sha256):
            _refuse(kind, new, forbidden(_source(new), problem))

    def _refuse_shared(self, kind: Kind[Any], new: SigningKey, status: SigningKeyStatus) -> None:
        """Refuse a key of the HSM that is in use: one authority could issue in another's place."""
        for entry in self._keys.entries.values():
            if entry.object.status.public_key == status.public_key:
                _refuse(kind, new, duplicate(SPEC, f"{entry.object.name} has the same key"))

    # -- keys of authorities -----------------------------------------------------------------

    async def _admit_authority_key(
        self, request: Request, kind: Kind[Any], new: SigningKey
    ) -> SigningKey:
        entry = self._authorities.get("", new.spec.authority)
        if entry is None:
            _refuse(kind, new, not_found(SPEC / "authority", new.spec.authority))
        authority, spec, requested = entry.object, new.spec, new.spec
        if authority.is_file:
            text = "the keys of this authority are files of the servers: change the files"
            _refuse(kind, new, forbidden(SPEC / "authority", text))
        is_present = not (spec.algorithm or spec.secret_ref or spec.public_key or spec.pkcs11)
        if is_present:
            spec = self._present(spec, authority)
            is_present = spec.state == ACTIVE
        elif spec.algorithm and authority.spec.key is None:
            text = "the keys of this authority are in Secrets: name another Secret in secretRef"
            _refuse(kind, new, forbidden(SPEC / "algorithm", text))
        new = replace(new, spec=spec)
        if any(source_errors(new.spec)):
            return new  # the rules of the kind refuse it
        if spec.algorithm and self._unsealed:
            raise Forbidden(kind.about(new.name), self._unsealed)
        if requested.secret_ref or requested.pkcs11:
            # Importing a key takes the rights of a user who creates the authority.
            await self._rights.require_signers(request, kind, new, authority.signers)
        if requested.secret_ref:
            await self._rights.require_secret(request, kind, new, requested.secret_ref)
        self._refuse_other_name(kind, new)
        return await self._with_material(request, kind, new, authority, is_present=is_present)

    def _present(self, spec: SigningKeySpec, authority: CertificateAuthority) -> SigningKeySpec:
        """The source of the key that an authority has now, which is Active, or of its first one.

        The server creates the first key together with its object and its Secret: nobody can put
        another Secret in its place. The status of the authority is no reason to trust a Secret.
        """
        key = authority.spec.key
        if key is None:
            return replace(spec, secret_ref=authority.spec.secret_ref, state=ACTIVE)
        if key.pkcs11:
            return replace(spec, pkcs11=key.pkcs11)
        if authority.spec.parent is not None:
            return replace(spec, algorithm=key.algorithm)
        if self._authority_keys(authority.name):
            return spec  # the rules of the kind refuse a successor without a source
        return replace(spec, algorithm=key.algorithm, state=ACTIVE)

    async def _with_material(
        self,
        request: Request,
        kind: Kind[Any],
        new: SigningKey,
        authority: CertificateAuthority,
        *,
        is_present: bool,
    ) -> SigningKey:
        stored = self._authority_keys(authority.name)
        predecessor = self._predecessor(stored, authority)
        try:
            parent = self._parent(authority)
            new_key = NewKey(new, authority, predecessor, parent, is_present, request.now)
            material = await authority_material(new_key, self._private_keys)
        except Refusal as refusal:
            shown = str(new.spec.secret_ref or new.spec.algorithm or new.hsm_label)
            _refuse(kind, new, invalid(_source(new), shown, str(refusal)))
        # Not keys of clusters: naming a public key proves no private key.
        tokens = [entry.object for entry in self._keys.entries.values() if not entry.object.group]
        await self._refuse_same(kind, new, material.status, [*stored, *tokens])
        if new.hsm_label:
            self._refuse_shared(kind, new, material.status)
        if authority.is_platform and material.status.algorithm not in FOR_CLIENTS:
            _refuse(kind, new, unsupported(_source(new), material.status.algorithm, FOR_CLIENTS))
        if material.data:
            self._private[request] = material.data
        if material.revocation_list:
            self._lists[request] = material.revocation_list
        self._certified[request] = self._records(request, new, authority, material.status)
        times = SigningKeyTimes()
        if is_present:
            now = whole_seconds(request.now)
            times = SigningKeyTimes(published=now, active=later_than(stored, now))
        first = material.revocation_list
        status = replace(
            material.status,
            times=times,
            publish_time=self._publish_time if is_present else "",
            revocation_list=new.name if stored else authority.name,
            revocation_list_number=first.edition.number if first else 0,
        )
        owner = owner_of(self._authorities.kind, authority)
        return replace(new.with_meta(owner_references=(owner,)), status=status)

    def _predecessor(
        self, stored: Sequence[SigningKey], authority: CertificateAuthority
    ) -> SignerReference | None:
        signer = select(stored, self._revoked(), authority.name).signer
        if signer is None:
            return None
        return self._references.of(signer, signer.status.certificate)

    def _parent(self, authority: CertificateAuthority) -> SignerReference | None:
        """The signer of the authority above; None for a root, and for a parent elsewhere."""
        parent = authority.spec.parent
        if parent is None or parent.external:
            return None
        entry = self._authorities.get("", parent.authority)
        if entry and (problem := parent_problem(authority, entry.object)):
            raise AuthorityUnusable(problem)
        signer = entry and self._predecessor(self._authority_keys(parent.authority), entry.object)
        if not signer:
            raise AuthorityUnusable(f"the authority {parent.authority} has no key that signs")
        return signer

    def _records(
        self,
        request: Request,
        new: SigningKey,
        authority: CertificateAuthority,
        status: SigningKeyStatus,
    ) -> list[Object]:
        """Inventory records of the certificates that a parent, or the key so far, signed."""
        parent = authority.spec.parent
        above = self._authorities.get("", parent.authority) if parent else None
        records: list[Object] = []
        if above is not None and status.certificate:
            text = f"The parent of the authority {authority.name} certified its key {new.name}."
            signer = above.object.spec.signer_name
            records.append(self._record(request, new, status.certificate, signer, text))
        if status.cross_certificate:
            text = f"The signer of the authority {authority.name} certified its key {new.name}."
            signer = recording_signer(authority, self._naming)
            records.append(self._record(request, new, status.cross_certificate, signer, text))
        return records

    def _record(
        self, request: Request, new: SigningKey, chain: str, signer_name: str, text: str
    ) -> IssuedCertificate:
        return record_of(
            self._feed.of(IssuedCertificate).kind,
            read_issued(chain.encode()),
            uid=self._random.uid(),
            issued=whole_seconds(request.now),
            signer_name=signer_name,
            requester=Requester(
                username=request.user.username, uid=request.user.uid, groups=request.user.groups
            ),
            approval=Approval(reason="IntermediateAuthority", message=text),
            intermediate=new.name,
        )

    async def companions(
        self, request: Request, kind: Kind[Any], new: Any, old: Any
    ) -> tuple[Object, ...]:
        private, objects = self._private.pop(request, None), self._certified.pop(request, [])
        if private is not None:
            secret = private_key_secret(self._naming, kind, new, private, self._random.uid())
            objects.append(secret)
        if (first := self._lists.pop(request, None)) is not None:
            objects += first_list_map(self._feed, self._naming, new, first, self._random.uid)
        return tuple(objects)

    # -- token keys --------------------------------------------------------------------------

    async def _status(self, request: Request, kind: Kind[Any], new: SigningKey) -> SigningKeyStatus:
        spec, now = new.spec, whole_seconds(request.now)
        unrecorded = KeyDependents(unknown_until=now + LONGEST_UNRECORDED)
        if spec.public_key:
            imported = read_public_key(spec.public_key)
            return replace(
                status_of(imported, IMPORTED),
                times=SigningKeyTimes(verifying=now),
                publish_time=self._publish_time,
                dependents=unrecorded,
            )
        if spec.secret_ref:
            private = await self._imported(request, kind, new, spec.secret_ref)
            status = replace(status_of(private.public, IMPORTED), dependents=unrecorded)
        else:
            private = await create_key(spec.algorithm)
            status = status_of(private.public, MADE)
        self._private[request] = {PRIVATE_KEY: private.pem().reveal().encode()}
        return status

    async def _imported(
        self, request: Request, kind: Kind[Any], new: SigningKey, reference: SecretReference
    ) -> keys.TokenKey:
        await self._rights.require_secret(request, kind, new, reference)
        entry = self._secrets.get(reference.namespace, reference.name)
        if entry is None:
            _refuse(kind, new, not_found(SPEC / "secretRef", str(reference)))
        try:
            data = entry.object.data.get(PRIVATE_KEY, b"")
            return keys.TokenKey(keys.read_private_key(data, PRIVATE_KEY))
        except Refusal as refusal:
            _refuse(kind, new, invalid(SPEC / "secretRef", str(reference), str(refusal)))

    # -- rights ------------------------------------------------------------------------------

    async def _require_import(self, request: Request, kind: Kind[Any], new: SigningKey) -> None:
        if new.spec.secret_ref or new.spec.public_key or new.spec.pkcs11:
            await require_import(self._rights, request, kind, new)


def recording_signer(authority: CertificateAuthority, naming: Naming) -> str:
    """The signer under which the cross certificates of an authority are in the inventory."""
    return authority.spec.signer_name or naming.legacy_signer


async def create_key(algorithm: str) -> keys.TokenKey:
    """Create a private key for a token key."""
    if algorithm == "RS256":
        private_key = await asyncio.to_thread(rsa_process.generate, keys.MADE_RSA_BITS)
        return keys.TokenKey(private_key)
    return keys.generate(algorithm)


def later_than(stored: Iterable[SigningKey], now: datetime) -> datetime:
    """The time of an activation: now, and at least a second after that of any other key."""
    times = (key.status.times.active for key in stored)
    latest = max((moment for moment in times if moment is not None), default=None)
    return now if latest is None else max(now, latest + SECOND)


def _is_any_same(one: Iterable[str], other: Iterable[str]) -> bool:
    return any(map(operator.eq, one, other))


def _source(key: SigningKey) -> Path:
    """The field that names the source of a key."""
    if key.spec.secret_ref:
        return SPEC / "secretRef"
    if key.spec.public_key:
        return SPEC / "publicKey"
    return SPEC / ("pkcs11" if key.spec.pkcs11 else "algorithm")


def _refuse(kind: Kind[Any], new: Object, problem: FieldError) -> NoReturn:
    raise Invalid(kind.about_kind(new.name), [problem])
