"""An issuer of tokens on loopback, over TLS, in the shape of GitHub Actions or of GitLab.

with OutsideIssuer() as issuer:
    issuer.exchange_configuration(file)
    token = issuer.github(ref="refs/heads/main")
"""

import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "https://orchid.test"
API_VERSION = "identity.orch.io/v1alpha1"
OWNER_ID, REPOSITORY_ID = "123456", "456789"


class OutsideIssuer:
    """Publishes its keys and signs any claims."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.key = rsa.generate_private_key(65537, 2048)
        self.kid = "key-1"
        self.fetches: list[str] = []  # paths, in order
        self.requests: list[tuple[str, str]] = []  # paths with their query, and credentials
        # JSON; or bytes as they are, a URL to redirect to, or an event to wait for
        self.pages: dict[str, Any] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1", "localhost").configure_cert(tls)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self.publish()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages, fetches, requests = self.pages, self.fetches, self.requests

        class Pages(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                fetches.append(path)
                requests.append((self.path, self.headers.get("Authorization", "")))
                found = pages.get(path)
                if isinstance(found, threading.Event):
                    found.wait()
                    self.close_connection = True
                    return
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                if isinstance(found, str):
                    self.send_response(302)
                    self.send_header("Location", found)
                else:
                    self.send_response(200 if found is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        return Pages

    def publish(self) -> None:
        public = RSAAlgorithm(RSAAlgorithm.SHA256).to_jwk(self.key.public_key(), as_dict=True)
        keys = {"keys": [{**public, "kid": self.kid, "use": "sig", "alg": "RS256"}]}
        self.pages["/keys"] = keys
        configuration = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.pages["/.well-known/openid-configuration"] = configuration

    def rotate(self) -> None:
        """Sign with a new key from now on."""
        self.key = rsa.generate_private_key(65537, 2048)
        self.kid = f"key-{uuid.uuid4().hex[:8]}"
        self.publish()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trusted(self) -> str:
        """The PEM of its authority."""
        return self.authority.cert_pem.bytes().decode()

    # -- tokens ------------------------------------------------------------------------------

    def token(self, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token with these claims; a claim of None is left out."""
        now = int(time.time())
        usual = {
            "iss": self.url,
            "aud": AUDIENCE,
            "iat": now,
            "nbf": now,
            "exp": now + 300,
            "jti": str(uuid.uuid4()),
            "sub": "somebody",
        }
        sent = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return self.signed(sent, headers)

    def signed(self, claims: dict[str, Any], headers: dict[str, Any] | None = None) -> str:
        """A token with exactly these claims."""
        return jwt.encode(claims, self.key, "RS256", {"kid": self.kid, **(headers or {})})

    def github(self, *, with_ids: bool = True, **claims: Any) -> str:
        """A token of a GitHub Actions job; with or without ids in its subject."""
        owner, app = ("acme", "app")
        ref = claims.get("ref", "refs/heads/main")
        subject = f"repo:{owner}/{app}:ref:{ref}"
        if with_ids:
            subject = f"repo:{owner}@{OWNER_ID}/{app}@{REPOSITORY_ID}:ref:{ref}"
        usual = {
            "sub": subject,
            "repository": f"{owner}/{app}",
            "repository_id": REPOSITORY_ID,
            "repository_owner": owner,
            "repository_owner_id": OWNER_ID,
            "ref": ref,
            "ref_type": "branch",
            "event_name": "push",
            "workflow_ref": f"{owner}/{app}/.github/workflows/deploy.yml@{ref}",
            "actor": "octocat",
            "run_id": "1",
            "runner_environment": "github-hosted",
        }
        return self.token(**{**usual, **claims})

    def gitlab(self, **claims: Any) -> str:
        """A token of a GitLab CI job."""
        ref = claims.get("ref", "main")
        usual = {
            "sub": f"project_path:acme/app:ref_type:branch:ref:{ref}",
            "namespace_id": "72",
            "namespace_path": "acme",
            "project_id": "20",
            "project_path": "acme/app",
            "user_login": "jane",
            "pipeline_source": "push",
            "job_id": "302",
            "ref": ref,
            "ref_type": "branch",
            "ref_protected": "true",
        }
        return self.token(**{**usual, **claims})

    # -- configurations ----------------------------------------------------------------------

    def described(self, audiences: Iterable[str] = (AUDIENCE,), **more: Any) -> dict[str, Any]:
        """This issuer, for a TokenExchangeConfiguration."""
        trusted = {"certificateAuthority": self.trusted}
        return {"url": self.url, "audiences": [*audiences], **trusted, **more}

    def exchange_configuration(
        self, file: Path, audiences: Iterable[str] = (AUDIENCE,), **more: Any
    ) -> str:
        """Write a TokenExchangeConfiguration with this issuer, and return its path."""
        issuer = self.described(audiences, **more)
        return write_configuration(file, issuer)


def write_configuration(file: Path, *issuers: dict[str, Any]) -> str:
    """Write a TokenExchangeConfiguration with these issuers, and return its path."""
    document = {
        "apiVersion": API_VERSION,
        "kind": "TokenExchangeConfiguration",
        "issuers": [*issuers],
    }
    file.write_text(json.dumps(document))
    return str(file)
