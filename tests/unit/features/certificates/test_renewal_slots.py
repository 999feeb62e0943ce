"""Certificates of a replaced key renew in slots, spread over the time until it can retire."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.certificates.renewal_information import (
    RenewalInformation,
    RenewalWindow,
    certificate_id,
)
from orchid.features.revoking.replaced_keys import ReplacedKeys
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds import signing_key
from orchid.features.token_keys.kinds.signing_key import ACTIVE as ACTIVE_STATE
from orchid.features.token_keys.kinds.signing_key import VERIFYING, SigningKey
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.store.interface import StoreEvent
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.signing_key_status import KeyDependents, SigningKeyStatus, SigningKeyTimes
from tests.unit.features.beside import MovingClock

KEY = bytes(range(20))
ACTIVE = datetime(2030, 1, 10, tzinfo=UTC)  # the new key signs from then on
RETIRES = ACTIVE + timedelta(days=20)
ISSUED = ACTIVE - timedelta(days=10)


def windows(count: int, life: timedelta = timedelta(days=90)) -> list[RenewalWindow]:
    """The windows of certificates with consecutive serial numbers."""

    def record(name: str) -> IssuedCertificate:
        spec = IssuedCertificateSpec(
            authority_key=KEY.hex(), not_before=ISSUED, not_after=ISSUED + life
        )
        return IssuedCertificate(metadata=ObjectMeta(name=name), spec=spec)

    records: Any = SimpleNamespace(get=lambda _, name: SimpleNamespace(object=record(name)))
    revocations: Any = SimpleNamespace(is_final=lambda _: False)
    replaced = {KEY.hex(): (ACTIVE, RETIRES)}
    information = RenewalInformation(records, revocations, MovingClock(), replaced.get)
    found = [
        information.of(certificate_id(KEY, number.to_bytes(8, "big")))
        for number in range(1 << 60, (1 << 60) + count)
    ]
    return [one for one in found if one is not None]


def test_two_hundred_certificates_of_a_replaced_key_are_spread() -> None:
    """Over four fifths of the time; each window is a twentieth of it, and always the same."""
    found = windows(200)

    span = RETIRES - ACTIVE
    assert len(found) == 200
    assert all(one.end - one.start == span * 0.05 for one in found)
    assert all(one.start >= ACTIVE and one.end <= RETIRES for one in found)
    tenths = [int((one.start - ACTIVE) / (span * 0.08)) for one in found]
    assert sorted(set(tenths)) == list(range(10))
    assert max(tenths.count(tenth) for tenth in range(10)) <= 40
    assert windows(200) == found


def test_a_key_is_replaced_when_another_one_is_active() -> None:
    """From the status of its SigningKey; a token key, and a key without certificates, have none."""
    cache = KindCache(signing_key.declare(ORCH))
    feed: Any = SimpleNamespace(of=lambda _: cache)
    replaced = ReplacedKeys(feed)
    times = SigningKeyTimes(verifying=ACTIVE)
    status = SigningKeyStatus(key_id="ab", times=times, dependents=KeyDependents(end=RETIRES))

    def put(
        revision: int,
        state: str = VERIFYING,
        authority: str = "servers",
        renew_by: datetime | None = None,
    ) -> None:
        made = SigningKey(
            kind="SigningKey",
            api_version=cache.kind.api_version,
            metadata=ObjectMeta(name="servers-1", uid="1"),
            spec=SigningKeySpec(authority=authority, state=state, renew_by=renew_by),
            status=status,
        )
        key = cache.kind.key("", made.name)
        cache.apply([StoreEvent(key, encode(made), revision, None, 0)])

    put(1)
    assert replaced.get("ab") == (ACTIVE, RETIRES)
    assert replaced.get("cd") is None
    put(2, state=ACTIVE_STATE)
    assert replaced.get("ab") is None
    put(3, authority="")
    assert replaced.get("ab") is None
    hour, hurry = timedelta(hours=1), ACTIVE + timedelta(days=2)
    put(4, renew_by=hurry)  # an operator has chosen the hour
    assert replaced.get("ab") == (hurry - hour, hurry)
    put(5, state=ACTIVE_STATE, renew_by=hurry)  # it still signs: a renewal would change nothing
    assert replaced.get("ab") is None


def test_a_certificate_that_is_due_earlier_keeps_its_window() -> None:
    """The slot only brings a renewal forward: a short certificate renews at 60 % of its life."""
    life = timedelta(days=10, hours=1)

    found = windows(50, life)

    assert all(one.start == ISSUED + 0.6 * life for one in found if one.start < ACTIVE)
    assert {one.start < ACTIVE for one in found} == {True}
