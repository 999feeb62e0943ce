"""Cached verdicts against fresh ones: the same credentials in two servers, one of which just began.

`compare` takes any bytes as a sequence of steps: the clock moves, either way; accounts, keys and
authorities change; credentials are revoked, and holds are lifted. After each step every credential
is presented twice: on connections and to authenticators that have seen all that went before, and to
new ones. What is cached may save work, but must not change a verdict or a note for the audit log.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.accounts.authenticators.service_account_token import (
    ServiceAccountTokenAuthenticator,
    account_verifier,
    issuer_keys,
)
from orchid.features.accounts.kinds import service_account as accounts
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.authenticators.client_certificate import (
    ClientCertificateAuthenticator,
)
from orchid.features.certificates.kinds import issued_certificate
from orchid.features.exchange.kinds import token_exchange_policy
from orchid.features.objects.kinds import node, secret
from orchid.features.objects.kinds.pod import pod
from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.oidc.authenticator import OidcAuthenticator
from orchid.features.sign_in.oidc.configuration import ClaimMapping, IssuerSettings
from orchid.kernel.access.authenticators.bearer import BearerAuthenticator
from orchid.kernel.access.authenticators.union import UnionAuthenticator, UnionTokenAuthenticator
from orchid.kernel.credentials.keys import generate
from orchid.kernel.credentials.token_claims import AccountClaims, Claims, Reference
from orchid.kernel.credentials.tokens import KeySet, TokenSigner
from orchid.kernel.credentials.x509.certificates import encode
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedAccount, RevokedCertificate, RevokedToken
from tests.security.certified import mirrored
from tests.unit.kernel.access.presenting import API, START, presented
from tests.unit.kernel.access.world import World, world_of
from tests.unit.kernel.credentials.chains import authority, make

NOW: Final = int(START.timestamp())
OTHER: Final = ("https://other.test",)
MOST_STEPS: Final = 12
# Seconds. A refusal of a certificate is cached for five, so no step forward is shorter.
MOVES: Final = (6, 30, 61, 299, 301, 900, 3600, -6, -61, -3600)

KEYS: Final = generate(), generate()
AUTHORITY_KEY: Final = ec.generate_private_key(ec.SECP256R1())
SIGNER: Final = ec.generate_private_key(ec.SECP256R1())
DAY: Final = timedelta(days=1)
ROOTS: Final = tuple(
    authority("root", key=key, start=START - DAY, end=START + 365 * DAY)
    for key in (AUTHORITY_KEY, SIGNER)
)
POOLS: Final = tuple(ClientVerifier([root]) for root in ROOTS)
BETWEEN: Final = encode(
    make(
        "between", "root", key=SIGNER, signer=AUTHORITY_KEY, ca=True, usages=None,
        start=START - DAY, end=START + timedelta(seconds=40),
    )
)  # fmt: skip


def _leaf(issuer: str, signer: ec.EllipticCurvePrivateKey, serial: int, **ends: float) -> bytes:
    end = START + timedelta(**ends)
    return encode(make("jane", issuer, signer=signer, serial=serial, start=START, end=end))


DIRECT: Final = _leaf("root", AUTHORITY_KEY, 11, minutes=1)
CERTIFICATES: Final = (
    (DIRECT, ()),
    (mirrored(DIRECT), ()),
    (_leaf("between", SIGNER, 12, hours=2), (BETWEEN,)),
    (_leaf("root", SIGNER, 13, hours=2), ()),  # of the other root
)


def _token(number: int, audiences: tuple[str, ...], key: int = 0, **more: Any) -> str:
    claims = Claims(
        aud=audiences,
        exp=NOW + 600 * (number + 1),
        iat=NOW + 20 * number,
        nbf=NOW + 20 * number,
        jti=f"j-{number}",
        sub="system:serviceaccount:ci:builder",
    )
    account = AccountClaims(namespace="ci", serviceaccount=Reference("builder", "uid-0"), **more)
    signer = TokenSigner(KEYS[key], API[0], ORCH.private_claim)
    return signer.sign(claims, account).reveal()


TOKENS: Final = (
    _token(0, API),
    _token(0, API, key=1),
    _token(1, (*API, *OTHER)),
    _token(2, API, warnafter=NOW + 400),
    _token(3, OTHER),
)


OUTSIDE: Final = IssuerSettings(
    url="https://outside.test", audiences=("orchid",), username=ClaimMapping("sub", "outside:")
)
OUTSIDE_TOKENS: Final = tuple(
    TokenSigner(KEYS[0], OUTSIDE.url, "x")
    .sign_payload({"sub": "jane", "aud": "orchid", "exp": NOW + 100, "jti": f"j-{number}"})
    .reveal()
    for number in range(2)
)


async def published(url: str) -> bytes:
    """The documents of the outside issuer."""
    if url.endswith("/keys"):
        return msgspec.json.encode({"keys": [KEYS[0].public.jwk()]})
    return msgspec.json.encode({"issuer": OUTSIDE.url, "jwks_uri": f"{OUTSIDE.url}/keys"})


class Door:
    """The authenticators of one server."""

    def __init__(self, here: World, keys: KeySet, pool: Callable[[], ClientVerifier]) -> None:
        self.revocations = Revocations(here.feed)
        self.verifier = account_verifier(API, keys, ORCH)
        self.tokens = ServiceAccountTokenAuthenticator(
            self.verifier,
            here.feed,
            here.clock,
            api_audiences=API,
            naming=ORCH,
            revocations=self.revocations,
        )
        self.outside = OidcAuthenticator(
            (OUTSIDE,),
            here.clock,
            API,
            ORCH,
            fetch=lambda _: published,
            revocations=self.revocations,
        )
        either = UnionTokenAuthenticator((self.tokens, self.outside))
        members = (
            ClientCertificateAuthenticator(pool, here.clock, ORCH, self.revocations),
            BearerAuthenticator(either, API),
        )
        self.requests = UnionAuthenticator(members, API)


class Compared:
    """One server that goes on, and what changes around it."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.keys = KeySet([key.public for key in KEYS])
        self.pool = POOLS[0]
        self.account = 0  # how often it was created
        self.revoked: list[CredentialRevocation] = []
        self.number = 0  # of the last revocation
        self.warm = Door(here, self.keys, lambda: self.pool)
        self.requests = _requests()  # each on a connection that stays open

    async def begin(self) -> None:
        await self.warm.outside.sources[OUTSIDE.url].refresh()
        await self.here.put(self._account())

    async def step(self, number: int) -> None:
        what, which = number % 7, number // 7
        if what == 0:
            self.here.clock.advance(MOVES[which % len(MOVES)])
        elif what == 1:
            issuer = OUTSIDE.url if which // len(TOKENS) % 2 else ""
            await self._revoke(token=RevokedToken(jti=f"j-{which % len(TOKENS)}", issuer=issuer))
        elif what == 2:
            until = self.here.clock.now().replace(microsecond=0)
            named = RevokedAccount(namespace="ci", name="builder", issued_before=until)
            await self._revoke(account=named)
        elif what == 3:
            leaf, others = CERTIFICATES[which % len(CERTIFICATES)]
            data = others[0] if others and which % 2 else leaf
            named_by = RevokedCertificate(sha256=hashlib.sha256(data).hexdigest())
            await self._revoke(certificate=named_by)
        elif what == 4 and self.revoked:
            await self.here.delete(self.revoked.pop(which % len(self.revoked)))
        elif what == 5:
            await self.here.delete(self._account())
            self.account += which % 2  # the same again, as a restore does, or another one
            await self.here.put(self._account())
        else:
            self.keys = KeySet([key.public for key in KEYS[: 1 + which % 2]])
            self.warm.verifier.replace_issuers(issuer_keys(API, self.keys, ORCH))
            self.pool = POOLS[which // 2 % 2]

    async def check(self) -> None:
        """Present every credential to the server that goes on, and to one that has just begun."""
        cold = Door(self.here, self.keys, lambda: self.pool)
        await cold.outside.sources[OUTSIDE.url].refresh()
        for warm_request, request in zip(self.requests, _requests(), strict=True):
            await _same(
                self.warm.requests.authenticate(warm_request), cold.requests.authenticate(request)
            )
        for token in TOKENS:
            for audiences in (API, OTHER, (*OTHER, *API)):
                await _same(
                    self.warm.tokens.authenticate_token(token, audiences),
                    cold.tokens.authenticate_token(token, audiences),
                )

    def _account(self) -> ServiceAccount:
        uid = f"uid-{self.account}"
        return ServiceAccount(metadata=ObjectMeta(name="builder", namespace="ci", uid=uid))

    async def _revoke(self, **target: Any) -> None:
        self.number += 1
        name, now = f"r-{self.number}", self.here.clock.now()
        meta = ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=now)
        spec = CredentialRevocationSpec(**target)
        self.revoked.append(await self.here.put(CredentialRevocation(metadata=meta, spec=spec)))


def _requests() -> list[HttpRequest]:
    by_certificate = [presented(peer=Peer("", leaf, chain=others)) for leaf, others in CERTIFICATES]
    by_token = [
        presented(("Authorization", f"Bearer {token}")) for token in (*TOKENS, *OUTSIDE_TOKENS)
    ]
    return [*by_certificate, *by_token]


async def _same(
    warm: Awaitable[Authenticated | None], cold: Awaitable[Authenticated | None]
) -> None:
    one, two = await _verdict(warm), await _verdict(cold)
    assert one == two, f"cached: {one}; fresh: {two}"


async def _verdict(asked: Awaitable[Authenticated | None]) -> Any:
    try:
        found = await asked
    except Rejected as refusal:
        return str(refusal)
    return found and (found.user, found.audiences, found.warnings, found.notes)


async def compared(steps: bytes) -> None:
    kinds = (
        pod.declare(ORCH), secret.declare(ORCH), node.declare(ORCH), accounts.declare(ORCH),
        credential_revocation.declare(ORCH), issued_certificate.declare(ORCH),
        token_exchange_policy.declare(ORCH),
    )  # fmt: skip
    async with world_of(*kinds) as here:
        pair = Compared(here)
        await pair.begin()
        await pair.check()
        for number in steps[:MOST_STEPS]:
            await pair.step(number)
            await pair.check()


def compare(steps: bytes) -> None:
    """Raise AssertionError if a cached verdict differs from a fresh one after any of the steps."""
    asyncio.run(compared(steps))
