"""`orchid ca`: what each action sends, waits for, prints and refuses."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
URL = f"/apis/{ORCH.identity}/v1beta1"
AUTHORITIES, KEYS = f"{URL}/certificateauthorities", f"{URL}/signingkeys"
SECRETS = f"/api/v1/namespaces/{ORCH.system_namespace}/secrets"
READY = {"type": "Ready", "status": "True", "message": "all is well"}
TERMS = ("--signer", "example.com/web")


@pytest.fixture
def server() -> Server:
    made = Server()
    made.on("POST", AUTHORITIES, lambda sent: sent, 201)
    made.on("POST", SECRETS, lambda sent: sent, 201)
    made.get(f"{AUTHORITIES}/web", authority())
    return made


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Iterator[Run]:
    with commands(server, tmp_path) as made:
        yield made


def authority(*conditions: Any, spec: Any = None, **status: Any) -> Any:
    return {
        "metadata": {"name": "web"},
        "spec": {"signerName": "example.com/web", **(spec or {})},
        "status": {"conditions": [*(conditions or (READY,))], **status},
    }


def created(server: Server) -> Any:
    (sent,) = server.sent("POST", AUTHORITIES)
    assert (sent["kind"], sent["metadata"]) == ("CertificateAuthority", {"name": "web"})
    return sent["spec"]


@pytest.mark.parametrize(
    ("flags", "spec"),
    [
        ((), {}),
        (("--max", "24h"), {"issues": {"maxDuration": "86400s"}}),
        (("--default", "1h"), {"issues": {"defaultDuration": "3600s"}}),
        (
            ("--usage", "client auth", "--names", "dns"),
            {"issues": {"usages": ["client auth"], "names": ["dns"]}},
        ),
        (("--subject", "commonName"), {"issues": {"subject": ["commonName"]}}),
        (
            ("--certifies", "Ed25519", "--wildcards"),
            {"issues": {"keys": ["Ed25519"], "wildcards": True}},
        ),
        (("--trust-domain", "example.org"), {"trustDomain": "example.org"}),
        (("--acme",), {"acme": {}}),
        (("--algorithm", "RSA-3072"), {"key": {"algorithm": "RSA-3072"}}),
        (("--common-name", "Web CA"), {"subject": {"commonName": "Web CA"}}),
        (("--parent", "root"), {"parent": {"authority": "root"}}),
        (("--external",), {"parent": {"external": True}}),
        (("--for", "365d"), {"duration": "31536000s"}),
    ],
)
def test_each_term_of_a_new_authority(
    server: Server, run: Run, flags: tuple[str, ...], spec: Any
) -> None:
    assert run("ca", "new", "web", *TERMS, *flags) == 0

    default = {
        "signerName": "example.com/web",
        "issues": {},
        "key": {"algorithm": ""},
        "subject": {"commonName": "web"},
    }
    assert created(server) == {**default, **spec}


@pytest.mark.parametrize(
    ("condition", "code", "text"),
    [
        (READY, 0, "web issues for example.com/web"),
        (
            {"type": "Ready", "status": "False", "reason": "ChainMissing", "message": "m"},
            0,
            "next: orchid ca request web",
        ),
        (
            {"type": "Ready", "status": "False", "reason": "Broken", "message": "no key"},
            1,
            "web is not ready: Broken: no key",
        ),
        ({"type": "Other"}, 1, "are controllers running?"),
    ],
)
def test_a_new_authority_is_awaited(  # noqa: PLR0917 -- two fixtures more than others
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    condition: Any,
    code: int,
    text: str,
) -> None:
    """A problem ends the wait; one that waits for its chain is done."""
    server.get(f"{AUTHORITIES}/web", authority(condition))

    assert run("ca", "new", "web", *TERMS, "--wait", "0s") == code

    printed = capsys.readouterr()
    assert text in printed.out + printed.err


PAIR = Authority.create("Web CA", now=datetime.now(UTC), lifetime=timedelta(days=30))
OTHER = Authority.create("Web CA", now=datetime.now(UTC), lifetime=timedelta(days=30))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    chain, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    chain.write_bytes(PAIR.chain_pem)
    key.write_text(PAIR.key_pem().reveal())
    key.chmod(0o600)
    return chain, key


def imported(run: Run, files: tuple[Path, Path], *flags: str) -> int:
    return run("ca", "import", "web", *TERMS, "--cert", files[0], "--key", files[1], *flags)


def test_an_import_puts_the_key_into_a_secret(
    server: Server, run: Run, files: tuple[Path, Path]
) -> None:
    """Of the system's namespace, or of another one."""
    other = "/api/v1/namespaces/pki/secrets"
    server.on("POST", other, lambda sent: sent, 201)

    assert imported(run, files) == 0
    assert imported(run, files, "--namespace", "pki") == 0

    for secret in (*server.sent("POST", SECRETS), *server.sent("POST", other)):
        assert secret["metadata"] == {"name": "ca-web"}
        assert secret["type"] == ORCH.own("tls")
        assert base64.b64decode(secret["data"]["tls.crt"]) == PAIR.chain_pem
        assert base64.b64decode(secret["data"]["tls.key"]).decode() == PAIR.key_pem().reveal()
    references = [sent["spec"]["secretRef"] for sent in server.sent("POST", AUTHORITIES)]
    assert references == [
        {"namespace": ORCH.system_namespace, "name": "ca-web"},
        {"namespace": "pki", "name": "ca-web"},
    ]


def test_a_refused_import_leaves_no_secret(
    server: Server, run: Run, files: tuple[Path, Path]
) -> None:
    server.on("POST", AUTHORITIES, {"message": "no"}, 403)
    server.on("DELETE", f"{SECRETS}/ca-web", {})

    assert imported(run, files) == 1

    assert [path for verb, path, _ in server.calls if verb == "DELETE"] == [f"{SECRETS}/ca-web"]


def test_a_key_of_another_certificate_is_not_sent(
    server: Server, run: Run, files: tuple[Path, Path]
) -> None:
    """Nor one that others can read."""
    files[0].write_bytes(OTHER.chain_pem)
    assert imported(run, files) == 2
    files[0].write_bytes(PAIR.chain_pem)
    files[1].chmod(0o644)
    assert imported(run, files) == 2

    assert not server.sent("POST")


def test_a_request_is_printed_while_it_waits(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    server.get(f"{AUTHORITIES}/web", authority(request="PEM\n"))
    assert run("ca", "request", "web") == 0
    assert capsys.readouterr().out == "PEM\n"
    assert run("ca", "request", "web", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"request": "PEM\n"}

    server.get(f"{AUTHORITIES}/web", authority())
    assert run("ca", "request", "web") == 1
    assert "no request that waits" in capsys.readouterr().err


def key(name: str, owner: str, **status: str) -> Any:
    return {"metadata": {"name": name}, "spec": {"authority": owner}, "status": status}


def test_a_chain_is_installed_in_the_key_that_waits(
    server: Server, run: Run, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of this authority; another key is named by a flag."""
    waiting = key("web-2", "web", request="PEM")
    server.listed(
        KEYS,
        key("other-1", "other", request="PEM"),
        key("web-0", "web"),
        key("web-1", "web", request="PEM", certificate="PEM"),
        waiting,
    )
    for one in (waiting, key("web-1", "web")):
        name = one["metadata"]["name"]
        server.get(f"{KEYS}/{name}", one)
        server.on("PUT", f"{KEYS}/{name}", lambda sent: sent)

    assert run("ca", "install", "web", files[0]) == 0
    assert run("ca", "install", "web", files[0], "--key", "web-1") == 0

    assert [sent["metadata"]["name"] for sent in server.sent("PUT")] == ["web-2", "web-1"]
    assert {sent["spec"]["chain"] for sent in server.sent("PUT")} == {PAIR.chain_pem.decode()}
    assert "installed the chain of web-2\n" in capsys.readouterr().out
    server.listed(KEYS, key("other-1", "other", request="PEM"))
    assert run("ca", "install", "web", files[0]) == 1
    assert "no key of web waits" in capsys.readouterr().err
    assert run("ca", "install", "web", files[0].parent / "gone") == 2


def test_a_chain_without_its_root_is_refused(
    server: Server, run: Run, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients would trust the intermediate, and its key keeps its root."""
    below = chains.make("Below", "Offline Root", ca=True)
    files[0].write_bytes(below.public_bytes(Encoding.PEM))

    assert run("ca", "install", "web", files[0]) == 2

    assert "is not a root: append that of its issuer" in capsys.readouterr().err
    assert not server.sent("PUT")


# -- list and show ----------------------------------------------------------------------------


LATE = {"type": "Expiring", "status": "True", "message": "m"}
FALSE = {"type": "Ready", "status": "False", "reason": "NoKey", "message": "m"}


@pytest.mark.parametrize(
    ("one", "cells"),
    [
        (authority(spec={"key": {"algorithm": "Ed25519"}}), "example.com/web  Ed25519  ready  -"),
        (authority(READY, LATE), "example.com/web  files  ready, ends soon  -"),
        (authority(FALSE), "example.com/web  files  NoKey  -"),
        (authority({"type": "Other"}), "example.com/web  files  waits for its key  -"),
        (
            authority(spec={"secretRef": {"namespace": "a", "name": "b"}, "key": {}}),
            "example.com/web  secret a/b  ready  -",
        ),
        (authority(spec={"key": {"pkcs11": {"label": "l"}}}), "example.com/web  hsm l  ready  -"),
        (authority(spec={"signerNames": ["a", "b"]}), "a,b  files  ready  -"),
    ],
)
def test_each_cell_of_the_list(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], one: Any, cells: str
) -> None:
    server.listed(AUTHORITIES, one)

    assert run("ca", "list") == 0

    row = capsys.readouterr().out.splitlines()[1]
    assert [word for word in row.split("  ") if word.strip()] != []
    assert "  ".join(word.strip() for word in row.split("  ") if word.strip()) == f"web  {cells}"


def test_the_authority_of_the_platform_is_named(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    one = authority(spec={"signerNames": ["a"]}, notAfter="2000-01-01T00:00:00Z")
    one["metadata"]["name"] = "cluster"
    server.listed(AUTHORITIES, one)

    assert run("ca", "list") == 0

    row = capsys.readouterr().out.splitlines()[1]
    assert "platform signers" in row
    assert not row.rstrip().endswith(" -")


def test_an_authority_is_shown_with_its_terms(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    issues = {
        "usages": ["server auth"],
        "names": ["dns"],
        "subject": ["commonName"],
        "keys": ["Ed25519"],
        "maxDuration": "24h",
        "defaultDuration": "1h",
    }
    chain = PAIR.chain_pem.decode()
    keys = [{"name": "web-1", "state": "Active"}]
    one = authority(spec={"issues": issues}, certificate=chain, keys=keys, trustBundle="t")
    server.get(f"{AUTHORITIES}/web", one)

    assert run("ca", "show", "web") == 0
    shown = capsys.readouterr().out
    expected = (
        "web", "example.com/web", "ready", "all is well", "files", "CN=Web CA", "web-1 Active",
        "server auth", "dns", "commonName", "Ed25519", "24h", "1h", "SHA-256",
    )  # fmt: skip
    assert [word for word in expected if word not in shown] == []
    assert run("ca", "show", "web", "--pem") == 0
    assert capsys.readouterr().out.strip() == chain.strip()
    assert run("ca", "show", "web", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == one


@pytest.mark.parametrize(("certificate", "text"), [("", "Names:"), ("garbage", "not readable")])
def test_an_authority_without_a_certificate_is_shown(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], certificate: str, text: str
) -> None:
    server.get(f"{AUTHORITIES}/web", authority(certificate=certificate))

    assert run("ca", "show", "web") == 0

    shown = capsys.readouterr().out
    assert text in shown
    assert "SHA-256" not in shown


def test_a_deletion_is_meant(server: Server, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --yes a dry run shows what depends on it; nothing else is sent."""
    server.on("DELETE", f"{AUTHORITIES}/web", {"kind": "Status"})

    assert run("ca", "delete", "web") == 1
    assert server.sent("DELETE") == [{"dryRun": "All"}]
    assert "add --yes" in capsys.readouterr().err
    assert run("ca", "delete", "web", "--yes") == 0
    assert server.sent("DELETE") == [{"dryRun": "All"}, {}]
    assert capsys.readouterr().out == "deleted web\n"
