"""Grants: roles of subjects, as bindings of the RBAC API.

A subject is a user, a group or an account. `grant` creates a binding with a derived name for each
role and subject, so that granting twice changes nothing; `revoke` removes the subject from every
binding of that role, also those of others, and deletes empty ones. A role is granted everywhere
(ClusterRoleBinding) or in one namespace (RoleBinding).
"""

import argparse
import hashlib
from collections.abc import Iterator, Sequence

from orchid.kernel.terminal.connection import (
    CONFLICT,
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
)
from orchid.kernel.terminal.objects import account_of, completed
from orchid.kernel.terminal.output import USAGE, Complaint, name_of
from orchid.kernel.wire.user import AUTHENTICATED

GROUP, VERSION = "rbac.authorization", "v1"
ACCOUNTS = "system:serviceaccounts"


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags: a role, its subjects, and a namespace."""
    completed(parser.add_argument("role", metavar="ROLE", help="see: orchid role list"), "role")
    for flag, words in (
        ("--user", "a user, by name"),
        ("--group", "a group of users"),
        ("--account", "an account, NAMESPACE/NAME"),
    ):
        action = parser.add_argument(
            flag, action="append", default=[], help=f"{words}; may be repeated"
        )
        if flag == "--account":
            completed(action, "account")
    parser.add_argument("--namespace", "-n", default="", help="only there (default: everywhere)")
    add_flags(parser)


def subjects_of(arguments: argparse.Namespace, server: ServerConnection) -> dict[str, Json]:
    """The subjects in the flags, by a name for people."""
    subjects = {f"user {name}": _subject("User", name, server) for name in arguments.user}
    subjects |= {f"group {name}": _subject("Group", name, server) for name in arguments.group}
    for full_name in arguments.account:
        namespace, name = account_of(full_name, server.access.namespace)
        subjects[f"account {namespace}/{name}"] = account(namespace, name)
    if not subjects:
        raise Complaint("to whom? give --user, --group or --account", USAGE)
    return subjects


def scope_of(arguments: argparse.Namespace) -> str:
    """The scope of a grant, in words."""
    return f"in {arguments.namespace}" if arguments.namespace else "everywhere"


def _subject(kind: str, name: str, server: ServerConnection) -> Json:
    return {"kind": kind, "name": name, "apiGroup": server.naming.rbac}


def account(namespace: str, name: str) -> Json:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def username(namespace: str, name: str) -> str:
    """The user name of an account."""
    return f"system:serviceaccount:{namespace}:{name}"


def groups_of_account(namespace: str) -> list[str]:
    return [ACCOUNTS, f"{ACCOUNTS}:{namespace}", AUTHENTICATED]


def grant(server: ServerConnection, role: str, subject: Json, namespace: str) -> tuple[bool, Json]:
    """Grant a role to a subject; False if such a binding existed already."""
    reference = _role(server, role, namespace)
    name = _binding_name(reference, subject)
    body: Json = {
        "apiVersion": f"{server.naming.rbac}/{VERSION}",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": reference,
        "subjects": [subject],
    }
    try:
        return True, server.post(_bindings(server, namespace), body)
    except CommandRefused as refused:
        if refused.status != CONFLICT:
            raise
    existing = server.get(_bindings(server, namespace, name))
    subjects = existing.get("subjects") or ()
    if existing["roleRef"] != reference or not any(_is(each, subject) for each in subjects):
        raise Complaint(f"there is another binding of the name {name!r}: look at it, and delete it")
    return False, existing


def grant_use(server: ServerConnection, policy: str, groups: Sequence[str]) -> None:
    """Let groups use an approval policy, by a role for this policy alone."""
    role = f"use-policy:{policy}"
    rule = {
        "apiGroups": [server.naming.identity],
        "resources": ["approvalpolicies"],
        "resourceNames": [policy],
        "verbs": ["use"],
    }
    body: Json = {
        "apiVersion": f"{server.naming.rbac}/{VERSION}",
        "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": [rule],
    }
    try:
        server.post(roles(server, ""), body)
    except CommandRefused as refused:
        if refused.status != CONFLICT:
            raise
        if server.get(roles(server, "", role)).get("rules") != [rule]:
            text = f"there is another role of the name {role!r}: look at it, and delete it"
            raise Complaint(text) from None
    for group in groups:
        grant(server, role, _subject("Group", group, server), "")


def revoke(server: ServerConnection, role: str, subject: Json, namespace: str) -> list[str]:
    """Remove a role from a subject; return the names of the changed bindings."""
    changed = []
    for binding in server.items(_bindings(server, namespace)):
        left = [each for each in binding.get("subjects") or () if not _is(each, subject)]
        if binding["roleRef"]["name"] != role or len(left) == len(binding.get("subjects") or ()):
            continue
        url = _bindings(server, namespace, binding["metadata"]["name"])
        if left:
            server.put(url, {**binding, "subjects": left})
        else:
            server.delete(url)
        changed.append(binding["metadata"]["name"])
    return changed


def of_subject(server: ServerConnection, subject: Json) -> Iterator[Json]:
    """The bindings of a subject, everywhere and in all namespaces."""
    for plural in ("clusterrolebindings", "rolebindings"):
        for binding in server.items(server.group(GROUP, VERSION, plural)):
            if any(_is(each, subject) for each in binding.get("subjects") or ()):
                yield binding


def of_user(server: ServerConnection, spec: Json) -> Iterator[Json]:
    """The bindings in namespaces of a user with groups, as a review names them."""
    named = {("User", spec["user"]), *(("Group", group) for group in spec["groups"])}
    for binding in server.items(server.group(GROUP, VERSION, "rolebindings")):
        for subject in binding.get("subjects") or ():
            account = username(subject.get("namespace", ""), subject["name"])
            if (subject["kind"], subject["name"]) in named or ("User", account) in named:
                yield binding


def described(binding: Json) -> str:
    namespace = binding["metadata"].get("namespace", "")
    where = f"in {namespace}" if namespace else "everywhere"
    return f"{binding['roleRef']['name']} {where} (by {name_of(binding)})"


def _is(one: Json, other: Json) -> bool:
    return all(one.get(key, "") == other.get(key, "") for key in ("kind", "name", "namespace"))


def _role(server: ServerConnection, role: str, namespace: str) -> Json:
    """The role: of the namespace if it exists there, else the ClusterRole."""
    kinds = [("Role", namespace)] if namespace else []
    for kind, within in (*kinds, ("ClusterRole", "")):
        try:
            server.get(roles(server, within, role))
        except CommandRefused as refused:
            if refused.status != 404:  # noqa: PLR2004 -- not found: look further
                raise
            continue
        return {"apiGroup": server.naming.rbac, "kind": kind, "name": role}
    raise Complaint(f"there is no role {role!r}; see: orchid role list")


def _binding_name(reference: Json, subject: Json) -> str:
    """A unique name for a role and a subject, whatever characters they have."""
    whole = "\0".join(
        (reference["kind"], subject["kind"], subject.get("namespace", ""), subject["name"])
    )
    return f"grant:{reference['name']}:{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def roles(server: ServerConnection, namespace: str, *parts: str) -> str:
    if not namespace:
        return server.group(GROUP, VERSION, "clusterroles", *parts)
    return server.group(GROUP, VERSION, "namespaces", namespace, "roles", *parts)


def _bindings(server: ServerConnection, namespace: str, *parts: str) -> str:
    if not namespace:
        return server.group(GROUP, VERSION, "clusterrolebindings", *parts)
    return server.group(GROUP, VERSION, "namespaces", namespace, "rolebindings", *parts)
