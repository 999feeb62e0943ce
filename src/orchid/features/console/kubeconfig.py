"""The transport of `orchid console`: HTTPS with the credential of a kubeconfig.

When the server no longer accepts the credential, the kubeconfig is read again, and its plugin is
run again, so that a renewed credential is used without a restart.
"""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from orchid.features.console.api import UNAUTHORIZED, Unreachable
from orchid.features.console.decoding import claims_of, decode_certificate
from orchid.features.console.text import parse_time
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.version import __version__
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.https_client import JSON, HttpsClient, Pieces
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.outbound.remote import InvalidRemote, remote_of

AGENT: Final = f"orchid-console/{__version__}"
LARGEST: Final = 64 << 20
POOL: Final = 4
RELOAD_SECONDS: Final = 10.0  # at most one reload in this time: a plugin may ask the user

Load = Callable[[], ServerAccess]


class KubeconfigTransport:
    """Requests as the user of a kubeconfig; `load` reads it and runs its plugin."""

    def __init__(self, access: ServerAccess, load: Load, monotonic: Monotonic) -> None:
        """Raises InvalidRemote."""
        self._load = load
        self._monotonic = monotonic
        self._access = access
        self._client = _client_of(access)
        self._loading = asyncio.Lock()
        self._next_load = 0.0

    @property
    def server(self) -> str:
        return self._access.server

    def expiry(self) -> datetime.datetime | None:
        """When the credential expires, if it says so."""
        if self._access.certificate:
            certificate = decode_certificate(self._access.certificate)
            return parse_time(certificate.not_after) if certificate else None
        try:
            token = self._access.token()
        except UnusableKubeconfig:
            return None
        return _token_expiry(token.reveal()) if token else None

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = JSON, *, accept: str = ""
    ) -> Answer:
        client = self._client
        answer = await client.send(method, target, body, media, accept=accept)
        if answer.status == UNAUTHORIZED and await self._is_renewed(client):
            return await self._client.send(method, target, body, media, accept=accept)
        return answer

    @asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[Pieces]:
        async with self._client.stream(target) as pieces:
            yield pieces

    async def close(self) -> None:
        await self._client.close()

    async def _is_renewed(self, refused: HttpsClient) -> bool:
        """Whether there is another credential than the refused one."""
        async with self._loading:
            if self._client is not refused:
                return True
            now = self._monotonic()
            if now < self._next_load:
                return False
            self._next_load = now + RELOAD_SECONDS
            try:
                access = await asyncio.to_thread(self._load)
                renewed = _client_of(access)
            except (UnusableKubeconfig, InvalidRemote) as problem:
                raise Unreachable(f"the credential cannot be renewed: {problem}") from None
            self._access, self._client = access, renewed
            await refused.close()
            return True


def _client_of(access: ServerAccess) -> HttpsClient:
    if access.insecure:
        raise InvalidRemote("insecure-skip-tls-verify is not supported by the console")
    remote = remote_of(access, Path("kubeconfig"))
    return HttpsClient(remote, max_answer=LARGEST, keeps=POOL, user_agent=AGENT)


def _token_expiry(token: str) -> datetime.datetime | None:
    """The expiry in the claims of a token; nothing is verified."""
    try:
        return datetime.datetime.fromtimestamp(int(claims_of(token)["exp"]), datetime.UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
