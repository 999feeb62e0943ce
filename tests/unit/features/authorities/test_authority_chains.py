"""Chains and keys of authorities: the first end counts, and each part that decides."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchid.features.authorities.controllers.keep_authorities import KeepAuthorities
from orchid.features.authorities.controllers.rotate_authority_keys import (
    RotateAuthorityKeys,
    schedule_of,
)
from orchid.features.authorities.kinds.certificate_authority import (
    CertificateAuthority,
    parent_reference,
)
from orchid.features.token_keys.controllers.key_groups import KeyGroup
from orchid.features.token_keys.controllers.rotate_keys import RotationTimes
from orchid.features.token_keys.key_selection import KeySelection
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.authority_status import CertificateAuthorityStatus
from orchid.kernel.wire.codec.documents import convert, encode
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.authorities.test_keep_authorities import (
    DAY,
    KEEPER,
    bring,
    create,
    from_secret,
    looked_at,
    until_not_ready,
    until_ready,
)
from tests.unit.features.beside import Beside, MovingClock
from tests.unit.kernel.credentials import chains, samples
from tests.unit.kernel.credentials.samples import NOW, P256


def chain_of(leaf: timedelta, root: timedelta) -> str:
    """The chain of an intermediate that ends at one time, and its root at another."""
    start, above = NOW - DAY, samples.OTHER_P256
    links = (
        chains.authority("between", issuer="root", signer=above, start=start, end=NOW + leaf),
        chains.authority("root", key=above, start=start, end=NOW + root),
    )
    return b"".join(one.public_bytes(Encoding.PEM) for one in links).decode()


KEY = P256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
AUTHORITY = convert({"metadata": {"name": "web"}, "spec": {"key": {}}}, CertificateAuthority)


@pytest.mark.parametrize(("leaf", "root"), [(300, 50), (50, 300)])
def test_a_successor_comes_before_the_first_end_of_the_chain(leaf: int, root: int) -> None:
    """Whichever of its certificates it is: with none of them verifiers accept anything later."""
    key = SigningKey()
    key = replace(key, status=replace(key.status, certificate=chain_of(leaf * DAY, root * DAY)))

    planned = schedule_of(key, AUTHORITY)

    assert planned is not None
    assert planned.publish < planned.activate < NOW + 50 * DAY


async def test_an_authority_ends_with_the_first_certificate_of_its_chain(world: Beside) -> None:
    """Its status says so, by which notices and warnings go."""
    start, above = world.clock.now().replace(microsecond=0) - DAY, samples.OTHER_P256
    links = (
        chains.authority(
            "between", issuer="root", signer=above, start=start, end=start + 100 * DAY
        ),
        chains.authority("root", key=above, start=start, end=start + 9 * DAY),
    )
    pair = [one.public_bytes(Encoding.PEM) for one in links]
    await bring(world, crt=b"".join(pair), key=KEY)
    await from_secret(world)

    found = await looked_at(world)

    assert found.status.not_after == start + 9 * DAY


def rotating(authority: CertificateAuthority) -> RotateAuthorityKeys:
    times = RotationTimes(DAY, DAY)
    parts: Any = None, ORCH, MovingClock(), None, times
    made = RotateAuthorityKeys(*parts)
    made._authorities[authority.name] = authority
    return made


@pytest.mark.parametrize("in_hsm", [True, False])
def test_no_successor_leaves_the_hsm_by_itself(in_hsm: bool) -> None:
    """The server creates keys in Secrets alone. A key in a Secret that is lost is replaced."""
    spec = {"authority": "web", "state": "Active", **({"pkcs11": {"label": "k"}} if in_hsm else {})}
    signer = convert({"metadata": {"name": "web-1"}, "spec": spec}, SigningKey)
    chain = chain_of(DAY, DAY)  # nearly over
    signer = replace(signer, status=replace(signer.status, certificate=chain))
    group = KeyGroup("web", [signer], KeySelection((signer,), (signer,)))

    successor = rotating(AUTHORITY).successor(group)

    assert (successor is None) is in_hsm


async def test_a_signer_passes_to_the_next_authority(world: Beside) -> None:
    """As soon as the one before is deleted, though nothing of the next one has changed."""
    first = await create(world)
    born = first.metadata.creation_timestamp
    assert born is not None
    second = first.with_meta(name="second", uid="2", creation_timestamp=born + DAY)
    kind = world.server.catalog.of(CertificateAuthority)
    stored = encode(second.with_meta(resource_version=""))
    await world.server.store.commit([Change(kind.key("", "second"), stored, ABSENT)])
    await world.server.feed.fresh()

    async with world.running(KEEPER):
        await until_ready(world)
        await until_not_ready(world, "SignerTaken", "second")
        await world.admin.delete(CertificateAuthority, "web")
        await until_ready(world, "second")


class Family:
    """An intermediate below the old or the new key of its parent."""

    def __init__(self) -> None:
        now = MovingClock().now()
        old, new = (Authority.create(name, now=now) for name in ("old", "new"))
        self.cross = old.certify(new.certificate, now=now).decode()
        self.under = {"old": self.intermediate(old), "new": self.intermediate(new)}
        born = now.replace(microsecond=0)
        self.above = convert({"metadata": {"name": "corp"}}, CertificateAuthority).with_meta(
            uid="c", creation_timestamp=born
        )
        status = CertificateAuthorityStatus(cross_certificates=self.cross)
        self.above = replace(self.above, status=status)

    @staticmethod
    def intermediate(above: Authority) -> Authority:
        now = MovingClock().now()
        made = Authority.create("web", now=now)
        signed = certificates.parse_blocks(above.certify(made.certificate, now=now).decode())
        return made.below((*signed, *above.chain))

    def cross_of(self, signed_by: str, above: CertificateAuthority | None, uid: str = "c") -> str:
        parts: Any = None, ORCH, MovingClock(), None
        controller = KeepAuthorities(*parts)
        index: Any = SimpleNamespace(parent=lambda _found: above)
        controller._index = index
        parent = parent_reference(self.above.with_meta(uid=uid))
        below = replace(AUTHORITY, status=CertificateAuthorityStatus(parent=parent))
        return controller._cross_of_parent(below, self.under[signed_by])


def test_chains_have_the_cross_certificate_of_the_key_above() -> None:
    """Only if the present key of the parent has signed the intermediate, and it is its parent."""
    family = Family()
    without = replace(family.above, status=CertificateAuthorityStatus())

    assert family.cross_of("new", family.above) == family.cross
    assert family.cross_of("old", family.above) == ""
    assert family.cross_of("new", family.above, uid="another") == ""
    assert family.cross_of("new", without) == ""
    assert family.cross_of("new", None) == ""
