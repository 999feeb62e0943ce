"""Issue tokens of service accounts: bound objects, claims, signature.

Start with `TokenIssuer`; features/accounts/kinds/token_request.py calls it step by step. It reads
the current objects, builds the claims and signs them. Counters are passed in. A token that outlives
the publish time of its key is recorded before it is returned (features/token_keys/long_tokens.py).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    IssuedToken,
    TokenRequest,
)
from orchid.features.accounts.token_lifetimes import TokenLifetimes
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.kernel.base.clock import until_reached
from orchid.kernel.base.scheduling.batched_work import BatchedWork
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.token_claims import (
    AccountClaims,
    Actor,
    Claims,
    ExchangeClaims,
    Reference,
)
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import Randomness
from orchid.kernel.wire.errors import (
    BadRequest,
    Conflict,
    ErrorSubject,
    InternalError,
    NotFound,
    Unavailable,
)
from orchid.kernel.wire.text import quote

# Agents that never reload a token request exactly this lifetime; they get a year, or the maximum
# lifetime, and a claim after which their use of it is reported.
EXTENDED_WHEN = 3607
EXTENDED_SECONDS = 365 * 24 * 3600
LEAST_MAXIMUM, GREATEST_MAXIMUM = 3600, 1 << 32


class InvalidIssuingSettings(ValueError):
    """The settings for issuing tokens are invalid."""


class IssuingSettings(msgspec.Struct, frozen=True):
    """Audiences of tokens, and their maximum lifetime."""

    api_audiences: tuple[str, ...]
    longest_seconds: int = 0  # 0: no limit
    extends_lifetime: bool = True

    def __post_init__(self) -> None:
        longest = self.longest_seconds
        if longest and not LEAST_MAXIMUM <= longest <= GREATEST_MAXIMUM:
            raise InvalidIssuingSettings(
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
            )


class Bound(msgspec.Struct, frozen=True):
    """The bound object of a token: a Pod (and its node), a Secret, a Node, or an exchange."""

    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None
    exchange: ExchangeClaims | None = None
    actor: Actor | None = None  # of an exchange


NOT_BOUND = Bound()


class TokenIssuer:
    """Issues tokens for existing accounts."""

    def __init__(
        self,
        settings: IssuingSettings,
        signer: Callable[[], TokenSigner],
        feed: Feed,
        randomness: Randomness,
        *,
        counted: Callable[[str, str, int], None] | None = None,
        revocations: Revocations | None = None,
        lifetimes: TokenLifetimes | None = None,
        long_tokens: LongTokens | None = None,
    ) -> None:
        self.api_audiences = settings.api_audiences
        self.longest_seconds = settings.longest_seconds
        self._extends = settings.extends_lifetime
        self._extended_seconds = min(EXTENDED_SECONDS, settings.longest_seconds or EXTENDED_SECONDS)
        self._signer = signer  # called each time, so that a new key is used for the next token
        self._random = randomness
        self._counted = counted  # called with each token's key, account uid and expiry
        self._revocations = revocations
        self._lifetimes = lifetimes
        self._long_tokens = long_tokens
        self._feed = feed
        self._accounts = feed.of(ServiceAccount)
        self._pods = feed.of(Pod)
        self._secrets = feed.of(Secret)
        self._nodes = feed.of(Node)
        self._signatures = BatchedWork()
        self._threads: ThreadPoolExecutor | None = None

    async def account_uid(self, namespace: str, name: str) -> str:
        await self._feed.fresh_for_request()
        entry = self._accounts.entries.get(self._accounts.kind.key(namespace, name))
        if entry is None:
            raise NotFound(ErrorSubject("", "serviceaccounts", name))
        return entry.identity.uid

    def bind(self, reference: BoundObjectReference, namespace: str, account: str) -> Bound:
        """Look up the bound object of a token, and check that it fits."""
        group, version = group_and_version(reference.api_version)
        if group == "" and reference.kind == "Pod":
            return self._bind_pod(reference, namespace, account)
        if group == "" and reference.kind == "Secret":
            secret = _found(self._secrets, namespace, reference)
            return Bound(secret=_same(reference, secret))
        if group == "" and reference.kind == "Node":
            node = _found(self._nodes, "", reference)
            return Bound(node=_same(reference, node))
        raise BadRequest(
            f"cannot bind token to object of type {group}/{version}, Kind={reference.kind}"
        )

    def _bind_pod(self, reference: BoundObjectReference, namespace: str, account: str) -> Bound:
        pod: Entry[Pod] = _found(self._pods, namespace, reference)
        if pod.object.account != account:
            raise BadRequest(
                f"cannot bind token for serviceaccount {quote(account)} to pod running with "
                "different serviceaccount name."
            )
        bound = _same(reference, pod)
        node_name = pod.object.node
        if not node_name:
            return Bound(pod=bound)
        node = self._nodes.get("", node_name)
        return Bound(pod=bound, node=Reference(node_name, node.identity.uid if node else ""))

    async def sign(self, request: TokenRequest, bound: Bound | None, now: datetime) -> IssuedToken:
        """Sign the token for a complete request."""
        if self._revocations is not None:
            account_name = (request.metadata.namespace, request.metadata.name)
            until = self._revocations.account_until(account_name)
            if now.timestamp() < until + 1:
                # `iat` has whole seconds.
                moment = datetime.fromtimestamp(until + 1, UTC)
                if not await until_reached(moment, now):
                    raise Unavailable("tokens of this account were revoked just now; try again")
                now = moment
        signer = self._signer()
        claims, account = self._claims(signer.issuer, request, bound or NOT_BOUND, now)
        assert claims.exp is not None
        assert claims.iat is not None
        if self._lifetimes is not None and claims.exp - claims.iat > self._lifetimes.longest:
            await self._lifetimes.note(claims.exp - claims.iat)
        if claims.exp - claims.iat > signer.long_after and self._long_tokens is not None:
            await self._long_tokens.record(signer.kid, account, claims.exp)
        try:
            if signer.slow:
                # An RSA signature takes milliseconds that would block the loop.
                loop = asyncio.get_running_loop()
                token = await loop.run_in_executor(self._pool(), signer.sign, claims, account)
            else:
                token = await self._signatures.run(partial(signer.sign, claims, account))
        except Refusal as refusal:
            raise InternalError(f"failed to generate token: {refusal}") from None
        if self._counted is not None:
            self._counted(signer.kid, request.metadata.uid, claims.exp)
        return IssuedToken(token.reveal(), f"JTI={claims.jti}")

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _claims(
        self, issuer: str, request: TokenRequest, bound: Bound, now: datetime
    ) -> tuple[Claims, AccountClaims]:
        meta, seconds = request.metadata, request.spec.expiration_seconds
        assert seconds is not None
        issued_at = int(now.timestamp())
        extended = bound.pod is not None and self._is_extended(request)
        claims = Claims(
            act=bound.actor,
            aud=request.spec.audiences or (),
            exp=issued_at + (self._extended_seconds if extended else seconds),
            iat=issued_at,
            iss=issuer,
            jti=self._random.uid(),
            nbf=issued_at,
            sub=f"system:serviceaccount:{meta.namespace}:{meta.name}",
        )
        account = AccountClaims(
            exchange=bound.exchange,
            namespace=meta.namespace,
            node=bound.node,
            pod=bound.pod,
            secret=bound.secret,
            serviceaccount=Reference(meta.name, meta.uid),
            warnafter=issued_at + seconds if extended else None,
        )
        return claims, account

    def _is_extended(self, request: TokenRequest) -> bool:
        """Whether a token that is bound to a Pod lasts longer than requested."""
        return (
            self._extends
            and request.spec.expiration_seconds == EXTENDED_WHEN
            and all(audience in self.api_audiences for audience in request.spec.audiences or ())
        )

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sign-token")
        return self._threads


def group_and_version(api_version: str) -> tuple[str, str]:
    """Split an apiVersion; an invalid one counts as empty, as in Kubernetes."""
    first, slash, second = api_version.partition("/")
    if not slash:
        return "", first
    return ("", "") if "/" in second else (first, second)


def _found(cache: KindCache[Any], namespace: str, reference: BoundObjectReference) -> Entry[Any]:
    refuse_unfit_name(reference.name)
    entry = cache.get(namespace, reference.name)
    if entry is None:
        raise NotFound(ErrorSubject("", cache.kind.plural, reference.name))
    return entry


def _same(reference: BoundObjectReference, entry: Entry[Any]) -> Reference:
    """A given uid must be the object's: the token is only valid while that object exists."""
    live = entry.identity.uid
    if reference.uid and reference.uid != live:
        raise Conflict(
            ErrorSubject("", reference.kind, reference.name),
            f"the UID in the bound object reference ({reference.uid}) does not match "
            "the UID in record. The object might have been deleted and then recreated",
        )
    return Reference(reference.name, live)


def refuse_unfit_name(name: str) -> None:
    """Refuse what could not be the name of any object, before it becomes part of a key."""
    if not name:
        raise BadRequest("Name parameter required.")
    if name in (".", ".."):
        problems = [f"may not be '{name}'"]
    else:
        problems = [f"may not contain '{mark}'" for mark in "/%" if mark in name]
    if problems:
        raise BadRequest(f"Name parameter invalid: {quote(name)}: {';'.join(problems)}")
