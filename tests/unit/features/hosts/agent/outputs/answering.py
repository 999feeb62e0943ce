"""A server in memory for the outputs of an agent: it signs requests and serves what it is given."""

import base64
import datetime
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.hosts.agent.calls import Clocks
from orchid.features.hosts.agent.outputs.content import Round
from orchid.features.hosts.agent.state_directory import StateDirectory
from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import HOUR, NOW

HOST, SIGNER, OTHER_SIGNER = "web-1.example.com", "example.com/servers", "example.com/mail"
Json = dict[str, Any]


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


class Server:
    """Bundles by signer, Pods, revocation lists; every created request is signed at once."""

    naming = ORCH

    def __init__(self, *, now: datetime.datetime = NOW, lasts: datetime.timedelta = HOUR) -> None:
        self.clocks = Clocks(lambda: now)
        self.access = ServerAccess(server="https://orchid.test", authority=b"the CA")
        self.bundles = {SIGNER: pem(chains.ROOT).decode()}
        self.pods: list[Json] = []
        self.lists: dict[str, bytes] = {}
        self.window: Json = {}
        self.root = chains.P256  # the key that signs
        self.calls: Counter[str] = Counter()
        self.created: list[Json] = []
        self._lasts = lasts

    def group(self, *parts: str) -> str:
        return "/".join(parts)

    def get(self, url: str, query: dict[str, str] | None = None) -> Json:
        self.calls[url.rsplit("/", 1)[-1]] += 1
        if url.endswith("clustertrustbundles"):
            signer = (query or {})["fieldSelector"].partition("=")[2]
            bundle = self.bundles.get(signer)
            item = {"metadata": {"name": "b"}, "spec": {"trustBundle": bundle}}
            return {"items": [item] if bundle else []}
        if url.endswith("/pods"):
            assert query == {"fieldSelector": f"spec.nodeName={HOST}"}
            return {"items": self.pods}
        if "renewal-info" in url:
            return self.window
        return {"metadata": {"uid": f"uid of {url}"}}

    def find(self, url: str) -> Json | None:
        return None

    def create(self, url: str, body: Json) -> Json:
        self.created.append(body)
        spec = body["spec"]
        if "stubPKCS10Request" in spec:
            request = x509.load_der_x509_csr(base64.b64decode(spec["stubPKCS10Request"]))
        else:
            request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(chains.named("ca"))
            .public_key(request.public_key())
            .serial_number(9)
            .not_valid_before(self.clocks.now() - HOUR)
            .not_valid_after(self.clocks.now() + self._lasts)
        )
        for one in request.extensions:
            builder = builder.add_extension(one.value, one.critical)
        made = pem(builder.sign(self.root, hashes.SHA256()))
        return {"status": {"certificate": base64.b64encode(made).decode()}}

    def page(self, url: str, tag: str) -> Any:
        name = url.rsplit("/", 1)[-1].removesuffix(".pem")
        return SimpleNamespace(status=200, data=self.lists.get(name, b""))


def a_round(server: Server, directory: Path, held: Any = None) -> Round:
    """One round of a host whose identity has this certificate, if any."""
    (directory / "requests").mkdir(exist_ok=True)
    identity = SimpleNamespace(host=HOST, held=held, certificate_pem=b"identity")
    parts = cast(Any, (server, identity, StateDirectory(directory), server.clocks))
    return Round(*parts)
