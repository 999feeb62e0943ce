"""Ask both servers, compare, and keep what differed by class: `Comparison`.

When one of them did what the other refused, the object is taken away from both: one difference must
not bring others after it.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tests.comparison.decisions import ANSWERS_STATUS, decision_for, query_beside_body
from tests.comparison.differences import class_of
from tests.comparison.found import Found
from tests.comparison.grammar import Asked
from tests.comparison.normalising import normalised, without_generated
from tests.comparison.sending import Answer, Client, Request

MERGE = "application/merge-patch+json"
SUCCESS, FORBIDDEN = range(200, 300), 403
LATE = 0.2  # seconds
NAMESPACES = "/api/v1/namespaces/"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Server:
    """One of the two, and what it last said of each object."""

    def __init__(self, client: Client, tag: str) -> None:
        self.client = client
        self._tag = tag
        self._said: dict[str, dict[str, str]] = {}

    def ask(self, asked: Asked) -> dict[str, Any]:
        answer = self.client.send(self._filled(asked))
        self._learn(asked.key, answer)
        return normalised(answer, self._tag, (self.client.url.removeprefix("https://"),))

    def _filled(self, asked: Asked) -> Request:
        request, said = asked.request, self._said.get(asked.key, {})
        body, target = request.body, request.target
        for name in ("resourceVersion", "uid"):
            value = said.get(name, "1")
            target = target.replace(f"${{{name}}}", value)
            if body is not None:
                body = body.replace(f"${{{name}}}".encode(), value.encode())
        return replace(request, target=target, body=body)

    def _learn(self, key: str, answer: Answer) -> None:
        if not key or answer.status not in SUCCESS:
            return
        try:
            meta = json.loads(answer.body)["metadata"]
        except (ValueError, KeyError, TypeError):
            return
        if isinstance(meta, dict) and "uid" in meta:
            self._said[key] = {name: meta.get(name, "1") for name in ("resourceVersion", "uid")}


class Comparison:
    def __init__(self, clients: tuple[Client, Client], admin: str, tag: str) -> None:
        self._servers = [Server(client, tag) for client in clients]
        self._tag = tag
        self._own = f"labelSelector=compare%3D{tag}"
        self._admin = {"Authorization": f"Bearer {admin}", "Accept": "application/json"}
        self.statuses: Counter[int] = Counter()  # of the first
        self.found: dict[tuple[str, str], Found] = {}  # by class and decision

    def prepare(self, namespaces: Iterable[str], rights: Mapping[str, list[Any]]) -> None:
        """Make the namespaces, and give rights to users: rules by user name."""
        # Both remember how a caller last acted as another, and try that first; so begin alike.
        masters = {"Impersonate-User": "anybody", "Impersonate-Group": "system:masters"}
        self._both(Request("GET", "/version", {**self._admin, **masters}))
        for namespace in namespaces:
            self._make("/api/v1/namespaces", {"metadata": {"name": namespace}})
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        for user, rules in rights.items():
            meta = {"metadata": {"name": f"{self._tag}-of-{user}"}}
            self._make(f"{RBAC}/clusterroles", {**meta, "rules": rules})
            role = {"roleRef": {"kind": "ClusterRole", **meta["metadata"], **group}}
            subjects = {"subjects": [{"kind": "User", "name": user, **group}]}
            self._make(f"{RBAC}/clusterrolebindings", {**meta, **role, **subjects})

    def _make(self, path: str, document: Any) -> None:
        headers = {**self._admin, "Content-Type": "application/json"}
        self._both(Request("POST", path, headers, json.dumps(document).encode()))

    def ask(self, asked: Asked) -> None:
        one, other = self._answers(asked)
        self.statuses[one["status"]] += 1
        if asked.operation.action == "deletecollection":
            self._look_what_is_left(asked, one, other)
        new = Found(asked, (one, other))
        name = class_of(asked.label, one, other)
        decision = ""
        if name is not None:
            decision = decision_for(new) or ""
            self.found.setdefault((name, decision), new).count += 1
        elif not query_beside_body(new, one, other):  # two deeds may have the same answer
            return
        if asked.key and asked.request.method != "GET":
            self._remove(asked.key)
        elif asked.request.method == "DELETE" and (
            asked.request.body or decision != ANSWERS_STATUS
        ):
            self._clear(asked.request.target.partition("?")[0])

    def _answers(self, asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
        """The answers of both servers; the second may see a binding late, so it is asked again."""
        one, other = (server.ask(asked) for server in self._servers)
        if other["status"] == FORBIDDEN != one["status"]:
            time.sleep(LATE)
            other = self._servers[1].ask(asked)
        return one, other

    def _remove(self, path: str) -> None:
        patch = {**self._admin, "Content-Type": MERGE}
        self._both(Request("PATCH", path, patch, b'{"metadata":{"finalizers":null}}'))
        delete = Request("DELETE", f"{path}?gracePeriodSeconds=0", self._admin)
        self._both(delete)
        if path.startswith(NAMESPACES) and path.count("/") == NAMESPACES.count("/"):
            meta = {"metadata": {"name": path.rpartition("/")[2]}}
            headers = {**self._admin, "Content-Type": "application/json"}
            self._both(Request("PUT", f"{path}/finalize", headers, json.dumps(meta).encode()))
            self._both(delete)  # there it goes only now

    def _look_what_is_left(self, asked: Asked, one: dict[str, Any], other: dict[str, Any]) -> None:
        """The answers do not contain the deleted objects."""
        collection = asked.request.target.partition("?")[0]
        for answer, names in zip((one, other), self._names(collection), strict=True):
            answer["left"] = sorted(map(without_generated, names))

    def _clear(self, collection: str) -> None:
        """Take away what is left of a collection that only one of them has emptied."""
        for name in set().union(*self._names(collection)):
            self._remove(f"{collection}/{name}")

    def _names(self, collection: str) -> list[set[str]]:
        """The names of our own objects there, on each of them."""
        answers = self._both(Request("GET", f"{collection}?{self._own}", self._admin))
        lists = [json.loads(answer.body).get("items") or () for answer in answers]
        return [{item["metadata"]["name"] for item in items} for items in lists]

    def _both(self, request: Request) -> list[Answer]:
        return [server.client.send(request) for server in self._servers]
