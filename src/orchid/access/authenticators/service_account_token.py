"""Service account tokens: bound ones judged here, those of Secrets by secret_token.py.

Start with `account_verifier`, which makes the verifier whose claims these authenticators read, then
`ServiceAccountTokenAuthenticator`. The verifier remembers proven signatures; everything else is
looked at in every use: times, audiences, whether the account and the bound object still exist under
the uid that the token names, and whether it was taken back (access/revocations.py). `Grounds` are
what an acceptance depends on: while the time is within bounds, the same objects exist and nothing
was revoked since, the token is accepted again. So a deletion or a revocation takes effect at once.
Where the same headers come again, `still_valid` checks all of this once more; only the token itself
is not read again.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from orchid.access.authenticators.audiences import Audiences, shared
from orchid.access.authenticators.secret_token import SecretTokens
from orchid.access.revocations import Revocations
from orchid.clock import Clock
from orchid.credentials.refusals import NotAToken, TokenRefused, WrongIssuer
from orchid.credentials.tokens import (
    AccountClaims,
    AccountReader,
    Claims,
    KeySet,
    LegacyClaims,
    Payload,
    Reference,
    Verified,
    Verifier,
)
from orchid.engine.cache.entry import Entry
from orchid.engine.cache.feed import Feed
from orchid.engine.cache.kind_cache import KindCache
from orchid.engine.interfaces import Authenticated, Rejected
from orchid.kinds.node import Node
from orchid.kinds.pod.pod import Pod
from orchid.kinds.secret import Secret
from orchid.kinds.service_account import ServiceAccount
from orchid.wire.naming import Naming
from orchid.wire.struct import replace
from orchid.wire.text import quote
from orchid.wire.user import AUTHENTICATED, UserInfo

# Tokens bound to an object that is being deleted stay valid for this long.
DELETION_LEEWAY = timedelta(seconds=60)
# What the answer says of a token besides its account.
EXTRA = ("credential-id", "node-name", "node-uid", "pod-name", "pod-uid")
NAMESPACES_KNOWN = 256
INVALIDATED = "service account token has been invalidated"


Found = tuple[KindCache[Any], Entry[Any]]  # an object that is there, and where


class Grounds(msgspec.Struct, frozen=True):
    """What the acceptance of a token depends on; it holds while none of this changes."""

    since: float
    until: float  # seconds; the first moment counts too, for a clock may be set back
    entries: tuple[Found, ...]  # the account, and what the token is bound to
    revocations: KindCache[Any] | None
    generation: int  # of the revocations

    def stand(self) -> bool:
        """Whether everything but the time is as it was."""
        for cache, entry in self.entries:
            if cache.entries.get(entry.key) is not entry:
                return False
        return self.revocations is None or self.revocations.generation == self.generation


class BoundToken(msgspec.Struct):
    """The claims of a proven token, and the answer they make: built once per token, not per use."""

    claims: Claims
    account: AccountClaims
    user: UserInfo
    accepted: Authenticated | None = None  # for all of its audiences, from its first use on
    grounds: Grounds | None = None  # of the last yes


AccountVerifier = Verifier[BoundToken | LegacyClaims]


def account_verifier(issuers: Iterable[str], keys: KeySet, names: Naming) -> AccountVerifier:
    """Make the verifier of this server's own tokens, and of those in Secrets."""
    return Verifier(issuer_keys(issuers, keys, names), _Reader(names))


def issuer_keys(issuers: Iterable[str], keys: KeySet, names: Naming) -> dict[str, KeySet]:
    """What to hand to `Verifier.replace_issuers` when the key files have changed."""
    return dict.fromkeys((*issuers, names.legacy_issuer), keys)


class ServiceAccountTokenAuthenticator:
    """Say which account a token of ours speaks for."""

    def __init__(
        self,
        verifier: AccountVerifier,
        feed: Feed,
        clock: Clock,
        *,
        api_audiences: Audiences,
        names: Naming,
        legacy: SecretTokens | None = None,
        revocations: Revocations | None = None,
    ) -> None:
        self._verifier = verifier
        self._feed = feed
        self._accounts = feed.of(ServiceAccount)
        self._secrets = feed.of(Secret)
        self._pods = feed.of(Pod)
        self._nodes = feed.of(Node)
        self._clock = clock
        self._audiences = api_audiences
        self._legacy = legacy
        self._revocations = revocations
        self._stale_key = f"{names.authentication}/stale-token"
        self._no_audience_key = f"{names.authentication}/legacy-token"

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        now = self._clock.now()
        seconds = now.timestamp()
        try:
            verified = self._verifier.open(token, seconds)
        except (NotAToken, WrongIssuer):
            return None
        except TokenRefused as refusal:
            raise Rejected(str(refusal)) from None
        found = verified.claims
        if isinstance(found, LegacyClaims):
            return await self._authenticate_legacy(found, token, audiences)
        meant = found.claims.aud
        good = (
            audiences if meant and meant == audiences else self._shared_audiences(meant, audiences)
        )
        await self.refuse_ended(verified, found, now, seconds)
        notes: tuple[tuple[str, str], ...] = ()
        if not meant or found.account.warnafter is not None:
            notes = self._notes(found, seconds)
        if notes or good != meant:
            return Authenticated(found.user, good, notes=notes)
        if found.accepted is None:
            found.accepted = Authenticated(
                found.user, good, still_valid=self._standing(verified, found)
            )
        return found.accepted

    async def refuse_ended(
        self, verified: Verified[Any], found: BoundToken, now: datetime, seconds: float
    ) -> None:
        """Refuse a token that has expired, whose objects are gone, or that is revoked."""
        grounds = found.grounds
        if grounds is None or not grounds.since <= seconds <= grounds.until:
            grounds = None
            try:
                verified.check_times(seconds)
            except TokenRefused as refusal:
                raise Rejected(str(refusal)) from None
        await self._feed.fresh()
        if grounds is None or not grounds.stand():
            found.grounds = self._judged(verified, found, now)

    def _judged(self, verified: Verified[Any], found: BoundToken, now: datetime) -> Grounds | None:
        """Check everything that a token names; return the grounds, if the result may be kept."""
        there = self._refuse_gone(found.account, now)
        taken_back, generation = None, 0
        if self._revocations is not None:
            account = found.account.namespace, found.account.serviceaccount.name
            issued_at = found.claims.iat or 0
            self._revocations.refuse_token(account, found.claims.jti, issued_at, verified.issuer)
            taken_back = self._revocations.cache
            generation = taken_back.generation
        if any(entry.identity.deletion_timestamp is not None for _, entry in there):
            return None  # it can end without any change
        since, until = verified.valid_times()
        return Grounds(since, until, there, taken_back, generation)

    async def still_valid(self, verified: Verified[Any], found: BoundToken) -> bool:
        """Whether a token that was accepted would be accepted again, at this moment."""
        if verified.generation != self._verifier.generation:
            return False
        now = self._clock.now()
        try:
            await self.refuse_ended(verified, found, now, now.timestamp())
        except Rejected:
            return False
        return True

    def _standing(
        self, verified: Verified[Any], found: BoundToken
    ) -> Callable[[], Awaitable[bool]] | bool:
        """How to judge a token again; one that may come to need notes is judged as a whole."""
        if found.account.warnafter is not None:
            return False
        # Copies that do not refer to each other, so that there is no reference cycle.
        bare = BoundToken(found.claims, found.account, found.user)
        return functools.partial(self.still_valid, replace(verified, claims=None), bare)

    async def _authenticate_legacy(
        self, claims: LegacyClaims, token: str, audiences: Audiences
    ) -> Authenticated | None:
        if self._legacy is None:
            return None
        good = self._shared_audiences((), audiences)
        await self._feed.fresh()
        found = self._legacy.judge(claims, token)
        notes = ((self._no_audience_key, claims.sub), *found.notes)
        return Authenticated(found.user, good, found.warnings, notes)

    def _shared_audiences(self, meant: Audiences, wanted: Audiences) -> Audiences:
        good = shared(meant or self._audiences, wanted)
        if not good and self._audiences:
            raise Rejected(
                f"token audiences {_listed(meant or self._audiences)} is invalid "
                f"for the target audiences {_listed(wanted)}"
            )
        return good

    def _refuse_gone(self, account: AccountClaims, now: datetime) -> tuple[Found, ...]:
        """Refuse a token whose account or bound object is gone, or is another one by now."""
        namespace = account.namespace
        there = [self._refuse_account(namespace, account.serviceaccount, now)]
        if account.secret is not None:
            there.append(_refuse_object(self._secrets, namespace, account.secret, "secret", now))
        if account.pod is not None:
            there.append(_refuse_object(self._pods, namespace, account.pod, "pod", now))
        elif account.node is not None:
            there.append(_refuse_object(self._nodes, "", account.node, "node", now))
        return tuple(there)

    def _refuse_account(self, namespace: str, claimed: Reference, now: datetime) -> Found:
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

    def _notes(self, found: BoundToken, seconds: float) -> tuple[tuple[str, str], ...]:
        notes = []
        if not found.claims.aud:
            notes.append((self._no_audience_key, found.claims.sub))
        late = seconds - (found.account.warnafter or seconds)
        if late > 0:
            text = f"subject: {found.claims.sub}, seconds after warning threshold: {int(late)}"
            notes.append((self._stale_key, text))
        return tuple(notes)


class _Reader:
    """Read claims and make the user of a bound token, once, when its signature is proven."""

    def __init__(self, names: Naming) -> None:
        prefix = names.own("serviceaccount")
        self._read = AccountReader(names.private_claim, names.legacy_issuer, prefix)
        extra = names.extra
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
        found = {
            "credential-id": f"JTI={claims.jti}" if claims.jti else "",
            "node-name": node.name,
            "node-uid": node.uid if node.name else "",
            "pod-name": pod.name,
            "pod-uid": pod.uid if pod.name else "",
        }
        return {self._extra[word]: (value,) for word, value in found.items() if value}


def account_user(
    namespace: str, account: Reference, extra: dict[str, tuple[str, ...]] | None = None
) -> UserInfo:
    """The user that a service account is."""
    return UserInfo(
        username=f"system:serviceaccount:{namespace}:{account.name}",
        uid=account.uid,
        groups=account_groups(namespace),
        extra=extra or {},
    )


@functools.lru_cache(NAMESPACES_KNOWN)
def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of the accounts in a namespace, which share them."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def _refuse_object(
    cache: KindCache[Any], namespace: str, claimed: Reference, word: str, now: datetime
) -> Found:
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
