"""Servers to call: which addresses and which kubeconfig files are good enough."""

import base64
import json
from pathlib import Path

import pytest
import yaml

from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.remote import (
    FollowedKubeconfig,
    InvalidRemote,
    Remote,
    embedded_remote,
    read_kubeconfig,
    trusting,
)
from tests.unit.kernel.outbound.loopback import CA, OK, PEM, serving


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/x",
        "https://",
        "https://user:pw@a.example/",
        "https://a.example/#x",
        "https://a.example:0/",
        "https://a.example:99999/",
        "https://a .example/",
        "https://a.example/\r\nX: y",
        "ftp://a",
        "",
    ],
)
def test_unfit_address_is_refused_at_start(url: str) -> None:
    """Only https, only a plain address."""
    with pytest.raises(InvalidRemote):
        Remote(url, trusting(PEM))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kubeconfig(server: str, user: dict[str, object], **cluster: object) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [
                {
                    "name": "k",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": b64(PEM.encode()),
                        **cluster,
                    },
                }
            ],
            "users": [{"name": "u", "user": user}],
        }
    )


async def test_kubeconfig_with_a_client_certificate_presents_it(tmp_path: Path) -> None:
    """Inline certificate and key are shown to the server."""
    leaf = CA.issue_cert("client.example")
    user = {
        "client-certificate-data": b64(leaf.cert_chain_pems[0].bytes()),
        "client-key-data": b64(leaf.private_key_pem.bytes()),
    }
    path = tmp_path / "config"
    async with serving(OK) as server:
        path.write_text(kubeconfig(server.url, dict(user)))

        await JsonEndpoint(read_kubeconfig(path)).post(b"{}")

    assert server.client_certificates == [True]


async def test_kubeconfig_token_file_is_read_at_each_call(tmp_path: Path) -> None:
    """A rotated token counts without a restart; the token does not print."""
    token, path = tmp_path / "token", tmp_path / "config"
    token.write_text("first\n")
    async with serving(OK) as server:
        path.write_text(kubeconfig(server.url, {"tokenFile": "token"}))
        found = read_kubeconfig(path)
        await JsonEndpoint(found).post(b"{}")
        token.write_text("second\n")
        await JsonEndpoint(found).post(b"{}")

    assert b"Authorization: Bearer first\r\n" in server.requests[0]
    assert b"Authorization: Bearer second\r\n" in server.requests[1]
    assert "first" not in repr(found)


def test_static_token_of_a_kubeconfig_is_kept_as_a_secret(tmp_path: Path) -> None:
    """It is handed out as a SecretValue, whose text does not print."""
    path = tmp_path / "config"
    path.write_text(kubeconfig("https://a.example", {"token": "s3cret"}))

    bearer = read_kubeconfig(path).bearer

    assert bearer is not None
    assert bearer() == SecretValue("s3cret")


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"exec": {"command": "x"}}, {}),
        ({"auth-provider": {"name": "x"}}, {}),
        ({"username": "u", "password": "p"}, {}),
        ({"token": "t", "as": "bob"}, {}),
        ({"token": "t", "as-groups": ["viewers"]}, {}),
        ({"client-certificate-data": "AAAA"}, {}),
        ({"client-certificate-data": "AAAA", "client-key-data": "AAAA"}, {}),
        ({"client-certificate": "missing", "client-key": "missing"}, {}),
        ({"token": "two words"}, {}),
        ({"token": 5}, {}),
        ({}, {"insecure-skip-tls-verify": True}),
        ({}, {"proxy-url": "http://x"}),
        ({}, {"tls-server-name": 5}),
        ({}, {"certificate-authority-data": "AAAA"}),
        ({}, {"certificate-authority-data": "!"}),
    ],
)
def test_unusable_kubeconfig_is_a_start_up_error(
    tmp_path: Path, user: dict[str, object], cluster: dict[str, object]
) -> None:
    """Unsupported settings are refused by name, not ignored."""
    path = tmp_path / "config"
    path.write_text(kubeconfig("https://a.example", user, **cluster))

    with pytest.raises(InvalidRemote):
        read_kubeconfig(path)


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"current-context": "x"}), "\x00"])
def test_file_that_is_no_kubeconfig_is_a_start_up_error(tmp_path: Path, text: str) -> None:
    """Empty, another shape, no YAML, or a context that is not there."""
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(InvalidRemote):
        read_kubeconfig(path)


class Seconds:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 2.0
        return self.now


def write(path: Path, text: str | bytes) -> None:
    """Replace a file, as those who rotate do."""
    new = path.with_name("new")
    new.write_bytes(text.encode() if isinstance(text, str) else text)
    new.chmod(0o600)
    new.replace(path)


async def test_a_changed_kubeconfig_is_used_without_a_restart(tmp_path: Path) -> None:
    """Another address and another token; a file that cannot be used leaves the last one."""
    path = tmp_path / "config"
    async with serving(OK) as first, serving(OK) as second:
        write(path, kubeconfig(first.url, {"token": "old"}))
        endpoint = JsonEndpoint(FollowedKubeconfig(path, Seconds()))
        await endpoint.post(b"{}")
        write(path, "{")
        await endpoint.post(b"{}")
        write(path, kubeconfig(second.url, {"token": "new"}))
        await endpoint.post(b"{}")

    assert len(first.requests) == 2
    assert [b"Bearer new" in one for one in second.requests] == [True]


async def test_changed_certificates_of_a_kubeconfig_are_used(tmp_path: Path) -> None:
    """Files are replaced one by one: until both fit, the last pair is shown."""
    old, new = CA.issue_cert("old.example"), CA.issue_cert("new.example")
    path, crt, key = tmp_path / "config", tmp_path / "tls.crt", tmp_path / "tls.key"
    write(crt, old.cert_chain_pems[0].bytes())
    write(key, old.private_key_pem.bytes())
    write(
        path,
        kubeconfig("https://a.example", {"client-certificate": "tls.crt", "client-key": "tls.key"}),
    )
    followed = FollowedKubeconfig(path, Seconds())
    followed.current()
    first = followed.current()

    write(crt, new.cert_chain_pems[0].bytes())
    between = followed.current()
    write(key, new.private_key_pem.bytes())
    after = followed.current()

    assert followed.current() is after
    assert between is first
    assert after is not first


async def test_a_file_that_appears_later_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubeconfig may be written before the authority that it names."""
    path = tmp_path / "config"
    write(path, kubeconfig("https://a.example", {}))
    followed = FollowedKubeconfig(path, Seconds())
    changed = kubeconfig(
        "https://b.example",
        {},
        **{"certificate-authority-data": "", "certificate-authority": "ca.crt"},
    )
    write(path, changed)
    urls = [followed.current().url, followed.current().url]
    write(tmp_path / "ca.crt", PEM)

    assert urls == ["https://a.example"] * 2
    assert followed.current().url == "https://b.example"
    assert caplog.text.count("kubeconfig.reload_refused") == 1


def test_files_are_checked_at_most_once_a_second(tmp_path: Path) -> None:
    """Not at every request."""
    path = tmp_path / "config"
    write(path, kubeconfig("https://a.example", {}))
    times = iter([0.0, 0.5, 0.9, 1.1])
    followed = FollowedKubeconfig(path, lambda: next(times))
    first = followed.current()
    write(path, kubeconfig("https://b.example", {}))

    assert [followed.current() is first for _ in range(2)] == [True, True]
    assert followed.current().url == "https://b.example"


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        ({"tokenFile": "/etc/passwd"}, "names a file"),
        ({"client-certificate": "a.crt", "client-key": "a.key"}, "names a file"),
        ({"exec": {"command": "sh"}}, "exec, which is not supported"),
    ],
)
def test_a_kubeconfig_of_a_secret_names_no_file_and_no_program(
    user: dict[str, str], complaint: str
) -> None:
    """They would be of this machine, and not of the one who wrote the Secret."""
    with pytest.raises(InvalidRemote, match=complaint):
        embedded_remote(kubeconfig("https://a.example", user).encode(), "Secret a")


def test_a_kubeconfig_of_a_secret() -> None:
    """Address and token are in it."""
    found = embedded_remote(kubeconfig("https://a.example", {"token": "abc"}).encode(), "Secret a")
    assert found.url == "https://a.example"
    assert found.bearer is not None
    assert found.bearer().reveal() == "abc"
