"""The AuthenticationConfiguration file and the --oidc-* flags: read strictly, told all at once."""

from typing import Any

import pytest
import yaml

from orchid.access.authenticators.oidc_settings import (
    ALGORITHMS,
    ClaimMapping,
    InvalidConfiguration,
    from_flags,
    read_configuration,
)
from orchid.wire.naming import KUBERNETES, ORCH

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
                    "certificateAuthority": "PEM",
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
    assert issuer.uid_claim == "oid"
    assert issuer.required_claims == (("hd", "a.example"),)
    assert issuer.authorities == "PEM"
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


@pytest.mark.parametrize(
    "jwt",
    [
        {**JWT, "claimMappings": {"username": {"expression": "claims.sub"}}},
        {**JWT, "claimMappings": {**USERNAME, "groups": {"expression": "claims.g"}}},
        {**JWT, "claimMappings": {**USERNAME, "uid": {"expression": "claims.u"}}},
        {**JWT, "claimMappings": {**USERNAME, "extra": [{"key": "a/b", "valueExpression": "1"}]}},
        {**JWT, "claimValidationRules": [{"expression": "true", "message": "m"}]},
        {**JWT, "userValidationRules": [{"expression": "true"}]},
    ],
)
def test_expressions_are_refused_by_name(jwt: dict[str, Any]) -> None:
    """A rule that would silently not run protects nobody."""
    assert "expressions are not supported yet" in problems(document(jwt))


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
        ("[", "not readable YAML"),
        ("", "strict decoding error"),
        ("[]", "strict decoding error"),
    ],
)
def test_unfit_file_is_refused(text: str, problem: str) -> None:
    """Unknown fields, doubles, missing parts, or no such file at all."""
    assert problem in problems(text)


def test_all_problems_are_told_at_once() -> None:
    """An administrator mends a file once, not line by line."""
    found = problems(document({"issuer": {"url": "http://a.example"}}))

    assert "scheme must be https" in found
    assert "audiences" in found
    assert "username" in found


def test_flags_describe_one_issuer() -> None:
    """Names of an outside issuer are told apart by its address, unless they are addresses."""
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
