"""Accounts: their tokens as counts, and who may issue tokens for them."""

from collections.abc import Mapping
from typing import Any

from orchid.features.console.api import Json
from orchid.features.console.page import ConsolePage, Visit
from orchid.features.console.pages import ledger, rights, shared
from orchid.kernel.outbound.api_connection import path


def account_path(namespace: str, name: str) -> str:
    return path("api", "v1", "namespaces", namespace, "serviceaccounts", name)


async def read_list(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(visit, found=_listed(visit))


async def _listed(visit: Visit) -> Json:
    accounts, has_more = await shared.everything(visit.api, path("api", "v1", "serviceaccounts"))
    term = visit.query.get("q", "").strip().lower()
    rows = [
        {
            "namespace": str(account["metadata"].get("namespace") or ""),
            "name": shared.name_of(account),
            "created": shared.created(account),
        }
        for account in accounts
    ]
    rows = [row for row in rows if term in f"{row['namespace']}/{row['name']}".lower()]
    rows.sort(key=lambda row: (row["namespace"], row["name"]))
    return shared.one_page(visit.query, rows, has_more=has_more)


async def read_one(visit: Visit) -> Mapping[str, Any]:
    namespace, name = visit.names["namespace"], visit.names["name"]
    account = await visit.api.get(account_path(namespace, name))
    uid = str(account["metadata"].get("uid") or "")
    parts = await shared.gather(
        visit,
        tokens=ledger.tokens_of(visit.api, uid),
        secrets=_secrets(visit, namespace, uid),
        issuers=rights.subjects(visit, rights.ISSUE_TOKENS, namespace),
    )
    return {
        "namespace": namespace,
        "name": name,
        "uid": uid,
        "created": shared.created(account),
        "annotations": sorted((account["metadata"].get("annotations") or {}).items()),
        **parts,
    }


async def _secrets(visit: Visit, namespace: str, uid: str) -> list[Json]:
    """Secrets with a token of the account: names and times alone."""
    naming = await visit.api.naming()
    target = path("api", "v1", "namespaces", namespace, "secrets")
    query = {"fieldSelector": f"type={naming.token_secret_type}"}
    secrets, _ = await visit.api.items(target, query, most=shared.PAGE)
    rows = []
    for secret in secrets:
        meta = secret["metadata"]
        if (meta.get("annotations") or {}).get(naming.account_uid_annotation) == uid:
            used = (meta.get("labels") or {}).get(naming.last_used_label)
            rows.append(
                {"name": shared.name_of(secret), "created": shared.created(secret), "used": used}
            )
    return sorted(rows, key=lambda row: str(row["name"]))


PAGES = (
    ConsolePage("/accounts", "accounts.html", read_list, section="accounts"),
    ConsolePage(
        "/accounts/{namespace}/{name}", "account.html", read_one, section="accounts", every=60
    ),
)
