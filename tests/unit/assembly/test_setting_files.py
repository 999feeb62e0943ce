"""Every setting that names a file is given everything that people mistake for it."""

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchid.assembly import first_files
from orchid.assembly.setting_files import (
    READERS,
    problems,
    refused_credentials,
    require_usable,
)
from orchid.assembly.settings import EverySetting
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings, check
from orchid.kernel.settings.data_directory import kubeconfig_text
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written

# Settings that name what the server writes, or its directory; the start checks them itself.
WRITTEN = {"data-dir", "audit-log-path"}
SHARED = ("cluster-signing-cert-file", "cluster-signing-key-file")
NOW = datetime.datetime.now(datetime.UTC)
ISSUER = {"url": "https://login.corp.example", "audiences": ["orchid"]}


def pair(word: str) -> dict[str, bytes]:
    """A serving certificate, or for other words a CA, and its key."""
    authority = Authority.create("files", now=NOW)
    if word == "authority":
        return {"crt": authority.certificate_pem, "key": authority.key_pem().reveal().encode()}
    issued = authority.issue_serving("h", lifetime=datetime.timedelta(1), now=NOW, dns_names=["h"])
    return {"crt": issued.chain, "key": issued.key.reveal().encode()}


def configuration(kind: str, version: str = "apiserver.config.orch.io/v1", **rest: object) -> bytes:
    return json.dumps({"apiVersion": version, "kind": kind, **rest}).encode()


def good_files() -> dict[str, bytes]:
    """Content by setting."""
    authority, serving = pair("authority"), pair("serving")
    token_key = keys.generate().pem().reveal().encode()
    kubeconfig = kubeconfig_text(
        server="https://127.0.0.1:1",
        authority=authority["crt"],
        user="u",
        credential={"token": "t"},
    ).encode()
    found = {
        "authentication-config": configuration(
            "AuthenticationConfiguration",
            jwt=[
                {
                    "issuer": {**ISSUER, "certificateAuthority": authority["crt"].decode()},
                    "claimMappings": {"username": {"claim": "sub", "prefix": "corp:"}},
                }
            ],
        ),
        "authorization-config": configuration(
            "AuthorizationConfiguration", authorizers=[{"type": "RBAC", "name": "rbac"}]
        ),
        "token-exchange-config": configuration(
            "TokenExchangeConfiguration", "identity.orch.io/v1alpha1", issuers=[ISSUER]
        ),
        "encryption-provider-config": configuration(
            "EncryptionConfiguration",
            resources=[{"resources": ["secrets"], "providers": [{"identity": {}}]}],
        ),
        "audit-policy-file": configuration("Policy", "audit.orch.io/v1", rules=[{"level": "None"}]),
        "token-auth-file": b"token,user,uid\n",
        "service-account-signing-key-file": token_key,
        "service-account-key-file": token_key,
        "ledger-key-file": keys.generate("EdDSA").pem().reveal().encode(),
    }
    for name in READERS.keys() - found.keys() - {"pkcs11-module"}:
        of = authority if name.startswith(("cluster-signing", "client")) else serving
        if name.endswith(("webhook-config-file",)):
            found[name] = kubeconfig
        elif name.endswith(("pin-file", "token-file", "secret-file")):
            found[name] = b"secret\n"
        elif name.endswith(("key-file", "keyfile")):
            found[name] = of["key"]
        elif name.endswith(("ca-file", "cafile")):
            found[name] = authority["crt"]
        else:
            found[name] = of["crt"]
    return found


GOOD = good_files()
KEY = keys.generate().pem().reveal().encode()
CERTIFICATE = pair("serving")["crt"]
X25519 = X25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
IS_PRIVATE = {
    name
    for name in READERS
    if name.endswith(("key-file", "keyfile", "pin-file", "token-file", "secret-file"))
} | {"encryption-provider-config"}
MISTAKES = {
    "nothing": b"",
    "zeros": bytes(512),
    "a key": KEY,
    "a certificate": CERTIFICATE,
    "a key that signs nothing": X25519,
    "words": b"key: [unfinished\n",
}
# Not mistakes: what a file may have.
ACCEPTED = {
    ("token-auth-file", "nothing"): "there are no static tokens yet",
    ("service-account-key-file", "a key"): "the public half of a private key",
    ("service-account-key-file", "a certificate"): "the public key of a certificate",
    ("service-account-signing-key-file", "a key"): "any key that signs",
    **{
        (name, "a certificate"): "what calls trust may be the certificate of one server"
        for name in ("oidc-ca-file", "notice-ca-file", "etcd-cafile")
    },
    **{
        (name, "words"): "a line of text"
        for name in READERS
        if name.endswith(("pin-file", "token-file", "secret-file"))
    },
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("settings")
    found = {name: place / name for name in GOOD}
    for name, path in found.items():
        path.write_bytes(GOOD[name])
        path.chmod(0o600)
    return found


def settings(files: dict[str, Path]) -> Settings:
    """All of them together, but for one pair that excludes others."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(EverySetting)}
    given = {
        fields[name].name: (str(path),) if fields[name].default == () else str(path)
        for name, path in files.items()
        if name not in SHARED
    }
    usual = {"audit_log_path": "-", "notice_url": "https://h", "pkcs11_module": "/none"}
    usual |= {"pkcs11_token": "t", "requestheader_username_headers": ("x",)}
    return check(written(**(usual | given)))


def found(name: str, path: Path, good: dict[str, Path]) -> list[str]:
    """The lines about a setting and its pair: a key of another certificate is found there."""
    related = re.sub(r"(private-)?key-?file$", "", name)
    if name not in SHARED:
        return list(problems(settings({**good, name: path}), (related,)))
    given = {one: str(good[one]) for one in SHARED} | {name: str(path)}
    made = written(**{one.replace("-", "_"): value for one, value in given.items()})
    return list(problems(check(made), (related,)))


def test_every_setting_that_names_a_file_has_a_reader() -> None:
    """By its name, so that a new one cannot be forgotten."""
    endings = ("file", "config", "module", "path", "dir")
    named = {
        field.encode_name
        for field in msgspec.structs.fields(EverySetting)
        if field.encode_name.endswith(endings)
    }

    assert named - WRITTEN == set(READERS)


def test_good_files_are_good(good: dict[str, Path]) -> None:
    """A module of an HSM is loaded by other tests, with SoftHSM."""
    lines = list(problems(settings(good)))

    assert [line for line in lines if not line.startswith("--pkcs11-module: /none")] == []
    for name in SHARED:
        assert found(name, good[name], good) == []


@pytest.mark.parametrize("name", READERS)
def test_every_mistake_is_one_line_with_the_flag(
    name: str, good: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "a directory").mkdir()
    accepted = set()

    for mistake, path in mistakes(name, tmp_path):
        lines = found(name, path, good)
        if lines:
            (line,) = lines
            assert line.startswith(f"--{name}: ") or f" and {path}: " in line, line
            assert "\n" not in line
            assert str(path) in line or name.endswith("-config"), line
            assert "secret" not in line.replace(name, "").replace(str(tmp_path), "")
        else:
            accepted.add(mistake)

    assert accepted == {mistake for one, mistake in ACCEPTED if one == name}


def mistakes(name: str, place: Path) -> Iterator[tuple[str, Path]]:
    yield "a directory", place / "a directory"
    yield "no file", place / "none"
    for mistake, content in MISTAKES.items():
        path = place / mistake
        path.write_bytes(content)
        path.chmod(0o600)
        yield mistake, path
    if name in IS_PRIVATE:
        path = place / "open to others"
        path.write_bytes(GOOD[name])
        path.chmod(0o644)
        yield "open to others", path


def test_all_mistakes_are_reported_together(good: dict[str, Path], tmp_path: Path) -> None:
    """Each on a line of its own; `prefixes` chooses the settings."""
    wrong = {"tls-cert-file": tmp_path / "a", "client-ca-file": tmp_path / "b"}
    made = settings(good | wrong)

    with pytest.raises(BadSettings) as refused:
        require_usable(made, ("tls-", "client-"))

    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "--tls-cert-file", "--client-ca-file"
    ]  # fmt: skip
    require_usable(made, ("etcd-",))


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("idp.crt", "this is a path; write the certificate itself"),
        ("idp.crt\nand more", "the authorities are not certificates in PEM form"),
        (KEY.decode(), "the authorities are not certificates in PEM form"),
        ("é" * 300, "the authorities are not certificates in PEM form"),
    ],
)
@pytest.mark.parametrize("name", ["authentication-config", "token-exchange-config"])
def test_a_ca_in_a_configuration_is_a_certificate(
    name: str, written: str, why: str, good: dict[str, Path], tmp_path: Path
) -> None:
    """Many write a path. The message has the field, and no key."""
    text = json.loads(GOOD[name])
    issuer = text["jwt"][0]["issuer"] if "jwt" in text else text["issuers"][0]
    issuer["certificateAuthority"] = written
    path = tmp_path / "configuration"
    path.write_text(json.dumps(text))

    (line,) = found(name, path, good)

    field = "jwt[0].issuer" if "jwt" in text else "issuers[0]"
    assert line.startswith(f"--{name}: {field}.certificateAuthority: Invalid value: ")
    assert line.endswith(why)
    assert "PRIVATE" not in line


@pytest.mark.parametrize(
    "name", [name for name in READERS if name.endswith(("-config", "policy-file"))]
)
def test_a_configuration_has_one_document(name: str, good: dict[str, Path], tmp_path: Path) -> None:
    """A second one would be ignored without a word."""
    path = tmp_path / "two"
    path.write_bytes(GOOD[name] + b"\n---\n" + GOOD[name])
    path.chmod(0o600)

    (line,) = found(name, path, good)

    assert line.startswith(f"--{name}: ")
    assert "document" in line


def test_settings_under_which_a_server_refuses_its_own_credentials_are_named(
    tmp_path: Path,
) -> None:
    """A signing key that does not verify, and an authority that clients may not have."""
    data = str(tmp_path / "data")
    usual = check(written(data_dir=data))
    files = first_files.prepare(usual, NOW)
    other = Authority.create("other", now=NOW)
    (tmp_path / "other.crt").write_bytes(other.certificate_pem)
    key = tmp_path / "new.key"
    write_private(key, keys.generate().pem().reveal().encode())
    odd = check(
        written(
            data_dir=data,
            token_keys="files",
            service_account_signing_key_file=str(key),
            service_account_key_file=(str(files.ca_certificate.parent / "ca.key"),),
            client_ca_file=str(tmp_path / "other.crt"),
        )
    )

    found = list(refused_credentials(odd, data_directory.located(odd)))

    assert list(refused_credentials(usual, files)) == []
    assert [sentence.partition(":")[0] for sentence in found] == [
        f"the key that signs tokens ({key}) is not among those that verify them",
        "client certificates that this server signs are refused by it",
    ]
