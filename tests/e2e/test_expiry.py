"""A server whose own certificate ends soon says so: in its log, its metrics and `orchid status`."""

import datetime
import ipaddress
import json
import re
import subprocess
import sys
from pathlib import Path

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from tests.e2e.serving import running_server


def test_a_certificate_that_expires_soon_is_reported_everywhere(tmp_path: Path) -> None:
    """The serving certificate lasts five days more; the cluster CA does not count as soon."""
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("test-ca", now=now)
    issued = authority.issue_serving(
        "localhost",
        lifetime=datetime.timedelta(days=5),
        now=now,
        ip_addresses=[ipaddress.ip_address("127.0.0.1")],
    )
    write_private(tmp_path / "tls.key", issued.key.reveal().encode())
    write_private(tmp_path / "tls.crt", issued.chain)
    flags = ("--tls-cert-file", str(tmp_path / "tls.crt"))
    flags += ("--tls-private-key-file", str(tmp_path / "tls.key"), "--log-format", "json")

    with running_server(tmp_path / "data", *flags) as server:
        kubeconfig = tmp_path / "kubeconfig"
        text = server.kubeconfig.read_text()
        unverified = "insecure-skip-tls-verify: true"
        kubeconfig.write_text(re.sub("certificate-authority-data: .*", unverified, text))
        said = subprocess.run(
            [sys.executable, "-m", "orchid", "status", "--kubeconfig", str(kubeconfig)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        lines = [json.loads(line) for line in server.log_text().splitlines() if line[:1] == "{"]

    (ends_first,) = (line for line in said.splitlines() if line.startswith("Ends first:"))
    (warned,) = (line for line in lines if line["event"] == "certificate.ends")
    assert "serving certificate" in ends_first
    assert ends_first.endswith(": replace it")
    assert (warned["certificate"], warned["days"], warned["level"]) == ("serving", 4, "warning")
