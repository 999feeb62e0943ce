"""Nobody does what their rights do not say: the model of rights.py against every answer."""

from collections.abc import Iterator

from tests.adversary.calls import Answer
from tests.adversary.invariants.violation import Violation
from tests.adversary.operations import Operation
from tests.adversary.rights import Rights

CREATED = 201
EVERYBODY_READS = ("clustertrustbundles",)
VERBS = {
    "read": ("get",),
    "list": ("list",),
    "watch": ("watch",),
    "create": ("create",),
    "again": ("create",),
    "apply": ("patch",),
    "put": ("update",),
    "patch": ("patch",),
    "replace": ("patch", "update"),
    "delete": ("delete",),
    "step": ("patch",),
    "chain": ("patch",),
    "status": ("patch",),
    "sign": ("patch",),
    "approve": ("update",),
    "deny": ("update",),
    "token": ("create",),
}
SUBRESOURCES = {
    "status": "/status",
    "sign": "/status",
    "approve": "/approval",
    "deny": "/approval",
    "token": "/token",
}


def judged(rights: Rights, user: str, operation: Operation, answer: Answer) -> Iterator[Violation]:
    """A success without the right; `user` is who the credential of the actor names."""
    if not answer.is_done or operation.act not in VERBS:
        return
    if operation.kind == "credentialrevocations" and answer.status == CREATED:
        return  # everybody may revoke the own certificate: revocations.py judges those
    if operation.kind in EVERYBODY_READS and operation.act in ("read", "list", "watch"):
        return
    kind = operation.kind + SUBRESOURCES.get(operation.act, "")
    name = (
        answer.json.get("metadata", {}).get("name", "")
        if operation.act not in ("list", "watch")
        else ""
    )
    if not any(
        rights.may(user, verb, kind, name, operation.namespace) for verb in VERBS[operation.act]
    ):
        yield Violation("without the right", f"{user}: {operation.act} {kind} {answer.status}")
    by_apply = operation.act == "apply" and answer.status == CREATED
    if by_apply and not rights.may(user, "create", kind, name, operation.namespace):
        yield Violation("without the right", f"{user} created {kind} {name} by an apply")
    yield from _special(rights, user, operation, answer)


def _special(
    rights: Rights, user: str, operation: Operation, answer: Answer
) -> Iterator[Violation]:
    signer = answer.json.get("spec", {}).get("signerName", "")
    verb = {"approve": "approve", "deny": "approve", "sign": "sign"}.get(operation.act)
    is_bundle = operation.kind == "clustertrustbundles" and signer != ""
    if (operation.kind == "certificateauthorities" or is_bundle) and answer.status == CREATED:
        verb = "attest"
    if verb and not rights.may_signer(user, verb, signer):
        yield Violation("without the right", f"{user}: {operation.act} for the signer {signer}")
