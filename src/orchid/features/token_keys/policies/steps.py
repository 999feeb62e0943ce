"""The steps of a SigningKey: who may take them, and what must hold first.

step                   takes the verb   the server rejects it unless
Published → Active     activate         its private key is there, every live server has the key, and
                                        it was published long enough for verifiers; or it signs
                                        already
Verifying → Active     activate         its private key is still there, and every live server has it
Active → Verifying     -                another key signs
Verifying → Retired    retire           no live credential depends on the key
any → Retired          retire           a CredentialRevocation names the key
another renewBy        activate         -
delete                 -                it is Retired, or Published and does not sign; or its
                                        authority or cluster is gone

A rejection lists every reason; features/token_keys/policies/conditions.py has those that depend on
the purpose of the key. The controller gets the messages of its conditions by a dry run of the step.
The server itself sets the times in the status: the time of an activation is later than that of any
other key, so that the last one signs.
"""

from collections.abc import Callable, Container
from datetime import datetime
from typing import Any, Final

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.key_source import SPEC
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    STATE,
    VERIFYING,
    SigningKey,
    key_location,
)
from orchid.features.token_keys.policies.conditions import KeyConditions, Servers, lacking
from orchid.features.token_keys.policies.material import later_than
from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authorizer
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden, Invalid
from orchid.kernel.wire.fields import METADATA, forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import SecretReference, belongs_to
from orchid.kernel.wire.signing_key_status import KeyDependents
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import timestamp

VERBS: Final = {ACTIVE: "activate", RETIRED: "retire"}


class SigningKeySteps(AdmissionPolicy):
    admits = (SigningKey,)
    reviews = (SigningKey,)

    def __init__(
        self,
        naming: Naming,
        feed: Feed,
        authorizer: Authorizer,
        *,
        servers: Callable[[], Servers],
        revoked: Callable[[], Container[str]],
        conditions: Callable[[SigningKey], KeyConditions],
        keys_of: Callable[[str], list[SigningKey]],
        publish_time: tuple[str, float],
    ) -> None:
        """`servers`: the live servers and their keys. `revoked`: the ids and public keys of revoked
        keys. `conditions`: those of the purpose of a key. `keys_of`: the keys of an authority.
        `publish_time`: as given, and in seconds.
        """
        self._naming = naming
        self._feed = feed
        self._keys = feed.of(SigningKey)
        self._secrets = feed.of(Secret)
        self._authorities = feed.of(CertificateAuthority)
        self._clusters = feed.of(Cluster)
        self._authorizer = authorizer
        self._servers = servers
        self._revoked = revoked
        self._conditions = conditions
        self._keys_of = keys_of
        self._publish_text, self._publish_seconds = publish_time

    async def admit(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> Any:
        if old is None:
            return new
        if request.target.subresource:
            return await self._with_dependents(new, old, request.now)
        return replace(new, status=self._stepped(new, old, whole_seconds(request.now)))

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if old is None:
            return
        if new is not None and old.is_file and not _is_new_number(request, new, old):
            text = "it shows a key of the servers' files: change the files"
            raise Invalid(kind.about_kind(old.name), [forbidden(SPEC, text)])
        await self._feed.fresh()
        if new is None:
            self._review_deletion(kind, old)
            return
        self._review_owner(kind, new, old)  # the status has the same metadata
        if not request.target.subresource:
            await self._review_step(request, kind, new, old)

    def _review_owner(self, kind: Kind[Any], new: SigningKey, old: SigningKey) -> None:
        """An authority or cluster keeps its keys, and gets none of an earlier one of its name.

        A key without its owner is an orphan, which anybody with `delete` may delete; with another
        owner it would sign for that one.
        """
        owner, word = self._owner(old), "cluster" if old.spec.cluster else "authority"
        if owner is None:
            return
        before, after = belongs_to(old, owner), belongs_to(new, owner)
        if after and not before:
            text = f"another {word} owned the key: a key never changes its {word}"
        elif before and not after and owner.metadata.deletion_timestamp is None:
            text = f"its {word} owns the key"
        else:
            return
        problem = forbidden(METADATA / "ownerReferences", text)
        raise Invalid(kind.about_kind(old.name), [problem])

    async def _review_step(
        self, request: Request, kind: Kind[Any], new: SigningKey, old: SigningKey
    ) -> None:
        if new.spec.renew_by != old.spec.renew_by:
            await self._require(request, kind, old.name, VERBS[ACTIVE])
        if new.state != old.state:
            await self._require(request, kind, old.name, VERBS.get(new.state, ""))
            reasons = await self._reasons(new.state, old, request.now)
            if reasons:
                problem = forbidden(STATE, "; ".join(reasons))
                raise Invalid(kind.about_kind(old.name), [problem])

    async def _require(self, request: Request, kind: Kind[Any], name: str, verb: str) -> None:
        target = replace(request.target, verb=verb)
        if verb and not (await self._authorizer.authorize(request.user, target)).allowed:
            raise Forbidden(kind.about(name), f"user not permitted to {verb} this key")

    # -- what must hold ----------------------------------------------------------------------

    async def _reasons(self, state: str, key: SigningKey, now: datetime) -> list[str]:
        """Why a key may not take a step; empty if it may."""
        is_revoked = key.is_revoked(self._revoked())
        if state == RETIRED:
            if is_revoked:
                return []
            if key.state != VERIFYING:
                return [f"only a revoked key changes from {key.state} to {RETIRED}"]
            dependents = await self._counted(key, now)
            return self._conditions(key).retirement_reasons(key, self._servers(), dependents, now)
        if state == VERIFYING:
            return ["it signs: activate another key first"] if self._is_signer(key) else []
        if is_revoked:
            return ["it is revoked"]
        if key.spec.authority and not key.status.certificate:
            return ["it has no certificate: sign its request, and put the chain into spec.chain"]
        if key.state == VERIFYING:
            return self._back_reasons(key, now)
        if self._is_signer(key):
            return []
        if self._is_lost(key):
            return [f"there is no Secret {self._secret_of(key)}, which should hold its private key"]
        return self._conditions(key).activation_reasons(key, self._servers(), now)

    def _secret_of(self, key: SigningKey) -> SecretReference:
        return key_location(key, self._naming.system_namespace)

    def _is_lost(self, key: SigningKey) -> bool:
        """Whether the Secret with the private key is gone."""
        secret = self._secret_of(key)
        return not key.hsm_label and self._secrets.get(secret.namespace, secret.name) is None

    def _back_reasons(self, key: SigningKey, now: datetime) -> list[str]:
        if self._is_lost(key):
            return ["its private key was deleted"]
        if key.back_until is not None and now >= key.back_until:
            return [f"it could become Active again until {timestamp(key.back_until)}"]
        return lacking(key, self._servers())

    def _others(self, key: SigningKey) -> list[SigningKey]:
        """The stored keys among which one signs, with this one."""
        if key.spec.authority:
            return self._keys_of(key.spec.authority)
        return [entry.object for entry in self._keys.entries.values()]

    def _is_signer(self, key: SigningKey) -> bool:
        signer = select(self._others(key), self._revoked(), key.spec.authority).signer
        return signer is not None and signer.metadata.uid == key.metadata.uid

    def _review_deletion(self, kind: Kind[Any], old: SigningKey) -> None:
        if old.is_file:
            if any(old.key_id in server.keys for server in self._servers().values()):
                raise Forbidden(kind.about(old.name), "it shows a key of the servers' files")
        elif self._is_orphan(old):
            return
        elif old.state in (ACTIVE, VERIFYING):
            raise Forbidden(
                kind.about(old.name), f"it is {old.state}: only a Retired key is deleted"
            )
        elif old.state == PUBLISHED and self._is_signer(old):
            raise Forbidden(kind.about(old.name), "it signs: activate another key first")

    def _is_orphan(self, key: SigningKey) -> bool:
        """Whether the authority or the cluster of a key is deleted."""
        owner = self._owner(key)
        return bool(key.group) and (owner is None or not belongs_to(key, owner))

    def _owner(self, key: SigningKey) -> Object | None:
        """The object that has the name of the key's authority or cluster; None for a token key."""
        if key.spec.cluster:
            cluster = self._clusters.get("", key.spec.cluster)
            return cluster.object if cluster else None
        authority = self._authorities.get("", key.spec.authority) if key.spec.authority else None
        return authority.object if authority else None

    # -- what the server fills in ------------------------------------------------------------

    def _stepped(self, new: SigningKey, old: SigningKey, now: datetime) -> Any:
        """The status after a change of the state; whatever was sent does not count."""
        # A new chain was checked before: see material.py.
        status = old.status if new.spec.chain == old.spec.chain else new.status
        if new.state == old.state:
            return status
        times = status.times
        if new.state == ACTIVE:
            active = later_than(self._others(old), now)
            # Tokens that it signed before were recorded by the publish time of that time.
            is_longer = old.publish_seconds > self._publish_seconds
            return replace(
                status,
                times=replace(times, active=active, verifying=None),
                publish_time=status.publish_time if is_longer else self._publish_text,
            )
        if new.state == VERIFYING:
            return replace(status, times=replace(times, verifying=now))
        return replace(status, times=replace(times, retired=now))

    async def _with_dependents(self, new: SigningKey, old: SigningKey, now: datetime) -> SigningKey:
        """The object with its dependents as they are now."""
        if old.is_file or old.state not in (ACTIVE, VERIFYING):
            return replace(new, status=replace(new.status, dependents=old.status.dependents))
        dependents = await self._counted(old, now)
        return replace(new, status=replace(new.status, dependents=dependents))

    async def _counted(self, key: SigningKey, now: datetime) -> KeyDependents:
        found = await self._conditions(key).dependents(key, now)
        before = key.status.dependents
        return replace(found, unknown_until=before.unknown_until if before else None)


def _is_new_number(request: Request, new: SigningKey, old: SigningKey) -> bool:
    """Whether nothing changes but the number of the newest revocation list."""
    number = new.status.revocation_list_number
    return (
        bool(request.target.subresource)
        and number > old.status.revocation_list_number
        and new.status == replace(old.status, revocation_list_number=number)
    )
