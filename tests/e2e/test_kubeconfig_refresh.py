"""`orchid kubeconfig refresh`: a bundle is renewed by the trust of its file, or not at all."""

import base64
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import yaml

from orchid.kernel.credentials.authorities.authority import Authority
from tests.e2e.https import Https
from tests.e2e.serving import running_server


def refresh(file: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "orchid", "kubeconfig", "refresh", str(file)]
    env = {"PATH": os.environ["PATH"], "HOME": str(file.parent)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def with_bundle(source: Path, target: Path, bundle: bytes) -> Path:
    """A copy of a kubeconfig that trusts other authorities."""
    text = source.read_text()
    before = yaml.safe_load(text)["clusters"][0]["cluster"]["certificate-authority-data"]
    target.touch(mode=0o600)
    target.write_text(f"# mine\n{text.replace(before, base64.b64encode(bundle).decode())}")
    return target


def test_a_bundle_is_renewed_by_the_trust_of_the_file(tmp_path: Path) -> None:
    """An authority that is gone goes; a file that trusts another server is left alone."""
    other = Authority.create("another", now=datetime.now(UTC)).certificate_pem
    with running_server(tmp_path / "data") as server:
        deadline = time.monotonic() + 30
        with Https(server.port) as https:
            while https.send("GET", "/trust/cluster.pem").status != 200:
                assert time.monotonic() < deadline, "the bundle is not published"
        own = (server.data_dir / "ca.crt").read_bytes()
        old = with_bundle(server.kubeconfig, tmp_path / "old", own + other)
        foreign = with_bundle(server.kubeconfig, tmp_path / "foreign", other)
        unchanged = foreign.read_text()

        renewed, again, refused = refresh(old), refresh(old), refresh(foreign)

    assert renewed.stdout == f"wrote {old}: 1 trusted CA (previously 2 trusted CAs)\n"
    assert again.stdout == f"{old} has the current bundle\n"
    found = yaml.safe_load(old.read_text())
    data = found["clusters"][0]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(data).split() == own.split()
    assert found["users"] == yaml.safe_load(unchanged)["users"]
    assert old.read_text().startswith("# mine\n# expires")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert foreign.read_text() == unchanged
