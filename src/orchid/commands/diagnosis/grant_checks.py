"""Checks of the bindings of a running server."""

from collections.abc import Iterator
from typing import Final

from orchid.features.rights.commands import grants
from orchid.kernel.terminal.connection import Json, ServerConnection, path
from orchid.kernel.terminal.findings import Finding, Installation, good, note, soon

MOST_NAMED: Final = 5


def grants_of_accounts(here: Installation) -> Iterator[Finding]:
    """No binding names a deleted account: a new account of that name would get its role."""
    if here.server is None:
        return
    orphans = list(_without_account(here.server))
    for account, binding in orphans[:MOST_NAMED]:
        namespace = binding["metadata"].get("namespace", "")
        scope = f" --namespace {namespace}" if namespace else ""
        yield soon(
            f"{grants.described(binding)} is bound to {account}, which does not exist: an account "
            "created with this name gets the role",
            f"orchid revoke-grant {binding['roleRef']['name']} --account {account}{scope}",
        )
    if len(orphans) > MOST_NAMED:
        yield note(f"{len(orphans) - MOST_NAMED} more roles belong to accounts that do not exist")
    if not orphans:
        yield good("every account that has a role exists")


def _without_account(server: ServerConnection) -> Iterator[tuple[str, Json]]:
    """Accounts that do not exist, each with a binding; those of the server itself are left out."""
    accounts = {
        f"{account_object['metadata']['namespace']}/{account_object['metadata']['name']}"
        for account_object in server.items(path("api", "v1", "serviceaccounts"))
    }
    for bindings in ("clusterrolebindings", "rolebindings"):
        for binding in server.items(server.group(grants.GROUP, grants.VERSION, bindings)):
            if server.naming.bootstrapping_label in (binding["metadata"].get("labels") or {}):
                continue
            for subject in binding.get("subjects") or ():
                account = f"{subject.get('namespace')}/{subject['name']}"
                if subject["kind"] == "ServiceAccount" and account not in accounts:
                    yield account, binding
