"""An ACME client for tests: it signs requests and calls the server in process."""

import base64
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchid.kernel.credentials.keys import TokenKey, generate
from tests.api.world import Answer, Api

BASE = "https://127.0.0.1:6443"
JOSE = "application/jose+json"


def b64(data: Any) -> str:
    """Bytes or a JSON value in base64url."""
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public(key: TokenKey) -> dict[str, str]:
    """The JWK of a key, with its necessary members."""
    return {
        name: value
        for name, value in key.public.jwk().items()
        if name in ("kty", "crv", "x", "y", "n", "e")
    }


@dataclass
class AcmeClient:
    """One account of an authority."""

    server: Api
    authority: str = "servers"
    key: TokenKey = field(default_factory=generate)
    kid: str = ""
    nonce: str = ""

    def url(self, page: str) -> str:
        return page if page.startswith("https:") else f"{BASE}/acme/{self.authority}/{page}"

    async def fresh_nonce(self) -> str:
        answer = await self.server.call("HEAD", f"/acme/{self.authority}/new-nonce", token=None)
        assert answer.status == 200, answer.text
        return answer.header("replay-nonce") or ""

    async def post(
        self,
        page: str,
        payload: Any = None,
        *,
        header: dict[str, Any] | None = None,
        media: str = JOSE,
        raw: bytes | None = None,
    ) -> Answer:
        """A signed request; a header given here replaces members, None removes one."""
        url = self.url(page)
        protected: dict[str, Any] = {"alg": self.key.algorithm, "url": url}
        protected["nonce"] = self.nonce or await self.fresh_nonce()
        self.nonce = ""
        if self.kid:
            protected["kid"] = self.kid
        else:
            protected["jwk"] = public(self.key)
        protected |= header or {}
        protected = {name: value for name, value in protected.items() if value is not None}
        body = raw if raw is not None else self.signed(protected, payload)
        answer = await self.send(url, body, media)
        self.nonce = answer.header("replay-nonce") or ""
        return answer

    def signed(self, protected: dict[str, Any], payload: Any) -> bytes:
        head = b64(protected)
        text = "" if payload is None else b64(payload)
        signature = b64(self.key.sign(f"{head}.{text}".encode()))
        return json.dumps({"protected": head, "payload": text, "signature": signature}).encode()

    async def send(self, url: str, body: bytes, media: str = JOSE) -> Answer:
        path = url.removeprefix(BASE)
        return await self.server.call(
            "POST", path, body, token=None, headers={"content-type": media}
        )

    # -- accounts ------------------------------------------------------------------------------

    def binding(self, kid: str, secret: bytes, alg: str = "HS256", **header: Any) -> dict[str, str]:
        """An external account binding."""
        digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}.get(alg, "sha256")
        members = {"alg": alg, "kid": kid, "url": self.url("new-account"), **header}
        head, payload = b64(members), b64(public(self.key))
        mac = hmac.new(secret, f"{head}.{payload}".encode(), digest).digest()
        return {"protected": head, "payload": payload, "signature": b64(mac)}

    async def register(self, kid: str, secret: bytes, **payload: Any) -> Answer:
        """Create an account with an external key, and use it from now on."""
        body = {"externalAccountBinding": self.binding(kid, secret), **payload}
        answer = await self.post("new-account", body)
        if answer.status in (200, 201):
            self.kid = answer.header("location") or ""
        return answer

    # -- orders --------------------------------------------------------------------------------

    async def order(self, *names: str, **more: Any) -> Answer:
        identifiers = [{"type": "dns", "value": name} for name in names]
        return await self.post("new-order", {"identifiers": identifiers, **more})

    async def finalize(self, order: Answer, *names: str, **more: Any) -> Answer:
        csr = request_for(*names, **more)
        return await self.post(order.json["finalize"], {"csr": b64(csr)})


def request_for(*names: str, common_name: str = "", key: Any = None) -> bytes:
    """A certificate request in DER."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    builder = x509.CertificateSigningRequestBuilder(x509.Name(attributes))
    if names:
        hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(hosts, critical=False)
    made = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)
