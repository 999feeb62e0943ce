"""Policies see the content that the signer would write into the certificate."""

from orchid.features.approval.issuing_terms import IssuingTerms, profile_of, with_default_terms
from tests.unit.features.approval.cases import SIGNER, case, signer_terms
from tests.unit.kernel.credentials import samples

WEB = signer_terms(profile_of(SIGNER, with_default_terms(IssuingTerms(), "")))
HOST = "a.web.example.com"


def test_a_policy_sees_the_usages_that_the_key_can_serve() -> None:
    """Those of the authority, but for what its certificates with such a key never have."""
    curve = case(HOST, usages=(), terms_of=WEB)
    rsa = case(HOST, usages=(), terms_of=WEB, key=samples.rsa_key())

    assert curve.texts["usages"] == ("digital signature", "server auth")
    assert rsa.texts["usages"] == ("digital signature", "key encipherment", "server auth")
    assert curve.obstacles == rsa.obstacles == ()


def test_a_request_whose_key_serves_no_usage_is_not_allowed() -> None:
    """Its signer would refuse it, and says why."""
    found = case(HOST, usages=("key encipherment", "server auth"), terms_of=WEB)

    assert found.obstacles == (
        "the signer would refuse it: keys of type ECDSA-P256 cannot be used for key encipherment",
    )


def test_a_signer_that_is_not_ours_gets_the_usages_as_asked() -> None:
    """It may sign them all."""
    asked = ("digital signature", "key encipherment", "server auth")

    assert case(HOST, usages=asked).texts["usages"] == asked
