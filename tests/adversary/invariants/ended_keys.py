"""A key that was revoked, or that ended as Retired, never comes back under another name."""

from collections.abc import Iterator
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.adversary.calls import Answer
from tests.adversary.invariants.violation import Violation
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation
from tests.adversary.pool import digest


class EndedKeys:
    """Remembers every key that ended, by its public key."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[str, str, str]] = {}  # name: digest, uid, state
        self._revoked: dict[str, set[str]] = {}  # digest: uids of the SigningKeys that had it
        self._retired: dict[str, str] = {}
        self._by_users: set[str] = set()  # names of keys that a user imported

    def answered(self, operation: Operation, answer: Answer) -> Iterator[Violation]:
        named = operation.options.get("target", {}).get("key", {}).get("name")
        if answer.is_done and named in self._keys:
            public = self._keys[named][0]
            there = {uid for key, uid, _ in self._keys.values() if key == public}
            self._revoked.setdefault(public, set()).update(there)
        if answer.is_done and operation.makes and "secretRef" in answer.json.get("spec", {}):
            self._by_users.add(answer.json["metadata"]["uid"])
        return iter(())

    def saw(self, seen: Seen) -> Iterator[Violation]:
        if seen.kind != "signingkeys":
            return
        meta, status = seen.object["metadata"], seen.object.get("status", {})
        if not status.get("publicKey"):
            return
        name, uid, state = meta["name"], meta["uid"], _state(seen.object)
        public = digest(load_pem_public_key(status["publicKey"].encode()))
        if seen.is_gone:
            if state == "Retired":
                self._retired[public] = uid
            self._keys.pop(name, None)
            return
        self._keys[name] = public, uid, state
        if uid not in self._revoked.get(public, {uid}):
            yield Violation("revoked key is back", f"{name} ({uid}), {state}, is a revoked key")
        elif self._retired.get(public, uid) != uid and uid not in self._by_users:
            yield Violation("retired key is back", f"{name} ({uid}), {state}, was Retired before")

    def served_keys(self, keys: list[tuple[str, str]]) -> Iterator[Violation]:
        for key_id, public in keys:
            if public in self._revoked:
                yield Violation("revoked key is published", f"{key_id} is in the JWKS document")


def _state(document: dict[str, Any]) -> str:
    return str(document["spec"].get("state", ""))
