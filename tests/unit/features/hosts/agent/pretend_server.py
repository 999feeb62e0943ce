"""A small API server on loopback for an agent: it signs what it is asked to, or misbehaves.

`serving()` starts one in a thread. Its attributes choose its behaviour: the decision about
requests, the age of its certificates, statuses for paths, and the time that it reports.
"""

import base64
import contextlib
import datetime
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SERVING = trustme.CA()
HOST = "web-1.example.com"
SIGNER = "example.com/servers"
GROUP = "certificates.orch.io"
SECOND = datetime.timedelta(seconds=1)

Json = dict[str, Any]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Authority:
    """A CA whose certificates may be older than they are."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name.from_rfc4514_string(f"CN={name}")
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() - 3600 * SECOND)
            .not_valid_after(now() + 10**8 * SECOND)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, request: x509.CertificateSigningRequest, seconds: int, age: float) -> bytes:
        """A certificate of which this share of its life is over."""
        start = now() - seconds * age * SECOND
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self.certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + seconds * SECOND)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        for extension in request.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        made = builder.sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM)


class PretendServer:
    """State and behaviour of the server."""

    def __init__(self) -> None:
        self.port = 0
        self.authority = Authority("example servers")
        self.bundle = self.authority.pem
        self.decision = "approve"  # or deny, or wait
        self.age = 0.0
        self.clock_offset = 0.0
        self.statuses: dict[str, int] = {}  # by the beginning of a path
        self.retry_after = ""
        self.is_endless = False  # answers in single bytes, and never to the end
        self.windows: tuple[float, float] | None = None  # seconds from now
        self.accepts_tokens = True
        self.host = HOST
        self.objects: dict[str, Json] = {}
        self.pods: list[Json] = []
        self.calls: list[str] = []
        self.tokens = 0
        self.lists: dict[str, str] = {}  # revocation lists by authority
        self._of_host: set[int] = set()  # serial numbers; the window is that of outputs

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def join_file(self, path: Path) -> Path:
        """Write what `orchid host new` prints."""
        authority = base64.b64encode(SERVING.cert_pem.bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        document = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": HOST, "user": {"token": "abcdef.0123456789abcdef"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": HOST}}],
            "current-context": "c",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    # -- answers -----------------------------------------------------------------------------

    def answer(self, method: str, target: str, body: Json | None) -> tuple[int, Json]:
        place = urlsplit(target).path
        self.calls.append(f"{method} {place}")
        for beginning, status in self.statuses.items():
            if place.startswith(beginning):
                return status, {"message": f"refused with {status}"}
        for end, answering in self.ANSWERS.items():
            if end in place:
                found = answering(self, method, target, body or {})
                return (200, found) if found is not None else (404, {"message": "not found"})
        return 404, {"message": f"{place} not found"}

    def _groups(self, method: str, target: str, body: Json) -> Json:
        return {"groups": [{"name": "authentication.orch.io"}]}

    def _whoami(self, method: str, target: str, body: Json) -> Json:
        extra = {"authentication.orch.io/bound-node-name": [self.host]} if self.host else {}
        return {"status": {"userInfo": {"username": "system:bootstrap:abcdef", "extra": extra}}}

    def _stored(self, method: str, target: str, body: Json) -> Json | None:
        """Requests and Nodes: created, and found by name."""
        if method == "GET":
            return self.objects.get(target)
        place = f"{target}/{body['metadata']['name']}"
        self.objects[place] = {**body, "status": {}}
        self.objects[place]["metadata"]["uid"] = f"uid-{len(self.objects)}"
        return self.objects[place]

    def _request(self, method: str, target: str, body: Json) -> Json | None:
        found = self._stored(method, target, body)
        if found is None or self.decision == "wait" or found["status"]:
            return found
        if self.decision == "deny":
            denied = {"type": "Denied", "reason": "Policy", "message": "no such name here"}
            found["status"] = {"conditions": [denied]}
            return found
        spec = found["spec"]
        seconds = spec.get("expirationSeconds") or spec.get("maxExpirationSeconds") or 86_400
        if "stubPKCS10Request" in spec:
            request = x509.load_der_x509_csr(base64.b64decode(spec["stubPKCS10Request"]))
            chain = self.authority.sign(request, seconds, self.age).decode()
            found["status"] = {"conditions": [{"type": "Issued"}], "certificateChain": chain}
        else:
            request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
            made = self.authority.sign(request, seconds, self.age)
            if "system:node:" in request.subject.rfc4514_string():
                self._of_host.add(x509.load_pem_x509_certificate(made).serial_number)
            found["status"] = {"certificate": base64.b64encode(made).decode()}
        return found

    def _bundles(self, method: str, target: str, body: Json) -> Json:
        (selector,) = parse_qs(urlsplit(target).query)["fieldSelector"]
        if selector != f"spec.signerName={SIGNER}" or not self.bundle:
            return {"items": []}
        return {"items": [{"metadata": {"name": "b"}, "spec": {"trustBundle": self.bundle}}]}

    def _window(self, method: str, target: str, body: Json) -> Json | None:
        encoded = urlsplit(target).path.rpartition(".")[2]
        serial = int.from_bytes(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        if self.windows is None or serial in self._of_host:
            return None
        start, end = (now() + seconds * SECOND for seconds in self.windows)
        return {"suggestedWindow": {"start": start.isoformat(), "end": end.isoformat()}}

    def _list(self, method: str, target: str, body: Json) -> Json | None:
        found = self.lists.get(target.removeprefix("/crl/").removesuffix(".pem"))
        return {"list": found} if found else None

    def _listed_pods(self, method: str, target: str, body: Json) -> Json:
        return {"items": self.pods}

    def _account(self, method: str, target: str, body: Json) -> Json:
        return {"metadata": {"uid": "account-uid"}}

    def _token(self, method: str, target: str, body: Json) -> Json:
        self.tokens += 1
        seconds = body["spec"].get("expirationSeconds", 3600)
        start = now().timestamp() - seconds * self.age
        times = {"iat": start, "exp": start + seconds, "jti": self.tokens}
        times["aud"] = body["spec"].get("audiences", ["api"])
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({}, times)]
        token = ".".join([*(part.decode().rstrip("=") for part in parts), "c2lnbmF0dXJl"])
        return {"status": {"token": token}}

    def _review(self, method: str, target: str, body: Json) -> Json:
        return {"status": {"authenticated": self.accepts_tokens}}

    ANSWERS: dict[str, Callable[..., Json | None]] = {  # noqa: RUF012 -- never changed
        "selfsubjectreviews": _whoami,
        "tokenreviews": _review,
        "/certificatesigningrequests": _request,
        "/podcertificaterequests": _request,
        "/clustertrustbundles": _bundles,
        "/renewal-info/": _window,
        "/token": _token,
        "/serviceaccounts/": _account,
        "/pods": _listed_pods,
        "/nodes": _stored,
        "/crl/": _list,
        "/apis": _groups,
    }


def pod(account: str, *sources: Json) -> Json:
    """A Pod that places an account on the host."""
    namespace, _, name = account.partition("/")
    volumes = [{"name": "credentials", "projected": {"sources": list(sources)}}]
    return {
        "metadata": {"name": f"{name}-{HOST}", "namespace": namespace, "uid": "pod-uid"},
        "spec": {"serviceAccountName": name, "volumes": volumes},
    }


@contextlib.contextmanager
def serving() -> Iterator[PretendServer]:
    """A server until the block ends."""
    server = PretendServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for head and body

        def do_GET(self) -> None:
            sent = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(sent)) if sent else None
            status, found = server.answer(self.command, self.path, body)
            data = json.dumps(found).encode()
            tag = f'"{hashlib.sha256(data).hexdigest()}"'
            if self.headers.get("If-None-Match") == tag:
                server.calls[-1] += " not modified"
                status, data = 304, b""
            self.send_response_only(status)
            moment = now() + server.clock_offset * SECOND
            self.send_header("Date", format_datetime(moment, usegmt=True))
            if server.retry_after:
                self.send_header("Retry-After", server.retry_after)
            length = len(data) if not server.is_endless else 1 << 40
            self.send_header("Content-Length", str(length))
            self.end_headers()
            while server.is_endless:
                self.wfile.write(b" ")
                self.wfile.flush()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 -- the name that the library calls

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    listener.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients may leave
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SERVING.issue_cert("127.0.0.1").configure_cert(context)
    listener.socket = context.wrap_socket(
        listener.socket, server_side=True, do_handshake_on_connect=False
    )
    server.port = listener.server_address[1]
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
