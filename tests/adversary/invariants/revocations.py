"""What was revoked is accepted nowhere: not by the API, a TokenReview or introspection.

A revocation covers the credentials that existed when it was created; that much follows from the
order of the operations, without reading a clock. A hold and the revocation of a user end when they
are deleted; all others never do, also if the object is deleted later or a backup is restored.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tests.adversary.calls import Answer, Proof
from tests.adversary.credentials import Credential
from tests.adversary.invariants.violation import Violation
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation

CREATED = 201
TARGETS = ("user", "account", "token", "key", "authority", "certificate")
ACCOUNT = "system:serviceaccount:{}:{}"


class Doors(Protocol):
    """Where a credential can be shown."""

    def accepts(self, proof: Proof) -> bool: ...
    def still_accepts(self, proof: Proof) -> bool: ...
    def reviews(self, token: str) -> bool: ...
    def introspects(self, token: str) -> bool: ...
    def serves(self, label: str) -> bool: ...


class Revocations:
    """Which credentials are revoked, and by what."""

    def __init__(self, credentials: Mapping[str, Credential]) -> None:
        self._credentials = credentials
        self._covered: defaultdict[str, dict[str, str]] = defaultdict(dict)  # label: by: why
        self._liftable: set[str] = set()  # names of revocations
        self._deleted: set[str] = set()  # labels of tokens whose account is gone

    @property
    def ended(self) -> dict[str, str]:
        """Credentials that nobody may accept, with the reason."""
        gone = dict.fromkeys(self._deleted, "its account was deleted")
        revoked = {label: next(iter(why.values())) for label, why in self._covered.items() if why}
        return gone | revoked

    def answered(self, operation: Operation, answer: Answer) -> None:
        if not answer.is_done:
            return
        if operation.act == "give-back":
            self._covered[operation.options["of"]]["its holder"] = "its holder revoked it"
        elif operation.kind != "credentialrevocations":
            return
        elif operation.makes and answer.status == CREATED:
            self._revoke(answer.json)
        elif operation.act == "delete":
            self._lift(operation.name)

    def _revoke(self, document: Mapping[str, Any]) -> None:
        name, spec = document["metadata"]["name"], document["spec"]
        if spec.get("reason") == "certificateHold" or "user" in spec:
            self._liftable.add(name)
        for credential in self._credentials.values():
            if covers(spec, credential):
                self._covered[credential.label][name] = f"{name} revoked {_target(spec)}"

    def _lift(self, name: str) -> None:
        if name in self._liftable:
            self._liftable.remove(name)
            for reasons in self._covered.values():
                reasons.pop(name, None)

    def saw(self, seen: Seen) -> None:
        if seen.kind == "serviceaccounts" and seen.is_gone:
            uid = seen.object["metadata"]["uid"]
            self._deleted |= {
                one.label for one in self._credentials.values() if one.account_uid == uid
            }

    def restored(self) -> None:
        """Accounts that were deleted since exist again, as the command says."""
        self._deleted.clear()

    def probe(self, doors: Doors, chance: random.Random, most: int) -> Iterator[Violation]:
        """Show some of them, the newest more often, at every door."""
        ended = self.ended
        labels = list(ended)
        recent = labels[-3:] + chance.sample(labels, min(len(labels), most))
        for label in dict.fromkeys(chance.sample(recent, min(len(recent), most))):
            credential = self._credentials.get(label)
            if credential is not None:
                yield from self._shown(doors, credential, ended[label])

    def _shown(self, doors: Doors, credential: Credential, why: str) -> Iterator[Violation]:
        if credential.what == "ACME account":
            where = [("ACME", doors.serves(credential.label))]
        else:
            where = [("the API", doors.accepts(credential.proof))]
            where += [("an open connection", doors.still_accepts(credential.proof))]
        if credential.is_token:
            token = credential.proof.token
            where += [("a review", doors.reviews(token))]
            where += [("introspection", doors.introspects(token))]
        accepted = [name for name, is_accepted in where if is_accepted]
        if accepted:
            yield Violation(
                f"revoked {credential.what} is accepted",
                f"{credential.label} of {credential.user} by {', '.join(accepted)}, but {why}",
            )


def covers(spec: Mapping[str, Any], credential: Credential) -> bool:
    """Whether a revocation means a credential that existed before it."""
    target = _target(spec)
    named = spec.get(target, {})
    if target == "user":
        return bool(named.get("username") == credential.user)
    if target == "account":
        return credential.user == ACCOUNT.format(named.get("namespace"), named.get("name"))
    if target == "token":
        return bool(credential.jti) and named.get("jti") == credential.jti
    if target == "key":
        return bool(credential.key_id) and named.get("keyID") == credential.key_id
    if target == "authority":
        return bool(credential.signer) and named.get("signerName") == credential.signer
    if "serialNumber" in named:
        same = named.get("signerName") == credential.signer
        return same and named["serialNumber"].lstrip("0") == credential.serial
    return bool(credential.sha256) and named.get("sha256") == credential.sha256


def _target(spec: Mapping[str, Any]) -> str:
    return next((target for target in TARGETS if target in spec), "")
