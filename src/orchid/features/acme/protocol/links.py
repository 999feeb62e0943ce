"""The URLs of an authority's ACME objects."""

from typing import Final

import msgspec

PREFIX: Final = "/acme/"
DIRECTORY, NEW_NONCE, NEW_ACCOUNT, NEW_ORDER = "directory", "new-nonce", "new-account", "new-order"
REVOKE, KEY_CHANGE, ACCOUNT, ORDER = "revoke-cert", "key-change", "account", "order"
AUTHORIZATION, CERTIFICATE, FINALIZE = "authorization", "certificate", "finalize"
RENEWAL_INFO: Final = "/renewal-info"
LONGEST_PATH: Final = 700  # characters; a namespace has at most 63, a name 253


class Links(msgspec.Struct, frozen=True):
    """URLs below that of one authority."""

    base: str  # of the server, without a slash at the end
    authority: str

    def to(self, *parts: str) -> str:
        return "/".join((f"{self.base}{PREFIX}{self.authority}", *parts))

    def index(self) -> bytes:
        """The header that leads to the directory (RFC 8555, section 7.1)."""
        return f'Link: <{self.to(DIRECTORY)}>;rel="index"\r\n'.encode()

    def directory(self) -> dict[str, object]:
        return {
            "newNonce": self.to(NEW_NONCE),
            "newAccount": self.to(NEW_ACCOUNT),
            "newOrder": self.to(NEW_ORDER),
            "revokeCert": self.to(REVOKE),
            "keyChange": self.to(KEY_CHANGE),
            "renewalInfo": self.base + RENEWAL_INFO,
            "meta": {"externalAccountRequired": True},
        }

    def account_of(self, url: str) -> tuple[str, str] | None:
        """Namespace and name of the account with a URL, which clients use as `kid`."""
        prefix = self.to(ACCOUNT) + "/"
        if len(url) > len(self.base) + LONGEST_PATH or not url.startswith(prefix):
            return None
        namespace, slash, name = url.removeprefix(prefix).partition("/")
        return (namespace, name) if slash and namespace and name and "/" not in name else None
