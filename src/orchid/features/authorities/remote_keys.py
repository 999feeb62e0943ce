"""The keys of a server elsewhere, for controllers that run apart from it.

Controllers sign tokens in Secrets, and publish the authorities that verify the server. `RemoteKeys`
reads the SigningKeys and the private key of the signer through the API, and again every ten
seconds. If the keys of the server are files, those of this machine count.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from orchid.features.authorities.kinds.certificate_authority import CLUSTER, CertificateAuthority
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.kinds.signing_key import (
    SigningKey,
    private_key_of,
    revoked_identities,
)
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.credentials.x509 import certificates, pem
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.errors import ApiError, Unavailable
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import belongs_to

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 10.0


class RemoteKeys:
    """The signer of tokens, and the authority of the platform, as the server has them."""

    def __init__(self, client: Client, naming: Naming, of_files: Callable[[], TokenSigner]) -> None:
        """`of_files`: the signer by the key file; raises Refusal if there is none."""
        self._client = client
        self._naming = naming
        self._of_files = of_files
        self._signer: TokenSigner | None = None
        self._has_read = False
        self._authorities = ""

    def signer(self) -> TokenSigner:
        """The current signer; raises Refusal or Unavailable if there is none."""
        if not self._has_read:
            raise Unavailable("the token keys of the server are not read yet")
        return self._signer or self._of_files()

    @property
    def stores_authority(self) -> bool:
        """Whether the server has the CA of the platform as an object; else it is in files."""
        return bool(self._authorities)

    def authorities(self) -> str:
        """The certificates that verify the server and its clients, in PEM."""
        return self._authorities

    async def run(self) -> None:
        """Read the keys until cancelled."""
        while True:
            try:
                await self.read()
            except (ApiError, CallFailed) as problem:
                log.warning("tokens.keys_not_read", extra={"why": str(problem)})
            await asyncio.sleep(EVERY_SECONDS)

    async def read(self) -> None:
        """Read the signer once."""
        stored = [key async for key in self._client.scan(ListSelection(SigningKey))]
        revocations = self._client.scan(ListSelection(CredentialRevocation))
        named = [revocation.spec.key async for revocation in revocations if revocation.spec.key]
        revoked = {identity for key in named for identity in revoked_identities(key)}
        self._has_read = True
        platform = await self._client.find(CertificateAuthority, CLUSTER)
        own = [key for key in stored if platform and belongs_to(key, platform)]
        cluster = select(own, revoked, CLUSTER).verifying
        # If none is left, the last ones are as good as any.
        self._authorities = _certificates(cluster) or self._authorities
        for key in select(stored, revoked).signers:
            if self._signer is not None and self._signer.kid == key.key_id:
                return
            home = self._naming.system_namespace
            secret = await self._client.find(Secret, key.secret_name, home)
            try:
                private = private_key_of(key, secret.data if secret else {})
            except Refusal as refusal:
                log.error("tokens.private_key_unusable", extra={"why": str(refusal)})
                continue
            naming = self._naming
            self._signer = TokenSigner(private, naming.legacy_issuer, naming.private_claim)
            return


def _certificates(keys: Iterable[SigningKey]) -> str:
    """The certificates of some keys and the chains above them, each once."""
    encoded: dict[bytes, None] = {}
    for key in keys:
        try:
            encoded.update(dict.fromkeys(certificates.encoded_blocks(key.status.certificate)))
        except Refusal:
            continue  # another controller reports it
    blocks = (pem.encode(pem.CERTIFICATE, block) for block in encoded)
    return b"".join(blocks).decode("ascii")
