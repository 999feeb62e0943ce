"""Chains of authorities: which are fit to issue, and the name of every reason why not."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.issuer_chain import purposes, refuse_unfit
from orchid.kernel.credentials.keys import encode_private
from orchid.kernel.credentials.refusals import (
    AuthorityExpired,
    AuthorityUnusable,
    BrokenChain,
    KeyMismatch,
    NoCommonPurpose,
    NotAnAuthority,
    NotPermitted,
    NotPermittedToSign,
    NotYetAuthority,
    PathTooLong,
    SigningFailed,
)
from orchid.kernel.credentials.x509 import certificates, pem, signing_request
from tests.unit.kernel.credentials.chains import ANY, CLIENT, SERVER, Key, authority, make
from tests.unit.kernel.credentials.samples import (
    CLIENT_USAGES,
    DAY,
    HOUR,
    NODE_CLIENT,
    NOW,
    OTHER_P256,
    P256,
    request,
    rsa_key,
)

MIDDLE = ec.derive_private_key(98, ec.SECP256R1())
LOWER = ec.derive_private_key(99, ec.SECP256R1())
LISTS_ONLY = x509.KeyUsage(False, False, False, False, False, False, True, False, False)


def middle(**options: object) -> x509.Certificate:
    given = {"key": MIDDLE, "ca": True, "usages": None}
    return make("middle", "ca", **(given | options))


def lower(**options: object) -> x509.Certificate:
    given = {"key": LOWER, "signer": MIDDLE, "ca": True, "usages": None}
    return make("lower", "middle", **(given | options))


def load(
    *chain: x509.Certificate, key: Key = LOWER, now: datetime.datetime | None = NOW
) -> Authority:
    """Read an authority as it would come from a Secret."""
    text = b"".join(pem.encode(pem.CERTIFICATE, certificates.encode(link)) for link in chain)
    return Authority.load(text, encode_private(key).encode(), now=now)


@pytest.mark.parametrize(
    "chain",
    [
        (lower(), middle(), authority()),
        (lower(), middle()),
        (lower(),),
        (lower(path_length=0), middle(path_length=1), authority(path_length=2)),
        (lower(usages=(CLIENT,)), middle(usages=(CLIENT, SERVER)), authority(usages=(ANY,))),
    ],
    ids=["whole", "without root", "alone", "path lengths", "purposes"],
)
def test_a_chain_in_order_is_an_authority(chain: tuple[x509.Certificate, ...]) -> None:
    """With or without what is above it; limits that leave room are no hindrance."""
    assert load(*chain).chain == chain


REFUSED = {
    "the key of another": ((lower(),), P256, KeyMismatch, "does not match"),
    "the leaf of a server": ((lower(ca=False),), LOWER, NotAnAuthority, "CA bit"),
    "no constraints": ((lower(ca=None),), LOWER, NotAnAuthority, "CA bit"),
    "a leaf above": ((lower(), middle(ca=False)), LOWER, NotAnAuthority, "CA bit"),
    "for lists only": (
        (lower(extra=[(LISTS_ONLY, True)]),),
        LOWER,
        NotPermittedToSign,
        "key usage",
    ),
    "for lists only, above": (
        (lower(), middle(extra=[(LISTS_ONLY, True)])),
        LOWER,
        NotPermittedToSign,
        "key usage",
    ),
    "wrong order": ((lower(), authority(), middle()), LOWER, BrokenChain, "form a chain"),
    "a link is missing": ((lower(), authority()), LOWER, BrokenChain, "form a chain"),
    "a twin above": (
        (lower(), make("middle", "ca", key=OTHER_P256, ca=True, usages=None)),
        LOWER,
        BrokenChain,
        "form a chain",
    ),
    "path length of the middle": (
        (lower(), middle(path_length=0)),
        LOWER,
        PathTooLong,
        "1 authorities below one that permits 0",
    ),
    "path length of the root": (
        (lower(), middle(), authority(path_length=1)),
        LOWER,
        PathTooLong,
        "2 authorities below one that permits 1",
    ),
    "purposes that exclude each other": (
        (lower(usages=(CLIENT,)), middle(usages=(SERVER,))),
        LOWER,
        NoCommonPurpose,
        "extended key usage",
    ),
    "too long": ((authority(),) * 9, P256, AuthorityUnusable, "1 to 8 certificates, found 9"),
    "a weak key": (
        (authority(key=rsa_key("rsa-1024-pkcs8.pem")),),
        rsa_key("rsa-1024-pkcs8.pem"),
        AuthorityUnusable,
        "2048",
    ),
    "over": (
        (lower(start=NOW - DAY, end=NOW - HOUR), middle()),
        LOWER,
        AuthorityExpired,
        "has expired",
    ),
    "over, above": (
        (lower(), middle(start=NOW - DAY, end=NOW)),
        LOWER,
        AuthorityExpired,
        "has expired",
    ),
    "not begun": (
        (lower(start=NOW + HOUR, end=NOW + DAY),),
        LOWER,
        NotYetAuthority,
        "not yet valid",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_every_unfit_chain_has_a_refusal_of_its_own(case: str) -> None:
    """Named by a class, explained by a sentence, and no key in it."""
    chain, key, refusal, text = REFUSED[case]

    with pytest.raises(SigningFailed) as caught:
        load(*chain, key=key)

    assert type(caught.value) is refusal
    assert text in str(caught.value)
    assert "PRIVATE" not in str(caught.value)


def test_time_is_asked_about_only_on_request() -> None:
    """A server starts with an authority that is over, and says so when it is to sign."""
    assert load(lower(start=NOW - DAY, end=NOW - HOUR), now=None)


def test_a_self_issued_link_does_not_count_for_the_path_length() -> None:
    """An authority that changes its key makes a certificate for itself (section 4.2.1.9)."""
    changed = make("middle", "middle", key=LOWER, signer=MIDDLE, ca=True, usages=None)

    refuse_unfit([changed, middle(path_length=0)], LOWER)


def test_no_certificate_is_no_authority() -> None:
    """An empty chain is refused by name as well."""
    with pytest.raises(AuthorityUnusable, match="found 0"):
        refuse_unfit([], LOWER)


def test_purposes_are_what_the_whole_chain_permits() -> None:
    """No limit anywhere is no limit; "any" is none either."""
    assert purposes([lower(), middle()]) is None
    assert purposes([lower(usages=(ANY,)), middle()]) is None
    assert purposes([lower(usages=(CLIENT, SERVER)), middle(usages=(SERVER, ANY))]) == {
        CLIENT.dotted_string,
        SERVER.dotted_string,
    }
    assert purposes([lower(usages=(CLIENT, SERVER)), middle(usages=(SERVER,))]) == {
        SERVER.dotted_string
    }


def test_an_authority_issues_only_for_the_purposes_of_its_chain() -> None:
    """Nobody would accept more, so it is refused rather than signed."""
    limited = load(lower(usages=(SERVER,)), middle())
    parsed = signing_request.parse(request())

    with pytest.raises(NotPermitted, match="may not issue for client auth"):
        limited.sign(parsed, CLIENT_USAGES, HOUR, profile=NODE_CLIENT, now=NOW)
    with pytest.raises(NotPermitted, match="may not issue for client auth"):
        limited.issue_client("a", lifetime=HOUR, now=NOW)
    assert limited.issue_serving("a", lifetime=HOUR, now=NOW, dns_names=["a.example"])
