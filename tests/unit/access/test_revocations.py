"""Revoked credentials are refused: by the widest revocation, and up to the last second."""

from datetime import datetime, timedelta

import pytest

from orchid.access.revocations import Revocations
from orchid.credentials.x509.verified_chain import VerifiedChain
from orchid.engine.interfaces import Rejected
from orchid.kinds.credential_revocation import CredentialRevocation, CredentialRevocationSpec
from orchid.wire.meta import ObjectMeta
from orchid.wire.revoked_credentials import RevokedAccount, RevokedAuthority
from tests.unit.access.presenting import START
from tests.unit.access.world import REVOCABLE, World, world_of
from tests.unit.credentials import chains
from tests.unit.credentials.samples import NOW

SIGNER = "example.com/web"
ROBOT = ("ci", "robot")
HOUR = timedelta(hours=1)


async def put(here: World, name: str, spec: CredentialRevocationSpec) -> None:
    meta = ObjectMeta(name=name, uid=f"uid-{name}")
    await here.put(CredentialRevocation(metadata=meta, spec=spec))


@pytest.mark.parametrize("hours", [(1, 2), (2, 1)])
async def test_of_several_revocations_of_one_thing_the_latest_counts(
    hours: tuple[int, int],
) -> None:
    """In whichever order they came: an earlier one takes nothing back of a later one."""
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        for number, each in enumerate(hours):
            until = START + each * HOUR
            account = RevokedAccount(namespace="ci", name="robot", issued_before=until)
            await put(here, f"account-{number}", CredentialRevocationSpec(account=account))
            signer = RevokedAuthority(signer_name=SIGNER, issued_before=until)
            await put(here, f"signer-{number}", CredentialRevocationSpec(authority=signer))
        latest = START + 2 * HOUR

        assert revocations.account_until(ROBOT) == int(latest.timestamp())
        assert revocations.authority_until(SIGNER) == latest
        with pytest.raises(Rejected):
            revocations.refuse_token(ROBOT, "jti", int(latest.timestamp()))
        revocations.refuse_token(ROBOT, "jti", int(latest.timestamp()) + 1)


@pytest.mark.parametrize(("begins", "refused"), [(NOW, True), (NOW + timedelta(seconds=1), False)])
async def test_a_certificate_without_a_record_is_refused_if_it_begins_by_then(
    begins: datetime, refused: bool
) -> None:
    """One that begins in the last second of the revocation may have been issued before it."""
    chain = VerifiedChain([chains.make(start=begins, end=begins + HOUR), chains.ROOT])
    async with world_of(*REVOCABLE) as here:
        revocations = Revocations(here.feed)
        signer = RevokedAuthority(signer_name=SIGNER, issued_before=NOW, keys=(chain.issuer_key,))
        await put(here, "signer", CredentialRevocationSpec(authority=signer))

        if refused:
            with pytest.raises(Rejected):
                revocations.refuse_certificate(chain, "jane")
        else:
            revocations.refuse_certificate(chain, "jane")
