"""What a kind says about requests for its objects."""

from orchid.features.accounts.kinds import service_account
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.naming import ORCH


def test_a_target_has_everything_that_authorization_uses() -> None:
    """As the path of a request for the same object."""
    kind = service_account.declare(ORCH)

    target = kind.target("create", "app", namespace="ci", subresource="token")

    assert target == Target(
        verb="create",
        is_resource=True,
        group="",
        version="v1",
        resource="serviceaccounts",
        subresource="token",
        namespace="ci",
        name="app",
    )
