"""Mistakes in settings: one line with the flag, exit 2, and no server is announced before it."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.serving import free_port

CONFIGURATION = """apiVersion: apiserver.config.orch.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://login.corp.example, audiences: [orchid], certificateAuthority: idp.crt}
  claimMappings: {username: {claim: sub, prefix: "corp:"}}
"""
# The flags, with TAKEN for an address in use, and the line that follows.
MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "a path for a certificate": (
        ("--authentication-config", "authentication.yaml"),
        "--authentication-config: jwt[0].issuer.certificateAuthority: Invalid value: "
        '"idp.crt": this is a path; write the certificate itself',
    ),
    "a key for a CA": (
        ("--oidc-issuer-url", "https://h", "--oidc-client-id", "o", "--oidc-ca-file", "text"),
        "--oidc-ca-file: text does not contain a certificate in PEM form",
    ),
    "no CA to sign with": (
        ("--cluster-signing-cert-file", "text", "--cluster-signing-key-file", "text"),
        "--cluster-signing-cert-file: text does not contain a certificate in PEM form\n"
        "--cluster-signing-key-file: text does not contain a private key in PEM form",
    ),
    "no CA of a receiver": (
        ("--notice-url", "https://h", "--notice-ca-file", "none"),
        "--notice-ca-file: cannot read none: No such file or directory",
    ),
    "no module": (
        ("--pkcs11-module", "/nosuch.so", "--pkcs11-token", "t", "--pkcs11-pin-file", "pin"),
        "--pkcs11-module: /nosuch.so is not a PKCS#11 library",
    ),
    "no issuer": (
        ("--service-account-issuer", "not a url"),
        "--service-account-issuer: 'not a url' is not a URL like https://id.example.org",
    ),
    "no directory of the audit record": (
        ("--audit-log-path", ".", "--audit-policy-file", "policy.yaml"),
        "--audit-log-path: .: Is a directory",
    ),
    "an address of lists in use": (
        ("--crl-listen", "TAKEN"),
        "--crl-listen: TAKEN: Address already in use",
    ),
    "an address of the console in use": (
        (
            *("--console-listen", "TAKEN", "--console-url", "https://h"),
            *("--console-login", "certificate"),
        ),
        "--console-listen: TAKEN: Address already in use",
    ),
    "a console whose issuer is another one": (
        (
            *("--console-listen", "127.0.0.1:0", "--console-url", "https://h"),
            *("--oidc-issuer-url", "https://h", "--oidc-client-id", "o"),
            *("--console-oidc-issuer", "https://other"),
        ),
        "--console-oidc-issuer: 'https://other' is not an external issuer of this server: "
        "https://h",
    ),
}


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


def serve(home: Path, flags: Sequence[str]) -> subprocess.CompletedProcess[str]:
    (home / "authentication.yaml").write_text(CONFIGURATION)
    (home / "policy.yaml").write_text(
        "apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: None}]\n"
    )
    (home / "text").write_text("text")
    (home / "text").chmod(0o600)
    (home / "pin").write_text("1234")
    (home / "pin").chmod(0o600)
    return subprocess.run(
        [sys.executable, "-m", "orchid", "serve", "--listen", f"127.0.0.1:{free_port()}", *flags],
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# What only a running server finds, a worker reports to its parent.
FOUND_BY_WORKERS = (
    "no directory of the audit record",
    "an address of lists in use",
    "an address of the console in use",
    "a console whose issuer is another one",
)


@pytest.mark.parametrize(
    ("mistake", "workers"),
    [*((one, "1") for one in MISTAKES), *((one, "2") for one in FOUND_BY_WORKERS)],
)
def test_a_mistake_is_one_line_and_nothing_is_announced(
    mistake: str, workers: str, taken: str, tmp_path: Path
) -> None:
    flags, line = MISTAKES[mistake]

    done = serve(
        tmp_path, ["--workers", workers, *(flag.replace("TAKEN", taken) for flag in flags)]
    )

    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(f"orchid: {line.replace('TAKEN', taken)}\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
