"""Signed requests of ACME clients: from an HTTP request to a verified payload of an account.

`SignedRequests.read` is the order of the checks. Everything before the signature costs little and
changes nothing: the size, the form, the URL, the nonce's HMAC, and one look-up of the account. The
nonce is used up only by a request whose signature is valid, so nobody else can use it up.
"""

import hashlib
from typing import Any

import msgspec

from orchid.features.acme.acme_accounts import AcmeAccounts, is_account_of
from orchid.features.acme.kinds.acme_account import AcmeAccount
from orchid.features.acme.protocol import jws
from orchid.features.acme.protocol.links import Links
from orchid.features.acme.protocol.nonces import Nonces
from orchid.features.acme.protocol.problems import AcmeProblem, malformed, unauthorized
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.kernel.credentials.jwk import AccountKey, read_jwk_text
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.user import UserInfo

MEDIA = "application/jose+json"
UNSUPPORTED_MEDIA, TOO_LARGE, METHOD_NOT_ALLOWED = 415, 413, 405


class RequestTarget(msgspec.Struct, frozen=True):
    """The authority of a request, its URLs, and the rest of the path."""

    authority: CertificateAuthority
    links: Links
    url: str  # of the request
    rest: tuple[str, ...] = ()


class VerifiedRequest(msgspec.Struct, frozen=True):
    """A request whose signature is valid."""

    target: RequestTarget
    key: AccountKey
    payload: bytes
    nonce: str
    moment: int  # of the nonce, in nanoseconds since 1970
    source: str  # the address of the client
    account: AcmeAccount | None = None  # None: the key is in the header
    user: UserInfo | None = None  # the service account of the account

    def read(self, type_: Any) -> Any:
        return jws.payload_of(self.payload, type_)

    def require_empty(self) -> None:
        """For a POST-as-GET (RFC 8555, section 6.3)."""
        if self.payload:
            raise malformed("this resource can only be read: the payload must be empty")

    def name(self, salt: str) -> str:
        """A name for what this request creates; a repetition of the request has the same."""
        return hashlib.sha256(f"{salt}\0{self.nonce}".encode()).hexdigest()[:24]


class SignedRequests:
    """Verifies requests."""

    def __init__(self, accounts: AcmeAccounts, nonces: Nonces) -> None:
        self._accounts = accounts
        self._nonces = nonces

    async def read(self, state: RequestState, target: RequestTarget) -> VerifiedRequest:
        """Verify a request of an account, or one with its key in the header; raises AcmeProblem."""
        http = state.http
        if http.method != "POST":
            raise malformed(
                "this resource needs a signed POST",
                code=METHOD_NOT_ALLOWED,
                headers=b"Allow: POST\r\n",
            )
        if http.too_large:
            raise malformed(f"a request has at most {jws.LARGEST} bytes", code=TOO_LARGE)
        if state.head.client.media != MEDIA:
            raise malformed(f"the media type must be {MEDIA}", code=UNSUPPORTED_MEDIA)
        signed = jws.parse(http.body)
        header = signed.header
        if header.url != target.url:
            raise unauthorized(f"the url in the header must be {target.url}")
        if (header.kid is None) == (header.jwk is None):
            raise malformed("the header must have either kid or jwk")
        self._nonces.check(header.nonce)
        account, user = None, None
        if header.kid is not None:
            await self._accounts.fresh()
            account, user = self._account(header.kid, target)
            key = read_jwk_text(account.spec.jwk)
        else:
            key = signed.key()
        signed.verify(key)
        moment = self._nonces.use(header.nonce)
        if account is not None and user is None:
            raise unauthorized("the account is deactivated or revoked, or its owner is gone")
        return VerifiedRequest(
            target, key, signed.payload, header.nonce, moment, http.peer.address, account, user
        )

    def _account(self, kid: str, target: RequestTarget) -> tuple[AcmeAccount, UserInfo | None]:
        named = target.links.account_of(kid)
        account = self._accounts.find(*named) if named else None
        if account is None or not is_account_of(account, target.authority):
            raise AcmeProblem("accountDoesNotExist", "there is no account with this kid")
        return account, self._accounts.user_of(account)


def require_account(request: VerifiedRequest) -> tuple[AcmeAccount, UserInfo]:
    """The account of a request; raises AcmeProblem if the key was in the header instead."""
    if request.account is None or request.user is None:
        raise malformed("the header must have the URL of the account as kid, not jwk")
    return request.account, request.user


def require_key(request: VerifiedRequest) -> AccountKey:
    """The key in the header; raises AcmeProblem if there was a kid instead."""
    if request.account is not None:
        raise malformed("the header must have the key as jwk, not kid")
    return request.key
