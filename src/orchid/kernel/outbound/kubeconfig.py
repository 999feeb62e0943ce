"""Kubeconfig files: the server and user of a context, from one or several files.

`read` returns a `ServerAccess`, used by commands, webhooks and controllers. Files are merged as
other clients do: the first definition wins. Paths are relative to their file. A private key must be
readable by its owner only. With `inside`, nothing outside of that directory is read, because the
author of the file chose these paths.

A user with a plugin (`exec`) is refused unless `plugins`: the user of the command named the file;
exec_plugin.py runs it. Refused as unsupported: auth providers, passwords, impersonation, proxies.
Every error names the file and never a credential.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from orchid.kernel.credentials.files import read_bounded, read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.wire.codec import yaml_text

LARGEST = 3 << 20
LARGEST_EMBEDDED = 128 << 10  # of somebody else: its CAs are parsed with the interpreter held
LARGEST_TOKEN = 1 << 20
_UNUSABLE = ("auth-provider", "username", "password")
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


class UnusableKubeconfig(ValueError):
    """An unusable kubeconfig; the message has the file and the reason."""


class DeclaredPlugin(NamedTuple):
    """A credential plugin: the file that names it, and its entry."""

    path: Path
    entry: dict[str, Any]


class ServerAccess(msgspec.Struct, frozen=True):
    """One server and one user's credential."""

    server: str
    user: str = ""
    namespace: str = ""
    authority: bytes = b""  # empty: the CAs of the system
    server_name: str = ""
    insecure: bool = False
    certificate: bytes = b""
    key: SecretValue | None = None
    given_token: SecretValue | None = None
    token_file: Path | None = None
    plugin: DeclaredPlugin | None = None
    files: tuple[Path, ...] = ()  # read for all this, except the token file

    def token(self) -> SecretValue | None:
        """The current bearer token; a file is read each time, so that it may be rotated."""
        if self.token_file is None:
            return self.given_token
        try:
            text = read_bounded(self.token_file, LARGEST_TOKEN).decode("utf-8", "replace")
        except Refusal as refusal:
            raise UnusableKubeconfig(f"the token file cannot be read: {refusal}") from None
        return fit_token(text, str(self.token_file))

    @property
    def has_token(self) -> bool:
        return self.given_token is not None or self.token_file is not None


def read(
    paths: Sequence[Path], context: str = "", *, inside: Path | None = None, plugins: bool = False
) -> ServerAccess:
    """The access of the chosen context, or the current one."""
    documents = [_Document(path, inside) for path in paths]
    where = ":".join(map(str, paths))
    name_of_context = context or next((name for each in documents if (name := each.current)), "")
    if not name_of_context:
        raise UnusableKubeconfig(f"{where}: no current-context is set")
    return _access(documents, name_of_context, plugins=plugins)


def _access(
    documents: Sequence["_Document"], name_of_context: str, *, plugins: bool
) -> ServerAccess:
    _, context = _named(documents, "contexts", "context", name_of_context)
    clusters, cluster = _named(documents, "clusters", "cluster", _text(context, "cluster"))
    user_name = _text(context, "user")
    users, user = _named(documents, "users", "user", user_name) if user_name else (clusters, {})
    for word in _UNUSABLE if plugins else ("exec", *_UNUSABLE):
        if user.get(word):
            raise UnusableKubeconfig(
                f"{users.path}: the user {user_name} logs in by {word}, which is not supported "
                "here; use a token or a certificate"
            )
    if any(user.get(word) for word in _IMPERSONATION):  # ignored, it would have more rights
        raise UnusableKubeconfig(
            f"{users.path}: the user {user_name} impersonates another one, which is not supported"
        )
    if cluster.get("proxy-url"):
        raise UnusableKubeconfig(f"{clusters.path}: proxy-url is not supported")
    certificate = users.material(user, "client-certificate")
    key = users.material(user, "client-key", private=True)
    if bool(certificate) != bool(key):
        raise UnusableKubeconfig(f"{users.path} needs both client-certificate and client-key")
    token_file = users.located(user, "tokenFile")
    token = users.text(user, "token")
    return ServerAccess(
        server=clusters.text(cluster, "server"),
        user=user_name,
        namespace=_text(context, "namespace"),
        authority=clusters.material(cluster, "certificate-authority"),
        server_name=clusters.text(cluster, "tls-server-name"),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        certificate=certificate,
        key=SecretValue(key.decode("latin-1")) if key else None,
        given_token=fit_token(token, str(users.path)) if token else None,
        token_file=token_file,
        plugin=users.plugin(user),
        files=(
            *(each.path for each in documents),
            *clusters.files(cluster, "certificate-authority"),
            *users.files(user, "client-certificate", "client-key"),
        ),
    )


def read_embedded(data: bytes, where: str) -> ServerAccess:
    """The current context of a kubeconfig that is no file, like that of a Secret.

    It may name no file and no plugin: those would be of this machine.
    """
    if len(data) > LARGEST_EMBEDDED:
        raise UnusableKubeconfig(f"{where}: the kubeconfig has more than {LARGEST_EMBEDDED} bytes")
    document = _Document(Path(where), None, data)
    if not document.current:
        raise UnusableKubeconfig(f"{where}: no current-context is set")
    return _access([document], document.current, plugins=False)


def fit_token(text: str, where: str) -> SecretValue:
    """Refuse a token that would inject a header line."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UnusableKubeconfig(f"{where}: the token has characters that no token has, or none")
    return SecretValue(token)


class _Document:
    """One file, decoded."""

    def __init__(self, path: Path, inside: Path | None, data: bytes | None = None) -> None:
        """`data`: the document itself, which names no file; `path` says where it is from."""
        self.path = path
        self._inside = inside
        self._names_files = data is None
        try:
            value, _ = yaml_text.load(read_bounded(path, LARGEST) if data is None else data)
        except Refusal as refusal:
            raise UnusableKubeconfig(str(refusal)) from None
        except yaml_text.YamlError as error:
            raise UnusableKubeconfig(f"{path} is not a kubeconfig: {error}") from None
        if not isinstance(value, dict):
            raise UnusableKubeconfig(f"{path} is not a kubeconfig")
        self._value = value
        self.current = _text(value, "current-context")

    def entry(self, plural: str, singular: str, name: str) -> dict[str, Any] | None:
        entries = self._value.get(plural)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                inner = entry.get(singular)
                return inner if isinstance(inner, dict) else {}
        return None

    def text(self, entry: Mapping[str, Any], word: str) -> str:
        value = entry.get(word) or ""
        if not isinstance(value, str):
            raise UnusableKubeconfig(f"{self.path}: {word} is not a string")
        return value

    def located(self, entry: Mapping[str, Any], word: str) -> Path | None:
        """The file that an entry names, or None."""
        name = self.text(entry, word)
        if not name:
            return None
        if not self._names_files:
            raise UnusableKubeconfig(f"{self.path}: {word} names a file; use {word}-data")
        path = self.path.parent / name
        if self._inside is not None and not path.resolve().is_relative_to(self._inside.resolve()):
            raise UnusableKubeconfig(
                f"{self.path}: {word} leads out of {self._inside}; if that is intended, name the "
                "file with --kubeconfig"
            )
        return path

    def files(self, entry: Mapping[str, Any], *words: str) -> list[Path]:
        """The files that an entry names."""
        found = (self.located(entry, word) for word in words if not entry.get(f"{word}-data"))
        return [path for path in found if path is not None]

    def plugin(self, entry: Mapping[str, Any]) -> DeclaredPlugin | None:
        """The credential plugin of a user, or None."""
        value = entry.get("exec")
        if value is not None and not isinstance(value, dict):
            raise UnusableKubeconfig(f"{self.path}: exec is not an object")
        return DeclaredPlugin(self.path, value) if value else None

    def material(self, entry: Mapping[str, Any], word: str, *, private: bool = False) -> bytes:
        """PEM in the file itself or in a file that it names."""
        inline = self.text(entry, f"{word}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, ValueError):
                raise UnusableKubeconfig(f"{self.path}: {word}-data is not base64") from None
        path = self.located(entry, word)
        if path is None:
            return b""
        try:
            return (read_private if private else read_bounded)(path)
        except Refusal as refusal:
            raise UnusableKubeconfig(f"{self.path}: {word}: {refusal}") from None


def _named(
    documents: Sequence[_Document], plural: str, singular: str, name: str
) -> tuple[_Document, dict[str, Any]]:
    for document in documents:
        entry = document.entry(plural, singular, name)
        if entry is not None:
            return document, entry
    where = ":".join(str(document.path) for document in documents)
    raise UnusableKubeconfig(f"{where}: there is no {singular} named {name!r}")


def _text(entry: Mapping[str, Any], word: str) -> str:
    value = entry.get(word)
    return value if isinstance(value, str) else ""
