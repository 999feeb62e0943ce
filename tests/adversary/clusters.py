"""API servers of two clusters with an inventory: a stranger that answers anything, and a friend.

What the stranger says next is drawn from `HOSTILE`; the friend issues certificates, which must be
recorded whatever the stranger says. Both run in a thread, with one event loop.
"""

import asyncio
import hashlib
import threading
import time
from typing import Any

from tests.adversary.kinds import HOME, KINDS, RBAC
from tests.security.foreign_cluster import (
    AUTHORITY,
    ForeignServer,
    foreign_server,
    issued,
    page,
    request,
    token,
)
from tests.unit.kernel.credentials import unusual

STRANGER, FRIEND = "stranger", "friend"
DAY = 86_400
ODD_TOKENS = (("1e400", "1e400"), ("NaN", "2"), ("1.5", "4e9"), ("true", "4000000000"))
HOSTILE: dict[str, bytes] = {
    "many values": b'{"metadata": {}, "items": [' + b"{}," * 500_000 + b"{}]}",
    "many objects": page(*[{}] * 51),
    "many spaces": b" " * (4 << 20) + b"{}",
    "deep": b'{"metadata": {}, "items": ' + b"[" * 50_000,
    "endless": page(after="x" * 20_000),
    "no JSON": b"\xff",
    "odd certificates": page(
        *(request(one, f"odd-{number}") for number, one in enumerate(unusual.UNREADABLE.values()))
    ),
}
WATCHED: dict[str, bytes] = {"nothing": b"", "no end": b"[" * (2 << 20), "no JSON": b"\xff\n"}


class Clusters:
    """Both servers, and the certificates that they issued."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        self._servers: dict[str, ForeignServer] = {}
        self._requests: dict[str, list[dict[str, Any]]] = {STRANGER: [], FRIEND: []}

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        if not self._started.is_set():
            return
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        async with foreign_server() as stranger, foreign_server() as friend:
            self._servers = {STRANGER: stranger, FRIEND: friend}
            friend.issued = token(int(time.time()), int(time.time()) + 30 * DAY)
            self._started.set()
            await self._ended.wait()
            answering = asyncio.all_tasks() - {asyncio.current_task()}
            for server in self._servers.values():
                server.end_watches()
            if answering:
                await asyncio.wait(answering, timeout=5)

    def documents(self) -> list[tuple[str, dict[str, Any]]]:
        """What `orchid cluster add` creates for both of them: paths and documents."""
        made = []
        for name, server in self._servers.items():
            meta, group = {"name": f"cluster-{name}", "namespace": HOME}, f"/apis/{RBAC}/v1"
            now = int(time.time())
            kubeconfig = server.kubeconfig(token(now - 2 * DAY, now + DAY)).decode()
            secret = {"metadata": meta, "stringData": {"kubeconfig": kubeconfig}}
            rule = {"verbs": ["get", "update"], "apiGroups": [""], "resources": ["secrets"]}
            subject = {"kind": "ServiceAccount", "name": "cluster-inventory", "namespace": HOME}
            reference = {"apiGroup": RBAC, "kind": "Role", "name": meta["name"]}
            binding = {"metadata": meta, "subjects": [subject], "roleRef": reference}
            spec = {"issuer": f"https://{name}.test", "clientAuthorities": AUTHORITY}
            spec |= {"inventory": {"secretName": meta["name"]}}
            made += [
                (KINDS["secrets"].path("", HOME), secret),
                (
                    f"{group}/namespaces/{HOME}/roles",
                    {"metadata": meta, "rules": [{**rule, "resourceNames": [meta["name"]]}]},
                ),
                (f"{group}/namespaces/{HOME}/rolebindings", binding),
                (KINDS["clusters"].path(), {"metadata": {"name": name}, "spec": spec}),
            ]
        return made

    def issue(self, name: str, user: str, called: str) -> str:
        """A certificate for a request of some name; the SHA-256 of it."""
        certificate = issued(user)
        self._requests[name] = [*self._requests[name], request(certificate, called)]
        self._say(name, page(*self._requests[name][-50:]))
        return hashlib.sha256(certificate).hexdigest()

    def say(self, listed: str, watched: str, token_times: int) -> None:
        """What the stranger answers from now on."""
        server = self._servers[STRANGER]
        server.watch = WATCHED[watched]
        server.issued = token(*ODD_TOKENS[token_times % len(ODD_TOKENS)])
        self._say(STRANGER, HOSTILE[listed])

    def _say(self, name: str, body: bytes) -> None:
        server = self._servers[name]
        server.pages = lambda _: body
        self._loop.call_soon_threadsafe(server.end_watches)
