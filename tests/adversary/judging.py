"""After every operation: what changed, which pages are served, and what the invariants say."""

import base64
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509

from tests.adversary.acts import Attack
from tests.adversary.calls import Answer
from tests.adversary.credentials import of_certificate
from tests.adversary.invariants import contents, reading
from tests.adversary.invariants.conduct import Conduct
from tests.adversary.invariants.confidential import Confidential
from tests.adversary.invariants.ended_keys import EndedKeys
from tests.adversary.invariants.inventory import Inventory
from tests.adversary.invariants.kept import Kept
from tests.adversary.invariants.lists import Lists
from tests.adversary.invariants.marks import Marks
from tests.adversary.invariants.neighbours import Neighbours
from tests.adversary.invariants.ownership import Ownership, jwks_of
from tests.adversary.invariants.published import Published
from tests.adversary.invariants.revived import Revived
from tests.adversary.invariants.revocations import Revocations
from tests.adversary.invariants.signers import Signers
from tests.adversary.invariants.successors import Successors
from tests.adversary.invariants.violation import Violation
from tests.adversary.observer import QUIET_SECONDS, Seen
from tests.adversary.operations import Operation
from tests.adversary.pool import certificates_in, digest
from tests.adversary.rights import CLIENTS, REGISTRAR, USERS

PROBES = 2
PAGES = 2


class Judge:
    """All invariants over one attack."""

    def __init__(self, attack: Attack, chance: random.Random) -> None:
        self._attack, self._chance = attack, chance
        self.ownership = Ownership(attack.pool, attack.rights)
        self.ended_keys = EndedKeys()
        self.revocations = Revocations(attack.credentials)
        self.lists = Lists()
        self.inventory = Inventory(attack.pool)
        self.conduct = Conduct()
        self.confidential = Confidential(attack.rights)
        self.signers = Signers()
        self.kept = Kept()
        self.published = Published()
        self.neighbours = Neighbours()
        self.marks = Marks()
        self.revived = Revived()
        self.successors = Successors()
        self._policies: dict[tuple[str, str], dict[str, Any]] = {}  # by name and revision
        self._judged: set[str] = set()  # uids of requests whose certificate was judged

    def begin(self) -> list[Violation]:
        """Take what a new server has made for itself."""
        return [
            found for seen in self._attack.observer.drain(1.0, 10.0) for found in self._saw(seen)
        ]

    def after(self, operation: Operation, answer: Answer) -> list[Violation]:
        return list(self._after(operation, answer))

    def _after(self, operation: Operation, answer: Answer) -> Iterator[Violation]:
        yield from self.conduct.answered(operation, answer)
        user = self._user(operation.actor)
        if user:
            yield from reading.judged(self._attack.rights, user, operation, answer)
        yield from self.confidential.answered(user, operation, answer)
        yield from self.ownership.answered(operation, answer)
        self.signers.answered(operation, answer)
        self.neighbours.answered(operation, answer, time.monotonic())
        if operation.act == "fetch" and answer.is_done:
            yield from self.signers.fetched(operation, answer, self._attack.pool)
        yield from self.ended_keys.answered(operation, answer)
        self.revocations.answered(operation, answer)
        if operation.act == "restore" and answer.is_done:
            self.lists = Lists()
            self.revocations.restored()
        yield from self.changes(QUIET_SECONDS if operation.waits and answer.is_done else 0.0)
        if operation.act == "restore" and answer.is_done:
            yield from self.revived.restored(self._attack.restored, self._attack.observer.live)
        yield from self.pages(PAGES)
        if operation.act == "token" and answer.status == 201:
            token = answer.json["status"]["token"]
            yield from self.published.issued(f"token:{operation.id}", token)
        yield from self.revocations.probe(self._attack, self._chance, PROBES)
        self._try_a_certificate()

    def _try_a_certificate(self) -> None:
        """What a server accepts must be in the inventory."""
        held = [one for one in self._attack.credentials.values() if one.sha256]
        tried = self._chance.choice(held) if held else None
        if tried and self._attack.accepts(tried.proof):
            self.inventory.accepted(tried.label, tried.sha256, time.monotonic())

    def changes(self, quiet: float) -> Iterator[Violation]:
        for seen in self._attack.observer.drain(quiet):
            yield from self._saw(seen)
        now = time.monotonic()
        yield from self.inventory.due(now)
        yield from self.ownership.due(now)
        yield from self.successors.due(self._attack.observer.of("signingkeys"), now)
        yield from self.marks.due(now)
        yield from self.kept.due(now)
        yield from self.neighbours.due(now)
        log = self._attack.servers.new_log()
        yield from self.conduct.logged(log)
        yield from self.confidential.logged(log)

    def _user(self, actor: str) -> str:
        """The name under which an actor has rights; empty for one with groups or none."""
        if actor in (*USERS, REGISTRAR):
            return actor
        credential = self._attack.credentials.get(actor.removeprefix("thief with "))
        is_plain = credential is not None and not credential.groups
        return credential.user if credential and is_plain else ""

    def _saw(self, seen: Seen) -> Iterator[Violation]:
        yield from self.ownership.saw(seen, time.monotonic())
        yield from self.ended_keys.saw(seen)
        yield from self.inventory.saw(seen, time.monotonic())
        self.revocations.saw(seen)
        self.revived.saw(seen)
        self.lists.saw(seen, time.monotonic())
        self.confidential.saw(seen)
        yield from self.neighbours.saw(seen)
        self.marks.saw(seen, time.monotonic())
        if seen.kind == "configmaps" and not seen.is_gone:
            self._attack.remember(seen.key, seen.object)
        elif seen.kind == "approvalpolicies" and not seen.is_gone:
            meta = seen.object["metadata"]
            self._policies[meta["name"], meta["resourceVersion"]] = seen.object
        elif seen.kind == "certificatesigningrequests" and not seen.is_gone:
            yield from self._issued(seen.object)

    def _issued(self, document: dict[str, Any]) -> Iterator[Violation]:
        uid, status = document["metadata"]["uid"], document.get("status", {})
        chain = certificates_in(base64.b64decode(status.get("certificate", "")))
        if not chain or uid in self._judged:
            return
        self._judged.add(uid)
        name, signer = document["metadata"]["name"], document["spec"]["signerName"]
        self.inventory.issued(chain, f"the chain of the request {name}", time.monotonic())
        authorities = self._attack.observer.of("certificateauthorities")
        request = x509.load_pem_x509_csr(base64.b64decode(document["spec"]["request"]))
        yield from self.signers.issued(document, request, chain, authorities)
        self.kept.issued(document, chain[0], time.monotonic())
        yield from contents.name_errors(chain[0])
        for policy in self._approving(status):
            yield from contents.policy_errors(chain[0], policy)
        label = self._attack.pool.label_of(digest(chain[0].public_key()))
        if signer == CLIENTS and label:
            name = f"certificate:{label.rpartition(' ')[2]}"
            self._attack.credentials[name] = of_certificate(
                name, signer, chain, self._attack.pool.pair(label), self._attack.servers.directory
            )

    def _approving(self, status: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The policy that a condition names, at the revision that it names."""
        for condition in status.get("conditions", ()):
            if condition["type"] == "Approved" and condition.get("reason") == "ApprovalPolicy":
                message = condition.get("message", "")
                for (name, revision), policy in self._policies.items():
                    if name in message and revision in message:
                        yield policy

    def pages(self, most: int) -> Iterator[Violation]:
        """Some of the pages that anybody may read; all of them if `most` is large."""
        authorities = self._attack.observer.of("certificateauthorities")
        lists = {
            key.get("revocationList", ""): authority["metadata"]["uid"]
            for authority in authorities
            if _is_ready(authority)  # nobody can sign the list of another again
            for key in authority.get("status", {}).get("keys", ())
        }
        names = sorted(name for name in lists if name)
        for name in self._chance.sample(names, min(most, len(names))):
            answer = self._attack.page(f"/crl/{name}.crl")
            yield from self.lists.served(name, answer, lists[name], time.monotonic())
        bundles = sorted(one["metadata"]["name"] for one in authorities)
        for name in self._chance.sample(bundles, min(most, len(bundles))):
            yield from self.ownership.served(name, self._attack.page(f"/trust/{name}.pem"))
        served = jwks_of(self._attack.page("/openid/v1/jwks"))
        if served:
            self.published.served(served)
        keys = [(str(key.key_id), digest(key.key)) for key in served]
        yield from self.ownership.served_keys(keys)
        yield from self.ended_keys.served_keys(keys)


def _is_ready(authority: Mapping[str, Any]) -> bool:
    conditions = authority.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
