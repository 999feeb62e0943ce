"""The EncryptionConfiguration file: which kinds are encrypted at rest, and with which keys.

`read_configuration` reads it; assembly/encryption.py puts the encryption around a store.

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
from collections.abc import Iterator, Sequence
from typing import Any, Final

from orchid.engine.kind import Kind
from orchid.store.encryption import AesGcm, IdentityProvider, Provider
from orchid.wire.codec.documents import decoder_of, strict_error
from orchid.wire.codec.field_validation import Undecodable
from orchid.wire.fields import FieldError, Path, duplicate, invalid, required
from orchid.wire.naming import SEALED_VALUE, SETS
from orchid.wire.struct import Wire

API_VERSIONS: Final = tuple(f"{names.server_config}/v1" for names in SETS.values())
AES_BYTES: Final = (16, 24, 32)
SECRETBOX_BYTES: Final = (32,)


class InvalidEncryption(ValueError):
    """The file is invalid. The message lists all errors, and no key."""


class _Key(Wire):
    name: str = ""
    secret: str = ""


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
    try:
        sent, findings = decoder_of(_File).decode(text, yaml=True)
    except Undecodable as problem:
        raise InvalidEncryption(str(problem)) from None
    if findings:
        raise InvalidEncryption(strict_error(findings))
    if sent.kind != "EncryptionConfiguration" or sent.api_version not in API_VERSIONS:
        raise InvalidEncryption(
            f"an EncryptionConfiguration of {' or '.join(API_VERSIONS)} is expected, "
            f"not {sent.kind!r} of {sent.api_version!r}"
        )
    if errors := [str(error) for error in _errors(sent, kinds)]:
        raise InvalidEncryption("; ".join(errors))
    found: dict[str, list[Provider]] = {}
    for group in sent.resources:
        providers = [made for one in group.providers for made in _made(one)]
        for kind in kinds:
            # The first entry that names a kind applies to it, as in Kubernetes.
            if any(_names(word, kind) for word in group.resources):
                found.setdefault(kind.key_prefix, providers)
    return found


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
        from orchid.store.secretbox import SecretBox

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
        place = root[index]
        if not group.resources:
            yield required(place / "resources")
        for number, word in enumerate(group.resources):
            if not any(_names(word, kind) for kind in kinds):
                text = "names no resource that is stored here"
                yield invalid((place / "resources")[number], word, text)
        if not group.providers:
            yield required(place / "providers")
        for number, provider in enumerate(group.providers):
            yield from _provider_errors((place / "providers")[number], provider)


def _provider_errors(place: Path, sent: _Provider) -> Iterator[FieldError]:
    given = (sent.aesgcm, sent.secretbox, sent.identity)
    if sum(one is not None for one in given) != 1:
        yield required(place, "exactly one of aesgcm, secretbox and identity")
        return
    if sent.aesgcm is not None:
        yield from _key_errors(place / "aesgcm" / "keys", sent.aesgcm.keys, AES_BYTES)
    if sent.secretbox is not None:
        yield from _key_errors(place / "secretbox" / "keys", sent.secretbox.keys, SECRETBOX_BYTES)
        try:
            import nacl.bindings  # noqa: F401 -- only to see whether it is there
        except ImportError:
            text = "needs one more package: pip install 'orchid-identity[secretbox]'"
            yield invalid(place / "secretbox", None, text)


def _key_errors(place: Path, keys: Sequence[_Key], sizes: tuple[int, ...]) -> Iterator[FieldError]:
    """Errors in the keys; no message shows one."""
    if not keys:
        yield required(place, "at least one key")
    names: set[str] = set()
    for index, key in enumerate(keys):
        if not key.name or ":" in key.name:
            yield invalid(place[index] / "name", key.name, "must be a name without a colon")
        elif key.name in names:
            yield duplicate(place[index] / "name", key.name)
        names.add(key.name)
        try:
            size = len(base64.b64decode(key.secret, validate=True))
        except (binascii.Error, ValueError):
            yield invalid(place[index] / "secret", None, "must be base64")
            continue
        if size not in sizes:
            wanted = " or ".join(map(str, sizes))
            yield invalid(place[index] / "secret", None, f"must be {wanted} bytes, not {size}")
