"""Tokens of Secrets: when Secret and account end, revocations, and the date of use."""

from datetime import date, timedelta
from typing import Any

import pytest

from orchid.features.accounts.authenticators.secret_token import INVALIDATED, SecretTokens
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.credentials.token_claims import LegacyClaims
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.access.presenting import START
from tests.unit.kernel.access.world import World, world

CLAIMS = LegacyClaims("system:serviceaccount:ci:robot", "ci", "s", "robot", "a1")
TOKEN = "abc"


class Revoked:
    """Revocations of one account; refuses tokens that were issued until then."""

    def __init__(self, until: int) -> None:
        self._until = until

    def refuse_token(self, account: tuple[str, str], jti: str, issued_at: int) -> None:
        assert (account, jti) == (("ci", "robot"), "")
        if issued_at <= self._until:
            raise Rejected("revoked")


def secret(**meta: Any) -> Secret:
    named = {"name": "s", "namespace": "ci", "uid": "s1", "creation_timestamp": START, **meta}
    return Secret(metadata=ObjectMeta(**named), data={"token": TOKEN.encode()})


def account(**meta: Any) -> ServiceAccount:
    named = {"name": "robot", "namespace": "ci", "uid": "a1", **meta}
    return ServiceAccount(metadata=ObjectMeta(**named))


async def refusal(*found: Any, **parts: Any) -> str:
    async with world() as here:
        for one in found:
            await here.put(one)
        return judged(here, **parts)


def judged(here: World, token: str = TOKEN, **parts: Any) -> str:
    try:
        SecretTokens(here.feed, here.clock, ORCH, **parts).judge(CLAIMS, token)
    except Rejected as problem:
        return str(problem)
    return ""


async def test_a_secret_or_an_account_marked_for_deletion_ends_it() -> None:
    """Immediately, in contrast to a token that is bound to one."""
    marked = {"deletion_timestamp": START + timedelta(hours=1)}

    assert await refusal(secret(), account()) == ""
    assert await refusal(secret(**marked), account()) == INVALIDATED
    assert "ci/robot has been deleted" in await refusal(secret(), account(**marked))


async def test_the_objects_are_those_of_the_namespace_of_the_claims() -> None:
    assert await refusal(secret(namespace="test"), account()) == INVALIDATED
    elsewhere = ServiceAccount(metadata=ObjectMeta(name="robot", namespace="test", uid="a1"))
    assert "not found" in await refusal(secret(), elsewhere)


async def test_an_account_that_was_created_again_has_no_earlier_token() -> None:
    assert "does not match claim (a1)" in await refusal(secret(), account(uid="a2"))


@pytest.mark.parametrize("late", [0, 1])
async def test_a_revocation_counts_from_the_creation_of_the_secret(late: int) -> None:
    """A Secret that was created after it has a valid token again."""
    revocations: Any = Revoked(int(START.timestamp()) - late)

    found = await refusal(secret(), account(), revocations=revocations)
    unknown = await refusal(secret(creation_timestamp=None), account(), revocations=revocations)

    assert (found == "revoked") == (late == 0)
    assert unknown == ""


@pytest.mark.parametrize(
    ("label", "is_reported"),
    [("", True), ("2026-01-01", True), ("2026-01-02", False), ("2026-01-03", False)],
)
async def test_a_use_is_reported_once_a_day(label: str, is_reported: bool) -> None:
    """Also one that is refused then: somebody still has the token."""
    used: list[tuple[str, str, date]] = []
    labels = {ORCH.last_used_label: label} if label else {}
    marked = {ORCH.invalid_since_label: "2026-01-01"}

    def report(namespace: str, name: str, day: date) -> None:
        used.append((namespace, name, day))

    await refusal(secret(labels=labels), account(), used=report)
    assert used == ([("ci", "s", START.date())] if is_reported else [])
    await refusal(secret(labels=labels | marked), account(), used=report)
    assert len(used) == 2 * is_reported


async def test_a_wrong_token_is_no_use_of_it() -> None:
    used: list[Any] = []
    async with world() as here:
        await here.put(secret())
        await here.put(account())
        found = judged(here, "abd\udc80", used=lambda *use: used.append(use))

    assert found == "Token does not match server's copy"
    assert used == []
