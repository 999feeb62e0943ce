"""Why policies have not decided on a certificate request, for `csr show` and `csr fetch`.

Start with `reason`. The approving controller reports it in an event about the request. A user who
may not list events may still be allowed to create an ApprovalReview; a user with neither right
gets no reason.
"""

from orchid.commands.terminal.connection import CommandRefused, Json, ServerConnection, path

EVENTS = path("api", "v1", "namespaces", "default", "events")  # of objects without a namespace


def reason(server: ServerConnection, request: Json) -> str:
    """The reason why no policy has approved or denied a request; "" if there is none."""
    for ask in (_reported, _reviewed):
        try:
            if found := ask(server, request):
                return found
        except CommandRefused:
            continue
    return ""


def _reported(server: ServerConnection, request: Json) -> str:
    selector = f"involvedObject.uid={request['metadata']['uid']},reason=NotApproved"
    events = server.items(EVENTS, {"fieldSelector": selector})
    last: Json = max(events, key=lambda one: str(one.get("lastTimestamp") or ""), default={})
    return str(last.get("message") or "")


def _reviewed(server: ServerConnection, request: Json) -> str:
    group, version = server.names.identity, "v1alpha1"
    review = {
        "apiVersion": f"{group}/{version}",
        "kind": "ApprovalReview",
        "spec": {"requestName": request["metadata"]["name"]},
    }
    found: Json = server.post(path("apis", group, version, "approvalreviews"), review)["status"]
    selected = any(one["selected"] for one in found.get("policies") or ())
    return str(found.get("message") or "") if selected else ""
