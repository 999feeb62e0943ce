"""ClientPools: the CAs of client certificates, from files or from the authority `cluster`."""

import functools
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.context import Context
from orchid.kernel.credentials.files import Reloading
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier

Pool = Callable[[], ClientVerifier]


class ClientPools:
    """The pools of CAs in use: that of clients, and that of front proxies if there are any."""

    def __init__(self, context: Context) -> None:
        options = context.settings.given.of(SignInSettings)
        platform = context.optional(PlatformAuthority)
        self.follows_platform = platform is not None and not options.client_ca_file
        if platform is not None and not options.client_ca_file:
            self.clients: Pool = platform.pool
        else:
            self.clients = _reloaded(options.client_ca_file or str(context.files.ca_certificate))
        proxies = options.requestheader_client_ca_file
        self.proxies: Pool | None = _reloaded(proxies) if proxies else None

    def end(self) -> datetime:
        """Expiry of the last CA for client certificates."""
        return max(pool().end for pool in (self.clients, self.proxies) if pool is not None)


def _reloaded(path: str) -> Pool:
    """The CAs of a file, reloaded as it changes."""
    file = Path(path)
    return Reloading([file], functools.partial(ClientVerifier.load, file)).current
