"""The keys in the revocation of a signer are those of the moment when it was made."""

from typing import Any

from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.features.revoking.policies.revoked_keys import RevokedKeys
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedAuthority
from tests.unit.features.asking import a_request

KIND: Any = credential_revocation.declare(ORCH)
TARGET = Target(verb="update", is_resource=True, resource="credentialrevocations", name="all")


async def test_keys_are_added_once() -> None:
    """A later key signs what is not revoked; the keys of then stay when labels change."""
    policy = RevokedKeys(lambda _signer: ["later"])
    named = RevokedAuthority(signer_name="example.com/web", keys=("then",))
    one = CredentialRevocation(
        metadata=ObjectMeta(name="all"), spec=CredentialRevocationSpec(authority=named)
    )

    created: Any = await policy.admit(a_request(TARGET), KIND, one, None)
    updated: Any = await policy.admit(a_request(TARGET), KIND, one, one)

    assert created.spec.authority.keys == ("later",)
    assert updated.spec.authority.keys == ("then",)
