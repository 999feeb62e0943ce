"""An OpenID provider of others (npm oidc-provider) on loopback, for as long as a block lasts.

Its login page accepts any name; the name is the subject of the ID token.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.e2e.serving import free_port
from tests.system_packages import MISSING, require_program

HOME = Path(__file__).resolve().parents[1] / "data" / "oidc-provider"
CLIENT = "orchid-console"
START_SECONDS = 30


@dataclass(frozen=True)
class Provider:
    url: str
    authority: Path  # the PEM of its authority
    client: str = CLIENT


@contextmanager
def running_provider(
    place: Path, redirect_uri: str, *, seconds: int = 300, client_secret: str = ""
) -> Iterator[Provider]:
    """`seconds`: how long its ID tokens are valid."""
    home = shutil.copytree(HOME, place / "oidc-provider")
    install = [require_program("npm"), "ci", "--silent", "--ignore-scripts", "--prefer-offline"]
    if subprocess.run(install, cwd=home, capture_output=True, timeout=90, check=False).returncode:
        pytest.skip(f"{MISSING}oidc-provider, which npm cannot install")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    key, certificate, trusted = home / "tls.key", home / "tls.crt", home / "ca.crt"
    issued.private_key_pem.write_to_path(str(key))
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    authority.cert_pem.write_to_path(str(trusted))
    port = free_port()
    settings: dict[str, Any] = {
        "url": f"https://localhost:{port}",
        "port": port,
        "key": str(key),
        "certificate": str(certificate),
        "clientId": CLIENT,
        "clientSecret": client_secret,
        "redirectUri": redirect_uri,
        "seconds": seconds,
    }
    process = subprocess.Popen(
        [require_program("node"), str(home / "provider.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings))
        process.stdin.close()
        assert process.stdout.readline() == "listens\n"
        yield Provider(settings["url"], trusted)
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
