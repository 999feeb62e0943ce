"""Kubeconfig files: which one is meant, and what it says about one server and one user.

Looked for in this order: --kubeconfig, $KUBECONFIG (several files, joined by colons, the first to
name a thing wins), ./orchid-data/admin.kubeconfig, ~/.kube/config. `find` says which, `load` reads
it. Every complaint names the file. Credentials are held as `SecretValue`s.

Not understood, and said so: exec plugins, auth providers, user names with passwords, proxies.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchid.commands.terminal.output import USAGE, Complaint
from orchid.credentials.secret import SecretValue
from orchid.wire.naming import CLIENT_CONFIG

BESIDE = Path("orchid-data") / "admin.kubeconfig"
LARGEST = 3 << 20
_UNUSABLE = ("exec", "auth-provider", "username", "password")


@dataclass(frozen=True)
class FoundKubeconfig:
    """The files that are meant, and why."""

    paths: tuple[Path, ...]
    why: str

    def __str__(self) -> str:
        return f"{':'.join(map(str, self.paths))} ({self.why})"


@dataclass(frozen=True)
class ServerAccess:
    """One server and one user's credential."""

    server: str
    source: str  # for complaints: which file, and why it
    user: str = ""
    namespace: str = ""
    authority: bytes = b""  # empty: what the system trusts
    server_name: str = ""
    insecure: bool = False
    certificate: bytes = b""
    key: SecretValue | None = None
    token: SecretValue | None = None


def find(
    given: Path | None, environ: Mapping[str, str], here: Path | None = None
) -> FoundKubeconfig:
    """Choose the file, or say everywhere that was looked."""
    if given is not None:
        if not given.is_file():
            raise Complaint(f"--kubeconfig: there is no file {given}", USAGE)
        return FoundKubeconfig((given,), "--kubeconfig")
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        there = tuple(path for path in listed if path.is_file())
        if not there:
            named = os.pathsep.join(map(str, listed))
            raise Complaint(f"$KUBECONFIG names {named}, and there is no such file", USAGE)
        return FoundKubeconfig(there, "$KUBECONFIG")
    beside = here / BESIDE if here else BESIDE
    at_home = Path(environ.get("HOME") or "~").expanduser().joinpath(*CLIENT_CONFIG)
    for path in (beside, at_home):
        if path.is_file():
            return FoundKubeconfig((path,), "found there")
    raise Complaint(
        f"no kubeconfig: neither --kubeconfig nor $KUBECONFIG is given, and there is no {beside} "
        f"and no {at_home}. Start a server here with: orchid serve",
        USAGE,
    )


def load(found: FoundKubeconfig, context: str = "") -> ServerAccess:
    """Read what the chosen context, or the current one, says."""
    documents = [_Document(path) for path in found.paths]
    wanted = context or next((name for each in documents if (name := each.current)), "")
    if not wanted:
        raise Complaint(f"{found}: no current-context is set; choose one with --context", USAGE)
    _, chosen = _named(documents, "contexts", "context", wanted, found)
    clusters, cluster = _named(documents, "clusters", "cluster", _text(chosen, "cluster"), found)
    users, user = _named(documents, "users", "user", _text(chosen, "user"), found)
    for word in _UNUSABLE:
        if user.get(word):
            raise Complaint(
                f"{users.path}: the user {_text(chosen, 'user')} logs in by {word}, which these "
                "commands do not do; use a token or a certificate",
                USAGE,
            )
    if cluster.get("proxy-url"):
        raise Complaint(f"{clusters.path}: proxy-url is not supported by these commands", USAGE)
    key = users.material(user, "client-key")
    return ServerAccess(
        server=_text(cluster, "server"),
        source=str(found),
        user=_text(chosen, "user"),
        namespace=_text(chosen, "namespace"),
        authority=clusters.material(cluster, "certificate-authority"),
        server_name=_text(cluster, "tls-server-name"),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        certificate=users.material(user, "client-certificate"),
        key=SecretValue(key.decode("latin-1")) if key else None,
        token=users.token(user),
    )


class _Document:
    """One file, decoded; paths in it are relative to it."""

    def __init__(self, path: Path) -> None:
        from orchid.wire.codec import yaml_text

        self.path = path
        try:
            value, _ = yaml_text.load(_read(path))
        except yaml_text.YamlError as error:
            raise Complaint(f"{path} is not a kubeconfig: {error}", USAGE) from None
        if not isinstance(value, dict):
            raise Complaint(f"{path} is not a kubeconfig", USAGE)
        self._value = value
        self.current = _text(value, "current-context")

    def entry(self, plural: str, singular: str, name: str) -> dict[str, Any] | None:
        entries = self._value.get(plural)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                inner = entry.get(singular)
                return inner if isinstance(inner, dict) else {}
        return None

    def material(self, entry: Mapping[str, Any], word: str) -> bytes:
        """PEM that stands in the file itself or in another that it names."""
        inline, named = _text(entry, f"{word}-data"), _text(entry, word)
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, ValueError):
                raise Complaint(f"{self.path}: {word}-data is not base64", USAGE) from None
        return _read(self.path.parent / named) if named else b""

    def token(self, user: Mapping[str, Any]) -> SecretValue | None:
        text, named = _text(user, "token"), _text(user, "tokenFile")
        if named:  # as other clients have it, the file wins
            text = _read(self.path.parent / named).decode("utf-8", "replace").strip()
        if not text:
            return None
        if not text.isascii() or not text.isprintable() or " " in text:
            raise Complaint(f"{self.path}: the token has characters that no token has", USAGE)
        return SecretValue(text)


def _named(
    documents: list[_Document], plural: str, singular: str, name: str, found: FoundKubeconfig
) -> tuple[_Document, dict[str, Any]]:
    for document in documents:
        entry = document.entry(plural, singular, name)
        if entry is not None:
            return document, entry
    raise Complaint(f"{found}: there is no {singular} named {name!r}", USAGE)


def _text(entry: Mapping[str, Any], word: str) -> str:
    value = entry.get(word)
    return value if isinstance(value, str) else ""


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Complaint(f"cannot read {path}: {error.strerror}", USAGE) from None
    if len(data) > LARGEST:
        raise Complaint(f"{path} is larger than any kubeconfig", USAGE)
    return data
