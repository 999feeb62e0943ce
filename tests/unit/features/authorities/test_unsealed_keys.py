"""In a store that does not encrypt, only the Secret of an authority is refused, when it is new."""

from typing import Any

import pytest

from orchid.features.authorities.policies.unsealed_keys import UnsealedKeys
from orchid.features.objects.kinds import secret
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.asking import a_request

KIND: Any = secret.declare(ORCH)
CREATE = Target(verb="create", is_resource=True, resource="secrets", namespace="s", name="k")


def owned_by(*owners: tuple[str, bool]) -> Secret:
    references = tuple(
        OwnerReference(kind=kind, name="web", uid="u", controller=controls)
        for kind, controls in owners
    )
    return Secret(metadata=ObjectMeta(name="k", namespace="s", owner_references=references))


AUTHORITY = ("CertificateAuthority", True)


@pytest.mark.parametrize("key", [owned_by(AUTHORITY), owned_by(("Pod", False), AUTHORITY)])
async def test_the_key_of_an_authority_is_refused(key: Secret) -> None:
    with pytest.raises(Forbidden, match="encryption-provider-config"):
        await UnsealedKeys().review(a_request(CREATE), KIND, key, None)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (owned_by(), None),
        (owned_by(("CertificateAuthority", False)), None),
        (owned_by(("Pod", True)), None),
        (owned_by(AUTHORITY), owned_by(AUTHORITY)),
        (None, owned_by(AUTHORITY)),
    ],
)
async def test_other_secrets_and_those_that_exist_are_not(new: Any, old: Any) -> None:
    """The key that a user provides, and a Secret from before, which can also be deleted."""
    await UnsealedKeys().review(a_request(CREATE), KIND, new, old)
