"""Bearer tokens in a request: the Authorization header, or a WebSocket subprotocol.

`BearerAuthenticator` and `WebSocketAuthenticator` extract the token; the token authenticators
return its user. An unknown token is refused, so its bearer is never treated as anonymous. Tokens
are read from nowhere else: not from the query, a cookie or a second header.
"""

from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.engine.interfaces import Authenticated, Presented, Rejected, TokenAuthenticator
from orchid.kernel.wire.naming import Naming

UNKNOWN_TOKEN = "invalid bearer token"  # noqa: S105 - a message, not a token


class BearerAuthenticator:
    """Authenticate by `Authorization: Bearer TOKEN` (RFC 6750)."""

    def __init__(self, tokens: TokenAuthenticator, api_audiences: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._audiences = api_audiences

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        header = presented.headers.get("authorization")
        if header is None:
            return None
        token = bearer_token(header)
        if not token:
            return None
        return await self._bearer_of(token)

    async def _bearer_of(self, token: str) -> Authenticated:
        found = await self._tokens.authenticate_token(token, self._audiences)
        if found is None:
            raise Rejected(UNKNOWN_TOKEN)
        return found


class WebSocketAuthenticator(BearerAuthenticator):
    """Authenticate by a subprotocol entry, the only credential of a browser's WebSocket."""

    def __init__(
        self, tokens: TokenAuthenticator, api_audiences: tuple[str, ...], naming: Naming
    ) -> None:
        super().__init__(tokens, api_audiences)
        self._prefix = naming.websocket_bearer

    async def authenticate(self, presented: Presented) -> Authenticated | None:
        offered = presented.headers.get("sec-websocket-protocol")
        if offered is None or not _is_websocket(presented):
            return None
        token = self._token(presented)
        if not token:
            return None
        return await self._bearer_of(token)

    def _token(self, presented: Presented) -> str:
        entries = [
            entry.strip()
            for value in presented.all("sec-websocket-protocol")
            for entry in value.split(",")
        ]
        encoded = [entry for entry in entries if entry.startswith(self._prefix)]
        if not encoded:
            return ""
        if len(encoded) > 1:
            raise Rejected("multiple base64.bearer.authorization tokens specified")
        token = _decoded(encoded[0].removeprefix(self._prefix))
        if not any(entry and not entry.startswith(self._prefix) for entry in entries):
            # The handshake has to select one, and it must not be the token.
            raise Rejected("missing additional subprotocol")
        return token


def bearer_token(header: str) -> str:
    """The second word of a header whose first is `Bearer` in any case; else ""."""
    scheme, _, rest = header.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def _decoded(text: str) -> str:
    try:
        data = b64url_decode(text.encode("ascii"))
    except ValueError:
        raise Rejected("invalid base64.bearer.authorization token encoding") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected("invalid base64.bearer.authorization token") from None


def _is_websocket(presented: Presented) -> bool:
    connection = presented.headers.get("connection", "").lower()
    return "upgrade" in connection and presented.headers.get("upgrade", "").lower() == "websocket"
