"""TokenRequest: its declaration, its defaults and its bytes; the rest is in access/test_issuing."""

from typing import Any

from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    IssuedToken,
    TokenRequest,
    TokenRequestSpec,
    declare,
    with_default_lifetime,
)
from orchid.kernel.wire.codec.documents import encode
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.naming import KUBERNETES, ORCH


class NoIssuer:
    """Stands in where nothing is issued."""

    api_audiences = ("a",)
    longest_seconds = 0

    async def account_uid(self, namespace: str, name: str) -> str:
        return "u"

    def bind(self, reference: BoundObjectReference, namespace: str, account: str) -> Any:
        return None

    async def sign(self, wanted: TokenRequest, bound: Any, now: Time) -> IssuedToken:
        return IssuedToken("s3cret", "JTI=1")


def test_every_field_of_spec_and_status_is_written_even_when_empty() -> None:
    """Clients in other languages rely on null and empty members being there."""
    assert encode(TokenRequest()) == (
        b'{"metadata":{},"spec":{"audiences":null,"expirationSeconds":null,"boundObjectRef":null},'
        b'"status":{"token":"","expirationTimestamp":null}}'
    )


def test_lifetime_is_an_hour_unless_said_otherwise() -> None:
    """The default counts as set, also in managed fields, so it is put in first of all."""
    assert with_default_lifetime(TokenRequest()).spec.expiration_seconds == 3600
    zero = TokenRequest(spec=TokenRequestSpec(expiration_seconds=0))
    assert with_default_lifetime(zero) is zero


def test_endpoint_is_an_action_of_the_authentication_group() -> None:
    """Served under the account, created only, without a table."""
    endpoint = declare(ORCH, NoIssuer())

    assert endpoint.name == "token"
    assert endpoint.verbs == ("create",)
    assert not endpoint.has_table
    assert endpoint.kind is not None
    assert endpoint.kind.api_version == "authentication.orch.io/v1"
    stock = declare(KUBERNETES, NoIssuer()).kind
    assert stock is not None
    assert stock.api_version == "authentication.k8s.io/v1"


def test_issued_token_does_not_print() -> None:
    """It passes through several hands on its way into the answer."""
    assert "s3cret" not in repr(IssuedToken("s3cret", "JTI=1"))
