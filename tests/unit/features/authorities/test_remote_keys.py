"""Keys of a server elsewhere: those that belong to its authority, and no others of its name."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.authorities.kinds.certificate_authority import CLUSTER, CertificateAuthority
from orchid.features.authorities.remote_keys import RemoteKeys
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.client.client import ListSelection
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.credentials import chains

PLATFORM = convert({"metadata": {"name": CLUSTER, "uid": "c1"}}, CertificateAuthority)


class Server:
    """Its objects."""

    def __init__(self, *there: Object) -> None:
        self.there = there

    async def scan(self, wanted: ListSelection[Any]) -> AsyncIterator[Any]:
        for one in self.there:
            if isinstance(one, wanted.of):
                yield one

    async def find(self, type_: type[Object], name: str, _namespace: str = "") -> Object | None:
        found = (one for one in self.there if isinstance(one, type_) and one.name == name)
        return next(found, None)


def key_of(owner: CertificateAuthority, subject: str) -> SigningKey:
    spec = {"authority": CLUSTER, "state": "Active"}
    made = convert({"metadata": {"name": subject}, "spec": spec}, SigningKey)
    text = chains.authority(subject).public_bytes(Encoding.PEM).decode()
    status = replace(made.status, certificate=text, key_id=subject)
    return replace(made.with_meta(owner_references=(owner_reference(owner, "v1"),)), status=status)


def reading(*there: Object) -> RemoteKeys:
    def no_file() -> Any:
        raise Unavailable("there is no file")

    server: Any = Server(*there)
    return RemoteKeys(server, ORCH, no_file)


async def test_only_keys_of_the_authority_verify_the_server() -> None:
    """An earlier authority of the name may have left keys, which somebody else has."""
    own, left = key_of(PLATFORM, "own"), key_of(PLATFORM.with_meta(uid="c0"), "left")
    keys = reading(PLATFORM, own, left)

    await keys.read()

    assert keys.stores_authority
    assert keys.authorities() == own.status.certificate


async def test_keys_without_an_authority_verify_nothing() -> None:
    keys = reading(key_of(PLATFORM, "left"))
    with pytest.raises(Unavailable, match="not read yet"):
        keys.signer()

    await keys.read()

    assert not keys.stores_authority
    with pytest.raises(Unavailable, match="no file"):
        keys.signer()
