"""Sign-in with an OpenID Connect provider: code flow with PKCE (RFC 7636), state, nonce and iss.

`Login` has the secrets of one sign-in, derived from one random value in a cookie of the browser, so
that any server can finish a sign-in that another began. `OpenIdProvider` calls the provider. It
verifies no signature: the API does, when the ID token is used (access/oidc/).
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from orchid.features.console.api import Json
from orchid.features.console.decoding import claims_of
from orchid.features.console.sign_in.sessions import Tokens
from orchid.features.console.web.messages import FORM, Fields
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import InvalidRemote, Remote, refuse_unfit_url

LARGEST: Final = 1 << 20
TIMEOUT: Final = 10.0
METADATA_SECONDS: Final = 600.0
OK: Final = 200
FAILED: Final = 500
OFFLINE: Final = "offline_access"
LONGEST_TARGET: Final = 1500

Call = Callable[[str, Fields | None, str], Awaitable[Answer]]  # URL, form, Authorization


class SignInFailed(Exception):
    """A sign-in or renewal failed; the message is for the user."""


class ProviderUnavailable(SignInFailed):
    """The provider gave no usable response; the same call may succeed later."""


class Login(msgspec.Struct, frozen=True):
    """One sign-in: a random value, and the page to show afterwards."""

    secret: str
    target: str = "/"

    __repr__ = object.__repr__  # shows no field

    @classmethod
    def begin(cls, target: str) -> "Login":
        return cls(secrets.token_urlsafe(32), target if _is_own_page(target) else "/")

    @classmethod
    def of_cookie(cls, text: str) -> "Login | None":
        secret, _, target = text.partition(".")
        try:
            page = base64.b64decode(target, altchars=b"-_", validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return cls(secret, page) if secret and _is_own_page(page) else None

    @property
    def cookie(self) -> str:
        return f"{self.secret}.{base64.urlsafe_b64encode(self.target.encode()).decode()}"

    @property
    def state(self) -> str:
        return self._derived("state")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        return _b64url(hashlib.sha256(self.verifier.encode()).digest())

    def _derived(self, word: str) -> str:
        """A value for one purpose; another target has other values."""
        text = f"{word}\n{self.target}".encode()
        return _b64url(hmac.digest(self.secret.encode(), text, "sha256"))


class OpenIdSettings(msgspec.Struct, frozen=True):
    """The provider, and the console as its client."""

    issuer: str
    configuration_url: str
    client_id: str
    redirect_uri: str
    scopes: tuple[str, ...]


class OpenIdProvider:
    """The provider of one issuer."""

    def __init__(
        self,
        settings: OpenIdSettings,
        call: Call,
        monotonic: Monotonic,
        client_secret: Callable[[], SecretValue | None] = lambda: None,
    ) -> None:
        """`client_secret` is read at each use, so that its file can be replaced."""
        self.settings = settings
        self._call = call
        self._monotonic = monotonic
        self._client_secret = client_secret
        self._metadata: Json = {}
        self._valid_until = 0.0

    async def sign_in_url(self, login: Login) -> str:
        metadata = await self._described()
        scopes = list(self.settings.scopes)
        if OFFLINE in (metadata.get("scopes_supported") or ()) and OFFLINE not in scopes:
            scopes.append(OFFLINE)  # for a refresh token
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": " ".join(scopes),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }
        if OFFLINE in scopes:
            query["prompt"] = "consent"  # without it, offline_access is ignored (OIDC Core, 11)
        return _with_query(str(metadata["authorization_endpoint"]), query)

    async def sign_out_url(self) -> str:
        """The page of the provider that ends its own session; empty if it has none."""
        try:
            end = str((await self._described()).get("end_session_endpoint") or "")
        except SignInFailed:
            return ""
        if not _is_fit(end):
            return ""
        return _with_query(end, {"client_id": self.settings.client_id})

    async def redeem(self, login: Login, query: Fields) -> Tokens:
        """The tokens of a callback; raises SignInFailed."""
        metadata = await self._described()
        if not hmac.compare_digest(query.get("state", "").encode(), login.state.encode()):
            raise SignInFailed("This sign-in was not begun here, or has been replaced by another.")
        issuer = query.get("iss", "")
        needs_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
        if (issuer or needs_issuer) and issuer != self.settings.issuer:
            raise SignInFailed("The response is from another provider.")
        if "error" in query:
            raise SignInFailed(f"The provider refused: {query['error']}.")
        form = {
            "grant_type": "authorization_code",
            "code": query.get("code", ""),
            "redirect_uri": self.settings.redirect_uri,
            "code_verifier": login.verifier,
        }
        answer = await self._token_call(form)
        claims = self._claims(answer)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), login.nonce.encode()):
            raise SignInFailed("The ID token belongs to another sign-in.")
        return _tokens(answer, claims, "")

    async def renew(self, tokens: Tokens) -> Tokens:
        """New tokens by the refresh token; raises SignInFailed."""
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        answer = await self._token_call(form)
        claims, before = self._claims(answer), claims_of(tokens.id_token)
        if claims.get("sub") != before.get("sub"):
            raise SignInFailed("The provider renewed the token of another user.")
        return _tokens(answer, claims, tokens.refresh_token)

    def _claims(self, answer: Json) -> Json:
        claims = claims_of(str(answer.get("id_token") or ""))
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if claims.get("iss") != self.settings.issuer or self.settings.client_id not in audiences:
            raise SignInFailed("The provider returned no ID token for this console.")
        return claims

    async def _token_call(self, form: Fields) -> Json:
        metadata = await self._described()
        authorization, sent = "", {**form, "client_id": self.settings.client_id}
        secret = self._client_secret()
        if secret is not None:
            methods = metadata.get("token_endpoint_auth_methods_supported")
            if methods is None or "client_secret_basic" in methods:
                pair = (
                    f"{quote(self.settings.client_id, safe='')}:{quote(secret.reveal(), safe='')}"
                )
                authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
                del sent["client_id"]
            else:
                sent["client_secret"] = secret.reveal()
        response = await self._fetch(str(metadata["token_endpoint"]), sent, authorization)
        answer = _document(response.body)
        if response.status != OK:
            why = str(answer.get("error") or f"status {response.status}")[:200]
            failure = ProviderUnavailable if response.status >= FAILED else SignInFailed
            raise failure(f"The provider refused: {why}.")
        return answer

    async def _described(self) -> Json:
        """The metadata of the provider (OpenID Connect Discovery 1.0)."""
        now = self._monotonic()
        if now < self._valid_until:
            return self._metadata
        response = await self._fetch(self.settings.configuration_url)
        metadata = _document(response.body)
        if response.status != OK or metadata.get("issuer") != self.settings.issuer:
            raise ProviderUnavailable(
                "The provider's discovery document is missing, or names another issuer."
            )
        for name in ("authorization_endpoint", "token_endpoint"):
            if not _is_fit(str(metadata.get(name) or "")):
                raise ProviderUnavailable(f"The provider has no usable {name}.")
        methods = metadata.get("code_challenge_methods_supported")
        if methods is not None and "S256" not in methods:
            raise ProviderUnavailable("The provider does not support PKCE with S256.")
        self._metadata, self._valid_until = metadata, now + METADATA_SECONDS
        return metadata

    async def _fetch(self, url: str, form: Fields | None = None, authorization: str = "") -> Answer:
        try:
            return await self._call(url, form, authorization)
        except (CallFailed, InvalidRemote) as problem:
            raise ProviderUnavailable(f"The provider cannot be reached: {problem}.") from None


def calling(remote: Callable[[str], Remote]) -> Call:
    """Calls over HTTPS; `remote` gives the TLS settings of a URL."""

    async def call(url: str, form: Fields | None, authorization: str) -> Answer:
        headers = {"Authorization": authorization} if authorization else {}
        client = HttpsClient(remote(url), max_answer=LARGEST, timeout=TIMEOUT, headers=headers)
        if form is None:
            return await client.send("GET")
        return await client.send("POST", body=urlencode(form).encode(), media=FORM)

    return call


def _tokens(answer: Json, claims: Json, refresh_token: str) -> Tokens:
    end = claims.get("exp")
    if not isinstance(end, int | float):
        raise SignInFailed("The ID token does not expire.")
    renewal = str(answer.get("refresh_token") or refresh_token)
    return Tokens(str(answer["id_token"]), float(end), renewal)


def _is_own_page(target: str) -> bool:
    """Whether it is a path of this site; browsers take //host and /\\host for another one."""
    return (
        len(target) <= LONGEST_TARGET and target[:1] == "/" and not target.startswith(("//", "/\\"))
    )


def _is_fit(url: str) -> bool:
    try:
        refuse_unfit_url(url)
    except InvalidRemote:
        return False
    return True


def _with_query(url: str, query: Fields) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _document(body: bytes) -> Json:
    """A JSON object of the provider; empty for anything else."""
    try:
        return foreign.decode(body, dict[str, Any])
    except AnswerRefused:
        return {}
