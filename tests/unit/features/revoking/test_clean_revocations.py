"""Revocations that are no longer needed, and those that another one repeats or extends."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
    CredentialRevocationStatus,
)
from orchid.features.revoking.controllers.clean_revocations import CleanRevocations
from orchid.kernel.client.client import Client
from orchid.kernel.wire.errors import ErrorSubject, Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.revoked_credentials import (
    RevokedAuthority,
    RevokedCertificate,
    RevokedToken,
    RevokedUser,
)
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.access.presenting import FakeClock

NOW = FakeClock().now()
LATER = datetime(2100, 1, 1, tzinfo=UTC)
HOUR, WEEK = timedelta(hours=1), timedelta(days=7)
TOKEN = {"token": RevokedToken(jti="7", namespace="ci", name="robot", expires=LATER)}


def revocation(
    name: str, expires: datetime | None = LATER, age: int = 0, **spec: Any
) -> CredentialRevocation:
    meta = ObjectMeta(name=name, uid=name, creation_timestamp=NOW - timedelta(minutes=age))
    return CredentialRevocation(
        metadata=meta,
        spec=CredentialRevocationSpec(**(spec or TOKEN)),
        status=CredentialRevocationStatus(expires=expires),
    )


async def swept(*stored: CredentialRevocation, client: Any = None) -> list[str]:
    used = client or SmallClient(*stored)
    await CleanRevocations(cast(Client, used), FakeClock()).sweep()
    return [one.name for one in used.written("delete")]


CERTIFICATE = {"certificate": RevokedCertificate(sha256="f")}
USER = {"user": RevokedUser(username="bob", issued_before=NOW)}


@pytest.mark.parametrize(
    ("expires", "spec", "is_deleted"),
    [
        (NOW - WEEK - HOUR, TOKEN, True),
        (NOW - WEEK - HOUR + timedelta(seconds=1), TOKEN, False),
        (NOW - WEEK - HOUR, USER, True),
        (NOW - HOUR, CERTIFICATE, False),
        (NOW - WEEK - HOUR, CERTIFICATE, True),
        (None, TOKEN, False),
    ],
)
async def test_a_revocation_is_deleted_a_week_after_its_end(
    expires: datetime | None, spec: Any, is_deleted: bool
) -> None:
    """And an hour, for servers whose clock is behind; one without an end stays."""
    assert bool(await swept(revocation("r", expires, **spec))) is is_deleted


async def test_the_earlier_one_of_two_that_are_equal_stays() -> None:
    """In each order; another target or reason is another one."""
    first, second, third = (revocation(str(age), age=age) for age in (3, 2, 1))

    assert await swept(first, second, third) == ["2", "1"]
    assert await swept(third, second, first) == ["1", "2"]
    other = revocation("other", **CERTIFICATE)
    graver = revocation("graver", reason="keyCompromise", **TOKEN)
    assert await swept(first, other, graver) == []


async def test_one_that_revokes_more_takes_the_place() -> None:
    """Also of one that is earlier."""
    less = revocation("less", age=9, user=RevokedUser(username="bob", issued_before=NOW - HOUR))
    more = revocation("more", age=1, **USER)

    assert await swept(less, more) == ["less"]
    assert await swept(more, less) == ["less"]
    third = revocation("third", age=2, user=RevokedUser(username="bob", issued_before=NOW - WEEK))
    assert await swept(less, more, third) == ["less", "third"]


@pytest.mark.parametrize(
    "spec",
    [
        {**TOKEN, "reason": "certificateHold"},
        {"authority": RevokedAuthority(signer_name="s", issued_before=NOW)},
    ],
)
async def test_holds_and_those_of_a_signer_stay(spec: Any) -> None:
    """A deletion would be recorded as a release; and lists have the date of the first."""
    assert await swept(revocation("a", age=2, **spec), revocation("b", age=1, **spec)) == []


async def test_a_refusal_does_not_stop_the_others() -> None:
    """The server knows of a later end."""

    class Refusing(SmallClient):
        async def delete_gone(self, type_: Any, old: Any, **options: str) -> None:
            if old.name == "first":
                raise Forbidden(ErrorSubject("credentialrevocations", "x"), "until later")
            await super().delete_gone(type_, old, **options)

    end = NOW - WEEK - HOUR
    client = Refusing(revocation("first", end), revocation("second", end, **USER))

    assert await swept(client=client) == ["second"]


async def test_one_that_was_deleted_meanwhile_supersedes_nothing() -> None:
    class Gone(SmallClient):
        async def find(self, type_: Any, name: str, namespace: str = "") -> Any:
            return None if name == "first" else await super().find(type_, name, namespace)

    client = Gone(*(revocation(name, age=age) for name, age in (("first", 3), ("b", 2), ("c", 1))))

    assert await swept(client=client) == ["c"]
