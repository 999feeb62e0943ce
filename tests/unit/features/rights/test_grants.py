"""Roles and bindings that exist already: only equal ones count as granted."""

from typing import Any

import pytest

from orchid.features.rights.commands.grants import account, grant, grant_use
from orchid.kernel.terminal.connection import CommandRefused
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.wire.naming import ORCH

SUBJECT = account("web", "frontend")
REFERENCE = {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "acme-requester"}
RULE = {
    "apiGroups": [ORCH.identity],
    "resources": ["approvalpolicies"],
    "resourceNames": ["web"],
    "verbs": ["use"],
}


class Server:
    """A server on which every object exists already."""

    naming = ORCH

    def __init__(self, existing: dict[str, Any]) -> None:
        self.existing = existing

    def group(self, *parts: str) -> str:
        return "/".join(parts)

    def post(self, url: str, body: object) -> Any:
        raise CommandRefused(409, "exists")

    def get(self, url: str) -> dict[str, Any]:
        return self.existing


def test_an_equal_binding_is_a_grant() -> None:
    existing = {"roleRef": REFERENCE, "subjects": [SUBJECT]}
    server: Any = Server(existing)

    assert grant(server, "acme-requester", SUBJECT, "") == (False, existing)


@pytest.mark.parametrize(
    "existing",
    [
        {"roleRef": {**REFERENCE, "name": "cluster-admin"}, "subjects": [SUBJECT]},
        {"roleRef": REFERENCE, "subjects": [account("web", "other")]},
        {"roleRef": REFERENCE},
    ],
)
def test_another_binding_of_that_name_is_none(existing: dict[str, Any]) -> None:
    server: Any = Server(existing)

    with pytest.raises(Complaint, match="another binding of the name"):
        grant(server, "acme-requester", SUBJECT, "")


def test_groups_are_not_bound_to_another_role_of_that_name() -> None:
    """Somebody else created it, with more rules; an equal one is used."""
    other: Any = Server({"rules": [RULE, {"verbs": ["*"]}]})
    equal: Any = Server({"rules": [RULE]})

    with pytest.raises(Complaint, match="another role of the name 'use-policy:web'"):
        grant_use(other, "web", [])
    grant_use(equal, "web", [])
