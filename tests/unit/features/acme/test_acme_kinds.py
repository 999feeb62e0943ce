"""AcmeAccount and AcmeOrder: what their rules refuse."""

from datetime import UTC, datetime
from typing import Any

from orchid.features.acme.kinds.acme_account import DEACTIVATED, VALID, AcmeAccount, AcmeAccountSpec
from orchid.features.acme.kinds.acme_account import Rules as AccountRules
from orchid.features.acme.kinds.acme_order import AcmeIdentifier, AcmeOrder, AcmeOrderSpec
from orchid.features.acme.kinds.acme_order import Rules as OrderRules
from orchid.kernel.credentials.jwk import read_jwk_text
from orchid.kernel.credentials.x509.signing_request import parse_der
from orchid.kernel.wire.struct import replace
from tests.unit.features.acme.acme_client import request_for

KEY = read_jwk_text(
    '{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","use":"sig"}'
)


def account(**change: Any) -> AcmeAccount:
    spec = AcmeAccountSpec(
        service_account_name="frontend",
        service_account_uid="1",
        authority="servers",
        authority_uid="2",
        jwk=KEY.text,
        thumbprint=KEY.thumbprint,
        state=VALID,
    )
    return AcmeAccount(spec=replace(spec, **change))


def wrong(new: AcmeAccount, old: AcmeAccount | None = None) -> set[str]:
    """The fields that are refused."""
    rules = AccountRules()
    found = rules.validate(new) if old is None else rules.validate_update(new, old)
    return {str(error.path) for error in found}


def test_a_key_is_canonical_and_has_its_thumbprint() -> None:
    """RFC 8037, appendix A.3, has the thumbprint of this key."""
    assert KEY.thumbprint == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert wrong(account()) == set()
    assert wrong(account(jwk=KEY.text.replace(",", ", "))) == {"spec.jwk"}
    assert wrong(account(jwk="{}")) == {"spec.jwk"}
    assert wrong(account(thumbprint="x")) == {"spec.thumbprint"}


def test_an_account_needs_its_service_account_and_authority() -> None:
    names = ("service_account_name", "service_account_uid", "authority", "authority_uid")
    missing = dict.fromkeys(names, "")

    assert wrong(account(**missing)) == {
        "spec.serviceAccountName",
        "spec.serviceAccountUID",
        "spec.authority",
        "spec.authorityUID",
    }


def test_contacts_are_a_few_urls() -> None:
    assert wrong(account(contact=("mailto:a@example.com",))) == set()
    assert wrong(account(contact=("a b",))) == {"spec.contact[0]"}
    assert wrong(account(contact=("x" * 300,))) == {"spec.contact[0]"}
    assert wrong(account(contact=("mailto:a@example.com",) * 9)) == {"spec.contact"}


def test_the_service_account_is_fixed_and_deactivation_is_final() -> None:
    other = account(service_account_name="other", authority="others")
    ended = account(state=DEACTIVATED)

    assert wrong(other, account()) == {"spec.serviceAccountName", "spec.authority"}
    assert wrong(ended, account()) == set()
    assert wrong(account(), ended) == {"spec.state"}


def test_the_uid_of_the_authority_is_fixed_once_it_is_set() -> None:
    """An account of an earlier version has none, can be deactivated, and gets it with a change."""
    without = account(authority_uid="")

    assert wrong(account(authority_uid="3"), account()) == {"spec.authorityUID"}
    assert wrong(without, account()) == {"spec.authorityUID"}
    assert wrong(account(), without) == set()
    assert wrong(account(authority_uid="", state=DEACTIVATED), without) == set()


def order(*names: str, **change: Any) -> AcmeOrder:
    spec = AcmeOrderSpec(
        account="a",
        identifiers=tuple(AcmeIdentifier(type="dns", value=name) for name in names),
        expires=datetime(2030, 1, 1, tzinfo=UTC),
    )
    return AcmeOrder(spec=replace(spec, **change))


def test_an_order_has_an_account_names_and_an_end() -> None:
    empty = AcmeOrder()
    odd = order(identifiers=(AcmeIdentifier(type="mail", value=""),))

    assert {str(one.path) for one in OrderRules().validate(empty)} == {
        "spec.account",
        "spec.expires",
        "spec.identifiers",
    }
    assert {str(one.path) for one in OrderRules().validate(odd)} == {
        "spec.identifiers[0].type",
        "spec.identifiers[0].value",
    }
    assert not list(OrderRules().validate(order("a.example.com")))


def test_a_request_is_compared_with_the_names_of_its_order() -> None:
    """A common name is one of the alternative names; nothing else may be in the subject."""
    made = order("a.example.com", "b.example.com")

    def difference(*names: str, **more: str) -> str:
        return made.difference(parse_der(request_for(*names, **more)))

    assert difference("a.example.com", "B.example.com") == ""
    assert difference("a.example.com", "b.example.com", common_name="A.example.com") == ""
    unnamed = "the common name a.example.com is no subjectAltName"
    assert difference("b.example.com", common_name="a.example.com") == unnamed
    assert difference("a.example.com") == "b.example.com missing"
    assert "c.example.com not ordered" in difference("a.example.com", "c.example.com")
