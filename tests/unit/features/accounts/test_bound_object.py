"""A token is bound only to what its requester may see."""

from typing import Any

import pytest

from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    TokenRequest,
    TokenRequestSpec,
)
from orchid.features.accounts.policies.bound_object import BoundObject
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import NotFound
from tests.unit.features.asking import TOKENS, Rights, a_request

ASKED = a_request(
    Target(
        verb="create",
        is_resource=True,
        version="v1",
        resource="serviceaccounts",
        subresource="token",
        namespace="default",
        name="robot",
    )
)


def bound_to(kind: str, name: str = "x") -> Any:
    reference = BoundObjectReference(kind=kind, api_version="v1", name=name)
    return TokenRequest(spec=TokenRequestSpec(bound_object_ref=reference))


@pytest.mark.parametrize(
    ("kind", "plural", "namespace"),
    [("Pod", "pods", "default"), ("Secret", "secrets", "default"), ("Node", "nodes", "")],
)
async def test_the_right_to_get_it_is_needed(kind: str, plural: str, namespace: str) -> None:
    """Asked for that very object; without the right it is as if it did not exist."""
    rights = Rights(("get", plural, "x"))
    policy = BoundObject(rights)

    await policy.admit(ASKED, TOKENS, bound_to(kind), None)
    with pytest.raises(NotFound, match=f'{plural} "other" not found'):
        await policy.admit(ASKED, TOKENS, bound_to(kind, "other"), None)

    assert {target.namespace for target in rights.asked} == {namespace}


@pytest.mark.parametrize(
    "request_", [TokenRequest(), bound_to("ConfigMap"), bound_to("pod"), bound_to("Secret", "")]
)
async def test_what_cannot_be_bound_is_left_to_the_issuer(request_: TokenRequest) -> None:
    """Nothing would be looked up for these, so nobody is asked."""
    rights = Rights()

    assert await BoundObject(rights).admit(ASKED, TOKENS, request_, None) is request_
    assert rights.asked == []
