"""Rights: the subjects that may do something critical, and the question "may U do X?"."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from orchid.features.console.api import Json
from orchid.features.console.page import ConsolePage, Visit
from orchid.features.console.pages import shared
from orchid.kernel.wire.user import AUTHENTICATED


class CriticalRight(NamedTuple):
    """A right that the page lists."""

    title: str
    verb: str
    group: str  # a word of the names, or the group itself
    resource: str


ISSUE_TOKENS: Final = CriticalRight(
    "Issue tokens of accounts", "create", "", "serviceaccounts/token"
)
CRITICAL: Final = (
    CriticalRight("Approve certificates", "approve", "certificates", "signers"),
    CriticalRight("Sign certificates", "sign", "certificates", "signers"),
    CriticalRight("Revoke certificates", "revoke", "certificates", "signers"),
    CriticalRight("Revoke tokens of accounts", "revoke", "", "serviceaccounts"),
    ISSUE_TOKENS,
    CriticalRight("Impersonate users", "impersonate", "", "users"),
    CriticalRight("Read Secrets", "get", "", "secrets"),
    CriticalRight("Write approval policies", "update", "identity", "approvalpolicies"),
    CriticalRight("Write role bindings", "create", "rbac", "clusterrolebindings"),
)


class Grants(NamedTuple):
    """All roles and bindings."""

    roles: dict[tuple[str, str], list[Json]]  # (namespace, name): rules
    bindings: list[Json]


async def read(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(visit, critical=_critical(visit), answer=_asked(visit))


async def _critical(visit: Visit) -> list[Json]:
    grants = await _grants(visit)
    sections = []
    for right in CRITICAL:
        group = await _group(visit, right.group)
        sections.append({"title": right.title, "rows": _rows(grants, right, group, "")})
    return sections


async def subjects(visit: Visit, right: CriticalRight, namespace: str) -> list[Json]:
    """The subjects with a right, everywhere or in a namespace."""
    grants = await _grants(visit)
    return _rows(grants, right, await _group(visit, right.group), namespace)


async def _group(visit: Visit, word: str) -> str:
    naming = await visit.api.naming()
    if word == "identity":
        return naming.identity
    return naming.rbac if word == "rbac" else naming.group(word)


async def _grants(visit: Visit) -> Grants:
    plurals = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
    targets = [await visit.api.group("rbac.authorization", "v1", plural) for plural in plurals]
    lists = await asyncio.gather(*(shared.everything(visit.api, target) for target in targets))
    cluster_roles, roles, cluster_bindings, bindings = (items for items, _ in lists)
    rules = {
        (str(role["metadata"].get("namespace") or ""), shared.name_of(role)): role.get("rules")
        or []
        for role in (*cluster_roles, *roles)
    }
    return Grants(rules, [*cluster_bindings, *bindings])


def _rows(grants: Grants, right: CriticalRight, group: str, namespace: str) -> list[Json]:
    rows = []
    for binding in grants.bindings:
        where = str(binding["metadata"].get("namespace") or "")
        if where and namespace and where != namespace:
            continue
        reference = binding.get("roleRef") or {}
        own = where if reference.get("kind") == "Role" else ""
        rules = grants.roles.get((own, str(reference.get("name") or "")), [])
        if not any(_allows(rule, right, group) for rule in rules):
            continue
        for subject in binding.get("subjects") or ():
            rows.append(
                {
                    "kind": str(subject.get("kind") or ""),
                    "subject": "/".join(
                        filter(None, (subject.get("namespace"), subject.get("name")))
                    ),
                    "role": str(reference.get("name") or ""),
                    "binding": shared.name_of(binding),
                    "where": where,
                }
            )
    return sorted(rows, key=lambda row: (row["kind"], row["subject"], row["role"]))


def _allows(rule: Json, right: CriticalRight, group: str) -> bool:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    verbs = rule.get("verbs") or ()
    return (
        not {right.verb, "*"}.isdisjoint(verbs)
        and not {group, "*"}.isdisjoint(groups)
        and not {right.resource, "*"}.isdisjoint(resources)
    )


# -- may U do X? ---------------------------------------------------------------------------


async def _asked(visit: Visit) -> Json | None:
    query = {name: visit.query.get(name, "").strip() for name in ("user", "verb", "resource")}
    if not all(query.values()):
        return None
    naming = await visit.api.naming()
    whole, _, subresource = query["resource"].partition("/")
    resource, _, group = whole.partition(".")
    groups = [part.strip() for part in visit.query.get("groups", "").split(",") if part.strip()]
    spec: Json = {"user": query["user"], "groups": [*groups, AUTHENTICATED]}
    if query["resource"].startswith("/"):
        spec["nonResourceAttributes"] = {"path": query["resource"], "verb": query["verb"]}
    else:
        spec["resourceAttributes"] = {
            "verb": query["verb"],
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": visit.query.get("namespace", "").strip(),
        }
    body = {
        "apiVersion": f"{naming.authorization}/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }
    target = await visit.api.group("authorization", "v1", "subjectaccessreviews")
    status = (await visit.api.post(target, body)).get("status") or {}
    return {"allowed": status.get("allowed") is True, "reason": str(status.get("reason") or "")}


PAGES = (ConsolePage("/rights", "rights.html", read, section="rights"),)
