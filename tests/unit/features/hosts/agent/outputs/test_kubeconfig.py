"""A kubeconfig of the host or of an account: what it names, and when it is usable."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchid.features.hosts.agent.configuration import Kubeconfig
from orchid.features.hosts.agent.held_certificate import HeldCertificate
from orchid.features.hosts.agent.outputs.content import ContentFailed
from orchid.features.hosts.agent.outputs.kubeconfig import (
    AUTHORITY,
    CERTIFICATE,
    FILE,
    KEY,
    TOKEN,
    KubeconfigContent,
)
from orchid.kernel.outbound.kubeconfig import ServerAccess
from tests.unit.features.hosts.agent.outputs.answering import HOST, Server, a_round, pem
from tests.unit.features.hosts.agent.outputs.test_token import token
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import HOUR, NOW

LEAF = chains.make(HOST, key=chains.OTHER_P256)
HELD = HeldCertificate((LEAF,), chains.OTHER_P256)


def key_pem(key: Any) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def refreshed(server: Server, place: Path, held: Any = HELD) -> dict[str, Any]:
    current = a_round(server, place, held)
    current.identity.certificate_pem = pem(LEAF)
    found = KubeconfigContent(Kubeconfig()).refresh("k", {}, current)
    assert found.life.expires == NOW + HOUR
    return {file.name: (file.data, file.is_secret) for file in found.files}


def test_the_host_has_its_certificate(tmp_path: Path) -> None:
    """By relative paths, beside the kubeconfig; only the key is a secret."""
    files = refreshed(Server(), tmp_path)

    shown = yaml.safe_load(files[FILE][0])
    assert shown["users"][0]["user"] == {"client-certificate": CERTIFICATE, "client-key": KEY}
    assert shown["clusters"][0]["cluster"] == {
        "server": "https://orchid.test",
        "certificate-authority": AUTHORITY,
    }
    assert shown["current-context"] == shown["users"][0]["name"] == HOST
    assert files[AUTHORITY] == (b"the CA", False)
    assert files[CERTIFICATE] == (pem(LEAF), False)
    assert files[KEY] == (key_pem(chains.OTHER_P256), True)


def test_what_the_server_does_not_need_is_left_out(tmp_path: Path) -> None:
    """Authorities of the system are in no file; another name of the server is kept."""
    server = Server()
    server.access = ServerAccess(server="https://orchid.test", server_name="inside")

    files = refreshed(server, tmp_path)

    cluster = yaml.safe_load(files[FILE][0])["clusters"][0]["cluster"]
    assert cluster == {"server": "https://orchid.test", "tls-server-name": "inside"}
    assert AUTHORITY not in files


def test_a_host_without_an_identity_of_its_own_has_none(tmp_path: Path) -> None:
    with pytest.raises(ContentFailed, match=r"needs an identity by join\.file"):
        refreshed(Server(), tmp_path, None)


def test_a_kubeconfig_is_usable_with_its_credential() -> None:
    """Of the sort that is configured now: the other one may be there from before."""
    host, account = KubeconfigContent(Kubeconfig()), KubeconfigContent(Kubeconfig("web/front"))
    certificate = {CERTIFICATE: pem(LEAF), KEY: key_pem(chains.OTHER_P256)}
    with_token = {FILE: b"x", TOKEN: token("https://orchid.test")}

    assert host.life({FILE: b"x", **certificate}) is not None
    assert host.life(certificate) is None
    assert host.life(with_token) is None
    assert host.life({FILE: b"x", **certificate, KEY: key_pem(chains.P256)}) is None
    assert account.life(with_token) is not None
    assert account.life({FILE: b"x", **certificate}) is None
    assert account.life({TOKEN: token("https://orchid.test")}) is None
