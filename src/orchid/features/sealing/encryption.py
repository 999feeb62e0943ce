"""The EncryptionConfiguration file: which kinds are encrypted at rest, and with which keys.

`read_configuration` reads it; sealing.py puts the encryption around a store.
`with_new_key` and `without_key` change it.

    apiVersion: apiserver.config.k8s.io/v1
    kind: EncryptionConfiguration
    resources:
    - resources: [secrets]
      providers:
      - aesgcm: {keys: [{name: key1, secret: <base64 of 16, 24 or 32 bytes>}]}
      - identity: {}
"""

import base64
import binascii
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from orchid.kernel.engine.kind import Kind
from orchid.kernel.store.encryption import AesGcm, IdentityProvider, Provider
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.codec.documents import decoder_of, encode, strict_error
from orchid.kernel.wire.codec.field_validation import Undecodable
from orchid.kernel.wire.fields import FieldError, Path, duplicate, invalid, required
from orchid.kernel.wire.naming import SEALED_VALUE, SETS
from orchid.kernel.wire.struct import Wire, confidential, replace

API_VERSIONS: Final = tuple(f"{names.server_config}/v1" for names in SETS.values())
AES_BYTES: Final = (16, 24, 32)
SECRETBOX_BYTES: Final = (32,)
NEW_KEY_BYTES: Final = 32

_numbered = re.compile(r"key([1-9][0-9]{0,8})").fullmatch


class InvalidEncryption(ValueError):
    """The file is invalid. The message lists all errors, and no key."""


class _Key(Wire):
    name: str = ""
    secret: Annotated[str, confidential()] = ""


class _Keys(Wire):
    keys: tuple[_Key, ...] = ()


class _Identity(Wire):
    """A provider without settings."""


class _Provider(Wire):
    aesgcm: _Keys | None = None
    secretbox: _Keys | None = None
    identity: _Identity | None = None


class _Resources(Wire):
    resources: tuple[str, ...] = ()
    providers: tuple[_Provider, ...] = ()


class _File(Wire):
    kind: str = ""
    api_version: str = ""
    resources: tuple[_Resources, ...] = ()


def read_configuration(text: bytes, kinds: Sequence[Kind[Any]]) -> dict[str, list[Provider]]:
    """The providers by the key prefix of the objects that they encrypt."""
    sent = _read(text)
    if errors := [str(error) for error in _errors(sent, kinds)]:
        raise InvalidEncryption("; ".join(errors))
    by_prefix: dict[str, list[Provider]] = {}
    for group in sent.resources:
        providers = [provider for settings in group.providers for provider in _made(settings)]
        for kind in kinds:
            # The first entry that names a kind applies to it, as in Kubernetes.
            if any(_names(word, kind) for word in group.resources):
                by_prefix.setdefault(kind.key_prefix, providers)
    return by_prefix


def key_names(text: bytes) -> list[str]:
    """The names of all keys, in the order of the file."""
    return list(dict.fromkeys(key.name for key in _keys(_read(text))))


def with_new_key(text: bytes) -> tuple[str, bytes]:
    """The name of a new key, and the file with it in front of all others."""
    sent = _read(text)
    numbers = [int(match[1]) for key in _keys(sent) if (match := _numbered(key.name))]
    name = f"key{max(numbers, default=0) + 1}"
    secret = base64.b64encode(secrets.token_bytes(NEW_KEY_BYTES)).decode()
    key = _Key(name=name, secret=secret)
    groups = []
    for group in sent.resources:
        first, *rest = group.providers or (_Provider(),)
        if first.aesgcm is not None:
            first = _Provider(aesgcm=_Keys(keys=(key, *first.aesgcm.keys)))
            groups.append(replace(group, providers=(first, *rest)))
        else:
            new = _Provider(aesgcm=_Keys(keys=(key,)))
            groups.append(replace(group, providers=(new, *group.providers)))
    return name, _written(replace(sent, resources=tuple(groups)), text)


def without_key(text: bytes, name: str) -> bytes:
    """The file without a key; raises InvalidEncryption if it has none, or no other."""
    sent = _read(text)
    if all(key.name != name for key in _keys(sent)):
        raise InvalidEncryption(f"there is no key {name!r}")
    groups = [
        replace(group, providers=tuple(_without(provider, name) for provider in group.providers))
        for group in sent.resources
    ]
    groups = [
        replace(
            group,
            providers=tuple(provider for provider in group.providers if provider != _Provider()),
        )
        for group in groups
    ]
    for group in groups:
        if not group.providers:
            raise InvalidEncryption(f"{name!r} is the only key of {', '.join(group.resources)}")
    changed = replace(sent, resources=tuple(groups))
    if not any(True for _ in _keys(changed)):
        raise InvalidEncryption(f"{name!r} is the only key")
    return _written(changed, text)


def _without(provider: _Provider, name: str) -> _Provider:
    """A provider without a key; an empty one if no key is left."""

    def rest(found: _Keys | None) -> _Keys | None:
        left = tuple(key for key in found.keys if key.name != name) if found else ()
        return _Keys(keys=left) if left else None

    return replace(provider, aesgcm=rest(provider.aesgcm), secretbox=rest(provider.secretbox))


def _keys(sent: _File) -> Iterator[_Key]:
    for group in sent.resources:
        for provider in group.providers:
            for found in (provider.aesgcm, provider.secretbox):
                yield from found.keys if found else ()


def _written(sent: _File, before: bytes) -> bytes:
    """A file as JSON, which is YAML, too, below the comment at the top of the one before."""
    lines = before.splitlines(keepends=True)
    comment = b"".join(line for line in lines[: _first_without_comment(lines)])
    return comment + msgspec.json.format(encode(sent), indent=2) + b"\n"


def _first_without_comment(lines: Sequence[bytes]) -> int:
    return next((n for n, line in enumerate(lines) if not line.startswith(b"#")), len(lines))


def _read(text: bytes) -> _File:
    try:
        yaml_text.load_only(text)  # a second document would be ignored
        sent, findings = decoder_of(_File).decode(text, yaml=True)
    except (Undecodable, yaml_text.YamlError) as problem:
        raise InvalidEncryption(str(problem)) from None
    if findings:
        raise InvalidEncryption(strict_error(findings))
    if sent.kind != "EncryptionConfiguration" or sent.api_version not in API_VERSIONS:
        raise InvalidEncryption(
            f"an EncryptionConfiguration of {' or '.join(API_VERSIONS)} is expected, "
            f"not {sent.kind!r} of {sent.api_version!r}"
        )
    return sent


def _names(word: str, kind: Kind[Any]) -> bool:
    """Whether a word of the file selects a kind: `secrets`, `leases.coordination.k8s.io`, `*.*`."""
    plural, _, group = word.partition(".")
    if word == "*.*":
        return True
    return group == kind.group and plural in ("*", kind.plural)


def _made(sent: _Provider) -> Iterator[Provider]:
    if sent.identity is not None:
        yield IdentityProvider(SEALED_VALUE)
    for key in sent.aesgcm.keys if sent.aesgcm else ():
        yield AesGcm(_mark("aesgcm", key), base64.b64decode(key.secret))
    if sent.secretbox:
        # The library is an optional dependency.
        from orchid.kernel.store.secretbox import SecretBox

        for key in sent.secretbox.keys:
            yield SecretBox(_mark("secretbox", key), base64.b64decode(key.secret))


def _mark(provider: str, key: _Key) -> bytes:
    """The prefix of values that a key has encrypted, as in Kubernetes."""
    return SEALED_VALUE + f"{provider}:v1:{key.name}:".encode()


def _errors(sent: _File, kinds: Sequence[Kind[Any]]) -> Iterator[FieldError]:
    root = Path("resources")
    if not sent.resources:
        yield required(root, "at least one group of resources must be configured")
    for index, group in enumerate(sent.resources):
        path = root[index]
        if not group.resources:
            yield required(path / "resources")
        for number, word in enumerate(group.resources):
            if not any(_names(word, kind) for kind in kinds):
                text = "names no resource that is stored here"
                yield invalid((path / "resources")[number], word, text)
        if not group.providers:
            yield required(path / "providers")
        for number, provider in enumerate(group.providers):
            yield from _provider_errors((path / "providers")[number], provider)


def _provider_errors(path: Path, sent: _Provider) -> Iterator[FieldError]:
    choices = (sent.aesgcm, sent.secretbox, sent.identity)
    if sum(choice is not None for choice in choices) != 1:
        yield required(path, "exactly one of aesgcm, secretbox and identity")
        return
    if sent.aesgcm is not None:
        yield from _key_errors(path / "aesgcm" / "keys", sent.aesgcm.keys, AES_BYTES)
    if sent.secretbox is not None:
        yield from _key_errors(path / "secretbox" / "keys", sent.secretbox.keys, SECRETBOX_BYTES)
        try:
            import nacl.bindings  # noqa: F401 -- only to see whether it is there
        except ImportError:
            text = "needs one more package: pip install 'orchid-identity[secretbox]'"
            yield invalid(path / "secretbox", None, text)


def _key_errors(path: Path, keys: Sequence[_Key], sizes: tuple[int, ...]) -> Iterator[FieldError]:
    """Errors in the keys; no message shows one."""
    if not keys:
        yield required(path, "at least one key")
    names: set[str] = set()
    for index, key in enumerate(keys):
        if not key.name or ":" in key.name:
            yield invalid(path[index] / "name", key.name, "must be a name without a colon")
        elif key.name in names:
            yield duplicate(path[index] / "name", key.name)
        names.add(key.name)
        try:
            size = len(base64.b64decode(key.secret, validate=True))
        except (binascii.Error, ValueError):
            yield invalid(path[index] / "secret", None, "must be base64")
            continue
        if size not in sizes:
            expected = " or ".join(map(str, sizes))
            yield invalid(path[index] / "secret", None, f"must be {expected} bytes, not {size}")
