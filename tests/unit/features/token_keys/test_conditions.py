"""When the key of an authority may sign, and when none of its certificates needs it any more."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.objects.kinds.lease import ServerKeys
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    VERIFYING,
    SigningKey,
)
from orchid.features.token_keys.policies.conditions import HINTS, AuthorityKeyConditions
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.signing_key_status import KeyDependents, SigningKeyStatus, SigningKeyTimes
from tests.unit.kernel.credentials.chains import authority, make

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PUBLISH, HINT, MINUTE = timedelta(hours=24), timedelta(hours=1), timedelta(minutes=1)


def text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


ROOT, OTHER = text(authority()), text(authority("another"))
BELOW = text(make(ca=True, usages=None))


def key(number: int, state: str, chain: str = "", cross: str = "", **times: Any) -> SigningKey:
    return SigningKey(
        metadata=ObjectMeta(name=f"web-{number}", uid=f"uid-{number}"),
        spec=SigningKeySpec(authority="web", state=state),
        status=SigningKeyStatus(
            key_id=f"kid-{number}",
            certificate=chain,
            cross_certificate=cross,
            times=SigningKeyTimes(**times),
        ),
    )


def conditions(*keys: SigningKey, live: int = 0) -> AuthorityKeyConditions:
    return AuthorityKeyConditions(
        lambda one: KeyDependents(live=live),
        lambda name: [one for one in keys if one.spec.authority == name],
        lambda one: [],
        PUBLISH,
        lambda name: HINT if name == "web" else timedelta(),
    )


def activation(new: SigningKey, *others: SigningKey, now: datetime = NOW) -> str:
    servers = {"one": ServerKeys(keys=frozenset((new.key_id,)))}
    return "; ".join(conditions(new, *others).activation_reasons(new, servers, now))


@pytest.mark.parametrize(("left", "waits"), [(MINUTE, True), (timedelta(), False)])
def test_a_new_root_waits_for_three_refresh_hints(left: timedelta, *, waits: bool) -> None:
    """After the publish time: clients of the bundle fetch it again by then."""
    published = NOW - PUBLISH - HINTS * HINT + left
    new = key(2, PUBLISHED, OTHER, published=published)

    assert bool(activation(new, key(1, ACTIVE, ROOT))) is waits


@pytest.mark.parametrize(
    ("state", "chain", "waits"),
    [
        (ACTIVE, ROOT, False),
        (VERIFYING, ROOT, False),
        (RETIRED, ROOT, True),  # no bundle has it any more
        (PUBLISHED, ROOT, True),  # it waits itself
        (ACTIVE, OTHER, True),
        (ACTIVE, "", True),
        (ACTIVE, "no certificate", True),
    ],
)
def test_a_root_that_is_published_already_needs_no_wait(
    state: str, chain: str, *, waits: bool
) -> None:
    """It is at the top of another key that signs or signed."""
    new = key(2, PUBLISHED, BELOW + ROOT, published=NOW)

    assert bool(activation(new, key(1, state, chain, published=NOW))) is waits
    assert "publish time" in activation(new)  # its own root is no other's


@pytest.mark.parametrize(
    ("state", "active", "cross", "stays"),
    [
        (VERIFYING, NOW - MINUTE, "cross", True),
        (VERIFYING, NOW, "cross", False),
        (VERIFYING, NOW + MINUTE, "cross", False),  # it came later
        (VERIFYING, None, "cross", False),
        (ACTIVE, NOW - MINUTE, "cross", False),
        (RETIRED, NOW - MINUTE, "cross", False),
        (VERIFYING, NOW - MINUTE, "", False),
    ],
)
def test_keys_are_retired_in_order(
    state: str, active: datetime | None, cross: str, *, stays: bool
) -> None:
    """A key that an earlier one certified stays while verifiers may trust only that one."""
    old = key(2, VERIFYING, ROOT, cross, active=NOW, verifying=NOW - PUBLISH)
    other = key(1, state, OTHER, active=active)

    reasons = conditions(old, other).retirement_reasons(old, {}, KeyDependents(), NOW)

    assert bool(reasons) is stays
    assert ("web-1" in "".join(reasons)) is stays


@pytest.mark.parametrize(
    ("since", "live", "unknown", "stays"),
    [
        (NOW - 2 * MINUTE, 0, None, False),
        (NOW - 2 * MINUTE + timedelta(seconds=1), 0, None, True),
        (None, 0, None, True),
        (NOW - PUBLISH, 1, None, True),
        (NOW - PUBLISH, 0, NOW + MINUTE, True),
        (NOW - PUBLISH, 0, NOW, False),
    ],
)
def test_a_key_is_retired_when_nothing_needs_it(
    since: datetime | None, live: int, unknown: datetime | None, *, stays: bool
) -> None:
    """No certificate is under way, recorded, or from before its import."""
    old = key(1, VERIFYING, ROOT, verifying=since)
    found = KeyDependents(live=live, unknown_until=unknown)

    assert bool(conditions(old).retirement_reasons(old, {}, found, NOW)) is stays


def test_a_server_without_the_key_blocks_its_activation() -> None:
    """Also if its root is published already."""
    new, signer = key(2, PUBLISHED, BELOW + ROOT, published=NOW - 9 * PUBLISH), key(1, ACTIVE, ROOT)
    servers = {"one": ServerKeys(keys=frozenset((new.key_id,))), "two": ServerKeys()}

    (reason,) = conditions(new, signer).activation_reasons(new, servers, NOW)

    assert reason == "1 of 2 live servers without it: two"
