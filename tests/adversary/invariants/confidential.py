"""Secrets are read by those with the right to read them: not in answers, errors or logs of others.

Each Secret has a marker, a piece of its longest value as it is sent, in base64 and in plain.
"""

import base64
from collections import defaultdict
from collections.abc import Iterator

from tests.adversary.calls import Answer
from tests.adversary.invariants.violation import Violation
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation
from tests.adversary.rights import READ, Rights

START, LENGTH = 140, 40  # behind what all keys of an algorithm have in common
WRITES = ("create", "apply", "put", "again", "patch", "replace", "delete")


class Confidential:
    """The markers of all Secrets that there ever were, with the Secrets that have this value."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._markers: defaultdict[bytes, set[tuple[str, str]]] = defaultdict(set)

    def saw(self, seen: Seen) -> None:
        if seen.kind != "secrets":
            return
        _, namespace, name = seen.key
        for value in seen.object.get("data", {}).values():
            plain = base64.b64decode(value)
            if b"PRIVATE KEY" in plain:
                encoded, line = value.encode(), plain.splitlines()[2]
                for marker in (encoded[START : START + LENGTH], line[:LENGTH]):
                    self._markers[marker].add((namespace, name))

    def answered(self, user: str, operation: Operation, answer: Answer) -> Iterator[Violation]:
        """`user` is empty for somebody without rights over Secrets."""
        if operation.kind == "secrets" and operation.act in WRITES and answer.is_done:
            return  # the answer to a write has the object, as in Kubernetes
        for marker, secrets in self._markers.items():
            if marker in answer.body and not any(self._may_read(user, *one) for one in secrets):
                shown = f"{operation.act} {operation.kind}: {sorted(secrets)}"
                yield Violation("confidential data", shown)

    def _may_read(self, user: str, namespace: str, name: str) -> bool:
        return any(self._rights.may(user, verb, "secrets", name, namespace) for verb in READ)

    def logged(self, text: str) -> Iterator[Violation]:
        log = text.encode()
        for marker, secrets in self._markers.items():
            if marker in log:
                yield Violation("confidential data", f"the log has a key of {sorted(secrets)}")
