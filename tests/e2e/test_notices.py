"""Notices reach the receiver of docs/notices.md, signed; doctor reports one that fails."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme

from tests.conformance.exchanges import TOKENS
from tests.e2e.https import Https
from tests.e2e.serving import POLL_SECONDS, Server, free_port, running_server
from tests.e2e.test_doctor import ADMIN, examined

PAGE = Path(__file__).parents[2] / "docs" / "notices.md"
PROGRESS = "/api/v1/namespaces/orch-system/configmaps/notices"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
PATIENCE = 30.0


@contextmanager
def receiving(home: Path, issuer: str, authority: Path, port: int) -> Iterator[Any]:
    """The receiver of the page, as a program; its output is what it shows."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (home / "receiver.py").write_text(text)
    words = (issuer, f"https://localhost:{port}", authority, home / "receiver.pem", port)
    process = subprocess.Popen(
        [sys.executable, "-u", home / "receiver.py", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


def progress(server: Server, condition: Callable[[Any], Any]) -> None:
    """Wait until the stored progress is so."""
    limit = time.monotonic() + PATIENCE
    with Https(server.port) as client:
        while True:
            data = client.send("GET", PROGRESS, token=ADMIN).json.get("data") or {}
            found = json.loads(data.get("progress.json", "{}"))
            if condition(found):
                return
            assert time.monotonic() < limit, found
            time.sleep(POLL_SECONDS)


def revoke(server: Server, name: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"user": {"username": name}}}
    with Https(server.port) as client:
        assert client.send("POST", REVOCATIONS, body, token=ADMIN).status == 201


def test_a_notice_is_verified_by_the_receiver_of_the_page(tmp_path: Path) -> None:
    """And doctor says when the receiver is gone."""
    authority, port = trustme.CA(), free_port()
    authority.cert_pem.write_to_path(tmp_path / "receiver-ca.pem")
    pair = authority.issue_cert("localhost").private_key_and_cert_chain_pem
    pair.write_to_path(tmp_path / "receiver.pem")
    flags: tuple[str, ...] = ("--notice-url", f"https://localhost:{port}/hook")
    flags += ("--notice-ca-file", str(tmp_path / "receiver-ca.pem"))
    flags += ("--token-auth-file", str(TOKENS))
    with running_server(tmp_path / "data", *flags) as server:
        progress(server, lambda one: len(one.get("revisions", {})) == 3)
        trust = tmp_path / "data" / "ca.crt"
        with receiving(tmp_path, server.url, trust, port) as shown:
            revoke(server, "mallory")
            line = shown.readline()
            progress(server, lambda one: one.get("delivered"))
            good = examined(server, *flags)[1]["notices"]
        revoke(server, "eve")
        progress(server, lambda one: one.get("failing"))
        code, found = examined(server, *flags)

    assert line == "user/mallory is revoked (unspecified); every server refuses it.\n"
    assert good["state"] == "good", good
    assert (code, found["notices"]["state"]) == (1, "wrong")
    assert "connection failed" in found["notices"]["text"]
