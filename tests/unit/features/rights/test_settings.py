"""Settings of the authorizers."""

import pytest

from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written


@pytest.mark.parametrize(
    ("modes", "text"),
    [
        (("RBAC", "ABAC"), "--authorization-mode: 'ABAC' is none of Node, RBAC, Webhook"),
        ((), "--authorization-mode: at least one authorizer is needed"),
    ],
)
def test_modes_are_those_of_authorizers(modes: tuple[str, ...], text: str) -> None:
    """Without an authorizer every request would be refused."""
    with pytest.raises(BadSettings) as refused:
        check(written(authorization_mode=modes))

    assert str(refused.value) == text
