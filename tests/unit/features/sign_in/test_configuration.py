"""AuthenticationConfiguration and --oidc-* flags: strict, with all errors together."""

import sys
from typing import Any

import pytest
import yaml

from orchid.features.sign_in.oidc.claim_configuration import ClaimMapping
from orchid.features.sign_in.oidc.configuration import (
    ALGORITHMS,
    InvalidConfiguration,
    from_flags,
    read_configuration,
)
from orchid.kernel.expressions.cel import Expression
from orchid.kernel.wire.naming import KUBERNETES, ORCH
from tests.unit.kernel.credentials.own_authorities import own

AUTHORITY = own("ECDSA-P256").certificate_pem.decode()
ISSUER = {"url": "https://a.example", "audiences": ["orchid"]}
USERNAME = {"username": {"claim": "sub", "prefix": "a:"}}
JWT: dict[str, Any] = {"issuer": ISSUER, "claimMappings": USERNAME}


def document(*jwt: dict[str, Any], **more: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "apiserver.config.orch.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": list(jwt),
            **more,
        }
    )


def problems(text: str, own: tuple[str, ...] = ()) -> str:
    with pytest.raises(InvalidConfiguration) as raised:
        read_configuration(text, ORCH, own)
    return str(raised.value)


def test_whole_file_is_read() -> None:
    """Issuer, discovery, audiences, mappings, rules and anonymous paths."""
    found = read_configuration(
        document(
            {
                "issuer": {
                    **ISSUER,
                    "discoveryURL": "https://d.example/x/.well-known/openid-configuration",
                    "audiences": ["a", "b"],
                    "audienceMatchPolicy": "MatchAny",
                    "certificateAuthority": AUTHORITY,
                },
                "claimValidationRules": [{"claim": "hd", "requiredValue": "a.example"}],
                "claimMappings": {
                    **USERNAME,
                    "groups": {"claim": "groups", "prefix": ""},
                    "uid": {"claim": "oid"},
                },
            },
            anonymous={"enabled": True, "conditions": [{"path": "/livez"}]},
        ),
        ORCH,
    )

    (issuer,) = found.issuers
    assert issuer.url == "https://a.example"
    assert issuer.configuration_url == "https://d.example/x/.well-known/openid-configuration"
    assert issuer.audiences == ("a", "b")
    assert issuer.username == ClaimMapping("sub", "a:")
    assert issuer.groups == ClaimMapping("groups", "")
    assert issuer.uid == ClaimMapping("oid")
    assert issuer.required_claims == (("hd", "a.example"),)
    assert issuer.authorities == AUTHORITY
    assert issuer.algorithms == ALGORITHMS
    assert found.anonymous_paths == ("/livez",)


def test_configuration_is_found_below_the_issuer() -> None:
    """With or without a slash at its end."""
    for url in ("https://a.example/t", "https://a.example/t/"):
        found = read_configuration(document({**JWT, "issuer": {**ISSUER, "url": url}}), ORCH)
        wanted = "https://a.example/t/.well-known/openid-configuration"
        assert found.issuers[0].configuration_url == wanted
        assert found.anonymous_paths is None


def test_kubernetes_naming_reads_stock_files() -> None:
    """The group of the file follows the naming."""
    text = document(JWT).replace("apiserver.config.orch.io", "apiserver.config.k8s.io")

    assert read_configuration(text, KUBERNETES).issuers
    assert "apiserver.config.orch.io/v1" in problems(text)


def mapped(**mappings: Any) -> dict[str, Any]:
    return {**JWT, "claimMappings": {**USERNAME, **mappings}}


def extra(*keys: str, expression: str = "claims.x") -> dict[str, Any]:
    return mapped(extra=[{"key": key, "valueExpression": expression} for key in keys])


def claim_rules(*rules: dict[str, Any], **mappings: Any) -> dict[str, Any]:
    return {**mapped(**mappings), "claimValidationRules": list(rules)}


def user_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return {**JWT, "userValidationRules": list(rules)}


BY_EMAIL = {"expression": "claims.email"}


def test_expressions_are_compiled_with_the_file() -> None:
    """Every place that can hold one, with its message."""
    found = read_configuration(
        document(
            {
                **JWT,
                "claimValidationRules": [
                    {"claim": "hd", "requiredValue": "a"},
                    {"expression": "claims.ok == true", "message": "not ok"},
                ],
                "claimMappings": {
                    "username": {"expression": "'a:' + claims.sub"},
                    "groups": {"expression": "claims.roles.split(',')"},
                    "uid": {"expression": "claims.oid"},
                    "extra": [{"key": "example.com/team", "valueExpression": "claims.team"}],
                },
                "userValidationRules": [
                    {"expression": "!user.username.startsWith('system:')", "message": "no"}
                ],
            }
        ),
        ORCH,
    )

    (issuer,) = found.issuers
    assert isinstance(issuer.username, Expression)
    assert isinstance(issuer.groups, Expression)
    assert isinstance(issuer.uid, Expression)
    assert issuer.username.source == "'a:' + claims.sub"
    assert [(key, one.source) for key, one in issuer.extra] == [("example.com/team", "claims.team")]
    assert issuer.required_claims == (("hd", "a"),)
    assert [(r.expression.source, r.message) for r in issuer.claim_rules] == [
        ("claims.ok == true", "not ok")
    ]
    assert [rule.message for rule in issuer.user_rules] == ["no"]


@pytest.mark.parametrize(
    ("jwt", "texts"),
    [
        (
            mapped(username={"claim": "sub", "prefix": "", "expression": "claims.sub"}),
            ('jwt[0].claimMappings.username: Invalid value: "": claim and expression',),
        ),
        (
            mapped(username={"prefix": "a:", "expression": "claims.sub"}),
            ('username.prefix: Invalid value: "a:": may not be specified when expression is set',),
        ),
        (
            mapped(username={"expression": "claims."}),
            (
                'jwt[0].claimMappings.username.expression: Invalid value: "claims.": '
                "compilation failed: 1:8: Syntax error",
            ),
        ),
        (
            mapped(groups={"claim": "g", "prefix": "", "expression": "claims.g"}),
            ('claimMappings.groups: Invalid value: "": claim and expression can\'t both be set',),
        ),
        (
            mapped(groups={"prefix": "", "expression": "claims.g"}),
            ("groups.prefix: Invalid value",),
        ),
        (
            mapped(groups={"expression": "nobody"}),
            ("claimMappings.groups.expression: Invalid value", "undeclared reference to 'nobody'"),
        ),
        (
            mapped(uid={"claim": "u", "expression": "claims.u"}),
            ('claimMappings.uid: Invalid value: "": claim and expression can\'t both be set',),
        ),
        (mapped(uid={"expression": "1 +"}), ("uid.expression: Invalid value", "Syntax error")),
        (extra(""), ("claimMappings.extra[0].key: Required value",)),
        (extra("team"), ("must be a domain-prefixed path",)),
        (extra("/team"), ("must be a domain-prefixed path",)),
        (extra("example.com/"), ("must be a domain-prefixed path",)),
        (extra("-a/team"), ('extra[0].key: Invalid value: "-a": a lowercase RFC 1123 subdomain',)),
        (extra("example.com/a b"), ('Invalid value: "a b": Invalid path',)),
        (extra("example.com/Team"), ("must be lowercase",)),
        (extra("orch.io/team"), ("orch.io and all subdomains are reserved",)),
        (
            extra("authentication.orch.io/credential-id"),
            ("orch.io and all subdomains are reserved",),
        ),
        (
            extra("example.com/a", "example.com/a"),
            ('extra[1].key: Duplicate value: "example.com/a"',),
        ),
        (
            mapped(extra=[{"key": "example.com/a"}]),
            ("extra[0].valueExpression: Required value",),
        ),
        (
            extra("example.com/a", expression="claims.x +"),
            ("extra[0].valueExpression: Invalid value", "Syntax error"),
        ),
        (
            claim_rules({"claim": "hd", "expression": "true"}),
            ('claimValidationRules[0]: Invalid value: "hd": claim and expression can\'t both',),
        ),
        (
            claim_rules({"claim": "hd", "requiredValue": "a", "message": "m"}),
            ('[0].message: Invalid value: "m": may not be specified when claim is set',),
        ),
        (
            claim_rules({"claim": "hd"}, {"claim": "hd"}),
            ('claimValidationRules[1].claim: Duplicate value: "hd"',),
        ),
        (
            claim_rules({"expression": "true", "requiredValue": "x"}),
            ('requiredValue: Invalid value: "x": may not be specified when expression is set',),
        ),
        (
            claim_rules({"expression": "true"}, {"expression": "true"}),
            ('claimValidationRules[1].expression: Duplicate value: "true"',),
        ),
        (
            claim_rules({"expression": "claims.ok"}),
            ('[0].expression: Invalid value: "claims.ok": must evaluate to bool',),
        ),
        (claim_rules({"expression": "user.username == ''"}), ("undeclared reference to 'user",)),
        (
            claim_rules({"expression": "true", "messageExpression": "'x'"}),
            ("strict decoding error", "messageExpression"),
        ),
        (user_rules({"message": "m"}), ("userValidationRules[0].expression: Required value",)),
        (
            user_rules({"expression": "true"}, {"expression": "true"}),
            ('userValidationRules[1].expression: Duplicate value: "true"',),
        ),
        (user_rules({"expression": "user.groups"}), ("must evaluate to bool",)),
        (
            user_rules({"expression": "user.name == 'a'"}),
            ("userValidationRules[0].expression: Invalid value", "undefined field 'name'"),
        ),
        (user_rules({"expression": "claims.sub == 'a'"}), ("undeclared reference to 'claims",)),
        (
            mapped(username=BY_EMAIL),
            ("username.expression: Invalid value", "claims.email_verified must be used in"),
        ),
        (
            claim_rules({"expression": "claims.sub == 'email_verified'"}, username=BY_EMAIL),
            ("claims.email_verified must be used in",),
        ),
        (
            mapped(username={"expression": "'" + "x" * 9000 + "'"}),
            ("must have at most 8192 characters",),
        ),
    ],
)
def test_unfit_mappings_and_rules_are_refused(jwt: dict[str, Any], texts: tuple[str, ...]) -> None:
    """Each with its place and the reference's reason, in a line of sensible length."""

    found = problems(document(jwt))

    for text in texts:
        assert text in found
    assert len(found) < 1000


@pytest.mark.parametrize(
    "jwt",
    [
        claim_rules(
            {"expression": "claims.?email_verified.orValue(true) == true"}, username=BY_EMAIL
        ),
        mapped(
            username=BY_EMAIL,
            extra=[{"key": "a.b/c", "valueExpression": "string(claims.email_verified)"}],
        ),
        mapped(username={"expression": "claims.email_verified ? claims.email : claims.sub"}),
        mapped(username={"expression": "claims.sub"}, groups=BY_EMAIL),
    ],
)
def test_address_as_a_name_needs_a_word_about_its_proof(jwt: dict[str, Any]) -> None:
    """In the name itself, in an extra or in a rule; groups are not asked."""

    assert read_configuration(document(jwt), ORCH).issuers


def test_reserved_domains_follow_the_naming() -> None:
    """Both domains of the reference, when its names are used."""
    for domain in ("k8s.io", "kubernetes.io", "a.kubernetes.io"):
        text = document(extra(f"{domain}/a")).replace("config.orch.io", "config.k8s.io")
        with pytest.raises(InvalidConfiguration, match="are reserved"):
            read_configuration(text, KUBERNETES)


def test_a_missing_library_is_reported_with_field_and_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first expression of the file, and what to install."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)

    found = problems(document(mapped(uid={"expression": "claims.u"})))

    assert found == (
        "jwt[0].claimMappings.uid.expression: "
        "expressions cannot be evaluated here: there is no cel-expr-python for this platform"
    )
    assert read_configuration(document(JWT), ORCH).issuers


@pytest.mark.parametrize(
    ("issuer", "text"),
    [
        ({"audiences": ["a"]}, "jwt[0].issuer.url: Required value"),
        ({**ISSUER, "url": "http://a.example"}, "scheme must be https"),
        ({**ISSUER, "url": "https://u:p@a.example"}, "username or password"),
        ({**ISSUER, "url": "https://a.example?x"}, "query"),
        ({**ISSUER, "url": "https://a.example#x"}, "fragment"),
        ({**ISSUER, "url": "https://["}, "is not a URL"),
        ({**ISSUER, "url": "https://own.test"}, "must not overlap with disallowed issuers"),
        ({**ISSUER, "audiences": []}, "at least one"),
        ({**ISSUER, "audiences": [""]}, "can't be empty"),
        ({**ISSUER, "audiences": ["a", "b"]}, "must be MatchAny"),
        ({**ISSUER, "audienceMatchPolicy": "All"}, "must be MatchAny"),
        ({**ISSUER, "discoveryURL": "https://a.example/"}, "must be different"),
        ({**ISSUER, "egressSelectorType": "x"}, "egressSelectorType"),
        ({**ISSUER, "audiences": ["a", "a"], "audienceMatchPolicy": "MatchAny"}, "Duplicate"),
    ],
)
def test_unfit_issuer_is_refused_with_its_place(issuer: dict[str, Any], text: str) -> None:
    """Each problem names the field and what it must be."""
    found = problems(document({**JWT, "issuer": issuer}), ("https://own.test",))

    assert text in found
    assert "u:p" not in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (document({**JWT, "extra": 1}), "strict decoding error"),
        (document({"issuer": {**ISSUER, "uri": 1}}), "strict decoding error"),
        (document(JWT, JWT), "Duplicate value"),
        (document({"issuer": ISSUER}), "claimMappings.username: Required value"),
        (document({**JWT, "claimMappings": {"username": {"claim": "sub"}}}), "prefix is required"),
        (document({**JWT, "claimValidationRules": [{}]}), "claim or expression is required"),
        (document(anonymous={"conditions": [{"path": "/x"}]}), "enabled should be set to true"),
        (document(*[JWT] * 65), "must have at most 64 items"),
        ("kind: Pod", "expected kind AuthenticationConfiguration"),
        ("[", "line 1 is not YAML"),
        ("", "the file is empty"),
        ("[]", "strict decoding error: must be a mapping, not a list"),
        ("\0", "not readable YAML"),
        ("jwt: {}", "jwt: must be a list, not a mapping"),
    ],
)
def test_unfit_file_is_refused(text: str, problem: str) -> None:
    """Unknown fields, doubles, missing parts, or no such file at all."""
    assert problem in problems(text)


def test_all_problems_are_reported_together() -> None:
    """An administrator fixes a file once, not line by line."""
    found = problems(document({"issuer": {"url": "http://a.example"}}))

    assert "scheme must be https" in found
    assert "audiences" in found
    assert "username" in found


def test_flags_describe_one_issuer() -> None:
    """User names get the URL of the issuer as a prefix, unless they are mail addresses."""
    found = from_flags(
        issuer_url="https://a.example", client_id="orchid", required_claims=["hd=a=b"]
    )

    assert found.username == ClaimMapping("sub", "https://a.example#")
    assert found.audiences == ("orchid",)
    assert found.algorithms == ("RS256",)
    assert found.required_claims == (("hd", "a=b"),)
    by_email = from_flags(issuer_url="https://a.example", client_id="o", username_claim="email")
    assert by_email.username == ClaimMapping("email", "")
    plain = from_flags(issuer_url="https://a.example", client_id="o", username_prefix="-")
    assert plain.username == ClaimMapping("sub", "")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"client_id": ""}, "must be specified together"),
        ({"issuer_url": ""}, "must be specified together"),
        ({"issuer_url": "http://a.example"}, "scheme must be https"),
        ({"signing_algorithms": ("HS256",)}, "oidc-signing-algs"),
        ({"signing_algorithms": ("none",)}, "oidc-signing-algs"),
        ({"signing_algorithms": ()}, "oidc-signing-algs"),
        ({"required_claims": ["hd"]}, "must be claim=value"),
    ],
)
def test_unfit_flags_are_refused(flags: dict[str, Any], text: str) -> None:
    """Half an issuer, or an algorithm that anybody could forge."""
    with pytest.raises(InvalidConfiguration, match=text):
        from_flags(**{"issuer_url": "https://a.example", "client_id": "orchid", **flags})
