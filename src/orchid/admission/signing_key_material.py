"""The material of a new SigningKey: created or imported, and stored together with its object.

Start with `SigningKeyMaterial.admit`. It creates the key, or reads the one that is imported, and
fills in the status: key id, public key, algorithm. The Secret with the private key is part of the
same commit as the object (`companions`), so that there is never one without the other. Importing
takes the verb `import` on the key, and the right to get the Secret that is named: a caller who
knows the private key can issue a token of any account.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from orchid.credentials import keys
from orchid.credentials.authorities import rsa_process
from orchid.credentials.refusals import Refusal
from orchid.credentials.secret import SecretValue
from orchid.engine.cache.feed import Feed
from orchid.engine.interfaces import AdmissionPolicy, Authorizer, Randomness
from orchid.engine.kind import Kind
from orchid.engine.request import Request, Target
from orchid.kinds.secret import Secret
from orchid.kinds.signing_key import (
    IMPORTED,
    MADE,
    PRIVATE_KEY,
    SPEC,
    KeyDependents,
    SigningKey,
    SigningKeySpec,
    SigningKeyStatus,
    SigningKeyTimes,
    key_secret,
    next_name,
    read_public_key,
    source_errors,
    status_of,
)
from orchid.wire.errors import Forbidden, Invalid
from orchid.wire.fields import METADATA, FieldError, duplicate, invalid, not_found
from orchid.wire.meta import Object, ObjectMeta, OwnerReference
from orchid.wire.naming import Naming
from orchid.wire.references import SecretReference
from orchid.wire.struct import replace
from orchid.wire.text import quote, whole_seconds

IMPORT: Final = "import"
# Tokens of an imported key may have been issued elsewhere; Pods get tokens for a year.
LONGEST_UNRECORDED: Final = timedelta(days=365)


class SigningKeyMaterial(AdmissionPolicy):
    admits = (SigningKey,)
    accompanies_new = (SigningKey,)

    def __init__(
        self,
        names: Naming,
        feed: Feed,
        authorizer: Authorizer,
        randomness: Randomness,
        *,
        publish_time: str,
        unsealed: str = "",
    ) -> None:
        """`unsealed`: why no private key may be stored here; empty if it may."""
        self._names = names
        self._feed = feed
        self._keys = feed.of(SigningKey)
        self._secrets = feed.of(Secret)
        self._authorizer = authorizer
        self._random = randomness
        self._publish_time = publish_time
        self._unsealed = unsealed
        self._private: WeakKeyDictionary[Request, SecretValue] = WeakKeyDictionary()

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Any:
        if old is not None:
            return new
        spec: SigningKeySpec = new.spec
        await self._require_import(request, kind, new)
        new = replace(new, status=SigningKeyStatus())
        if spec.authority or any(source_errors(spec)):
            return new  # the rules of the kind refuse it
        if not spec.public_key and self._unsealed:
            raise Forbidden(kind.about(new.name), self._unsealed)
        await self._feed.fresh()
        stored = [entry.object for entry in self._keys.entries.values()]
        wanted = next_name(stored)
        if new.name != wanted and self._keys.get("", new.name) is None:
            text = f"the next key is {quote(wanted)}"
            _refuse(kind, new, invalid(METADATA / "name", new.name, text))
        status = await self._status(request, kind, new)
        same = [key.name for key in stored if key.key_id == status.key_id and not key.is_file]
        if same:
            _refuse(kind, new, duplicate(SPEC, f"{same[0]} has the same key"))
        return replace(new, status=status)

    async def companions(
        self, request: Request, kind: Kind[Any], new: Any, old: Any
    ) -> tuple[Object, ...]:
        private = self._private.pop(request, None)
        if private is None:
            return ()
        return (private_key_secret(self._names, kind, new, private, self._random.uid()),)

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
        self._private[request] = private.pem()
        return status

    async def _imported(
        self, request: Request, kind: Kind[Any], new: SigningKey, reference: SecretReference
    ) -> keys.TokenKey:
        reading = Target(
            verb="get",
            is_resource=True,
            version="v1",
            resource="secrets",
            namespace=reference.namespace,
            name=reference.name,
        )
        if not (await self._authorizer.authorize(request.user, reading)).allowed:
            text = f"user not permitted to get the Secret {quote(str(reference))}"
            raise Forbidden(kind.about(new.name), text)
        entry = self._secrets.get(reference.namespace, reference.name)
        if entry is None:
            _refuse(kind, new, not_found(SPEC / "secretRef", str(reference)))
        try:
            data = entry.object.data.get(PRIVATE_KEY, b"")
            return keys.TokenKey(keys.read_private_key(data, PRIVATE_KEY))
        except Refusal as refusal:
            _refuse(kind, new, invalid(SPEC / "secretRef", str(reference), str(refusal)))

    async def _require_import(self, request: Request, kind: Kind[Any], new: SigningKey) -> None:
        if not (new.spec.secret_ref or new.spec.public_key):
            return
        target = replace(request.target, verb=IMPORT, name=new.name, subresource="")
        if not (await self._authorizer.authorize(request.user, target)).allowed:
            raise Forbidden(kind.about(new.name), "user not permitted to import token keys")


async def create_key(algorithm: str) -> keys.TokenKey:
    """Create a private key for a token key."""
    if algorithm == "RS256":
        made = await asyncio.to_thread(rsa_process.generate, keys.MADE_RSA_BITS)
        return keys.TokenKey(made)
    return keys.generate(algorithm)


def private_key_secret(
    names: Naming, kind: Kind[Any], key: SigningKey, private: SecretValue, uid: str
) -> Secret:
    """The Secret with the private key of a SigningKey; it is deleted with its owner."""
    owner = OwnerReference(
        api_version=kind.api_version,
        kind=kind.name,
        name=key.name,
        uid=key.metadata.uid,
        controller=True,
    )
    return Secret(
        kind="Secret",
        api_version="v1",
        metadata=ObjectMeta(
            name=key_secret(key),
            namespace=names.system_namespace,
            uid=uid,
            creation_timestamp=key.metadata.creation_timestamp,
            annotations={names.description_annotation: f"Private key of SigningKey {key.name}"},
            owner_references=(owner,),
        ),
        type="Opaque",
        data={PRIVATE_KEY: private.reveal().encode()},
    )


def _refuse(kind: Kind[Any], new: Object, problem: FieldError) -> NoReturn:
    raise Invalid(kind.about_kind(new.name), [problem])
