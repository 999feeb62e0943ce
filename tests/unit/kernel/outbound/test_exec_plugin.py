"""The plugin of a kubeconfig returns the credential, or its failure is reported."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.outbound.exec_plugin import logged_in
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig, read

NOW = datetime(2026, 11, 1, tzinfo=UTC)
V1 = "client.authentication.k8s.io/v1"
PRINTED = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "s3cret-token"}}


def kubeconfig(folder: Path, **entry: Any) -> Path:
    """One whose user logs in by an `exec` entry."""
    path = folder / "config"
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": "UEVN"}
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "me", "user": {"exec": {"apiVersion": V1, **entry}}}],
    }
    path.write_text(json.dumps(config))
    return path


def program(folder: Path, text: str) -> str:
    """A program beside the kubeconfig, as the entry names it."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return "./plugin"


def log_in(path: Path) -> ServerAccess:
    return logged_in(read([path], plugins=True), NOW)


def test_token_is_taken_from_what_the_plugin_prints(tmp_path: Path) -> None:
    """The command is relative to the file; arguments and variables are handed on."""
    (tmp_path / "answer").write_text(json.dumps(PRINTED))
    command = program(tmp_path, 'cat "$FOLDER/$1"; echo "$KUBERNETES_EXEC_INFO" > "$FOLDER/asked"')
    path = kubeconfig(
        tmp_path,
        command=command,
        args=["answer"],
        env=[{"name": "FOLDER", "value": str(tmp_path)}],
        provideClusterInfo=True,
    )

    access = log_in(path)

    token = access.token()
    assert token is not None
    assert token.reveal() == "s3cret-token"
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["apiVersion"] == V1
    assert asked["spec"]["interactive"] is False
    assert asked["spec"]["cluster"]["server"] == "https://127.0.0.1:1"
    assert asked["spec"]["cluster"]["certificate-authority-data"] == "UEVN"


def test_certificate_is_taken_with_its_key(tmp_path: Path) -> None:
    """Certificate and key, or none; the repr does not contain the key."""
    status = {"clientCertificateData": "CERT", "clientKeyData": "s3cret-key"}
    answer = json.dumps({**PRINTED, "status": status})
    path = kubeconfig(tmp_path, command=program(tmp_path, f"echo '{answer}'"))

    access = log_in(path)

    assert access.certificate == b"CERT"
    assert access.key is not None
    assert access.key.reveal() == "s3cret-key"
    assert "s3cret" not in repr(access)


def test_file_that_was_not_meant_runs_nothing(tmp_path: Path) -> None:
    """Webhooks, controllers and what lies in a directory are not to start programs."""
    path = kubeconfig(tmp_path, command=program(tmp_path, f"touch {tmp_path}/was-run"))

    with pytest.raises(UnusableKubeconfig, match="logs in by exec, which is not supported here"):
        read([path])

    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "no command is named"),
        ({"command": "./plugin", "args": "x"}, "args is not a list"),
        ({"command": "./plugin", "env": [5]}, "env is not a list"),
        ({"command": "./plugin", "apiVersion": "v7"}, "apiVersion is none of"),
        ({"command": "no-such-program", "installHint": "get it there"}, "get it there"),
        ({"command": "./plugin", "interactiveMode": "Always"}, "there is none"),
    ],
)
def test_an_unusable_entry_is_reported(tmp_path: Path, entry: dict[str, Any], words: str) -> None:
    """The complaint names the file, the user and what is wrong."""
    program(tmp_path, "exit 0")

    with pytest.raises(UnusableKubeconfig, match=words) as caught:
        log_in(kubeconfig(tmp_path, **entry))

    assert f"{tmp_path}/config: exec of me" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("s3cret", "printed no ExecCredential"),
        ("[]", "printed no ExecCredential"),
        ('{"status": {}}', "printed no ExecCredential"),
        (json.dumps({**PRINTED, "apiVersion": f"{V1}beta1"}), f"no ExecCredential of {V1}"),
        (json.dumps({**PRINTED, "status": "s3cret"}), "no ExecCredential of"),
        (json.dumps({**PRINTED, "status": {}}), "neither a token"),
        (json.dumps({**PRINTED, "status": {"clientKeyData": "s3cret"}}), "neither a token"),
        (json.dumps({**PRINTED, "status": {"token": 5}}), "not made of strings"),
        (json.dumps({**PRINTED, "status": {"token": "s3cret\\r\\nX: y"}}), "no token has"),
        (
            json.dumps(
                {**PRINTED, "status": {"token": "s3cret", "expirationTimestamp": "2020-01-01T0Z"}}
            ),
            "not a time",
        ),
        (
            json.dumps(
                {
                    **PRINTED,
                    "status": {"token": "s3cret", "expirationTimestamp": "2020-01-01T00:00:00Z"},
                }
            ),
            "has expired",
        ),
    ],
)
def test_an_invalid_answer_is_reported_without_its_content(
    tmp_path: Path, answer: str, words: str
) -> None:
    """The output of the plugin may be a secret, and is not repeated."""
    (tmp_path / "answer").write_text(answer)
    command = program(tmp_path, f"cat {tmp_path}/answer")

    with pytest.raises(UnusableKubeconfig, match=words) as caught:
        log_in(kubeconfig(tmp_path, command=command))

    assert "s3cret" not in str(caught.value)


def test_a_failed_plugin_is_reported(tmp_path: Path) -> None:
    """With its exit code; what it had to say is on the terminal already."""
    with pytest.raises(UnusableKubeconfig, match="plugin ended with exit code 3"):
        log_in(kubeconfig(tmp_path, command=program(tmp_path, "exit 3")))
