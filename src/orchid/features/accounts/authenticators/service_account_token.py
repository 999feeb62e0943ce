"""Service account tokens: bound tokens are checked here, those of Secrets in secret_token.py.

Start with `account_verifier`, then `ServiceAccountTokenAuthenticator`. The verifier caches verified
signatures; everything else is checked at every use: times, audiences, whether the account and the
bound object still exist with the uid in the token, and revocations
(features/revocation/revocations.py). `Acceptance` has the conditions of an acceptance: while the
time is within bounds, the objects are unchanged and nothing was revoked, the token is accepted
again. So a deletion or a revocation takes effect immediately. For repeated headers `still_valid`
checks all of this again; only the token itself is not parsed again.
"""

import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from orchid.features.accounts.authenticators.secret_token import SecretTokens
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.exchange.kinds.token_exchange_policy import TokenExchangePolicy
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.token_keys import StoredKeys
from orchid.kernel.access.authenticators.audiences import Audiences, shared
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.refusals import NotAToken, TokenRefused, UnknownKey, WrongIssuer
from orchid.kernel.credentials.token_claims import (
    AccountClaims,
    AccountReader,
    AccountToken,
    Actor,
    Claims,
    ExchangeClaims,
    LegacyClaims,
    Payload,
    Reference,
)
from orchid.kernel.credentials.tokens import KeySet, Verified, Verifier
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import AUTHENTICATED, UserInfo

# Tokens bound to an object that is being deleted stay valid for this long.
DELETION_LEEWAY = timedelta(seconds=60)
# Extra attributes of a token's user.
EXTRA = (
    "credential-id",
    "node-name",
    "node-uid",
    "pod-name",
    "pod-uid",
    "exchange-policy",
    "exchange-policy-uid",
    "exchange-issuer",
    "exchange-subject",
    "exchange-user",
    "exchange-credential-id",
)
NAMESPACES_KNOWN = 256
INVALIDATED = "service account token has been invalidated"


CachedObject = tuple[KindCache[Any], Entry[Any]]  # an existing object and its cache


class Acceptance(msgspec.Struct, frozen=True):
    """Conditions under which a token was accepted; it is accepted again while none has changed."""

    since: float
    until: float  # seconds; the lower bound matters if the clock steps back
    entries: tuple[CachedObject, ...]  # account, bound objects and stored key
    revocations: KindCache[Any] | None
    generation: int  # of the revocations

    def still_valid(self) -> bool:
        """Whether everything but the time is unchanged."""
        for cache, entry in self.entries:
            if cache.entries.get(entry.key) is not entry:
                return False
        return self.revocations is None or self.revocations.generation == self.generation


class BoundToken(msgspec.Struct):
    """Claims of a verified token and the resulting user: built once per token, not per use."""

    claims: Claims
    account: AccountClaims
    user: UserInfo
    accepted: Authenticated | None = None  # for all of its audiences, from its first use on
    acceptance: Acceptance | None = None  # of the last success


AccountVerifier = Verifier[BoundToken | LegacyClaims]


def account_verifier(issuers: Iterable[str], keys: KeySet, naming: Naming) -> AccountVerifier:
    """The verifier of this server's tokens, and of those in Secrets."""
    return Verifier(issuer_keys(issuers, keys, naming), _Reader(naming))


def issuer_keys(issuers: Iterable[str], keys: KeySet, naming: Naming) -> dict[str, KeySet]:
    """Argument of `Verifier.replace_issuers` after a change of the key files."""
    return dict.fromkeys((*issuers, naming.legacy_issuer), keys)


class ServiceAccountTokenAuthenticator:
    """Authenticate tokens of this server's service accounts."""

    def __init__(
        self,
        verifier: AccountVerifier,
        feed: Feed,
        clock: Clock,
        *,
        api_audiences: Audiences,
        naming: Naming,
        legacy: SecretTokens | None = None,
        revocations: Revocations | None = None,
        keys: StoredKeys | None = None,
    ) -> None:
        """`keys`: the keys of the verifier, if they are stored objects."""
        self._verifier = verifier
        self._keys = keys
        self.verifications: defaultdict[str, int] = defaultdict(int)  # accepted tokens by key id
        self._feed = feed
        self._accounts = feed.of(ServiceAccount)
        self._secrets = feed.of(Secret)
        self._pods = feed.of(Pod)
        self._nodes = feed.of(Node)
        self._policies = feed.of(TokenExchangePolicy)
        self._clock = clock
        self._audiences = api_audiences
        self._legacy = legacy
        self._revocations = revocations
        self._stale_key = f"{naming.authentication}/stale-token"
        self._no_audience_key = f"{naming.authentication}/legacy-token"

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        now = self._clock.now()
        seconds = now.timestamp()
        try:
            verified = self._verifier.open(token, seconds)
        except (NotAToken, WrongIssuer):
            return None
        except UnknownKey:
            verified = await self._open_with_new_key(token, seconds)
        except TokenRefused as refusal:
            raise Rejected(str(refusal)) from None
        contents = verified.claims
        if isinstance(contents, LegacyClaims):
            return await self._authenticate_legacy(contents, verified.kid, token, audiences)
        meant = contents.claims.aud
        good = (
            audiences if meant and meant == audiences else self._shared_audiences(meant, audiences)
        )
        await self.refuse_ended(verified, contents, now, seconds)
        notes: tuple[tuple[str, str], ...] = ()
        if not meant or contents.account.warnafter is not None:
            notes = self._notes(contents, seconds)
        if notes or good != meant:
            return Authenticated(contents.user, good, notes=notes, key_id=verified.kid)
        if contents.accepted is None:
            contents.accepted = Authenticated(
                contents.user,
                good,
                still_valid=self._recheck(verified, contents),
                key_id=verified.kid,
            )
        return contents.accepted

    async def signed(self, token: str) -> AccountToken | None:
        """A token that a key of this server signed and that has not expired; None for others.

        Whether it is accepted is not asked: it may be revoked, and its account may be gone.
        """
        seconds = self._clock.now().timestamp()
        try:
            verified = self._verifier.open(token, seconds)
        except UnknownKey:
            try:
                verified = await self._open_with_new_key(token, seconds)
            except Rejected:
                return None
        except TokenRefused:
            return None
        bound = verified.claims
        if isinstance(bound, LegacyClaims) or seconds > verified.valid_times()[1]:
            return None
        return AccountToken(bound.claims, bound.account)

    async def _open_with_new_key(
        self, token: str, seconds: float
    ) -> Verified[BoundToken | LegacyClaims]:
        """Open a token whose key is unknown here: another server may just have stored it."""
        if self._keys is not None:
            await self._feed.fresh()
            self._keys.catch_up()
        try:
            return self._verifier.open(token, seconds)
        except TokenRefused as refusal:
            raise Rejected(str(refusal)) from None

    async def refuse_ended(
        self, verified: Verified[Any], bound: BoundToken, now: datetime, seconds: float
    ) -> None:
        """Refuse a token that has expired, whose objects are gone, or that is revoked."""
        acceptance = bound.acceptance
        if acceptance is None or not acceptance.since <= seconds <= acceptance.until:
            acceptance = None
            try:
                verified.check_times(seconds)
            except TokenRefused as refusal:
                raise Rejected(str(refusal)) from None
        await self._feed.fresh_for_request()
        if acceptance is None or not acceptance.still_valid():
            bound.acceptance = self._check_objects(verified, bound, now)
        self.verifications[verified.kid] += 1

    def _check_objects(
        self, verified: Verified[Any], bound: BoundToken, now: datetime
    ) -> Acceptance | None:
        """Check all objects of a token; return the acceptance, if it may be cached."""
        objects = self._refuse_gone(bound.account, now)
        if self._keys is not None:
            objects += (self._keys.require(verified.kid),)
        revocations, generation = None, 0
        if self._revocations is not None:
            account = bound.account.namespace, bound.account.serviceaccount.name
            issued_at = bound.claims.iat or 0
            self._revocations.refuse_token(account, bound.claims.jti, issued_at, verified.issuer)
            if bound.account.exchange is not None:
                actor = bound.claims.act or Actor()
                self._revocations.refuse_origin(actor.iss, bound.account.exchange, issued_at)
            revocations = self._revocations.cache
            generation = revocations.generation
        if any(entry.identity.deletion_timestamp is not None for _, entry in objects):
            return None  # it can end without any change
        since, until = verified.valid_times()
        return Acceptance(since, until, objects, revocations, generation)

    async def still_valid(self, verified: Verified[Any], bound: BoundToken) -> bool:
        """Whether a token that was accepted would be accepted again now."""
        if verified.kid not in self._verifier.kids:
            return False
        now = self._clock.now()
        try:
            await self.refuse_ended(verified, bound, now, now.timestamp())
        except Rejected:
            return False
        return True

    def _recheck(
        self, verified: Verified[Any], bound: BoundToken
    ) -> Callable[[], Awaitable[bool]] | bool:
        """The check for repeated headers; False if the token may need a warning."""
        if bound.account.warnafter is not None:
            return False
        # Copies that do not refer to each other avoid a reference cycle.
        bare = BoundToken(bound.claims, bound.account, bound.user)
        return functools.partial(self.still_valid, replace(verified, claims=None), bare)

    async def _authenticate_legacy(
        self, claims: LegacyClaims, kid: str, token: str, audiences: Audiences
    ) -> Authenticated | None:
        if self._legacy is None:
            return None
        good = self._shared_audiences((), audiences)
        await self._feed.fresh_for_request()
        if self._keys is not None:
            self._keys.require(kid)
        identity = self._legacy.judge(claims, token)
        notes = ((self._no_audience_key, claims.sub), *identity.notes)
        return Authenticated(identity.user, good, identity.warnings, notes, key_id=kid)

    def _shared_audiences(self, meant: Audiences, requested: Audiences) -> Audiences:
        good = shared(meant or self._audiences, requested)
        if not good and self._audiences:
            raise Rejected(
                f"token audiences {_listed(meant or self._audiences)} is invalid "
                f"for the target audiences {_listed(requested)}"
            )
        return good

    def _refuse_gone(self, account: AccountClaims, now: datetime) -> tuple[CachedObject, ...]:
        """Refuse a token whose account or bound object is gone or has another uid."""
        namespace = account.namespace
        objects = [self._refuse_account(namespace, account.serviceaccount, now)]
        if account.secret is not None:
            objects.append(_refuse_object(self._secrets, namespace, account.secret, "secret", now))
        if account.pod is not None:
            objects.append(_refuse_object(self._pods, namespace, account.pod, "pod", now))
        elif account.node is not None:
            objects.append(_refuse_object(self._nodes, "", account.node, "node", now))
        if account.exchange is not None:
            objects.append(self._refuse_policy(namespace, account.exchange.policy))
        return tuple(objects)

    def _refuse_policy(self, namespace: str, claimed: Reference) -> CachedObject:
        """Refuse an exchanged token whose policy is deleted, or is being deleted."""
        entry = self._policies.get(namespace, claimed.name)
        if entry is None or entry.identity.uid != claimed.uid:
            raise Rejected(INVALIDATED)
        if entry.identity.deletion_timestamp is not None:
            raise Rejected(INVALIDATED)
        return self._policies, entry

    def _refuse_account(self, namespace: str, claimed: Reference, now: datetime) -> CachedObject:
        if not claimed.name:
            raise Rejected("resource name may not be empty")
        entry = self._accounts.get(namespace, claimed.name)
        if entry is None:
            raise Rejected(f"serviceaccounts {quote(claimed.name)} not found")
        live = entry.identity
        if live.uid != claimed.uid:
            raise Rejected(f"service account UID ({live.uid}) does not match claim ({claimed.uid})")
        if live.deletion_timestamp is not None and live.deletion_timestamp < now - DELETION_LEEWAY:
            raise Rejected(f"service account {namespace}/{claimed.name} has been deleted")
        return self._accounts, entry

    def _notes(self, bound: BoundToken, seconds: float) -> tuple[tuple[str, str], ...]:
        notes = []
        if not bound.claims.aud:
            notes.append((self._no_audience_key, bound.claims.sub))
        late = seconds - (bound.account.warnafter or seconds)
        if late > 0:
            text = f"subject: {bound.claims.sub}, seconds after warning threshold: {int(late)}"
            notes.append((self._stale_key, text))
        return tuple(notes)


class _Reader:
    """Parse claims and build the user of a bound token, once, after its verification."""

    def __init__(self, naming: Naming) -> None:
        prefix = naming.own("serviceaccount")
        self._read = AccountReader(naming.private_claim, naming.legacy_issuer, prefix)
        extra = naming.extra
        self._extra = {word: extra(word) for word in EXTRA}

    def __call__(self, payload: Payload) -> BoundToken | LegacyClaims:
        read = self._read(payload)
        if isinstance(read, LegacyClaims):
            return read
        user = account_user(
            read.account.namespace,
            read.account.serviceaccount,
            extra=self._extra_of(read.claims, read.account),
        )
        return BoundToken(read.claims, read.account, user)

    def _extra_of(self, claims: Claims, account: AccountClaims) -> dict[str, tuple[str, ...]]:
        pod = account.pod or Reference()
        node = account.node or Reference()
        texts = {
            "credential-id": f"JTI={claims.jti}" if claims.jti else "",
            "node-name": node.name,
            "node-uid": node.uid if node.name else "",
            "pod-name": pod.name,
            "pod-uid": pod.uid if pod.name else "",
        }
        if account.exchange is not None:
            texts |= _exchanged(account.exchange, claims.act or Actor())
        return {self._extra[word]: (value,) for word, value in texts.items() if value}


def _exchanged(exchange: ExchangeClaims, actor: Actor) -> dict[str, str]:
    """The origin of an exchanged token, as extra attributes."""
    return {
        "exchange-policy": exchange.policy.name,
        "exchange-policy-uid": exchange.policy.uid,
        "exchange-issuer": actor.iss,
        "exchange-subject": actor.sub,
        "exchange-user": exchange.user,
        "exchange-credential-id": f"JTI={exchange.jti}" if exchange.jti else "",
    }


def account_user(
    namespace: str, account: Reference, extra: dict[str, tuple[str, ...]] | None = None
) -> UserInfo:
    """The user of a service account."""
    return UserInfo(
        username=f"system:serviceaccount:{namespace}:{account.name}",
        uid=account.uid,
        groups=account_groups(namespace),
        extra=extra or {},
    )


@functools.lru_cache(NAMESPACES_KNOWN)
def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of all accounts in a namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def _refuse_object(
    cache: KindCache[Any], namespace: str, claimed: Reference, word: str, now: datetime
) -> CachedObject:
    entry = cache.get(namespace, claimed.name)
    if entry is None:
        raise Rejected(INVALIDATED)
    live = entry.identity
    if live.deletion_timestamp is not None and live.deletion_timestamp < now - DELETION_LEEWAY:
        raise Rejected(INVALIDATED)
    if live.uid != claimed.uid:
        raise Rejected(
            f"{word} UID ({live.uid}) does not match "
            f"service account {word} ref claim ({claimed.uid})"
        )
    return cache, entry


def _listed(audiences: Audiences) -> str:
    return f"[{' '.join(quote(audience) for audience in audiences)}]"
