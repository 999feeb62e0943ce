"""The index finds exactly the policies that select a request, however many others there are."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.approval import policy_index
from orchid.features.approval.compiled import CompiledPolicy
from orchid.features.approval.policy_index import MOST_KEYS, PolicyIndex
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.approval.cases import SIGNER, WEB, policy

SIGNERS = ("example.com/web", "example.com/*", "*/web", "*", "e*b", "*com*", "*x*l*", "other.com/x")
USERS = ("alice", "system:serviceaccount:web:builder", "*")
GROUPS = ("dev", "system:serviceaccounts:web", "system:*", "*accounts*", "*e*")
ACCOUNTS = ("web/builder", "web/*", "ci/builder")


def chosen(index: PolicyIndex, signer: str, user: UserInfo) -> list[str]:
    return [found.name for found in index.candidates(signer, user)]


def lists(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "signerNames": lists(SIGNERS),
                "requesters": st.fixed_dictionaries(
                    {
                        "users": lists(USERS),
                        "groups": lists(GROUPS),
                        "serviceAccounts": lists(ACCOUNTS),
                    }
                ),
            }
        ),
        max_size=6,
    ),
    st.sampled_from((WEB, UserInfo(username="alice", groups=("dev",)), UserInfo())),
    st.sampled_from(("example.com/web", "other.com/x", "third.com/y")),
    st.integers(0, 3),
    st.sampled_from((1, 3, MOST_KEYS)),
)
def test_the_index_finds_what_looking_at_all_of_them_finds(
    selectors: list[dict[str, Any]], user: UserInfo, signer: str, gone: int, most: int
) -> None:
    """No policy is missed, none is added, and what was removed has left nothing behind.

    The limit of index keys for one policy changes nothing.
    """
    policies = [policy(f"p{number}", **given) for number, given in enumerate(selectors)]
    index = PolicyIndex()
    with patch.object(policy_index, "MOST_KEYS", most):
        for one in policies:
            index.put(one)
        for one in policies[:gone]:
            index.remove(one.name)
        found = chosen(index, signer, user)

    there = policies[gone:]
    assert found == [one.name for one in there if not one.selection(signer, user)]


def test_a_policy_that_changed_or_went_is_no_longer_found() -> None:
    """Only its last version counts."""
    index = PolicyIndex()
    index.put(policy("a"))
    index.put(policy("a", signerNames=["other.com/x"]))
    index.put(policy("b"))
    index.remove("b")
    index.remove("never")

    assert chosen(index, SIGNER, WEB) == []
    assert chosen(index, "other.com/x", WEB) == ["a"]
    assert len(index) == 1


@pytest.mark.parametrize("pattern", ["*com*", "*m/w*b*"])
def test_a_policy_that_went_takes_no_other_with_the_same_pattern_along(pattern: str) -> None:
    """Policies share the text between two stars as an index key."""
    index = PolicyIndex()
    index.put(policy("a", signerNames=[pattern]))
    index.put(policy("b", signerNames=[pattern]))
    index.put(policy("c", requesters={"users": ["*serviceaccount*"]}))
    index.put(policy("d", requesters={"users": ["*serviceaccount*"]}))
    index.remove("a")
    index.put(policy("c", requesters={"users": ["alice"]}))

    assert chosen(index, SIGNER, WEB) == ["b", "d"]
    assert len(index._inside) == 2


@pytest.mark.parametrize("requesters", [1, 4, 5, 256])
def test_a_policy_with_many_index_keys_is_found(requesters: int) -> None:
    """Below, at and above the limit of keys for one policy, and removed again without a trace."""
    signers = [f"{number}.com/*" for number in range(MOST_KEYS // 4)]
    users = [f"user-{number}" for number in range(requesters)]
    index = PolicyIndex()
    index.put(policy("many", signerNames=signers, requesters={"users": users}))

    last = UserInfo(username=users[-1])
    found = chosen(index, "0.com/web", last), chosen(index, f"{len(signers) - 1}.com/x", last)
    others = chosen(index, "0.com/web", UserInfo(username="eve"))
    index.remove("many")

    assert found == (["many"], ["many"])
    assert others == []
    assert chosen(index, "0.com/web", last) == []
    assert not index._by_signer
    assert not index._indexed


@pytest.mark.parametrize(
    "requesters",
    [
        lambda number: {"groups": [f"team-{number}"]},
        lambda number: {"users": [f"user-{number}"]},
        lambda number: {"serviceAccounts": [f"team-{number}/builder"]},
        lambda number: {"groups": [f"team-{number:04}*"]},
        lambda number: {"users": [f"*-{number}"]},
        lambda number: {"users": [f"*r-{number:03}*"]},
    ],
)
def test_policies_of_other_teams_are_not_even_looked_at(
    requesters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand policies of one signer cost a request a few look-ups."""
    index = PolicyIndex()
    for number in range(10, 1000):
        index.put(policy(f"p{number}", requesters=requesters(number)))
    looked: list[str] = []
    selects = CompiledPolicy.selects
    monkeypatch.setattr(
        CompiledPolicy,
        "selects",
        lambda self, signer, user: looked.append(self.name) or selects(self, signer, user),
    )
    user = UserInfo(username="user-777", groups=("team-777", "team-0777-a"))
    account = UserInfo(username="system:serviceaccount:team-777:builder")

    found = chosen(index, SIGNER, user) or chosen(index, SIGNER, account)

    assert found == ["p777"]
    assert set(looked) == {"p777"}
