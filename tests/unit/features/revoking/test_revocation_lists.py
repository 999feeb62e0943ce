"""Which stored revocation list is served: signed by its key, and never an earlier one."""

import functools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds import certificate_authority
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.objects.kinds import config_map
from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.revoking import revocation_lists
from orchid.features.revoking.revocation_lists import RevocationLists
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.kinds.signing_key import FILE, MADE, SigningKey
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.credentials.x509.revocation_list import Edition, RevokedCertificates
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.signing_key_status import SigningKeyStatus
from tests.unit.kernel.access.world import World, world_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
OURS, OTHER = (Authority.create("Web CA", now=NOW, lifetime=timedelta(days=30)) for _ in range(2))
WEB = CertificateAuthority(
    metadata=ObjectMeta(name="web", uid="w"),
    spec=CertificateAuthoritySpec(signer_name="example.com/web"),
)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    kinds = certificate_authority, config_map, signing_key
    async with world_of(*(one.declare(ORCH) for one in kinds)) as made:
        await made.put(WEB)
        yield made


@pytest.fixture
def lists(here: World) -> RevocationLists:
    return served(here)


def served(here: World) -> RevocationLists:
    index = AuthorityKeyIndex(here.feed.of(SigningKey), here.feed.of(CertificateAuthority), ORCH)
    return RevocationLists(here.feed, ORCH, index.lists, index.of_list)


@functools.cache
def signed(number: int, by: Authority = OURS) -> bytes:
    edition = Edition(number, NOW, NOW + timedelta(days=7))
    return by.sign_revocation_list(RevokedCertificates(), edition)


async def store(here: World, data: bytes, number: int = 1, name: str = "web") -> None:
    meta = ObjectMeta(name=stored_list.head_name(name), namespace=ORCH.system_namespace, uid="m")
    found = ConfigMap(
        metadata=meta,
        data=stored_list.head_data(number, "", 1),
        binary_data={stored_list.DATA: data},
    )
    await here.put(found)


async def key(
    here: World,
    number: int = 0,
    pair: Authority = OURS,
    *,
    name: str = "web-1",
    of: str = "web",
    owner: CertificateAuthority = WEB,
    source: str = MADE,
) -> SigningKey:
    """Store a SigningKey whose newest list has a number."""
    public = signing_key.authority_public_key(pair.chain_pem.decode())
    owners = (owner_reference(owner, "v1"),)
    return await here.put(
        SigningKey(
            metadata=ObjectMeta(name=name, uid=f"uid-{name}", owner_references=owners),
            spec=SigningKeySpec(authority="web"),
            status=SigningKeyStatus(
                public_key=public,
                source=source,
                revocation_list=of,
                revocation_list_number=number,
            ),
        )
    )


async def test_the_newest_list_is_served(here: World, lists: RevocationLists) -> None:
    """Also before the number of a new one is in the status of its key."""
    await key(here, 5)
    await store(here, signed(5))
    first = lists.find("web")
    await store(here, signed(6))

    assert first == signed(5)
    assert lists.find("web") == signed(6)
    assert lists.all_of("web") == (signed(6),)


async def test_no_list_with_a_lower_number_is_served(here: World) -> None:
    """The number in the status counts for a server that has seen no list."""
    await key(here, 5)
    await store(here, signed(4), number=5)

    assert served(here).find("web") is None


@pytest.mark.parametrize("data", [signed(4), b"", signed(7, OTHER), signed(7) + b"0"])
async def test_the_list_that_was_served_stays(
    here: World, lists: RevocationLists, data: bytes
) -> None:
    """When an earlier one is put back, or one that the key did not sign, or none is left."""
    await key(here)
    await store(here, signed(5))
    assert lists.find("web") == signed(5)

    await store(here, data)
    after = lists.find("web")
    head = here.feed.of(ConfigMap).get(ORCH.system_namespace, stored_list.head_name("web"))
    assert head is not None
    await here.delete(head.object)

    assert (after, lists.find("web")) == (signed(5), signed(5))


async def test_a_list_that_was_served_ends_with_a_greater_number(
    here: World, lists: RevocationLists
) -> None:
    """Another server has published one that was deleted since."""
    await key(here)
    await store(here, signed(5))
    assert lists.find("web") is not None

    await key(here, 6)

    assert lists.find("web") is None


async def test_a_new_key_of_the_name_begins_again(here: World, lists: RevocationLists) -> None:
    """The authority was deleted and created again: lists of the key before count no more."""
    first = await key(here, 5)
    await store(here, signed(5))
    assert lists.find("web") is not None

    await here.delete(first)
    await key(here, 0, OTHER, name="web-2")
    left = lists.find("web")
    await store(here, signed(1, OTHER))

    assert left is None
    assert lists.find("web") == signed(1, OTHER)


async def test_a_key_of_an_earlier_authority_does_not_count(
    here: World, lists: RevocationLists
) -> None:
    """It has another uid; without a key that belongs to the authority, any list is served."""
    await key(here, 5, OTHER, owner=WEB.with_meta(uid="earlier"))
    await store(here, signed(4))

    assert lists.find("web") == signed(4)


async def test_the_keys_of_servers_files_share_a_list(here: World, lists: RevocationLists) -> None:
    """Each server may have another file; the greatest number counts for all of them."""
    await key(here, 5, source=FILE)
    await key(here, 9, OTHER, name="web-2", source=FILE)
    await store(here, signed(8))
    earlier = lists.find("web")
    await store(here, signed(9))

    assert earlier is None
    assert lists.find("web") == signed(9)


async def test_the_list_of_a_successor_has_its_name(here: World, lists: RevocationLists) -> None:
    """It is signed by that key, and by no other of the authority."""
    await key(here)
    await key(here, 0, OTHER, name="web-2", of="web-2")
    await store(here, signed(5), name="web-2")
    wrong = lists.find("web-2")
    await store(here, signed(5, OTHER), name="web-2")

    assert wrong is None
    assert lists.find("web-2") == signed(5, OTHER)


async def test_the_signature_is_verified_once(
    here: World, lists: RevocationLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with each request, and not again when the status of the key changes."""
    verified: list[bytes] = []

    def counted(data: bytes, public: str) -> int:
        verified.append(data)
        return 5 if data == signed(5) else 4

    monkeypatch.setattr(revocation_lists, "signed_number", counted)
    await key(here)
    await store(here, signed(5))
    for number in (0, 0, 5):
        await key(here, number)
        assert lists.find("web") == signed(5)
    await store(here, signed(4))
    for _ in range(3):
        assert lists.find("web") == signed(5)

    assert verified == [signed(5), signed(4)]
