"""`orchid can USER VERB RESOURCE`: check a permission, as the server would decide.

    orchid can alice list certificatesigningrequests
    orchid can ci/builder create serviceaccounts/token --namespace ci --name deployer
    orchid can alice get /metrics

USER is a user name, or NAMESPACE/NAME of an account, whose groups are known. The server resolves
the API group of a resource. Exit code 0 means yes, 1 means no.
"""

import argparse

from orchid.features.rights.commands import grants
from orchid.kernel.terminal.connection import (
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
    connect,
)
from orchid.kernel.terminal.objects import completed
from orchid.kernel.terminal.output import (
    REFUSED,
    USAGE,
    Cell,
    Complaint,
    print_for_programs,
    remark,
    say,
)
from orchid.kernel.wire.user import AUTHENTICATED

MOST_NAMESPACES = 20


def configure(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("user", metavar="USER|NAMESPACE/ACCOUNT"), "account")
    parser.add_argument("verb", metavar="VERB", help="get, list, watch, create, update, delete, …")
    parser.add_argument(
        "resource", metavar="RESOURCE", help="like secrets, serviceaccounts/token or /metrics"
    )
    parser.add_argument("--name", default="", help="a single object (default: any)")
    parser.add_argument("--namespace", "-n", default="", help="the namespace (default: all)")
    parser.add_argument(
        "--group", action="append", default=[], help="a group of the user; may be repeated"
    )
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    spec: Json = {**_who(arguments), **_what(arguments, server)}
    body = {
        "apiVersion": server.api_version("authorization", "v1"),
        "kind": "SubjectAccessReview",
        "spec": spec,
    }
    answer = server.post(server.group("authorization", "v1", "subjectaccessreviews"), body)
    status = answer.get("status") or {}
    allowed = status.get("allowed") is True
    if not print_for_programs(arguments.output, answer):
        say("yes" if allowed else "no")
        if status.get("reason"):
            remark(Cell(status["reason"]).text)
        elif not allowed and (namespaces := _namespaces(server, body)):
            remark(f"not in all namespaces, but in these: {', '.join(namespaces)}")
        elif not allowed and not arguments.group and "/" not in arguments.user:
            remark("a person's groups are known from their credential alone: name them by --group")
    return 0 if allowed else REFUSED


def _namespaces(server: ServerConnection, body: Json) -> list[str]:
    """The namespaces with a role of the user in which it is allowed; of many, the first few."""
    spec = body["spec"]
    attributes = spec.get("resourceAttributes")
    if attributes is None or attributes.get("namespace"):
        return []
    try:
        namespaces = {each["metadata"]["namespace"] for each in grants.of_user(server, spec)}
        return [
            namespace
            for namespace in sorted(namespaces)[:MOST_NAMESPACES]
            if _is_allowed(server, body, {**attributes, "namespace": namespace})
        ]
    except CommandRefused:  # the right to review is not the right to list bindings
        return []


def _is_allowed(server: ServerConnection, body: Json, attributes: Json) -> bool:
    asked = {**body, "spec": {**body["spec"], "resourceAttributes": attributes}}
    answer = server.post(server.group("authorization", "v1", "subjectaccessreviews"), asked)
    return (answer.get("status") or {}).get("allowed") is True


def _who(arguments: argparse.Namespace) -> Json:
    namespace, slash, name = arguments.user.partition("/")
    if slash and namespace and name and not {"/", ":", "@"} & set(namespace + name):
        groups = [*grants.groups_of_account(namespace), *arguments.group]
        return {"user": grants.username(namespace, name), "groups": groups}
    return {"user": arguments.user, "groups": [*arguments.group, AUTHENTICATED]}


def _what(arguments: argparse.Namespace, server: ServerConnection) -> Json:
    if arguments.resource.startswith("/"):
        if arguments.name or arguments.namespace:
            raise Complaint("a path has no --name and no --namespace", USAGE)
        return {"nonResourceAttributes": {"path": arguments.resource, "verb": arguments.verb}}
    whole, _, subresource = arguments.resource.partition("/")
    resource, _, group = whole.partition(".")
    attributes = {
        "group": group or group_of(server, resource),
        "resource": resource,
        "subresource": subresource,
        "verb": arguments.verb,
        "name": arguments.name,
        "namespace": arguments.namespace,
    }
    return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


def group_of(server: ServerConnection, resource: str) -> str:
    """The API group of a resource or of names in rules; raises a Complaint if there is none."""
    naming = server.naming
    unserved = {
        "audiences": naming.identity,
        "groups": "",
        "signers": naming.certificates,
        "uids": naming.authentication,
        "userextras": naming.authentication,
        "users": "",
    }
    if resource in unserved:
        return unserved[resource]
    urls = {"": "/api/v1"}
    for each in server.get("/apis").get("groups", ()):
        preferred = (each.get("preferredVersion") or {}).get("groupVersion", "")
        urls[each.get("name", "")] = f"/apis/{preferred}"
    for group, url in urls.items():
        served = server.get(url).get("resources") or ()
        if any(each.get("name") == resource for each in served):
            return group
    if resource == "*":
        return "*"
    raise Complaint(
        f"the server has no resource {resource!r}; use the plural, like secrets, or RESOURCE.GROUP",
        USAGE,
    )
