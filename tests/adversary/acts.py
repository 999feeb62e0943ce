"""How operations are carried out: `Attack.perform` gives the answer, and what it was sent to.

An act that names something that does not exist, for example because a shorter history left it out,
does nothing: its answer has the status 0. The administrator acts only in `prepare`, and as the
one who ends and starts servers.
"""

import base64
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.adversary.acme import ACCOUNT_NAME, ACCOUNT_UID, AcmeClient, Ordered
from tests.adversary.bodies import Bodies
from tests.adversary.calls import APPLY, JSON, MERGE, Answer, Connections, Proof
from tests.adversary.clusters import Clusters
from tests.adversary.credentials import Credential, of_token
from tests.adversary.kinds import AUTHENTICATION, KINDS
from tests.adversary.observer import Observer
from tests.adversary.operations import Operation
from tests.adversary.pool import Pool, certificates_in, pem, subject
from tests.adversary.rights import REGISTRAR, TEAM, USERS, Rights, account_user, roles
from tests.adversary.servers import Servers

ADMIN = Proof(token="admin-token-of-the-adversary")
WHO = f"/apis/{AUTHENTICATION}/v1/selfsubjectreviews"
REVIEWS = f"/apis/{AUTHENTICATION}/v1/tokenreviews"
FORM = "application/x-www-form-urlencoded"
NOTHING = Answer(0)
MOST_VERSIONS = 12


class Attack:
    """Everybody's connections to the servers, and what was copied and remembered."""

    def __init__(self, servers: Servers, observer: Observer, rights: Rights) -> None:
        self.servers, self.observer, self.rights = servers, observer, rights
        self.pool = Pool()
        self.credentials: dict[str, Credential] = {}
        self.clients: dict[str, AcmeClient] = {}  # by the label of their credential
        self.orders: dict[str, Ordered] = {}
        self.connections = Connections()
        self.versions: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self.restored = ""  # what the last restore printed
        self.clusters = Clusters()
        self._bodies = Bodies(self.pool, observer.named)
        self._copy: Path | None = None
        self._turn = 0

    def close(self) -> None:
        self.connections.close()
        self.clusters.stop()

    # -- calls ---------------------------------------------------------------------------------

    def port(self) -> int:
        """The servers take turns."""
        ports = self.servers.ports
        self._turn += 1
        return ports[self._turn % len(ports)]

    def admin(self, method: str, path: str, body: Any = None, content: str = JSON) -> Answer:
        return self.connections.ask(self.port(), ADMIN, method, path, body, content=content)

    def anybody(
        self, method: str, path: str, body: bytes | None = None, content: str = JSON
    ) -> Answer:
        """A request without a credential."""
        return self.connections.ask(self.port(), Proof(), method, path, body, content=content)

    def page(self, path: str) -> Answer:
        """A page that anybody may read."""
        return self.anybody("GET", path)

    def proof(self, actor: str) -> Proof | None:
        """How an actor proves who it is; a thief with a credential that there is not: None."""
        if actor in (*USERS, REGISTRAR):
            return Proof(token=f"{actor}-token-of-the-adversary")
        credential = self.credentials.get(actor.removeprefix("thief with "))
        return credential.proof if credential and credential.proof != Proof() else None

    def ask(
        self, actor: str, method: str, path: str, body: Any = None, content: str = JSON
    ) -> Answer:
        proof = self.proof(actor)
        if proof is None:
            return NOTHING
        return self.connections.ask(self.port(), proof, method, path, body, content=content)

    def accepts(self, proof: Proof) -> bool:
        """Whether a server authenticates a credential, on a connection of its own."""
        port = self.port()
        fresh = Connections()
        try:
            review = fresh.ask(port, proof, "POST", WHO, {})
        finally:
            fresh.close()
        return review.status == 201

    def still_accepts(self, proof: Proof) -> bool:
        """The same on a connection that may be open since before a revocation."""
        return self.connections.ask(self.port(), proof, "POST", WHO, {}).status == 201

    def reviews(self, token: str) -> bool:
        """Whether a TokenReview accepts a token."""
        answer = self.admin("POST", REVIEWS, {"spec": {"token": token}})
        return bool(answer.json.get("status", {}).get("authenticated"))

    def introspects(self, token: str) -> bool:
        answer = self.admin(
            "POST", "/oauth2/introspect", urlencode({"token": token}).encode(), FORM
        )
        return bool(answer.json.get("active"))

    def serves(self, label: str) -> bool:
        """Whether a server answers the client of an ACME account."""
        client = self.clients[label]
        return client.post(client.kid).status == 200

    # -- the stage -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Namespaces, roles and bindings of all users, and clusters, by the administrator."""
        body = {"metadata": {"name": TEAM}}
        self.admin("POST", "/api/v1/namespaces", body)
        self.clusters.start()
        for path, document in (*roles(self.rights), *self.clusters.documents()):
            answer = self.admin("POST", path, document)
            assert answer.status == 201, (path, answer.body)

    # -- operations ----------------------------------------------------------------------------

    def perform(self, operation: Operation) -> Answer:
        return getattr(self, f"_{operation.act.replace('-', '_')}")(operation)

    def resolved(self, name: str) -> str:
        """A name of the API; one that begins with @ is read from what exists."""
        if not name.startswith("@"):
            return name
        what, _, about = name[1:].partition(":")
        if what == "token":
            credential = self.credentials.get(about)
            return f"token-{credential.jti}" if credential and credential.jti else ""
        if what == "request-of-order":
            return self.orders[about].request if about in self.orders else ""
        kind, prefix = {
            "secret-of-authority": ("certificateauthorities", "authority-"),
            "secret-of-key": ("signingkeys", "signing-key-"),
        }[what]
        found = self.observer.named(kind, about) or self._fresh(kind, about)
        return prefix + found["metadata"]["uid"] if found else ""

    def _fresh(self, kind: str, name: str) -> dict[str, Any] | None:
        """What a watch has not brought yet."""
        answer = self.admin("GET", KINDS[kind].path(name))
        return answer.json if answer.status == 200 else None

    def _target(self, operation: Operation, subresource: str = "") -> str:
        name = self.resolved(operation.name)
        return KINDS[operation.kind].path(name, operation.namespace, subresource) if name else ""

    def _create(self, operation: Operation) -> Answer:
        name = self.resolved(operation.name)
        if not name:
            return NOTHING
        if "of" in operation.options.get("target", {}):
            operation = self._with_target(operation)
            if not operation.options["target"]:
                return NOTHING
        return self._send(operation, self._bodies.of(operation, name))

    _apply = _put = _create

    def _send(self, operation: Operation, body: dict[str, Any]) -> Answer:
        """A whole object, in one of three ways."""
        kind, name = KINDS[operation.kind], body["metadata"]["name"]
        if operation.act == "create":
            return self.ask(operation.actor, "POST", kind.path("", operation.namespace), body)
        path = kind.path(name, operation.namespace)
        if operation.act == "put":
            return self.ask(operation.actor, "PUT", path, body)
        path += "?fieldManager=adversary&force=true"
        return self.ask(operation.actor, "PATCH", path, body, APPLY)

    def _with_target(self, operation: Operation) -> Operation:
        """The revocation of one credential, by its label."""
        credential = self.credentials.get(operation.options["target"]["of"])
        target: dict[str, Any] = {}
        if credential and credential.is_token:
            namespace, name = credential.account
            target = {"token": {"jti": credential.jti, "namespace": namespace, "name": name}}
        elif credential:
            target = {"certificate": {"sha256": credential.sha256}}
        options = {**operation.options, "target": target}
        return Operation(
            operation.id,
            operation.actor,
            operation.act,
            operation.kind,
            operation.name,
            options=options,
        )

    def _replace(self, operation: Operation) -> Answer:
        """Write a Secret again, with another pair, or any object as it was before."""
        path = self._target(operation)
        if not path:
            return NOTHING
        if "back" in operation.options:
            return self._write_earlier(operation, path)
        data = {"data": self._bodies.secret_data(operation.options)}
        return self.ask(operation.actor, "PATCH", path, data, MERGE)

    def _write_earlier(self, operation: Operation, path: str) -> Answer:
        key = operation.kind, operation.namespace, self.resolved(operation.name)
        versions = self.versions.get(key, [])
        current = self.observer.live.get(key)
        back = operation.options["back"]
        if len(versions) <= back or current is None:
            return NOTHING
        earlier = json.loads(json.dumps(versions[-1 - back]))
        earlier["metadata"] = {**earlier["metadata"], "resourceVersion": "", "uid": ""}
        return self.ask(operation.actor, "PUT", path, earlier)

    def _again(self, operation: Operation) -> Answer:
        """Create what was deleted, with its owners, as from a file that somebody kept."""
        gone = self.observer.gone.get((operation.kind, operation.namespace, operation.name))
        if gone is None:
            return NOTHING
        named = ("name", "namespace", "labels", "annotations", "ownerReferences")
        meta = {key: gone["metadata"][key] for key in named if key in gone["metadata"]}
        kind = KINDS[operation.kind]
        body = {**gone, **kind.described, "metadata": meta}
        return self.ask(operation.actor, "POST", kind.path("", operation.namespace), body)

    def remember(self, key: tuple[str, str, str], document: dict[str, Any]) -> None:
        """Keep the content of ConfigMaps, so that somebody can write it back."""
        kept = self.versions.setdefault(key, [])
        kept.append(document)
        del kept[:-MOST_VERSIONS]

    def _delete(self, operation: Operation) -> Answer:
        path = self._target(operation)
        if not path:
            return NOTHING
        options = {"propagationPolicy": operation.options.get("propagation", "Background")}
        return self.ask(operation.actor, "DELETE", path, options)

    def _patch(self, operation: Operation) -> Answer:
        """Change labels, or the owner, of any object."""
        path = self._target(operation)
        metadata: dict[str, Any] = {"labels": {"adversary": str(operation.id)}}
        if "owner" in operation.options:
            kind, namespace, name = operation.options["owner"]
            owner = self.observer.named(kind, name, namespace)
            if owner is None:
                return NOTHING
            reference = {
                **KINDS[kind].described,
                "name": name,
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
            metadata = {"ownerReferences": [reference]}
        return self.ask(operation.actor, "PATCH", path, {"metadata": metadata}, MERGE)

    def _watch(self, operation: Operation) -> Answer:
        kind = KINDS[operation.kind]
        path = kind.path("", operation.namespace) if operation.namespace else kind.everywhere
        return self.ask(operation.actor, "GET", f"{path}?watch=1&timeoutSeconds=1")

    def _read(self, operation: Operation) -> Answer:
        path = self._target(operation)
        return self.ask(operation.actor, "GET", path) if path else NOTHING

    def _list(self, operation: Operation) -> Answer:
        kind = KINDS[operation.kind]
        path = kind.path(namespace=operation.namespace) if operation.namespace else kind.everywhere
        return self.ask(operation.actor, "GET", path)

    def _approve(self, operation: Operation, verdict: str = "Approved") -> Answer:
        path = self._target(operation, "approval")
        answer = self.admin("GET", self._target(operation))
        if answer.status != 200:
            return NOTHING
        document = answer.json
        condition = {"type": verdict, "status": "True", "reason": "Adversary", "message": ""}
        document.setdefault("status", {})["conditions"] = [condition]
        return self.ask(operation.actor, "PUT", path, document)

    def _deny(self, operation: Operation) -> Answer:
        return self._approve(operation, "Denied")

    def _sign(self, operation: Operation) -> Answer:
        """Write a certificate of the actor's own authority into a request."""
        found = self.observer.named(operation.kind, operation.name)
        if found is None:
            return NOTHING
        request = _request_of(found)
        pair = self.pool.pair(operation.options["pair"])
        made = pair.certify(request.public_key(), request.subject, is_authority=False)
        data = base64.b64encode(pem(made).encode()).decode()
        body = {"status": {"certificate": data}}
        return self.ask(operation.actor, "PATCH", self._target(operation, "status"), body, MERGE)

    def _step(self, operation: Operation) -> Answer:
        body = {"spec": {"state": operation.options["state"]}}
        return self.ask(operation.actor, "PATCH", self._target(operation), body, MERGE)

    def _chain(self, operation: Operation) -> Answer:
        """Sign the request of an intermediate key with a root of the actor's own."""
        found = self.observer.named("signingkeys", operation.name)
        request = (found or {}).get("status", {}).get("request", "")
        if not request:
            return NOTHING
        asked = _read_request(request.encode())
        pair = self.pool.pair(operation.options["pair"])
        chain = pem(pair.certify(asked.public_key(), asked.subject)) + pair.root
        body = {"spec": {"chain": chain}}
        return self.ask(operation.actor, "PATCH", self._target(operation), body, MERGE)

    def _status(self, operation: Operation) -> Answer:
        """Write the certificate in a status: for the same key or another, by another root."""
        found = self.observer.named(operation.kind, operation.name)
        shown = certificates_in((found or {}).get("status", {}).get("certificate", ""))
        if not shown:
            return NOTHING
        pair = self.pool.pair(operation.options["pair"])
        if operation.options["form"] == "other key":
            chain = pair.like(shown[0])
        else:
            own = subject([("CN", pair.label[:60])])
            crossed = pair.certify(
                shown[0].public_key(), shown[0].subject, own, identifier=_identifier(shown[0])
            )
            chain = pem(crossed) + pair.root
        body = {"status": {"certificate": chain}}
        return self.ask(operation.actor, "PATCH", self._target(operation, "status"), body, MERGE)

    def _token(self, operation: Operation) -> Answer:
        path = self._target(operation, "token")
        answer = self.ask(operation.actor, "POST", path, {"spec": {"expirationSeconds": 3600}})
        if answer.status == 201:
            label = f"token:{operation.id}"
            self.credentials[label] = of_token(label, answer.json["status"]["token"])
        return answer

    def _use(self, operation: Operation) -> Answer:
        return self.ask(operation.actor, "POST", WHO, {})

    def _give_back(self, operation: Operation) -> Answer:
        """The holder of a token revokes it (RFC 7009)."""
        credential = self.credentials.get(operation.options["of"])
        if credential is None or not credential.is_token:
            return NOTHING
        body = urlencode({"token": credential.proof.token}).encode()
        return self.anybody("POST", "/oauth2/revoke", body, FORM)

    # -- ACME ----------------------------------------------------------------------------------

    def _register(self, operation: Operation) -> Answer:
        options, label = operation.options, f"acme:{operation.id}"
        secret = self.observer.named("secrets", options["key"], TEAM) or {"metadata": {}}
        named = secret["metadata"].get("annotations", {})
        account = named.get(ACCOUNT_NAME, "")
        client = AcmeClient(self.anybody, options["authority"], self.pool.pair(options["pair"]))
        answer = client.register(f"{TEAM}.{options['key']}", self.pool.secret(account))
        if answer.is_done:
            self.clients[label] = client
            uid = named.get(ACCOUNT_UID, "")
            self.credentials[label] = Credential(
                label, account_user(account), Proof(), (TEAM, account), uid
            )
        return answer

    def _order(self, operation: Operation) -> Answer:
        client, names = self.clients.get(operation.actor), operation.options["names"]
        if client is None:
            return NOTHING
        identifiers = [{"type": "dns", "value": name} for name in names]
        answer = client.post("new-order", {"identifiers": identifiers})
        if answer.is_done:
            label, url = f"order of op {operation.id}", answer.header("location")
            self.orders[label] = Ordered(operation.actor, url, tuple(names))
        return answer

    def _finalize(self, operation: Operation) -> Answer:
        order = self.orders.get(operation.options["order"])
        if order is None:
            return NOTHING
        text = self.pool.pair(operation.options["pair"]).request(
            [], [("DNS", name) for name in order.names]
        )
        der = x509.load_pem_x509_csr(text.encode()).public_bytes(Encoding.DER)
        csr = base64.urlsafe_b64encode(der).decode().rstrip("=")
        return self.clients[order.client].post(f"{order.url}/finalize", {"csr": csr})

    def _fetch(self, operation: Operation) -> Answer:
        order = self.orders.get(operation.options["order"])
        if order is None:
            return NOTHING
        client = self.clients[order.client]
        url = client.post(order.url).json.get("certificate", "")
        return client.post(url) if url else NOTHING

    # -- clusters ------------------------------------------------------------------------------

    def _cluster_says(self, operation: Operation) -> Answer:
        options = operation.options
        self.clusters.say(options["listed"], options["watched"], options["times"])
        return Answer(200)

    def _cluster_issues(self, operation: Operation) -> Answer:
        options = operation.options
        called = self.resolved(options["called"])
        sha256 = self.clusters.issue(operation.actor, options["user"], called)
        return Answer(200, json.dumps({"sha256": sha256}).encode())

    # -- servers -------------------------------------------------------------------------------

    def _restart(self, operation: Operation) -> Answer:
        self.connections.close()
        self.servers.restart(operation.id, kill=operation.options.get("kill", False))
        self.observer.relist()
        return Answer(200)

    def _fail_over(self, operation: Operation) -> Answer:
        """One of two servers is killed, or comes back."""
        self.connections.close()
        if not self.servers.fail_over(operation.id):
            return NOTHING
        self.observer.relist()
        return Answer(200)

    def _backup(self, operation: Operation) -> Answer:
        if not self.servers.can_restore:
            return NOTHING
        self._copy = self.servers.directory / f"backup-{operation.id}.db"
        self.servers.back_up(self._copy)
        return Answer(200)

    def _restore(self, operation: Operation) -> Answer:
        if self._copy is None or not self.servers.can_restore:
            return NOTHING
        self.connections.close()
        self.restored = self.servers.restore(self._copy)
        self.observer.relist()
        return Answer(200)

    def _wait(self, operation: Operation) -> Answer:
        time.sleep(operation.options["seconds"])
        return Answer(200)


def _read_request(data: bytes) -> x509.CertificateSigningRequest:
    return x509.load_pem_x509_csr(data)


def _request_of(document: dict[str, Any]) -> x509.CertificateSigningRequest:
    return _read_request(base64.b64decode(document["spec"]["request"]))


def _identifier(certificate: x509.Certificate) -> bytes:
    found = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return found.value.digest
