"""A key signs for the authority that it was made or imported for, and for no other.

The first authority, by uid, under which a key of the server is seen owns it. A key that a user made
counts only where a user with the right imported it: by naming its Secret, by installing a chain, or
by attesting a trust bundle. Names prove nothing: an object that is created again owns nothing of
the one before.
"""

import base64
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.adversary.calls import Answer
from tests.adversary.invariants.violation import LATEST_SECONDS, Violation
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation
from tests.adversary.pool import Pool, certificates_in, digest
from tests.adversary.rights import Rights

TOKENS = "tokens"
SecretName = tuple[str, str]


class Ownership:
    """Follows keys and roots through authorities, signing keys and bundles."""

    def __init__(self, pool: Pool, rights: Rights) -> None:
        self._pool, self._rights = pool, rights
        self._owners: dict[str, str] = {}  # of keys of the server: the uid of the authority
        self._authorities: dict[str, dict[str, Any]] = {}  # that exist, by name
        self._names: dict[str, str] = {}  # of authorities, by uid
        self._parents: dict[str, str] = {}  # the uid of the parent at creation, by uid
        self._contents: defaultdict[SecretName, set[str]] = defaultdict(set)
        self._imports: defaultdict[str, set[SecretName]] = defaultdict(set)  # by uid
        self._public: set[str] = set()  # labels of public keys that were imported for tokens
        self._chains: defaultdict[str, list[str]] = defaultdict(list)  # roots above, by uid
        self._attested: defaultdict[str, set[str]] = defaultdict(set)  # roots, by signer
        self._doubts: dict[str, tuple[float, list[Violation]]] = {}  # of statuses, by uid
        self._bundles: dict[str, str] = {}  # uid of the authority of a PublishedBundle, by name
        self._by_users: set[str] = set()  # names of bundles that users wrote

    # -- what users were allowed to do ---------------------------------------------------------

    def answered(self, operation: Operation, answer: Answer) -> Iterator[Violation]:
        """Remember imports that the server allowed; a chain of another root is judged here."""
        if not answer.is_done:
            return
        options, kind = operation.options, operation.kind
        if kind == "secrets" and "pair" in options:
            name = answer.json["metadata"]["name"]
            self._contents[operation.namespace, name].add(options["pair"])
        elif kind == "certificateauthorities" and operation.makes:
            self._note_secret(answer.json)  # a watch may bring its key first
        elif kind == "signingkeys" and operation.makes:
            self._import_key(answer.json)
        elif kind == "clustertrustbundles" and operation.makes:
            self._attest(answer.json.get("spec", {}))
        elif kind == "publishedbundles" and (
            operation.makes or operation.act in ("replace", "patch")
        ):
            self._by_users.add(operation.name)
        elif operation.act == "chain":
            yield from self._install(operation, _owner(answer.json))

    def _import_key(self, document: dict[str, Any]) -> None:
        """The answer names the authority by uid; a watch may have brought another, or none yet."""
        spec = document["spec"]
        if "publicKey" in spec:
            self._public.add(self._pool.label_of(_digest_of(spec["publicKey"])))
        elif "secretRef" in spec:
            secret = spec["secretRef"]["namespace"], spec["secretRef"]["name"]
            self._imports[_owner(document) or TOKENS].add(secret)

    def _attest(self, spec: dict[str, Any]) -> None:
        """Roots of a bundle that the server took; reading.py judges who may attest."""
        roots = certificates_in(spec.get("trustBundle", ""))
        self._attested[spec.get("signerName", "")] |= {digest(one.public_key()) for one in roots}

    def _install(self, operation: Operation, uid: str) -> Iterator[Violation]:
        """The answer names the authority by uid; a watch may show another one, or none yet."""
        label, name = operation.options["pair"], operation.name.rpartition("-")[0]
        authority = self._authorities.get(name)
        roots = self._chains[uid]
        is_seen = authority is not None and authority["metadata"]["uid"] == uid
        is_other = bool(roots) and label not in roots
        if is_other and is_seen and authority and not self._may_import(operation, authority):
            yield Violation(
                "another root by a chain",
                f"{operation.actor} replaced {roots} above {name} by {label}, without `import`",
            )
        roots.append(label)

    def _may_import(self, operation: Operation, authority: dict[str, Any]) -> bool:
        signer = authority["spec"].get("signerName", "")
        return self._rights.may(operation.actor, "import", "signingkeys", operation.name) and all(
            self._rights.may_signer(operation.actor, verb, signer) for verb in ("sign", "attest")
        )

    # -- what there is ---------------------------------------------------------------------------

    def saw(self, seen: Seen, now: float = 0.0) -> Iterator[Violation]:
        if seen.kind == "certificateauthorities":
            self._saw_authority(seen, now)
        elif seen.kind == "signingkeys" and not seen.is_gone:
            yield from self._saw_key(seen.object)
        elif seen.kind == "clustertrustbundles" and not seen.is_gone:
            yield from self._saw_bundle(seen.object)
        elif seen.kind == "publishedbundles":
            self._saw_published(seen)

    def due(self, now: float) -> Iterator[Violation]:
        """What stayed in the status of an authority: its controller should have corrected it."""
        for uid, (since, doubts) in list(self._doubts.items()):
            if now - since > LATEST_SECONDS:
                del self._doubts[uid]
                yield from doubts

    def _saw_authority(self, seen: Seen, now: float) -> None:
        document = seen.object
        name, uid = document["metadata"]["name"], document["metadata"]["uid"]
        if seen.is_gone:
            self._authorities.pop(name, None)
            self._doubts.pop(uid, None)
            return
        self._names[uid] = name
        self._authorities[name] = document
        self._note_secret(document)
        parent = document["spec"].get("parent", {}).get("authority", "")
        if parent and uid not in self._parents and parent in self._authorities:
            self._parents[uid] = self._authorities[parent]["metadata"]["uid"]
        chain = certificates_in(document.get("status", {}).get("certificate", ""))
        doubts = list(self._judge_chain(uid, f"the authority {name}", chain)) if chain else []
        if not doubts:
            self._doubts.pop(uid, None)
        else:
            self._doubts[uid] = self._doubts.get(uid, (now, doubts))[0], doubts

    def _note_secret(self, document: dict[str, Any]) -> None:
        if reference := document.get("spec", {}).get("secretRef"):
            uid = document["metadata"]["uid"]
            self._imports[uid].add((reference["namespace"], reference["name"]))

    def _saw_key(self, document: dict[str, Any]) -> Iterator[Violation]:
        name, status = document["metadata"]["name"], document.get("status", {})
        if not status.get("publicKey"):
            return
        authority = document["spec"].get("authority", "")
        uid = _owner(document) or (self._uid(authority) if authority else TOKENS)
        public = _digest_of(status["publicKey"])
        yield from self._judge(uid, f"the key {name}", public)
        chain = certificates_in(status.get("certificate", ""))
        if chain and uid:
            yield from self._judge_chain(uid, f"the key {name}", chain)

    def _uid(self, authority: str) -> str:
        found = self._authorities.get(authority)
        return str(found["metadata"]["uid"]) if found else ""

    def _saw_bundle(self, document: dict[str, Any]) -> Iterator[Violation]:
        uid, spec = _owner(document), document["spec"]
        if not uid:
            return
        name = document["metadata"]["name"]
        for anchor in certificates_in(spec.get("trustBundle", "")):
            yield from self._judge_root(
                uid, f"the trust bundle {name}", digest(anchor.public_key()), spec.get("signerName")
            )

    def _saw_published(self, seen: Seen) -> None:
        name = seen.object["metadata"]["name"]
        if seen.is_gone:
            self._by_users.discard(name)
            self._bundles.pop(name, None)
        elif uid := _owner(seen.object):
            self._bundles[name] = uid

    def served(self, name: str, answer: Answer) -> Iterator[Violation]:
        """The page /trust/NAME.pem, which clients take for the roots of the authority NAME."""
        authority = self._authorities.get(name)
        if answer.status != 200 or authority is None or name in self._by_users:
            return
        uid, signer = authority["metadata"]["uid"], authority["spec"].get("signerName", "")
        for anchor in certificates_in(answer.body):
            public = digest(anchor.public_key())
            yield from self._judge_root(uid, f"/trust/{name}.pem", public, signer)

    def served_keys(self, keys: list[tuple[str, str]]) -> Iterator[Violation]:
        """The JWKS document: key ids, and digests of the keys."""
        for key_id, public in keys:
            yield from self._judge(TOKENS, f"the JWKS document ({key_id})", public)

    # -- judging ---------------------------------------------------------------------------------

    def _judge_chain(self, uid: str, where: str, chain: list[Any]) -> Iterator[Violation]:
        first, *above = [digest(certificate.public_key()) for certificate in chain]
        yield from self._judge(uid, where, first)
        if len(above) and uid in self._parents:
            parent = self._parents[uid]
            owner = self._owners.get(above[0], "")
            if owner not in ("", parent) and not self._label_allowed(parent, above[0]):
                yield Violation(
                    "parent of another",
                    f"{where} was certified by a key of {self._shown(owner)}; its parent was "
                    f"{self._shown(parent)}",
                )
            return
        for public in above:
            yield from self._judge_root(uid, where, public, None)

    def _judge(self, uid: str, where: str, public: str) -> Iterator[Violation]:
        label = self._pool.label_of(public)
        if label:
            if not self._label_allowed(uid, public):
                yield Violation("foreign key", f"{where} has {label}, which nobody imported")
        elif uid:
            owner = self._owners.setdefault(public, uid)
            if owner != uid:
                yield Violation(
                    "key of another",
                    f"{where} of {self._shown(uid)} has a key of {self._shown(owner)}",
                )

    def _judge_root(
        self, uid: str, where: str, public: str, signer: str | None
    ) -> Iterator[Violation]:
        if signer and public in self._attested[signer]:
            return
        label = self._pool.label_of(public)
        if label and not self._label_allowed(uid, public):
            yield Violation("foreign root", f"{where} has {label}, which nobody attested")
        if label:
            return
        owner = self._owners.get(public, uid)
        family = {uid, self._parents.get(uid, uid)}
        if owner not in family:
            yield Violation(
                "root of another",
                f"{where} of {self._shown(uid)} has a root of {self._shown(owner)}",
            )

    def _label_allowed(self, uid: str, public: str) -> bool:
        label = self._pool.label_of(public)
        if uid == TOKENS and label in self._public:
            return True
        family = [uid, self._parents.get(uid, "")]
        return any(
            label in self._contents[secret]
            for one in family
            for secret in self._imports.get(one, ())
        ) or any(label in self._chains.get(one, ()) for one in family)

    def _shown(self, uid: str) -> str:
        return f"{self._names.get(uid, 'an unknown authority')} ({uid})"


def _digest_of(text: str) -> str:
    return digest(load_pem_public_key(text.encode()))


def _owner(document: dict[str, Any]) -> str:
    owners = document["metadata"].get("ownerReferences", ())
    return next((str(one["uid"]) for one in owners if one["kind"] == "CertificateAuthority"), "")


def jwks_of(answer: Answer) -> list[jwt.PyJWK]:
    """The keys of a JWKS document, read with PyJWT."""
    keys = answer.json.get("keys", ()) if answer.status == 200 else ()
    return [jwt.PyJWK(key) for key in keys]


def data_of(document: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(document.get("data", {}).get(name, ""))
