"""Impersonation: each attribute needs its own right, and nothing of the caller carries over."""

import contextlib
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.access.impersonation.impersonation import Impersonation, unescaped
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import BadRequest, Forbidden
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import presented

ALICE = UserInfo(username="alice", uid="1", groups=("dev",), extra={"own": ("x",)})


class Rights:
    """Allows the verb `impersonate`, on everything or everything but one resource."""

    def __init__(self, refused: str = "", reason: str = "") -> None:
        self._refused = refused
        self._reason = reason
        self.asked: list[Target] = []

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        assert user is ALICE
        if target.verb != "impersonate":
            return Decision(Verdict.NO_OPINION)
        self.asked.append(target)
        if target.resource == self._refused:
            return Decision(Verdict.NO_OPINION, self._reason)
        return Decision(Verdict.ALLOW)


async def become(*headers: tuple[str, str], rights: Rights | None = None) -> UserInfo | None:
    """Act as another by the plain right; the constrained modes have tests of their own."""
    impersonation = Impersonation(ORCH, rights or Rights(), monotonic)
    target = Target("get", "/api")
    found = await impersonation.apply(ALICE, presented(*headers), target)
    assert found is None or found.constraint == ""
    return found and found.user


async def test_without_headers_one_stays_oneself() -> None:
    """No header, or an empty user alone, asks for nobody."""
    rights = Rights()

    assert await become(("Accept", "x"), rights=rights) is None
    assert await become(("Impersonate-User", ""), rights=rights) is None
    assert rights.asked == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("Impersonate-User", "carol")], UserInfo("carol", groups=("system:authenticated",))),
        (
            [
                ("Impersonate-User", "carol"),
                ("Impersonate-Group", "g1"),
                ("impersonate-group", "g2,g3"),
            ],
            UserInfo("carol", groups=("g1", "g2,g3", "system:authenticated")),
        ),
        (
            [("Impersonate-User", "carol"), ("Impersonate-Uid", "u-1")],
            UserInfo("carol", uid="u-1", groups=("system:authenticated",)),
        ),
        (
            [("Impersonate-User", "system:serviceaccount:ci:app")],
            UserInfo(
                "system:serviceaccount:ci:app",
                groups=(
                    "system:serviceaccounts",
                    "system:serviceaccounts:ci",
                    "system:authenticated",
                ),
            ),
        ),
        (
            [("Impersonate-User", "system:serviceaccount:ci:app"), ("Impersonate-Group", "g")],
            UserInfo("system:serviceaccount:ci:app", groups=("g", "system:authenticated")),
        ),
        (
            [("Impersonate-User", "system:anonymous")],
            UserInfo("system:anonymous", groups=("system:unauthenticated",)),
        ),
        (
            [("Impersonate-User", "x"), ("Impersonate-Group", "system:unauthenticated")],
            UserInfo("x", groups=("system:unauthenticated",)),
        ),
        (
            [("Impersonate-User", "system:node:n1")],
            UserInfo("system:node:n1", groups=("system:authenticated",)),
        ),
    ],
)
async def test_the_resulting_user(headers: list[tuple[str, str]], expected: UserInfo) -> None:
    """Exactly what was asked for, with the groups that come with it, and nothing of the caller."""
    assert await become(*headers) == expected


async def test_extra_keys_are_lower_cased_then_decoded() -> None:
    """Header names know no case, and a slash travels as an escape; values repeat."""
    found = await become(
        ("Impersonate-User", "carol"),
        ("Impersonate-Extra-Scopes", "view"),
        ("Impersonate-Extra-Scopes", "Edit"),
        ("Impersonate-Extra-ACME.com%2Fproject", "p1"),
        ("Impersonate-Extra-bad%zz", "z"),
    )

    assert found is not None
    assert found.extra == {
        "acme.com/project": ("p1",),
        "bad%zz": ("z",),
        "scopes": ("view", "Edit"),
    }


async def test_every_attribute_is_asked_for_in_order() -> None:
    """Name, uid, groups, extra: each its own question, in its own API group."""
    rights = Rights()

    await become(
        ("Impersonate-Extra-k", "v"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Uid", "u"),
        ("Impersonate-User", "carol"),
        rights=rights,
    )

    assert [(t.verb, t.group, t.full_resource, t.namespace, t.name) for t in rights.asked] == [
        ("impersonate", "", "users", "", "carol"),
        ("impersonate", "authentication.orch.io", "uids", "", "u"),
        ("impersonate", "", "groups", "", "g"),
        ("impersonate", "authentication.orch.io", "userextras/k", "", "v"),
    ]


@pytest.mark.parametrize(
    "name",
    ["system:serviceaccount:ci", "system:serviceaccount:ci:a:b", "system:serviceaccount:C:a"],
)
async def test_a_name_that_only_looks_like_an_account_is_a_user(name: str) -> None:
    """A malformed account name gets no groups of accounts and needs the right for users."""
    rights = Rights()

    found = await become(("Impersonate-User", name), rights=rights)

    assert [target.resource for target in rights.asked] == ["users"]
    assert found == UserInfo(name, groups=("system:authenticated",))


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (
            "serviceaccounts",
            'serviceaccounts "app" is forbidden: User "alice" cannot impersonate resource '
            '"serviceaccounts" in API group "" in the namespace "ci": why',
        ),
        (
            "groups",
            'groups "system:masters" is forbidden: User "alice" cannot impersonate resource '
            '"groups" in API group "" at the cluster scope: why',
        ),
        (
            "uids",
            'uids.authentication.orch.io "1234" is forbidden: User "alice" cannot impersonate '
            'resource "uids" in API group "authentication.orch.io" at the cluster scope: why',
        ),
        (
            "userextras",
            'userextras.authentication.orch.io "V" is forbidden: User "alice" cannot impersonate '
            'resource "userextras/acme.com/foo" in API group "authentication.orch.io" at the '
            "cluster scope: why",
        ),
    ],
)
async def test_one_missing_right_is_enough_to_refuse(refused: str, message: str) -> None:
    """The first right that is missing is the answer; an account with groups has no other mode."""
    with pytest.raises(Forbidden) as caught:
        await become(
            ("Impersonate-User", "system:serviceaccount:ci:app"),
            ("Impersonate-Uid", "1234"),
            ("Impersonate-Group", "system:masters"),
            ("Impersonate-Extra-acme.com%2ffoo", "V"),
            rights=Rights(refused, "why"),
        )

    assert caught.value.message == message


@pytest.mark.parametrize(
    "headers",
    [
        [("Impersonate-Group", "g")],
        [("Impersonate-Uid", "u")],
        [("Impersonate-Extra-k", "v")],
        [("Impersonate-User", ""), ("Impersonate-Group", "g")],
    ],
)
async def test_attributes_without_a_user_are_a_bad_request(headers: list[tuple[str, str]]) -> None:
    """Nobody keeps their own name with other people's groups."""
    rights = Rights()

    with pytest.raises(BadRequest):
        await become(*headers, rights=rights)

    assert rights.asked == []


async def test_names_are_utf_8() -> None:
    """The listener hands on bytes as characters; what they spell is the name, or nobody's."""
    wire = "zoë".encode().decode("latin-1")

    found = await become(("Impersonate-User", wire), ("Impersonate-Group", "\xeb"))

    assert found is not None
    assert (found.username, found.groups[0]) == ("zoë", "\ufffd")


@given(st.text(alphabet="aF0%2/é\x00", max_size=12))
def test_any_key_can_be_decoded(key: str) -> None:
    """Any header name is decoded as text, never an error."""
    assert isinstance(unescaped(key), str)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "Impersonate-User",
                    "Impersonate-Uid",
                    "Impersonate-Group",
                    "Impersonate-Extra-a%2f",
                ]
            ),
            st.sampled_from(["", "x", "system:serviceaccount:a:b", "system:masters"]),
        ),
        max_size=6,
    )
)
async def test_any_headers_have_an_answer(headers: list[tuple[str, str]]) -> None:
    """Every combination gives a user, nobody, or a clear error."""
    with contextlib.suppress(BadRequest):
        found = await become(*headers)
        assert found is None or found.username
