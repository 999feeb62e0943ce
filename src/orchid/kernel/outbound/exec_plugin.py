"""Credential plugins: a program in a kubeconfig that prints the credential to use.

`logged_in` runs the `exec` command of a user and returns the same access with the printed token or
certificate (ExecCredential v1 or v1beta1, as for other clients). The author of the kubeconfig
chooses the program: `kubeconfig.read` therefore refuses it unless the user named the file. The
plugin is run once, its output is read within limits, and never cached or shown; its standard error
is the terminal's.
"""

import base64
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig, fit_token
from orchid.kernel.wire.naming import EXEC_GROUP, EXEC_INFO
from orchid.kernel.wire.struct import replace

VERSIONS: Final = tuple(f"{EXEC_GROUP}/{version}" for version in ("v1", "v1beta1"))
SECONDS: Final = 300  # a person may have to log in meanwhile
LARGEST: Final = 1 << 20
NEVER, ALWAYS = "Never", "Always"


class _Plugin(msgspec.Struct, frozen=True):
    """A validated `exec` entry."""

    command: str
    arguments: list[str]
    environment: dict[str, str]
    version: str
    hint: str
    mode: str
    wants_cluster: bool


def logged_in(
    access: ServerAccess, now: datetime.datetime, seconds: float = SECONDS
) -> ServerAccess:
    """The access with the credential of its plugin, which has `seconds` to print it; unchanged
    without a plugin.
    """
    if access.plugin is None:
        return access
    path, entry = access.plugin
    try:
        plugin = _checked(entry)
        status = _status(_printed(plugin, access, seconds), plugin, now)
        return _with(access, status)
    except ValueError as problem:
        raise UnusableKubeconfig(f"{path}: exec of {access.user}: {problem}") from None


def _checked(entry: Mapping[str, Any]) -> _Plugin:
    command, arguments = entry.get("command"), entry.get("args") or []
    pairs = entry.get("env") or []
    if not isinstance(command, str) or not command:
        raise ValueError("no command is named")
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise ValueError("args is not a list of strings")
    try:
        environment = {str(pair["name"]): str(pair["value"]) for pair in pairs}
    except (TypeError, KeyError):
        raise ValueError("env is not a list of names and values") from None
    if entry.get("apiVersion") not in VERSIONS:
        raise ValueError(f"apiVersion is none of {', '.join(VERSIONS)}")
    return _Plugin(
        command=command,
        arguments=arguments,
        environment=environment,
        version=str(entry["apiVersion"]),
        hint=str(entry.get("installHint") or ""),
        mode=str(entry.get("interactiveMode") or ""),
        wants_cluster=entry.get("provideClusterInfo") is True,
    )


def _printed(plugin: _Plugin, access: ServerAccess, seconds: float) -> bytes:
    """Run it once."""
    assert access.plugin is not None
    command = plugin.command
    if "/" in command:
        command = str(access.plugin.path.parent / command)
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.mode == ALWAYS and not has_terminal:
        raise ValueError(f"{plugin.command} wants to ask on a terminal, and there is none")
    interactive = has_terminal and plugin.mode != NEVER
    asked = {**os.environ, **plugin.environment, EXEC_INFO: _asked(plugin, access, interactive)}
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own kubeconfig names it, see above
            [command, *plugin.arguments],
            env=asked,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise ValueError(f"there is no program {command}. {plugin.hint}".rstrip(". ")) from None
    except OSError as error:
        raise ValueError(f"{command} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"{command} did not end within {seconds:g} seconds") from None
    if done.returncode != 0:
        raise ValueError(f"{command} ended with exit code {done.returncode}")
    return done.stdout


def _asked(plugin: _Plugin, access: ServerAccess, interactive: bool) -> str:
    """The input of the plugin."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.wants_cluster:
        spec["cluster"] = {
            "server": access.server,
            "tls-server-name": access.server_name,
            "insecure-skip-tls-verify": access.insecure,
            "certificate-authority-data": base64.b64encode(access.authority).decode(),
        }
    return json.dumps({"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec})


def _status(printed: bytes, plugin: _Plugin, now: datetime.datetime) -> Mapping[str, Any]:
    """The credential in the output, which no error message repeats."""
    if len(printed) > LARGEST:
        raise ValueError(f"{plugin.command} printed more than {LARGEST} bytes")
    try:
        answer = json.loads(printed)
        status = answer["status"]
        version, kind = answer["apiVersion"], answer["kind"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{plugin.command} printed no ExecCredential") from None
    if kind != "ExecCredential" or version != plugin.version or not isinstance(status, dict):
        raise ValueError(f"{plugin.command} printed no ExecCredential of {plugin.version}")
    end = status.get("expirationTimestamp")
    if end and _moment(end) <= now:
        raise ValueError(f"{plugin.command} gave a credential that has expired")
    return status


def _moment(text: Any) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError("expirationTimestamp is not a time") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def _with(access: ServerAccess, status: Mapping[str, Any]) -> ServerAccess:
    token = status.get("token")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not all(each is None or isinstance(each, str) for each in (token, certificate, key)):
        raise ValueError("the credential is not made of strings")
    if bool(certificate) != bool(key) or not (token or certificate):
        raise ValueError("the credential has neither a token, nor a certificate with its key")
    return replace(
        access,
        plugin=None,
        certificate=certificate.encode() if certificate else access.certificate,
        key=SecretValue(key) if key else access.key,
        given_token=fit_token(token, "the plugin's answer") if token else access.given_token,
    )
