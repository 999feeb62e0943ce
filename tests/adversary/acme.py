"""An ACME client (RFC 8555) over the connections of the attack; PyJWT signs its requests."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt
from jwt.algorithms import ECAlgorithm

from tests.adversary.calls import Answer
from tests.adversary.pool import Pair
from tests.adversary.servers import ISSUER

JOSE = "application/jose+json"
KEY_TYPE = "identity.orch.io/acme-key"
ACCOUNT_NAME, ACCOUNT_UID = "orch.io/service-account.name", "orch.io/service-account.uid"
Ask = Callable[..., Answer]  # method, path, body and content type


@dataclass
class AcmeClient:
    """A client of one authority; it has an account after `register`."""

    ask: Ask
    authority: str
    pair: Pair
    kid: str = ""

    def register(self, external: str, secret: bytes) -> Answer:
        """Create an account with an external account key."""
        header = {"kid": external, "url": self._url("new-account")}
        binding = _signed(self._jwk, secret, "HS256", header)
        answer = self.post("new-account", {"externalAccountBinding": binding})
        self.kid = answer.header("location") if answer.is_done else ""
        return answer

    def post(self, page: str, payload: Any = None) -> Answer:
        """A signed request for a page, by its name or URL; without a payload it only reads."""
        url = self._url(page)
        nonce = self.ask("HEAD", self._url("new-nonce").removeprefix(ISSUER), None, JOSE)
        header: dict[str, Any] = {"url": url, "nonce": nonce.header("replay-nonce")}
        header |= {"kid": self.kid} if self.kid else {"jwk": self._jwk}
        body = json.dumps(_signed(payload, self.pair.key, "ES256", header)).encode()
        return self.ask("POST", url.removeprefix(ISSUER), body, JOSE)

    @property
    def _jwk(self) -> dict[str, Any]:
        return ECAlgorithm.to_jwk(self.pair.key.public_key(), as_dict=True)

    def _url(self, page: str) -> str:
        return page if page.startswith(ISSUER) else f"{ISSUER}/acme/{self.authority}/{page}"


@dataclass(frozen=True)
class Ordered:
    """An order that a server has accepted."""

    client: str  # the label of the client
    url: str
    names: tuple[str, ...]

    @property
    def request(self) -> str:
        """The name of its certificate request."""
        return "acme-" + self.url.rpartition("/")[2]


def _signed(payload: Any, key: Any, algorithm: str, header: dict[str, Any]) -> dict[str, str]:
    data = b"" if payload is None else json.dumps(payload).encode()
    text = jwt.PyJWS().encode(data, key, algorithm, {"typ": None, **header})
    return dict(zip(("protected", "payload", "signature"), text.split("."), strict=True))
