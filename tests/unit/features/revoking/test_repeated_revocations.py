"""A second revocation of a credential is only accepted if it revokes more."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revocation.kinds.credential_revocation import (
    HOLD,
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.features.revoking.policies.repeated_revocations import (
    MOST_OF_ONE_TARGET,
    AlreadyRevoked,
    RepeatedRevocations,
    stays,
)
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedKey, RevokedToken
from tests.unit.features.asking import NOW, a_request

KIND: Any = credential_revocation.declare(ORCH)
TARGET = Target(verb="create", is_resource=True, resource="credentialrevocations")


def one(name: str, reason: str = "", jti: str = "7", cluster: str = "") -> CredentialRevocation:
    spec = CredentialRevocationSpec(token=RevokedToken(jti=jti), reason=reason, cluster=cluster)
    meta = ObjectMeta(name=name, creation_timestamp=NOW)
    return CredentialRevocation(metadata=meta, spec=spec)


def among(*others: CredentialRevocation) -> RepeatedRevocations:
    entries = {other.name: SimpleNamespace(object=other) for other in others}
    cache: Any = SimpleNamespace(entries=entries)
    return RepeatedRevocations(cache, lambda spec: [*entries, "deleted meanwhile"])


def warnings(new: CredentialRevocation, *others: CredentialRevocation) -> list[str]:
    request = a_request(TARGET)
    among(*others).refuse_repeated(request, KIND, new)
    return request.warnings


def test_the_first_one_that_covers_it_is_named() -> None:
    with pytest.raises(AlreadyRevoked, match='"b" already revokes this'):
        warnings(one("new"), one("c"), one("b"), one("a", HOLD))


def test_a_more_serious_reason_is_accepted_with_a_warning() -> None:
    compromised = one("new", "keyCompromise")

    assert warnings(compromised) == []
    assert warnings(compromised, one("b"), one("a", HOLD)) == ['already revoked by "a" and 1 more']
    assert warnings(compromised, one("b")) == ['already revoked by "b"']


@pytest.mark.parametrize("other", [one("a", jti="8"), one("a", cluster="prod"), one("new")])
def test_a_revocation_of_another_credential_is_no_other_one(other: CredentialRevocation) -> None:
    """Nor is the revocation itself, when it is created again under its name."""
    assert warnings(one("new"), other) == []
    assert not among(other).is_superseded(one("new"))


def test_one_target_has_a_limited_number_of_revocations() -> None:
    holds = [one(f"h{number}", HOLD) for number in range(MOST_OF_ONE_TARGET)]

    assert len(warnings(one("new"), *holds[1:])) == 1
    with pytest.raises(Forbidden, match="delete those that are superseded"):
        warnings(one("new"), *holds)


def test_one_that_another_covers_is_superseded() -> None:
    """Not one that revokes more, and of two equal ones only the later."""
    assert among(one("b", "keyCompromise")).is_superseded(one("a"))
    assert not among(one("b", HOLD)).is_superseded(one("a"))
    assert not among(one("b")).is_superseded(one("a"))
    assert among(one("a")).is_superseded(one("b"))
    assert not among().is_superseded(one("a"))


def test_the_refusal_says_how_long_a_revocation_stays() -> None:
    key = CredentialRevocationSpec(key=RevokedKey(name="tokens-1"))
    status = CredentialRevocationStatus(expires=NOW)

    assert "stays for good" in str(stays(KIND, CredentialRevocation(spec=key, status=status)))
    assert "until 2026-01-02T03:04:05Z" in str(stays(KIND, CredentialRevocation(status=status)))
    assert "it stays until what it revokes" in str(stays(KIND, one("a")))
