"""Claims and the user they become: each claim that is missing, of another type, or refused."""

from typing import Any

import pytest

from orchid.features.sign_in.oidc.claim_configuration import ClaimMapping, Rule
from orchid.features.sign_in.oidc.configuration import IssuerSettings
from orchid.features.sign_in.oidc.mapping import user_of, username_of
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

NAME = ClaimMapping("sub", "a:")
CEL = Compiler()


def mapped(claims: dict[str, Any], **settings: Any) -> UserInfo:
    given = {"username": NAME, **settings}
    whole = IssuerSettings(url="https://a.example", audiences=("orchid",), **given)
    return user_of({"sub": "jane", **claims}, whole, ORCH)


def refusal(claims: dict[str, Any], **settings: Any) -> str:
    with pytest.raises(Rejected) as refused:
        mapped(claims, **settings)
    return ", ".join(refused.value.reasons)


@pytest.mark.parametrize(
    ("claims", "settings", "user"),
    [
        ({}, {}, UserInfo(username="a:jane")),
        (
            {"jti": "7"},
            {},
            UserInfo(username="a:jane", extra={ORCH.credential_id: ("JTI=7",)}),
        ),
        ({"jti": 7}, {}, UserInfo(username="a:jane")),
        ({"jti": ""}, {}, UserInfo(username="a:jane")),
        (
            {"teams": ["x", "y"]},
            {"groups": ClaimMapping("teams", "g:")},
            UserInfo(username="a:jane", groups=("g:x", "g:y")),
        ),
        (
            {"teams": "x"},
            {"groups": ClaimMapping("teams", "g:")},
            UserInfo(username="a:jane", groups=("g:x",)),
        ),
        ({}, {"groups": ClaimMapping("teams", "g:")}, UserInfo(username="a:jane")),
        (
            {"oid": "5"},
            {"uid": ClaimMapping("oid", "")},
            UserInfo(username="a:jane", uid="5"),
        ),
        (
            {"email": "j@x", "email_verified": True},
            {"username": ClaimMapping("email", "")},
            UserInfo(username="j@x"),
        ),
        ({"email": "j@x"}, {"username": ClaimMapping("email", "")}, UserInfo(username="j@x")),
        (
            {"email_verified": False},
            {},
            UserInfo(username="a:jane"),
        ),
        (
            {"roles": ["r"]},
            {
                "username": CEL.over_claims("claims.sub + '!'"),
                "groups": CEL.over_claims("claims.roles"),
                "uid": CEL.over_claims("'u-' + claims.sub"),
                "extra": (("x.io/r", CEL.over_claims("claims.roles")),),
            },
            UserInfo(username="jane!", groups=("r",), uid="u-jane", extra={"x.io/r": ("r",)}),
        ),
        (
            {"hd": "x"},
            {"required_claims": (("hd", "x"),)},
            UserInfo(username="a:jane"),
        ),
    ],
)
def test_claims_become_a_user(claims: Any, settings: Any, user: UserInfo) -> None:
    assert mapped(claims, **settings) == user


@pytest.mark.parametrize(
    ("claims", "settings", "text"),
    [
        ({"sub": None}, {}, "claim not present"),
        ({"sub": 7}, {}, "not a string with content"),
        ({"sub": ""}, {}, "not a string with content"),
        (
            {"email": "j", "email_verified": False},
            {"username": ClaimMapping("email", "")},
            "email not",
        ),
        (
            {"email": "j", "email_verified": "true"},
            {"username": ClaimMapping("email", "")},
            "email not",
        ),
        ({"teams": 7}, {"groups": ClaimMapping("teams", "")}, "not a list of strings"),
        ({"teams": ["a", 7]}, {"groups": ClaimMapping("teams", "")}, "not a list of strings"),
        ({}, {"uid": ClaimMapping("oid", "")}, "not present or not a string"),
        ({"oid": 7}, {"uid": ClaimMapping("oid", "")}, "not present or not a string"),
        ({}, {"required_claims": (("hd", "x"),)}, "claim hd not present"),
        ({"hd": 7}, {"required_claims": (("hd", "x"),)}, "claim hd is not a string"),
        ({"hd": "y"}, {"required_claims": (("hd", "x"),)}, "does not match"),
        ({"n": ""}, {"username": CEL.over_claims("claims.n")}, "empty username"),
        ({"n": 7}, {"username": CEL.over_claims("claims.n")}, "must return a string"),
        ({}, {"username": CEL.over_claims("claims.n")}, "username claim expression"),
        ({"n": 7}, {"uid": CEL.over_claims("claims.n")}, "uid claim expression must"),
        ({"n": 7}, {"groups": CEL.over_claims("claims.n")}, "or a list of strings"),
        ({}, {"groups": CEL.over_claims("claims.n")}, "group claim expression"),
        ({"n": 7}, {"extra": (("k", CEL.over_claims("claims.n")),)}, "claims.n: expression must"),
    ],
)
def test_each_claim_that_is_refused(claims: Any, settings: Any, text: str) -> None:
    assert text in refusal(claims, **settings)


def rule(source: str) -> Rule:
    return Rule(CEL.claims_condition(source), "the rule")


def rule_of_user(source: str) -> Rule:
    return Rule(CEL.user_condition(source), "the rule")


def test_every_rule_must_hold() -> None:
    """About claims, and about the user; one that cannot be evaluated is reported first."""
    good, bad, broken = rule("true"), rule("claims.sub == 'x'"), rule("claims.gone == 'x'")
    same = rule_of_user("user.username == 'a:jane' && user.uid == '' && user.extra.size() == 0")

    assert mapped({}, claim_rules=(good,), user_rules=(same,))
    assert "failed: the rule" in refusal({}, claim_rules=(good, bad))
    unreadable = refusal({}, claim_rules=(bad, broken))
    assert "error evaluating claim validation expression" in unreadable
    assert "the rule" not in unreadable
    outside = rule_of_user("!user.username.startsWith('a:')")
    assert "user info validation rule" in refusal({}, user_rules=(outside,))
    no_team = rule_of_user("!('x' in user.groups)")
    settings = {"groups": ClaimMapping("t", ""), "user_rules": (no_team,)}
    assert "failed: the rule" in refusal({"t": ["x"]}, **settings)
    assert mapped({"t": ["y"]}, **settings).groups == ("y",)


def test_the_name_alone_is_read_without_rules() -> None:
    settings = IssuerSettings(
        url="https://a.example", audiences=(), username=NAME, claim_rules=(rule("false"),)
    )

    assert username_of({"sub": "jane"}, settings) == "a:jane"
    assert username_of({}, settings) == ""
