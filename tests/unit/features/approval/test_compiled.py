"""Result of one policy for one request: selectors, allow-lists, rules, and the values seen."""

import ipaddress
from typing import Any

import pytest
from cryptography import x509

from orchid.kernel.wire.user import UserInfo
from tests.unit.features.approval.cases import ALLOWS, DAY_SECONDS, WEB, case, judged, signer_terms
from tests.unit.kernel.credentials import samples

ALICE = UserInfo(username="alice", groups=("dev",))
HOST = "a.web.example.com"


def allowing(**more: Any) -> dict[str, Any]:
    return {"allows": {**ALLOWS, **more}}


@pytest.mark.parametrize(
    ("selectors", "selected"),
    [
        ({"signerNames": ["example.com/web"]}, True),
        ({"signerNames": ["other.com/x", "example.com/*"]}, True),
        ({"signerNames": ["*"]}, True),
        ({"signerNames": ["example.com/we"]}, False),
        ({"signerNames": [], "requesters": {"users": ["*:builder"]}}, True),
        ({"requesters": {"users": ["alice"]}}, False),
        ({"requesters": {"users": ["alice"], "groups": ["system:serviceaccounts:web"]}}, True),
        ({"requesters": {"groups": ["system:serviceaccounts:*"]}}, True),
        ({"requesters": {"groups": ["system:serviceaccounts:w"]}}, False),
        ({"requesters": {"serviceAccounts": ["web/builder"]}}, True),
        ({"requesters": {"serviceAccounts": ["web/*"]}}, True),
        ({"requesters": {"serviceAccounts": ["*/build"]}}, False),
        ({"signerNames": ["x.com/*"], "requesters": {"serviceAccounts": ["web/*"]}}, False),
    ],
)
async def test_selectors_choose_requests(selectors: dict[str, Any], selected: bool) -> None:
    """Signer and requester both have to match; of each list, one is enough."""
    verdict = await judged(case(HOST), **selectors)

    assert verdict.selected is selected
    assert verdict.allowed is selected
    assert bool(verdict.message) is not selected


async def test_a_user_whose_name_only_looks_like_an_account_is_none() -> None:
    """`web/builder` as a user name is not the service account."""
    verdict = await judged(
        case(HOST, user=UserInfo(username="web/builder")),
        requesters={"serviceAccounts": ["web/builder"]},
    )

    assert not verdict.selected


@pytest.mark.parametrize(
    ("asked", "allows", "refused"),
    [
        ({"common_name": "x.web.example.com"}, {}, []),
        ({"common_name": "x.example.com"}, {}, ["commonName"]),
        ({"common_name": "x.web.example.com"}, {"commonName": ""}, ["commonName"]),
        ({"organizations": ("dev",)}, {}, ["organizations"]),
        ({"organizations": ("dev", "ops")}, {"organizations": ["dev"]}, ["organizations"]),
        ({"organizations": ("dev", "ops")}, {"organizations": ["ops"]}, ["organizations"]),
        ({"organizations": ("dev", "ops")}, {"organizations": ["x"]}, ["organizations"] * 2),
        ({"organizations": ("dev", "ops")}, {"organizations": ["*"]}, []),
        ({"usages": ("digital signature",)}, {}, []),
        ({"usages": ("signing", "server auth")}, {}, []),
        ({"usages": ("client auth",)}, {}, ["usages"]),
        ({"key": samples.ED25519}, {}, []),
        ({"key": samples.rsa_key()}, {}, ["keys"]),
        ({"key": samples.rsa_key()}, {"keys": ["RSA-2048"]}, []),
        ({"key": samples.rsa_key()}, {"keys": ["RSA-*"]}, []),
        ({}, {"keys": []}, ["keys"]),
        ({"seconds": 30 * DAY_SECONDS}, {}, []),
        ({"seconds": 30 * DAY_SECONDS + 1}, {}, ["maxDuration"]),
        ({"seconds": None}, {}, ["maxDuration"]),
        ({}, {"maxDuration": ""}, ["maxDuration"]),
        ({}, {"minDuration": "48h"}, ["minDuration"]),
        ({}, {"minDuration": "24h"}, []),
    ],
)
async def test_what_is_left_out_is_not_allowed(
    asked: dict[str, Any], allows: dict[str, Any], refused: list[str]
) -> None:
    """Every kind of content needs its pattern; a request may ask for less."""
    verdict = await judged(case(HOST, **asked), **allowing(**allows))

    found = [check.field for check in verdict.checks if not check.allowed]
    assert found == refused
    assert verdict.allowed is not refused if refused else verdict.allowed


@pytest.mark.parametrize(
    ("field", "name", "patterns", "allowed"),
    [
        ("dnsNames", x509.DNSName("b.web.example.com"), None, True),
        ("dnsNames", x509.DNSName("B.WEB.example.com"), None, True),
        ("dnsNames", x509.DNSName("web.example.com"), None, False),
        ("dnsNames", x509.DNSName("a.web.example.com.evil.com"), None, False),
        ("uris", x509.UniformResourceIdentifier("spiffe://x/ns/a"), ["spiffe://x/ns/*"], True),
        ("uris", x509.UniformResourceIdentifier("spiffe://y/ns/a"), ["spiffe://x/ns/*"], False),
        ("uris", x509.UniformResourceIdentifier("spiffe://x/ns/a/b"), ["spiffe://x/ns/*"], False),
        ("uris", x509.UniformResourceIdentifier("spiffe://x/ns/a"), [], False),
        ("emailAddresses", x509.RFC822Name("a@example.com"), ["*@example.com"], True),
        ("emailAddresses", x509.RFC822Name("a@example.org"), ["*@example.com"], False),
        ("emailAddresses", x509.RFC822Name("a@example.com"), ["*.com"], False),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("10.1.2.3")), ["10.0.0.0/8"], True),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("10.1.2.3")), ["10.1.2.3"], True),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("10.1.2.3")), ["10.1.*"], True),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("10.1.2.3")), ["10.0.0.5/8"], False),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("11.1.2.3")), ["10.0.0.0/8"], False),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("fd00::1")), ["10.0.0.0/8"], False),
        ("ipAddresses", x509.IPAddress(ipaddress.ip_address("fd00::1")), ["fd00::/8"], True),
    ],
)
async def test_every_alternative_name_needs_a_pattern(
    field: str, name: x509.GeneralName, patterns: list[str] | None, allowed: bool
) -> None:
    """One that fits none refuses the request, and is named."""
    more = {} if patterns is None else {field: patterns}

    verdict = await judged(case(HOST, more=(name,)), **allowing(**more))

    assert verdict.allowed is allowed
    seen = [check for check in verdict.checks if check.field == field][-1]
    assert seen.allowed is allowed
    assert allowed or seen.value in verdict.message


async def test_the_lifetime_is_the_one_that_the_signer_gives() -> None:
    """A request without a lifetime is evaluated with the longest of the signer."""
    terms = signer_terms(samples.LEGACY)

    asked = case(HOST, signer=samples.LEGACY.signer_name, seconds=None, terms_of=terms)
    fits = await judged(asked, signerNames=["*"])
    long = await judged(asked, signerNames=["*"], **allowing(maxDuration="24h"))

    assert fits.allowed
    assert long.message == "maxDuration 24h is below 30d"


async def test_what_the_signer_would_refuse_is_not_approved() -> None:
    """No policy overrules the rules of the signer."""
    profile = samples.CLIENT
    asked = case(HOST, signer=profile.signer_name, terms_of=signer_terms(profile))

    verdict = await judged(asked, signerNames=["*"])

    assert verdict.message == (
        "the signer would refuse it: invalid usage for client certificate: server auth"
    )


async def test_usages_that_nobody_names_are_those_that_the_signer_gives() -> None:
    """Where the signer is not known, they are not known either, and nothing is approved."""
    profile = samples.CLIENT
    terms = signer_terms(profile)

    own = case(signer=profile.signer_name, usages=(), terms_of=terms, common_name="alice")
    other = await judged(case(HOST, usages=()))

    assert own.certificate.usages == ("digital signature", "key encipherment", "client auth")
    assert "it names no usages" in other.message


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("request.dnsNames.all(n, n.endsWith('.' + user.extra['env'][0] + '.example.com'))", False),
        ("request.dnsNames.all(n, n.endsWith('.example.com'))", True),
        ("request.commonName == ''", True),
        ("request.durationSeconds <= 86400", True),
        ("request.key.startsWith('RSA')", False),
        ("'server auth' in request.usages && request.usages.size() == 2", True),
        ("request.signerName == 'example.com/web'", True),
        ("user.username.startsWith('system:serviceaccount:web:')", True),
        ("'system:serviceaccounts' in user.groups", True),
        ("now < timestamp('2026-03-01T12:00:01Z')", True),
        ("now.getFullYear() == 2025", False),
    ],
)
async def test_rules_see_request_user_and_time(expression: str, holds: bool) -> None:
    """All that they see is the certificate to be signed, who asks, and now."""
    rules = [{"expression": expression, "message": "so it is said"}]

    verdict = await judged(case(HOST), rules=rules)

    (rule,) = [check for check in verdict.checks if check.field.startswith("rules")]
    assert (rule.field, rule.allowed) == ("rules[0]", holds)
    assert verdict.allowed is holds
    assert verdict.message == ("" if holds else "so it is said")


async def test_a_rule_that_fails_does_not_allow() -> None:
    """A missing key is reported, without the values."""

    verdict = await judged(
        case(HOST, user=ALICE), rules=[{"expression": "user.extra['env'][0] == 'prod'"}]
    )

    assert not verdict.allowed
    assert verdict.message.startswith("rules[0]: expression 'user.extra['env'][0] == 'prod''")
    assert verdict.message.endswith("no such key: env")


async def test_a_hostile_rule_ends_without_a_verdict() -> None:
    """An expression that would fill the memory is ended, and nothing is decided by it."""
    bomb = "['aaaaaaaa']" + ".map(x, x + x)" * 26 + "[0].size() > 3"

    verdict = await judged(case(HOST), rules=[{"expression": bomb}], otherwise="deny")

    assert not verdict.allowed
    assert "took more than 2 seconds of processor time or 1 GiB" in verdict.problem


async def test_a_policy_with_a_problem_knows_whom_it_selects() -> None:
    """So that nothing is denied in its place."""
    verdict = await judged(case(HOST), problem="the policy is not Ready")

    assert verdict.selected
    assert not verdict.allowed
    assert verdict.message == "the policy is not Ready"


async def test_every_check_contains_its_value() -> None:
    """That is what an explanation is made of."""
    verdict = await judged(case(HOST, "evil.com", user=WEB))

    assert [(check.field, check.value, check.allowed) for check in verdict.checks] == [
        ("dnsNames", HOST, True),
        ("dnsNames", "evil.com", False),
        ("usages", "digital signature", True),
        ("usages", "server auth", True),
        ("keys", "ECDSA-P256", True),
        ("maxDuration", "24h", True),
    ]
    assert verdict.message == 'dnsNames does not allow "evil.com"'
