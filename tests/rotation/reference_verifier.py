"""The reference's API server as a verifier of our tokens, by its own JWT authenticator.

It is an unmodified kube-apiserver, whose path is given. It reads our OpenID document, caches our
keys and fetches them again for an unknown key id, as any cluster does that trusts this issuer.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import yaml

from tests.e2e import kube_apiserver
from tests.e2e.https import Https
from tests.e2e.kube_apiserver import ClusterFiles
from tests.rotation.token_load import AUDIENCE, Verifier
from tests.unit.kernel.store import etcd_process

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
PREFIX = "orchid:"
CREATED = 201
PATIENCE = 60.0


@contextmanager
def reference(program: Path, home: Path, issuer: str, authority: Path) -> Iterator[Verifier]:
    """A verifier that asks an API server who the bearer of a token is."""
    files = ClusterFiles(home / "reference")
    trusted = {
        "issuer": {
            "url": issuer,
            "audiences": [AUDIENCE],
            "certificateAuthority": authority.read_text(),
        },
        "claimMappings": {"username": {"claim": "sub", "prefix": PREFIX}},
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [trusted],
    }
    file = files.write("authentication.yaml", yaml.safe_dump(configuration).encode())
    with (
        etcd_process.running() as etcd,
        kube_apiserver.running(
            program, files, etcd.urls[0], "--authentication-config", str(file)
        ) as server,
    ):
        yield asking(server.port)


def asking(port: int) -> Verifier:
    """Each thread has a connection of its own."""
    here = threading.local()

    def verify(token: str) -> str:
        if not hasattr(here, "https"):
            here.https = Https(port)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            reply = here.https.send("POST", WHO, review, token=token)
        except (OSError, HTTPException) as problem:
            return repr(problem)
        if reply.status != CREATED:
            return f"status {reply.status}"
        name = str(reply.json["status"]["userInfo"]["username"])
        return "" if name.startswith(f"{PREFIX}system:serviceaccount:") else f"is {name}"

    return verify


def wait_until_it_accepts(verify: Verifier, token: str) -> None:
    """Its authenticator reads our documents in the background, after the start."""
    deadline = time.monotonic() + PATIENCE
    while why := verify(token):
        assert time.monotonic() < deadline, f"the API server does not accept our tokens: {why}"
        time.sleep(0.5)
