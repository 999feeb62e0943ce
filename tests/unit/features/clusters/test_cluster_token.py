"""The token of a cluster: which can be renewed, and what may take its place."""

import base64
import json
from typing import Any

import pytest

from orchid.features.clusters.controllers.cluster_token import (
    LARGEST,
    LONGEST,
    SHORTEST,
    ClusterToken,
    read_token,
    renewal,
    successor,
    token_in,
)
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused

SUBJECT = "system:serviceaccount:kube-system:reader"
NOW = 1_700_000_000
OLD = ClusterToken(SUBJECT, NOW - 4000, NOW + 3200)


def token(signature: str = "c2ln", **changes: Any) -> str:
    claims = {"sub": SUBJECT, "iat": NOW, "exp": NOW + 7200, **changes}
    text = json.dumps({key: value for key, value in claims.items() if value is not None})
    return f"e30.{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}.{signature}"


def test_the_claims_of_an_account_are_read() -> None:
    """Account and times."""
    assert read_token(token()) == ClusterToken(SUBJECT, NOW, NOW + 7200)


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": None},
        {"sub": 5},
        {"sub": "alice"},
        {"sub": "system:serviceaccount:web"},
        {"sub": "system:serviceaccount::reader"},
        {"sub": "system:serviceaccount:web:"},
        {"sub": "system:serviceaccount:web:a:b"},
        {"sub": "system:serviceaccount:../x:reader"},
        {"sub": "system:serviceaccount:web:a?b=c"},
        {"sub": "system:serviceaccount:web:a\r\nX: y"},
        {"sub": "system:serviceaccount:web:\u0101"},
        {"sub": f"x{SUBJECT}"},
        {"iat": None},
        {"exp": None},
        {"iat": float("inf"), "exp": float("inf")},
        {"iat": float("nan")},
        {"iat": NOW + 0.5},
        {"iat": True},
        {"iat": -1},
        {"exp": 1 << 40},
        {"exp": NOW},
        {"exp": NOW + SHORTEST - 1},
        {"exp": NOW + LONGEST + 1},
    ],
    ids=str,
)
def test_other_claims_are_refused(changes: dict[str, Any]) -> None:
    """Each part of an account and of its times."""
    with pytest.raises(AnswerRefused):
        read_token(token(**changes))


@pytest.mark.parametrize("lifetime", [SHORTEST, LONGEST])
def test_the_shortest_and_the_longest_lifetime_are_read(lifetime: int) -> None:
    """They are what clusters issue."""
    assert read_token(token(exp=NOW + lifetime)).lifetime == lifetime


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.\u00e4.c", "a.!.c", "a.W10.c", f"a.{'A' * LARGEST}.c", 5, None]
)
def test_other_tokens_are_refused(text: Any) -> None:
    """Those of other kinds are used as they are."""
    with pytest.raises(AnswerRefused):
        read_token(text)


@pytest.mark.parametrize(
    "kubeconfig",
    [None, [], {}, {"users": []}, {"users": [{"user": {}}]}, {"users": [{"user": {"token": "a"}}]}],
)
def test_a_kubeconfig_without_such_a_token_has_none(kubeconfig: Any) -> None:
    """It is not renewed."""
    assert token_in(kubeconfig) is None
    assert token_in({"users": [{"user": {"token": token()}}]}) == read_token(token())


def test_a_token_is_due_when_half_of_its_life_is_over() -> None:
    """Not before."""
    fresh = ClusterToken(SUBJECT, NOW, NOW + 1000)

    assert [fresh.is_due(NOW + 499), fresh.is_due(NOW + 500)] == [False, True]


def test_the_account_asks_for_as_long_again() -> None:
    """For a token of its own."""
    path, body = renewal(OLD)

    assert path == "/api/v1/namespaces/kube-system/serviceaccounts/reader/token"
    assert json.loads(body)["spec"] == {"expirationSeconds": 7200}


def answer(text: Any, status: int = 201) -> Answer:
    return Answer(status, json.dumps({"status": {"token": text}}).encode())


def test_a_token_of_the_account_takes_the_place_of_the_old() -> None:
    """Also for a shorter time."""
    for new in (token(), token(exp=NOW + SHORTEST)):
        assert successor(answer(new), OLD, NOW) == new


@pytest.mark.parametrize(
    "bad",
    [
        answer(token(), status=200),
        answer(token(sub="system:serviceaccount:kube-system:other")),
        answer(token(iat=NOW - 8000, exp=NOW - 800)),
        answer(token(exp=float("inf"))),
        answer(token(signature="a b")),
        answer(token(signature="a\r\nX: y")),
        answer(5),
        answer(None),
        Answer(201, b"[]"),
        Answer(201, b""),
        Answer(201, b'{"status":' + b"[" * 9999),
    ],
)
def test_nothing_else_is_stored(bad: Answer) -> None:
    """The old one is used on."""
    with pytest.raises(AnswerRefused):
        successor(bad, OLD, NOW)
