"""Why policies have not decided on a certificate request, for `csr show` and `csr fetch`.

Start with `reason`. The approving controller reports it in an event about the request. A user who
may not list events may still be allowed to create an ApprovalReview. The requester needs neither
right: a dry run of the same request returns the reasons as warnings.
"""

from orchid.features.certificates.commands.request_flags import url
from orchid.features.sign_in.commands import whoami
from orchid.kernel.terminal.connection import CommandRefused, Json, ServerConnection, path

EVENTS = path("api", "v1", "namespaces", "default", "events")  # of objects without a namespace
SENT = ("request", "signerName", "usages", "expirationSeconds")


def reason(server: ServerConnection, request: Json) -> str:
    """The reason why no policy has approved or denied a request; "" if there is none."""
    for ask in (_reported, _reviewed, _forecast):
        try:
            if answer := ask(server, request):
                return answer
        except CommandRefused:
            continue
    return ""


def _reported(server: ServerConnection, request: Json) -> str:
    selector = f"involvedObject.uid={request['metadata']['uid']},reason=NotApproved"
    events = server.items(EVENTS, {"fieldSelector": selector})
    last: Json = max(events, key=lambda one: str(one.get("lastTimestamp") or ""), default={})
    return str(last.get("message") or "")


def _reviewed(server: ServerConnection, request: Json) -> str:
    status = _review(server, request)
    selected = any(policy["selected"] for policy in status.get("policies") or ())
    is_left = status.get("outcome") == "Leave"  # otherwise the decision is about to be written
    return str(status.get("message") or "") if selected and is_left else ""


def review(server: ServerConnection, request: Json) -> Json:
    """What the policies say of a request, and what would be signed; {} if the user may not ask."""
    try:
        return _review(server, request)
    except CommandRefused:
        return {}


def _review(server: ServerConnection, request: Json) -> Json:
    group, version = server.naming.identity, "v1"
    body = {
        "apiVersion": f"{group}/{version}",
        "kind": "ApprovalReview",
        "spec": {"requestName": request["metadata"]["name"]},
    }
    status: Json = server.post(path("apis", group, version, "approvalreviews"), body)["status"]
    return status


def _forecast(server: ServerConnection, request: Json) -> str:
    """The warnings of a dry run, which judges by its sender: for the requester only."""
    spec = request["spec"]
    if whoami.user_of(whoami.ask(server)).get("username") != spec.get("username"):
        return ""
    asked = {key: spec[key] for key in SENT if key in spec}
    body = {
        "apiVersion": server.api_version("certificates", "v1"),
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "forecast-"},
        "spec": asked,
    }
    warnings = server.rehearse(url(server), body)
    return "; ".join(text for text in warnings if text.startswith("policy "))
