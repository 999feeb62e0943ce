"""SigningKey: its fields, its steps, and the one function that selects signer and verifiers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.token_keys.key_selection import select
from orchid.features.token_keys.key_source import SigningKeySpec
from orchid.features.token_keys.kinds.signing_key import (
    ACTIVE,
    FILE,
    MADE,
    PUBLISHED,
    RETIRED,
    STATES,
    VERIFYING,
    SigningKey,
    declare,
    key_changes,
    revoked_identities,
)
from orchid.kernel.credentials import keys
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedKey
from orchid.kernel.wire.signing_key_status import SigningKeyStatus, SigningKeyTimes
from orchid.kernel.wire.struct import replace
from tests.unit.features.asking import a_request
from tests.unit.features.rights.policy_world import ask

KIND = declare(ORCH)
NOW = datetime(2026, 5, 1, tzinfo=UTC)
PRIVATE = keys.generate()
PUBLIC = PRIVATE.public.pem()
OF_A = {"publicKey": PUBLIC, "cluster": "a"}


def sent(name: str = "tokens-2", **spec: Any) -> SigningKey:
    """A key as the server sees it: what was sent, and the defaults."""
    assert KIND.defaults is not None
    plain = {"metadata": {"name": name}, "spec": spec}
    return KIND.defaults(convert(plain, SigningKey))


def problems(new: SigningKey) -> list[str]:
    return [str(error) for error in KIND.rules.validate(new)]


def changes(new: SigningKey, old: SigningKey) -> list[str]:
    return [str(error) for error in KIND.rules.validate_update(new, old)]


def test_a_key_that_waits_for_its_certificate_is_not_in_the_ledger() -> None:
    """A successor below an authority elsewhere; it has no certificate that could name it."""
    waiting = replace(stored(2, PUBLISHED), spec=SigningKeySpec(authority="web", state=PUBLISHED))
    revoked = replace(waiting, spec=replace(waiting.spec, state=RETIRED))
    request = a_request(ask("create", "signingkeys"))

    assert list(key_changes(waiting, None, request)) == []
    assert list(key_changes(revoked, waiting, request)) == []


def stored(
    number: int, state: str, *, active: int | None = None, born: int = 0, source: str = MADE
) -> SigningKey:
    times = SigningKeyTimes(active=None if active is None else NOW + timedelta(seconds=active))
    return SigningKey(
        metadata=ObjectMeta(
            name=f"tokens-{number}",
            uid=f"uid-{number:04d}",
            creation_timestamp=NOW + timedelta(seconds=born),
        ),
        spec=SigningKeySpec(algorithm="ES256", state=state),
        status=SigningKeyStatus(key_id=f"kid-{number}", source=source, times=times),
    )


# --- fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", keys.MADE_ALGORITHMS)
def test_a_key_that_the_server_creates_starts_as_published(algorithm: str) -> None:
    """Nothing but the algorithm is needed."""
    new = sent(algorithm=algorithm)

    assert problems(new) == []
    assert new.state == PUBLISHED


def test_a_public_key_starts_as_verifying() -> None:
    """It verifies and never signs."""
    of_cluster = sent("clusters.prod-1", publicKey=PUBLIC, cluster="prod")

    assert problems(of_cluster) == []
    assert of_cluster.state == VERIFYING


@pytest.mark.parametrize(
    ("name", "spec", "text"),
    [
        ("tokens-2", {}, "spec: Required value: exactly one of"),
        ("tokens-2", {"algorithm": "ES256", "publicKey": PUBLIC}, "exactly one of"),
        ("tokens-2", {"publicKey": PUBLIC}, "spec.cluster: Required value: the Cluster whose"),
        ("tokens-2", {"publicKey": PUBLIC, "cluster": "prod"}, "must be clusters.prod- and a num"),
        ("clusters.prod-1", {"algorithm": "ES256", "cluster": "prod"}, "spec.cluster: Forbidden"),
        ("tokens-2", {"algorithm": "HS256"}, "spec.algorithm: Unsupported value"),
        ("tokens-02", {"algorithm": "ES256"}, "metadata.name: Invalid value"),
        ("mine", {"algorithm": "ES256"}, "metadata.name: Invalid value"),
        ("tokens-2", {"algorithm": "ECDSA-P256", "authority": "web"}, "must be web- and a number"),
        ("web-2", {"algorithm": "ES256", "authority": "web"}, "spec.algorithm: Unsupported value"),
        ("web-2", {"publicKey": PUBLIC, "authority": "web"}, "spec.publicKey: Forbidden"),
        ("tokens-2", {"algorithm": "ES256", "state": ACTIVE}, "a new key of this source is"),
        ("tokens-2", {"algorithm": "ES256", "state": "Mine"}, "spec.state: Unsupported value"),
        ("clusters.a-2", {**OF_A, "state": PUBLISHED}, "a new key of this source is"),
        ("clusters.a-2", {**OF_A, "publicKey": "nothing"}, "spec.publicKey: Invalid value"),
        ("clusters.a-2", {**OF_A, "publicKey": PUBLIC * 2}, "must be one PEM block"),
        ("clusters.a-2", {**OF_A, "publicKey": "x" * 20_000}, "spec.publicKey: Too long"),
        ("tokens-2", {"secretRef": {"name": "k"}}, "spec.secretRef.namespace: Required value"),
    ],
)
def test_bad_keys_are_refused(name: str, spec: dict[str, Any], text: str) -> None:
    """Each with its field and the reason."""
    (found,) = problems(sent(name, **spec))

    assert text in found


def test_a_private_key_is_never_taken_for_a_public_one() -> None:
    """The object is readable by many; the refusal does not repeat it."""
    private = PRIVATE.pem().reveal()
    (found,) = problems(sent("clusters.a-1", publicKey=private, cluster="a"))

    assert "must be one PEM block with a public key" in found
    assert "PRIVATE" not in found


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_only_some_steps_exist(before: str, after: str) -> None:
    """A state follows another only as docs/rotation.md says."""
    old = stored(1, before)
    new = replace(old, spec=replace(old.spec, state=after))
    back = before == VERIFYING and after == ACTIVE
    onward = STATES.index(after) == STATES.index(before) + 1
    revoked = after == RETIRED

    assert (changes(new, old) == []) == (before == after or back or onward or revoked)


def test_nothing_but_the_state_changes() -> None:
    """The identity of a key never changes."""
    old = stored(1, PUBLISHED)
    new = replace(old, spec=replace(old.spec, algorithm="ES384"))

    assert "field is immutable" in changes(new, old)[0]


def test_a_public_key_never_becomes_active() -> None:
    """There is nothing to sign with."""
    old = sent(publicKey=PUBLIC)

    assert changes(replace(old, spec=replace(old.spec, state=ACTIVE)), old)


def test_steps_are_entries_of_the_ledger() -> None:
    """A key that was made, began to sign, or no longer verifies; files are recorded elsewhere."""
    request = a_request(ask("update", "signingkeys"))
    new, active, retired = (stored(1, state) for state in (PUBLISHED, ACTIVE, RETIRED))

    def facts(after: SigningKey | None, before: SigningKey | None) -> list[str]:
        return [fact.type for fact in key_changes(after, before, request)]

    assert facts(new, None) == ["token-key.made"]
    assert facts(active, new) == ["token-key.activated"]
    assert facts(retired, active) == ["token-key.retired"]
    assert facts(None, new) == ["token-key.retired"]
    assert facts(None, retired) == []
    assert facts(stored(1, ACTIVE, source=FILE), None) == []


# --- the selection ----------------------------------------------------------------------------

some_keys = st.lists(
    st.tuples(st.sampled_from(STATES), st.integers(0, 3), st.integers(0, 3)), max_size=7
).map(
    lambda rows: [
        stored(number, state, active=active if state != PUBLISHED else None, born=born)
        for number, (state, active, born) in enumerate(rows)
    ]
)


@given(some_keys, st.sets(st.integers(0, 6)), st.randoms())
def test_the_selection_depends_on_the_objects_alone(
    objects: list[SigningKey], revoked: set[int], random: Any
) -> None:
    """In whatever order a server has read them, it selects the same keys."""
    ids = {f"kid-{number}" for number in revoked}
    shuffled = random.sample(objects, len(objects))

    assert select(shuffled, ids) == select(objects, ids)


@given(some_keys, st.sets(st.integers(0, 6)))
def test_what_is_selected(objects: list[SigningKey], revoked: set[int]) -> None:
    """No revoked or Retired key verifies; the signer verifies and is the first of the JWKS."""
    ids = {f"kid-{number}" for number in revoked}
    usable = [key for key in objects if key.state != RETIRED and key.key_id not in ids]
    found = select(objects, ids)

    assert sorted(key.name for key in found.verifying) == sorted(key.name for key in usable)
    active = [key for key in usable if key.state == ACTIVE]
    published = [key for key in usable if key.state == PUBLISHED]
    if not active and not published:
        assert found.signer is None
        return
    assert found.signer is not None
    assert found.verifying[0] == found.signer
    if active:
        latest = max((key.status.times.active or NOW, key.metadata.uid) for key in active)
        assert found.signer.metadata.uid == latest[1]
    else:
        oldest = min(
            (key.metadata.creation_timestamp or NOW, key.metadata.uid) for key in published
        )
        assert found.signer.metadata.uid == oldest[1]
    others = [key.state == PUBLISHED for key in found.verifying[1:]]
    assert others == sorted(others, reverse=True)


def test_keys_of_files_are_only_shown() -> None:
    """The files decide, not the object."""
    assert select([stored(1, ACTIVE, source=FILE)], ()).verifying == ()


@pytest.mark.parametrize(
    ("public", "named", "is_revoked"),
    [
        (PUBLIC, {"key_id": "kid-1"}, True),
        (PUBLIC, {"key_id": "another id", "sha256": keys.pem_sha256(PUBLIC)}, True),
        (PUBLIC, {"key_id": "another id", "sha256": "0" * 64}, False),
        (PUBLIC, {"key_id": "another id"}, False),
        (
            PUBLIC,
            {"name": "clusters.a-1", "key_id": "another id", "sha256": keys.pem_sha256(PUBLIC)},
            False,
        ),
        ("", {"key_id": "another id"}, False),
        ("unreadable", {"key_id": "another id", "sha256": keys.pem_sha256(PUBLIC)}, False),
        ("unreadable", {"key_id": "kid-1", "sha256": keys.pem_sha256(PUBLIC)}, True),
    ],
)
def test_a_key_is_revoked_by_its_id_or_its_public_key(
    public: str, named: dict[str, str], *, is_revoked: bool
) -> None:
    """One key has a different id as a token key and as that of an authority."""
    key = stored(1, ACTIVE)
    key = replace(key, status=replace(key.status, public_key=public))
    identities = revoked_identities(RevokedKey(**{"name": "web-1", **named}))

    assert key.is_revoked(identities) is is_revoked
    assert select([key], identities).signers == (() if is_revoked else (key,))


def test_without_an_active_key_the_oldest_published_one_signs() -> None:
    """After the revocation of the only Active key no server is without a signer."""
    objects = [stored(1, ACTIVE), stored(3, PUBLISHED, born=2), stored(2, PUBLISHED, born=1)]

    assert [key.name for key in select(objects, {"kid-1"}).signers] == ["tokens-2", "tokens-3"]


def test_the_key_of_a_cluster_is_never_selected() -> None:
    """Neither among token keys, whatever its name, nor for an authority of the cluster's name."""
    own, foreign = stored(1, ACTIVE, active=1), stored(2, VERIFYING)
    foreign = replace(foreign, spec=replace(foreign.spec, algorithm="", cluster="prod"))

    assert select([own, foreign], ()).verifying == (own,)
    assert select([foreign], (), "clusters.prod").verifying == ()
    assert foreign.group == "clusters.prod"
