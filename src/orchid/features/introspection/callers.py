"""The caller of an OAuth endpoint, by any of the ways that OAuth clients support.

A bearer token or a client certificate was authenticated by the chain. Besides, many clients support
only a client id and a client secret: here the id is a user name, and the secret is a token of that
user (`client_secret_basic` in a header, `client_secret_post` in the form).
"""

import base64
import binascii
from typing import Final
from urllib.parse import unquote_plus

from orchid.features.introspection.forms import (
    CHALLENGE,
    UNAUTHORIZED,
    FormParameters,
    OAuthRefusal,
)
from orchid.kernel.engine.interfaces import Rejected, TokenAuthenticator
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.user import ANONYMOUS, UserInfo

METHODS: Final = ("Bearer", "tls_client_auth", "client_secret_basic", "client_secret_post")
LONGEST_CREDENTIALS: Final = 64 << 10


class Callers:
    """Find the user of a request to an endpoint."""

    def __init__(self, tokens: TokenAuthenticator, api_audiences: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._audiences = api_audiences

    async def user_of(self, state: RequestState, form: FormParameters) -> UserInfo:
        """The user; raises OAuthRefusal (401) if there is none."""
        _refuse_two_methods(state, form)
        request = state.request
        if request is not None and request.user.username != ANONYMOUS:
            return request.user
        name, secret = _basic(state) or (form.get("client_id"), form.get("client_secret"))
        if not secret:
            raise _refusal("the request has no credential")
        try:
            identity = await self._tokens.authenticate_token(secret, self._audiences)
        except Rejected:
            identity = None
        if identity is None or identity.user.username != name:
            raise _refusal("the client secret is not a valid token of the user named as client id")
        return identity.user


def presented_secret(state: RequestState, form: FormParameters) -> str:
    """The credential of a request, whatever it proves; "" if there is none.

    A certificate is not a secret, but it is a credential of its own.
    """
    scheme, _, bearer = state.http.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip()
    basic = _basic(state)
    secret = basic[1] if basic else form.get("client_secret")
    request = state.request
    is_known = request is not None and request.user.username != ANONYMOUS
    return secret or ("certificate" if is_known else "")


def _refuse_two_methods(state: RequestState, form: FormParameters) -> None:
    """Two programs on the path could each look at another credential (RFC 6749, section 2.3)."""
    if "authorization" in state.http.headers and form.get("client_secret"):
        raise OAuthRefusal("invalid_request", "a credential in the header or in the form, not both")


def _basic(state: RequestState) -> tuple[str, str] | None:
    """The id and the secret of an Authorization header (RFC 6749, section 2.3.1)."""
    header = state.http.headers.get("authorization", "")
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        if len(encoded) > LONGEST_CREDENTIALS:
            raise ValueError
        text = base64.b64decode(encoded.strip(), validate=True).decode()
        # A token has no colon (RFC 6750), a user name has: many clients do not encode it.
        name, colon, secret = text.rpartition(":")
        if not colon:
            raise ValueError
        return unquote_plus(name, errors="strict"), unquote_plus(secret, errors="strict")
    except (ValueError, binascii.Error):
        raise _refusal("the Authorization header is malformed") from None


def _refusal(text: str) -> OAuthRefusal:
    return OAuthRefusal("invalid_client", text, status=UNAUTHORIZED, headers=CHALLENGE)
