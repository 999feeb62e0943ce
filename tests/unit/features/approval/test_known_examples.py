"""The documented examples of cert-manager's approver-policy, in our terms, decide as it says.

What is the same there: patterns, lists of which a request may ask for less, what is left out is
denied, one policy that permits is enough, selected and permitted by none is denied. What is said in
other words here:

    issuerRef           signerNames: `issuers.cert-manager.io/NAME`
    namespace           requesters.serviceAccounts: `NAMESPACE/*`
    required: true      a rule
    validations         rules over the whole list
    constraints         keys, minDuration and maxDuration; one that is left out there is "*" here
"""

import ipaddress
from typing import Any

import pytest
from cryptography import x509

from orchid.features.approval.case import REQUEST_SAMPLE
from orchid.features.approval.compiled import JudgedPolicy
from orchid.features.approval.deciding import Outcome, decide
from orchid.kernel.credentials.x509 import names
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.approval.cases import case, policy
from tests.unit.kernel.credentials import samples

APPROVE, DENY, LEAVE = Outcome.APPROVE, Outcome.DENY, Outcome.LEAVE
ISSUER = "issuers.cert-manager.io/"
LETS_ENCRYPT = f"{ISSUER}letsencrypt-prod"
TEAM = UserInfo(username="system:serviceaccount:app-team-1:deployer")
ANY_KEY_AND_LIFE = {"keys": ["*"], "maxDuration": "87600h"}
SERVER = ("server auth",)
RSA = samples.rsa_key()


def required(field: str) -> dict[str, str]:
    empty = "''" if field == "commonName" else "[]"
    return {"expression": f"request.{field} != {empty}", "message": f"{field} is required"}


HELLO_WORLD = {
    "signerNames": ["*"],
    "allows": {"commonName": "hello.world", "usages": list(ALL_USAGES), **ANY_KEY_AND_LIFE},
    "rules": [required("commonName")],
}
TWO_NAMES = {
    "signerNames": ["*"],
    "allows": {
        "dnsNames": ["example.com", "foo.example.com"],
        "usages": list(ALL_USAGES),
        **ANY_KEY_AND_LIFE,
    },
}
ENDS_IN_COM = {
    "signerNames": ["*"],
    "allows": {"commonName": "*.com", "usages": list(ALL_USAGES), **ANY_KEY_AND_LIFE},
    "rules": [required("commonName")],
}
EXAMPLE_COM = {
    "signerNames": [LETS_ENCRYPT],
    "allows": {
        "commonName": "example.com",
        "dnsNames": ["example.com", "*.example.com"],
        "usages": ["server auth"],
        "keys": ["RSA-*"],
        "maxDuration": "87600h",
    },
}
EVERY_ALLOWED: dict[str, Any] = {
    "commonName": "example.com",
    "dnsNames": ["example.com", "*.example.com"],
    "ipAddresses": ["1.2.3.4", "10.0.1.*"],
    "uris": ["spiffe://example.org/ns/*/sa/*"],
    "emailAddresses": ["*@example.com"],
    "usages": ["server auth", "client auth"],
    "organizations": ["hello-world"],
    "countries": ["*"],
    "organizationalUnits": ["*"],
    "localities": ["*"],
    "provinces": ["*"],
    "streetAddresses": ["*"],
    "postalCodes": ["*"],
    "serialNumber": "*",
    "keys": ["RSA-2048", "RSA-3072", "RSA-4096"],
    "minDuration": "1h",
    "maxDuration": "24h",
}
EVERY_FIELD = {
    "signerNames": [f"*{ISSUER}my-ca"],
    "allows": EVERY_ALLOWED,
    "rules": [required("emailAddresses")],
}
ALL_OPTIONS = {
    "signerNames": [f"*{ISSUER}my-ca-*"],
    "allows": {
        **EVERY_ALLOWED,
        "organizations": ["*"],
        "ipAddresses": ["*"],
    },
    "rules": [
        required("commonName"),
        {"expression": "request.commonName.endsWith('.com')"},
        {"expression": "request.dnsNames.all(n, n.size() <= 24)", "message": "at most 24"},
        {"expression": r"request.ipAddresses.all(a, a.matches('^\\d+\\.\\d+\\.\\d+\\.\\d+$'))"},
        {"expression": "request.emailAddresses.all(m, m.size() <= 24)"},
        {
            "expression": "request.uris.all(u, u.startsWith('spiffe://example.org/ns/' + "
            "user.username.split(':')[2] + '/sa/'))",
            "message": "an id of the requester's namespace",
        },
    ],
}
ALLOW_ALL = {
    "signerNames": ["*"],
    "allows": {
        "commonName": "*",
        **{name: ["*"] for name in ("dnsNames", "ipAddresses", "uris", "emailAddresses")},
        **{name: ["*"] for name in ("organizations", "countries", "organizationalUnits")},
        **{name: ["*"] for name in ("localities", "provinces", "streetAddresses", "postalCodes")},
        "serialNumber": "*",
        "usages": list(ALL_USAGES),
        **ANY_KEY_AND_LIFE,
    },
}
DENY_ALL = {"signerNames": ["*"], "allows": {}}
TEAMS = {
    "signerNames": [],
    "requesters": {"serviceAccounts": ["default/*", "app-team-*/*"]},
    "allows": ALLOW_ALL["allows"],
}

MAIL = x509.RFC822Name("a@example.com")
ADDRESS = x509.IPAddress(ipaddress.ip_address("10.0.1.7"))
SPIFFE = x509.UniformResourceIdentifier("spiffe://example.org/ns/app-team-1/sa/web")
OTHER_SPIFFE = x509.UniformResourceIdentifier("spiffe://example.org/ns/other/sa/web")
USUAL = {"common_name": "example.com", "usages": SERVER, "key": RSA, "signer": LETS_ENCRYPT}
OWN = {**USUAL, "signer": f"{ISSUER}my-ca", "seconds": 7200}
OPTIONS = {**OWN, "signer": f"cluster{ISSUER}my-ca-1", "user": TEAM}


async def outcome(
    asked: dict[str, Any],
    *policies: dict[str, Any],
    hosts: tuple[str, ...] = (),
    bound: bool = True,
) -> Outcome:
    """The outcome of a request; every policy denies requests that it selects and nobody permits."""
    evaluator = Evaluator(REQUEST_SAMPLE, seconds=60.0)
    judged = case(*hosts, **asked)
    verdicts: list[JudgedPolicy] = []
    for number, terms in enumerate(policies):
        made = policy(f"p{number}", **terms, otherwise="deny")
        assert made.problem == ""
        verdicts.append(await made.judge(judged, evaluator))

    async def may_use(_name: str) -> bool:
        return bound

    return (await decide(verdicts, may_use)).outcome


@pytest.mark.parametrize(
    ("common_name", "expected"), [("hello.world", APPROVE), ("hello.mars", DENY), ("", DENY)]
)
async def test_only_one_common_name_which_must_be_there(
    common_name: str, expected: Outcome
) -> None:
    """`hello.world` for everybody who is bound, and nothing else."""
    asked = {"common_name": common_name, "usages": SERVER}

    assert await outcome(asked, HELLO_WORLD) is expected
    assert await outcome(asked, HELLO_WORLD, bound=False) is LEAVE
    assert await outcome(asked, HELLO_WORLD, hosts=("hello.world",)) is DENY


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((), APPROVE),
        (("example.com",), APPROVE),
        (("example.com", "foo.example.com"), APPROVE),
        (("bar.example.com",), DENY),
        (("example.com", "bar.example.com"), DENY),
    ],
)
async def test_a_request_may_ask_for_a_part_of_a_list(
    hosts: tuple[str, ...], expected: Outcome
) -> None:
    """None of it is a part too; one name beyond it is too many."""
    assert await outcome({}, TWO_NAMES, hosts=hosts) is expected


@pytest.mark.parametrize(
    ("common_name", "expected"),
    [("a.com", APPROVE), ("a.b.com", APPROVE), ("acom", DENY), ("a.org", DENY), ("", DENY)],
)
async def test_a_required_pattern(common_name: str, expected: Outcome) -> None:
    """It must be there, and it must end so."""
    assert await outcome({"common_name": common_name}, ENDS_IN_COM) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "anything", APPROVE),
        ("*foo", "foo", APPROVE),
        ("*foo", "bar-foo", APPROVE),
        ("*.foo", "bar-123.foo", APPROVE),
        ("*.foo", "barfoo", DENY),
    ],
)
async def test_wildcards(pattern: str, text: str, expected: Outcome) -> None:
    """Any text, of no length too."""
    terms = {
        "signerNames": ["*"],
        "allows": {"commonName": pattern, "usages": ["server auth"], **ANY_KEY_AND_LIFE},
    }

    assert await outcome({"common_name": text, "usages": SERVER}, terms) is expected


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        (("server auth",), APPROVE),
        (("server auth", "client auth"), APPROVE),
        (("server auth", "cert sign"), DENY),
    ],
)
async def test_usages_are_a_list_of_what_is_permitted(
    usages: tuple[str, ...], expected: Outcome
) -> None:
    """A part of it is permitted, one beyond it is not."""
    terms = {
        "signerNames": ["*"],
        "allows": {"usages": ["server auth", "client auth"], **ANY_KEY_AND_LIFE},
    }

    assert await outcome({"usages": usages}, terms) is expected


@pytest.mark.parametrize(
    ("change", "hosts", "expected"),
    [
        ({}, (), APPROVE),
        ({}, ("example.com", "www.example.com"), APPROVE),
        ({}, ("example.org",), DENY),
        ({"common_name": "www.example.com"}, (), DENY),
        ({"usages": ("client auth",)}, (), DENY),
        ({"key": samples.P256}, (), DENY),
        ({"organizations": ("o",)}, (), DENY),
        ({"signer": f"{ISSUER}letsencrypt-staging"}, (), LEAVE),
    ],
)
async def test_example_com(
    change: dict[str, Any], hosts: tuple[str, ...], expected: Outcome
) -> None:
    """One domain of one issuer, with RSA keys."""
    assert await outcome({**USUAL, **change}, EXAMPLE_COM, hosts=hosts) is expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"more": (MAIL,)}, APPROVE),
        ({"more": (MAIL, ADDRESS)}, APPROVE),
        ({"more": (MAIL, SPIFFE)}, APPROVE),
        ({"more": (MAIL,), "organizations": ("hello-world",)}, APPROVE),
        ({"more": ()}, DENY),
        ({"more": (x509.RFC822Name("a@example.org"),)}, DENY),
        ({"more": (MAIL, x509.IPAddress(ipaddress.ip_address("10.0.2.7")))}, DENY),
        ({"more": (MAIL,), "organizations": ("other",)}, DENY),
        ({"more": (MAIL,), "seconds": 1800}, DENY),
        ({"more": (MAIL,), "seconds": 90_000}, DENY),
        ({"more": (MAIL,), "key": samples.P256}, DENY),
    ],
)
async def test_every_allowed_field_and_every_constraint(
    change: dict[str, Any], expected: Outcome
) -> None:
    """A mail address is required; lives are between an hour and a day, keys RSA."""
    assert await outcome({**OWN, **change}, EVERY_FIELD) is expected


@pytest.mark.parametrize(
    ("change", "hosts", "expected"),
    [
        ({}, (), APPROVE),
        ({"more": (ADDRESS, MAIL, SPIFFE)}, ("a.example.com",), APPROVE),
        ({"common_name": ""}, (), DENY),
        ({}, ("much-too-long-a-name.example.com",), DENY),
        ({"more": (x509.IPAddress(ipaddress.ip_address("fd00::1")),)}, (), DENY),
        ({"more": (OTHER_SPIFFE,)}, (), DENY),
        ({"more": (x509.RFC822Name("somebody.else@example.com"),)}, (), DENY),
        ({"signer": f"{ISSUER}other-ca"}, (), LEAVE),
    ],
)
async def test_all_options(
    change: dict[str, Any], hosts: tuple[str, ...], expected: Outcome
) -> None:
    """Validations of single values become rules over the list."""
    assert await outcome({**OPTIONS, **change}, ALL_OPTIONS, hosts=hosts) is expected


async def test_an_attribute_outside_the_named_ones_is_denied() -> None:
    """A mail address or a user id in the subject, unless it is listed; here it cannot be."""
    mail = samples.attribute("1.2.840.113549.1.9.1", 0x16, b"a@example.com")
    subject = samples.name((mail,), (samples.utf8(names.COMMON_NAME, "example.com"),))
    asked = {"request": samples.as_pem(samples.raw_request(subject)), "usages": SERVER}

    assert await outcome(asked, ALLOW_ALL) is DENY


@pytest.mark.parametrize(
    "asked", [{}, USUAL, {**OWN, "more": (MAIL, ADDRESS, SPIFFE)}, {"organizations": ("a", "b")}]
)
async def test_allow_all_and_deny_all(asked: dict[str, Any]) -> None:
    """A policy that never permits denies what no other permits, and nothing else."""
    assert await outcome(asked, ALLOW_ALL) is APPROVE
    assert await outcome(asked, DENY_ALL) is DENY
    assert await outcome(asked, DENY_ALL, ALLOW_ALL) is APPROVE
    assert await outcome(asked) is LEAVE


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (TEAM, APPROVE),
        (UserInfo(username="system:serviceaccount:default:x"), APPROVE),
        (UserInfo(username="system:serviceaccount:other:x"), LEAVE),
        (UserInfo(username="alice"), LEAVE),
    ],
)
async def test_selected_by_namespace(user: UserInfo, expected: Outcome) -> None:
    """`default` and every `app-team-…`."""
    assert await outcome({"user": user}, TEAMS) is expected
