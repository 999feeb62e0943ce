"""Bootstrap tokens: one way to be good, many silent ways to be not."""

import pytest

from orchid.features.objects.kinds import secret
from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.authenticators.bootstrap_token import BootstrapTokenAuthenticator
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedUser
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.access.presenting import API, START
from tests.unit.kernel.access.world import REVOCABLE, World, revocation, world_of

TOKEN = "abcdef.0123456789abcdef"
DATA = {
    "token-id": b"abcdef",
    "token-secret": b"0123456789abcdef",
    "usage-bootstrap-authentication": b"true",
    "expiration": b"2026-01-02T04:04:05Z",
    "auth-extra-groups": b"system:bootstrappers:nodes,system:bootstrappers:a",
}
SECRET = Secret(
    metadata=ObjectMeta(name="bootstrap-token-abcdef", namespace="orch-system", uid="uid-1"),
    type=ORCH.bootstrap_token_type,
    data=DATA,
)


def authenticator(here: World) -> BootstrapTokenAuthenticator:
    return BootstrapTokenAuthenticator(here.feed, here.clock, API, ORCH)


async def test_good_token_names_its_id_and_groups(here: World) -> None:
    """User by id, groups sorted, no uid and no extra."""
    await here.put(SECRET)

    found = await authenticator(here).authenticate_token(TOKEN, API)

    assert found is not None
    assert found.user.username == "system:bootstrap:abcdef"
    assert found.user.uid == ""
    assert found.user.groups == (
        "system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:nodes",
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"token-secret": b"0123456789abcdee"},
        {"token-secret": b""},
        {"token-id": b"abcdeg"},
        {"usage-bootstrap-authentication": b"True"},
        {"usage-bootstrap-authentication": b""},
        {"expiration": b"2026-01-02T03:04:05Z"},
        {"expiration": b"tomorrow"},
        {"expiration": b"2026-13-99T99:99:99Z"},
        {"expiration": b"0001-01-01T00:00:00+23:59"},
        {"auth-extra-groups": b"system:masters"},
        {"auth-extra-groups": b"system:bootstrappers:ok,system:bootstrappers:Bad"},
        {"auth-extra-groups": b"system:bootstrappers:a\n"},
        {"auth-extra-groups": b"\xff"},
    ],
)
async def test_anything_wrong_is_silently_no_token(here: World, change: dict[str, bytes]) -> None:
    """The answer reveals nothing about a guessed token."""
    await here.put(replace(SECRET, data={**DATA, **change}))

    assert await authenticator(here).authenticate_token(TOKEN, API) is None


@pytest.mark.parametrize(
    "token", ["", "abcdef", "ABCDEF.0123456789abcdef", f"{TOKEN}\n", f" {TOKEN}", "é" * 23]
)
async def test_other_forms_are_not_ours(here: World, token: str) -> None:
    """Six and sixteen small letters or digits around a dot, nothing else."""
    await here.put(SECRET)

    assert await authenticator(here).authenticate_token(token, API) is None


async def test_secret_of_another_type_or_marked_for_deletion_is_no_token(here: World) -> None:
    """Its type says what it is for."""
    await here.put(replace(SECRET, type="Opaque"))
    assert await authenticator(here).authenticate_token(TOKEN, API) is None

    await here.put(SECRET.with_meta(deletion_timestamp=START, finalizers=("x/y",)))
    assert await authenticator(here).authenticate_token(TOKEN, API) is None


async def test_expiry_and_deletion_are_felt_at_once(here: World) -> None:
    """The Secret of this moment counts, in every use."""
    await here.put(SECRET)
    tokens = authenticator(here)
    assert await tokens.authenticate_token(TOKEN, API) is not None

    here.clock.advance(3600)
    assert await tokens.authenticate_token(TOKEN, API) is None
    here.clock.advance(-3600)
    await here.delete(SECRET)
    assert await tokens.authenticate_token(TOKEN, API) is None


async def test_token_is_good_for_the_api_alone(here: World) -> None:
    """It knows no audiences."""
    await here.put(SECRET)

    assert await authenticator(here).authenticate_token(TOKEN, ("x",)) is None


async def test_the_token_of_a_revoked_user_is_refused() -> None:
    """The revocation has its user name; other tokens stay valid."""
    async with world_of(*REVOCABLE, secret.declare(ORCH)) as here:
        tokens = BootstrapTokenAuthenticator(
            here.feed, here.clock, API, ORCH, Revocations(here.feed)
        )
        await here.put(SECRET)
        other = RevokedUser(username="system:bootstrap:ghijkl", issued_before=START)
        await here.put(revocation("other", other))
        before = await tokens.authenticate_token(TOKEN, API)

        user = RevokedUser(username="system:bootstrap:abcdef", issued_before=START)
        await here.put(revocation("r", user))

        assert before is not None
        with pytest.raises(Rejected, match="credentials of this user have been revoked"):
            await tokens.authenticate_token(TOKEN, API)


async def test_a_token_bound_to_a_host_says_so(here: World) -> None:
    """The name is an extra of the user; a malformed one makes the token invalid."""
    found = []
    for name in (b"web-1.example.com", b"Web_1", b""):
        await here.put(replace(SECRET, data=DATA | {"node-name": name}))
        found.append(await authenticator(here).authenticate_token(TOKEN, API))

    assert [one and one.user.extra for one in found] == [
        {ORCH.bound_node_name: ("web-1.example.com",)},
        None,
        {},
    ]
