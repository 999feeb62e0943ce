"""Partial rights of users, drawn at random, and what they allow by a model of our own.

A `Rule` is one rule of a role, everywhere or in one namespace. Nobody has everything: no rule has a
star for verbs or resources, and nobody is in system:masters.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.adversary.kinds import CERTIFICATES, HOME, IDENTITY, KINDS, RBAC

USERS = ("alice", "bob", "carol", "dave", "erin")
REGISTRAR = "registrar"  # approves whatever is requested, and signs nothing
TEAM = "team"
ACCOUNTS = ("builder", "deployer")  # service accounts of the team
SIGNERS = ("a.example/web", "b.example/mail", "c.example/vpn")
CLIENTS = "orch.io/orch-apiserver-client"
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete")
SPECIAL = ("sign", "attest", "approve", "revoke")
# Kinds with the special verbs on their objects, and the subresources that somebody may write.
OBJECT_VERBS = {
    "signingkeys": ("import", "activate", "retire", "revoke"),
    "serviceaccounts": ("revoke",),
    "approvalpolicies": ("use",),
}
SUBRESOURCES = {
    "certificateauthorities": ("status",),
    "signingkeys": ("status",),
    "certificatesigningrequests": ("status", "approval"),
    "serviceaccounts": ("token",),
}
# In the system namespace they are rights over the server itself; in the team's, the usual ones.
NAMESPACES = ("", TEAM, HOME)


@dataclass(frozen=True)
class Rule:
    verbs: tuple[str, ...]
    group: str
    resource: str
    names: tuple[str, ...] = ()
    namespace: str = ""  # empty: everywhere

    def allows(self, verb: str, group: str, resource: str, name: str, namespace: str) -> bool:
        return (
            verb in self.verbs
            and (group, resource) == (self.group, self.resource)
            and self.namespace in ("", namespace)
            and (not self.names or name in self.names)
        )

    @property
    def document(self) -> dict[str, Any]:
        rule = {"verbs": self.verbs, "apiGroups": [self.group], "resources": [self.resource]}
        return {**rule, "resourceNames": self.names} if self.names else rule

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        names = f" {', '.join(self.names)}" if self.names else ""
        return f"{' '.join(self.verbs)} {self.resource}{names}{where}"


class Rights:
    """Who may do what, as the rules say: independent of the server's authorizer."""

    def __init__(self, rules: dict[str, tuple[Rule, ...]]) -> None:
        self.rules = rules

    def allows(
        self,
        user: str,
        verb: str,
        resource: str,
        *,
        group: str,
        name: str = "",
        namespace: str = "",
    ) -> bool:
        return any(
            rule.allows(verb, group, resource, name, namespace) for rule in self.rules.get(user, ())
        )

    def may(self, user: str, verb: str, kind: str, name: str = "", namespace: str = "") -> bool:
        """The same for a kind, with a subresource behind a slash."""
        return self.allows(
            user,
            verb,
            kind,
            group=KINDS[kind.partition("/")[0]].group,
            name=name,
            namespace=namespace,
        )

    def may_signer(self, user: str, verb: str, signer: str) -> bool:
        return self.allows(user, verb, "signers", group=CERTIFICATES, name=signer)

    def described(self, users: Iterable[str]) -> list[str]:
        return [
            f"{user} may {'; '.join(map(str, self.rules[user]))}"
            for user in sorted(set(users) & self.rules.keys())
        ]


def drawn(chance: random.Random) -> Rights:
    """Rights for every user: about half of the kinds, most verbs of each, a signer or two."""
    rules = {user: _rules_of(chance) for user in USERS}
    for kind in KINDS.values():
        if kind.name != "issuedcertificates":  # somebody may do the usual with each kind
            user = chance.choice(USERS)
            rules[user] = (*rules[user], Rule((*READ, *WRITE), kind.group, kind.name))
    rules[REGISTRAR] = (
        Rule(READ, CERTIFICATES, "certificatesigningrequests"),
        Rule(("update", "patch"), CERTIFICATES, "certificatesigningrequests/approval"),
        Rule(("approve",), CERTIFICATES, "signers", (*SIGNERS, CLIENTS)),
    )
    for account in ACCOUNTS:  # as the role acme-requester allows it
        asks = Rule(("create",), CERTIFICATES, "certificatesigningrequests")
        rules[account_user(account)] = (asks,)
    return Rights(rules)


def account_user(account: str) -> str:
    return f"system:serviceaccount:{TEAM}:{account}"


def _rules_of(chance: random.Random) -> tuple[Rule, ...]:
    rules = []
    for kind in KINDS.values():
        if kind.name == "issuedcertificates" or chance.random() < 0.25:
            continue
        namespace = chance.choice(NAMESPACES) if kind.is_namespaced else ""
        verbs = _some(chance, (*READ, *WRITE), 0.85)
        special = _some(chance, OBJECT_VERBS.get(kind.name, ()), 0.5)
        rules.append(Rule((*verbs, *special), kind.group, kind.name, (), namespace))
        for subresource in _some(chance, SUBRESOURCES.get(kind.name, ()), 0.5):
            given = ("create",) if subresource == "token" else ("update", "patch")
            resource = f"{kind.name}/{subresource}"
            rules.append(Rule(given, kind.group, resource, (), namespace))
    for signer in (*chance.sample(SIGNERS, 2), CLIENTS):
        special = _some(chance, SPECIAL, 0.4 if signer == CLIENTS else 0.85)
        rules.append(Rule(special, CERTIFICATES, "signers", (signer,)))
    names = tuple(chance.sample((*USERS, REGISTRAR), 2))
    rules.append(Rule(("revoke",), "", "users", names))
    return tuple(rule for rule in rules if rule.verbs)


def _some(chance: random.Random, words: Sequence[str], share: float) -> tuple[str, ...]:
    return tuple(word for word in words if chance.random() < share)


def roles(rights: Rights) -> list[tuple[str, dict[str, Any]]]:
    """Paths and documents of the roles and bindings that grant the rights."""
    made = []
    root = f"/apis/{RBAC}/v1"
    for user, rules in rights.rules.items():
        for namespace in sorted({rule.namespace for rule in rules}):
            own = [rule.document for rule in rules if rule.namespace == namespace]
            inside = f"{root}/namespaces/{namespace}/" if namespace else f"{root}/cluster"
            reference = {"apiGroup": RBAC, "kind": "Role" if namespace else "ClusterRole"}
            name = {"name": f"of-{user}"}
            subjects = [{"kind": "User", "name": user, "apiGroup": RBAC}]
            binding = {"metadata": name, "roleRef": reference | name, "subjects": subjects}
            made += [(f"{inside}roles", {"metadata": name, "rules": own})]
            made += [(f"{inside}rolebindings", binding)]
    return made


__all__ = ["IDENTITY", "Rights", "Rule", "drawn", "roles"]
