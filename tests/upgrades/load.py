"""Clients that use several servers as one while some of them are replaced.

Every client makes, reads, changes and deletes objects, requests tokens and has them reviewed, each
request on any server that accepts connections. A request that the server did not answer is sent
again, as behind a balancer; an answer that is not the expected one is a failure.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.e2e.https import Https, Reply
from tests.upgrades.population import ADMIN, REVIEWS

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MERGE = {"Content-Type": "application/merge-patch+json"}
PATIENCE = 30.0
CLIENTS = 4


@dataclass
class Load:
    """Running clients until the end of a `with` block."""

    ports: Sequence[int]
    rounds: int = 0
    failures: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # the label of each object that must exist
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for number in range(CLIENTS):
            client = _Client(self, number)
            thread = threading.Thread(target=client.run, args=(self._stop,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)

    def until_more(self, rounds: int) -> None:
        """Wait until so many more rounds are done."""
        wanted, deadline = self.rounds + rounds, time.monotonic() + PATIENCE
        while self.rounds < wanted and not self.failures:
            assert time.monotonic() < deadline, f"{self.rounds} rounds of {wanted}"
            time.sleep(0.02)

    def lost(self, server: Https) -> list[str]:
        """The objects that a server does not have as they were last acknowledged."""
        items = server.send("GET", ACCOUNTS, token=ADMIN).json["items"]
        found = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in items}
        return [
            f"{name}: {found.get(name)} instead of {label}"
            for name, label in self.left.items()
            if found.get(name, {}).get("round") != label
        ]


class _Client:
    def __init__(self, load: Load, number: int) -> None:
        self._load, self._number = load, number
        self._servers = [Https(port) for port in load.ports]
        self._random = random.Random(number)

    def run(self, stop: threading.Event) -> None:
        count = 0
        while not stop.is_set() and not self._load.failures:
            count += 1
            try:
                self._round(f"load-{self._number}-{count}", str(count), keeps=count % 3 > 0)
            except Exception as problem:
                self._load.failures.append(f"{type(problem).__name__}: {problem}")
            self._load.rounds += 1
        for server in self._servers:
            server.close()

    def _round(self, name: str, label: str, *, keeps: bool) -> None:
        path = f"{ACCOUNTS}/{name}"
        self._send("POST", ACCOUNTS, {"metadata": {"name": name}}, (201, 409))
        self._send("GET", path, None, (200,))
        token = self._send("POST", f"{path}/token", {"spec": {}}, (201,))["status"]["token"]
        review = self._send("POST", REVIEWS, {"spec": {"token": token}}, (201,))
        if not review["status"].get("authenticated"):
            raise ValueError(f"the token of {name} was refused: {review['status']}")
        labels = json.dumps({"metadata": {"labels": {"round": label}}}).encode()
        self._send("PATCH", path, labels, (200,))
        if keeps:
            self._load.left[name] = label
        else:
            self._send("DELETE", path, None, (200, 404))

    def _send(self, method: str, target: str, body: Any, expected: tuple[int, ...]) -> Any:
        reply = self._answered(method, target, body)
        if reply.status not in expected:
            raise ValueError(f"{method} {target}: {reply.status} {reply.body[:300]!r}")
        return reply.json

    def _answered(self, method: str, target: str, body: Any) -> Reply:
        """The answer of any server; one that ends its connections is not asked again at once."""
        deadline = time.monotonic() + PATIENCE
        headers = MERGE if method == "PATCH" else None
        while True:
            server = self._random.choice(self._servers)
            try:
                return server.send(method, target, body, token=ADMIN, headers=headers)
            except (OSError, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
