"""The 403 that a caller sees."""

import pytest

from orchid.kernel.access.denial import forbidden, joined
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.status import StatusDetails
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.rights.policy_world import ask, ask_path

JANE = UserInfo(username="jane")


@pytest.mark.parametrize(
    ("target", "reason", "message"),
    [
        (
            ask("create", "serviceaccounts/token", "ci", "builder"),
            "",
            'serviceaccounts "builder" is forbidden: User "jane" cannot create resource '
            '"serviceaccounts/token" in API group "" in the namespace "ci"',
        ),
        (
            ask("list", "certificatesigningrequests", group="certificates.orch.io"),
            "not today",
            'certificatesigningrequests.certificates.orch.io is forbidden: User "jane" cannot '
            'list resource "certificatesigningrequests" in API group "certificates.orch.io" at '
            "the cluster scope: not today",
        ),
        (ask_path("get", "/metrics"), "", 'forbidden: User "jane" cannot get path "/metrics"'),
        (
            ask("", "pods", "ci"),
            "",
            'pods is forbidden: User "jane" cannot  resource "pods" in API group "" in the '
            'namespace "ci"',
        ),
        (
            ask_path("get", "/<b>&"),
            "<r>",
            'forbidden: User "jane" cannot get path "/&lt;b&gt;&amp;": <r>',
        ),
    ],
)
def test_the_sentence(target: Target, reason: str, message: str) -> None:
    """The message of a denial: user, verb and resource, escaped markup, the reason at the end."""
    refusal = forbidden(JANE, target, reason)

    assert refusal.message == message
    assert refusal.code == 403


def test_details_of_a_path_are_empty() -> None:
    """A path is no resource, so there is nothing to say about one."""
    assert forbidden(JANE, ask_path("get", "/x")).details == StatusDetails()


def test_problems_are_joined_once_each() -> None:
    """One reason is plain, several are in brackets."""
    assert [joined(texts) for texts in ([], ["a"], ["a", "b", "a"])] == ["", "a", "[a, b]"]
