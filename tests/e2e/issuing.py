"""Certificates as a node agent or an operator would get them: the API and the `openssl` command.

Start with `Requester`: somebody with a token or a client certificate who asks, approves and waits.
`openssl` runs the command and insists that it succeeds. Nothing here imports the server's code, so
that what is tested is what a stranger sees.
"""

import base64
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography import x509

from tests.e2e.https import Https, Reply
from tests.linting import unexplained

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
BUNDLES = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
CLIENT = "orch.io/orch-apiserver-client"
NODE_CLIENT = "orch.io/orch-apiserver-client-orchlet"
NODE_SERVING = "orch.io/orchlet-serving"
PATIENCE_SECONDS = 30


def openssl(*words: str | Path, stdin: bytes = b"") -> str:
    """Run `openssl` with these words and give what it says; raise if it fails."""
    done = subprocess.run(["openssl", *words], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, f"openssl {words}: {done.stderr.decode(errors='replace')}"
    return done.stdout.decode()


def new_request(key: Path, subject: str, *extensions: str) -> bytes:
    """Make a P-256 key in a file, and a request for it; `extensions` as in `-addext`."""
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    added = [word for extension in extensions for word in ("-addext", extension)]
    return openssl("req", "-new", "-key", key, "-subj", subject, *added).encode()


class Requester:
    """Somebody who asks the API for certificates."""

    def __init__(self, port: int, *, token: str = "", identity: Path | None = None) -> None:
        self._port, self._identity = port, identity
        self._token = token

    def send(self, method: str, target: str, body: Any = None) -> Reply:
        with Https(self._port, self._identity) as server:
            return server.send(method, target, body, token=self._token)

    def make(self, target: str, body: Any) -> Any:
        """Create an object and give it back."""
        made = self.send("POST", target, body)
        assert made.status == 201, made.body
        return made.json

    def ask(
        self,
        name: str,
        signer: str,
        request: bytes,
        usages: Sequence[str],
        seconds: int | None = None,
    ) -> Reply:
        """Send a certificate request."""
        spec: dict[str, Any] = {
            "request": base64.b64encode(request).decode(),
            "signerName": signer,
            "usages": list(usages),
        }
        if seconds is not None:
            spec["expirationSeconds"] = seconds
        return self.send("POST", REQUESTS, {"metadata": {"name": name}, "spec": spec})

    def approve(self, name: str) -> Reply:
        said = {"type": "Approved", "status": "True", "reason": "ByTest", "message": "ok"}
        body = {"metadata": {"name": name}, "status": {"conditions": [said]}}
        return self.send("PUT", f"{REQUESTS}/{name}/approval", body)

    def outcome(self, name: str) -> dict[str, Any]:
        """Wait until a request is issued or failed, and give its status."""
        query = f"?watch=1&fieldSelector=metadata.name={name}&timeoutSeconds={PATIENCE_SECONDS}"
        with (
            Https(self._port, self._identity) as server,
            closing(server.events(REQUESTS + query, token=self._token)) as events,
        ):
            for event in events:
                status: dict[str, Any] = event["object"]["status"]
                if status.get("certificate") or "Failed" in condition_types(status):
                    return status
        raise AssertionError(f"{name} came to no end in {PATIENCE_SECONDS} s")

    def certificate(self, name: str) -> bytes:
        """Wait for the certificate, with its chain. Every one is linted on the way."""
        status = self.outcome(name)
        assert "certificate" in status, status
        chain = base64.b64decode(status["certificate"])
        assert not unexplained(x509.load_pem_x509_certificate(chain))
        return chain

    def anchors(self, signer: str, path: Path) -> Path:
        """Write the published trust anchors of a signer to a file."""
        found = self.send("GET", f"{BUNDLES}?fieldSelector=spec.signerName={signer}").json["items"]
        path.write_text("".join(bundle["spec"]["trustBundle"] for bundle in found))
        return path


def condition_types(status: dict[str, Any]) -> list[str]:
    return [condition["type"] for condition in status.get("conditions", ())]
