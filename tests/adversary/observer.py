"""What the administrator sees: every change of every kind that matters, from watches.

A thread for each kind lists, then watches, and puts what it reads into one queue; `drain` gives it
to the checkers. So a step costs what changed, however many objects there are. A watch that ends,
also because a server was stopped, begins again with a list.
"""

import contextlib
import http.client
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.adversary.calls import Proof, context
from tests.adversary.kinds import KINDS, Kind

QUIET_SECONDS = 0.2
PAUSE_SECONDS = 0.1
WATCH_SECONDS = 600


@dataclass(frozen=True)
class Seen:
    """An object as it was listed or changed; `is_gone` if it was deleted."""

    kind: str
    object: dict[str, Any]
    is_gone: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        meta = self.object["metadata"]
        return self.kind, meta.get("namespace", ""), meta["name"]


class Observer:
    """Follows all kinds at one server at a time."""

    def __init__(self, port_of: Callable[[], int], admin: Proof) -> None:
        self._port_of, self._admin = port_of, admin
        self._changes: queue.SimpleQueue[Seen | tuple[str, set[tuple[str, str, str]]]] = (
            queue.SimpleQueue()
        )
        self._ended = threading.Event()
        self._listed = {name: threading.Event() for name in KINDS}
        self._connections: dict[str, http.client.HTTPSConnection] = {}
        self.live: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.gone: dict[tuple[str, str, str], dict[str, Any]] = {}  # as they were last
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), daemon=True)
            for kind in KINDS.values()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        for listed in self._listed.values():
            listed.wait(60)

    def stop(self) -> None:
        self._ended.set()
        self.cut()
        for thread in self._threads:
            if thread.ident is not None:  # started, which it is not when the servers failed
                thread.join()

    def cut(self) -> None:
        """End the watches, so that they begin again with a list, as after a restart."""
        for connection in list(self._connections.values()):
            sock = connection.sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(2)

    def relist(self) -> None:
        """Begin all watches again, and wait until everything is listed."""
        for listed in self._listed.values():
            listed.clear()
        self.cut()
        for listed in self._listed.values():
            listed.wait(60)

    def drain(self, quiet: float = 0.0, most: float = 3.0) -> Iterator[Seen]:
        """Everything that is new; wait until nothing came for `quiet` seconds, at most `most`."""
        deadline = time.monotonic() + most
        while True:
            try:
                change = self._changes.get(timeout=quiet) if quiet else self._changes.get_nowait()
            except queue.Empty:
                return
            yield from self._taken(change)
            if time.monotonic() > deadline:
                quiet = 0.0

    def _taken(self, change: Any) -> Iterator[Seen]:
        if isinstance(change, Seen):
            yield from self._take(change)
            return
        kind, names = change  # a list: what is not in it is gone
        for key in [key for key in self.live if key[0] == kind and key not in names]:
            yield from self._take(Seen(kind, self.live[key], is_gone=True))

    def _take(self, seen: Seen) -> Iterator[Seen]:
        before = self.live.pop(seen.key, None)
        if seen.is_gone:
            self.gone[seen.key] = seen.object
        if not seen.is_gone:
            self.live[seen.key] = seen.object
            if before is not None and _version(before) == _version(seen.object):
                return
        yield seen

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [value for key, value in self.live.items() if key[0] == kind]

    def named(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        return self.live.get((kind, namespace, name))

    # -- the threads ---------------------------------------------------------------------------

    def _follow(self, kind: Kind) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                self._list_and_watch(kind)
            self._ended.wait(PAUSE_SECONDS)

    def _list_and_watch(self, kind: Kind) -> None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port_of(), context=context(self._admin), timeout=WATCH_SECONDS
        )
        self._connections[kind.name] = connection
        try:
            headers = {"Authorization": f"Bearer {self._admin.token}"}
            connection.request("GET", kind.everywhere, headers=headers)
            answer = connection.getresponse()
            document = json.loads(answer.read())
            items = [Seen(kind.name, item) for item in document["items"]]
            for item in items:
                self._changes.put(item)
            self._changes.put((kind.name, {item.key for item in items}))
            version = document["metadata"]["resourceVersion"]
            path = f"{kind.everywhere}?watch=1&resourceVersion={version}"
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            self._listed[kind.name].set()
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] != "BOOKMARK":
                    self._changes.put(Seen(kind.name, event["object"], event["type"] == "DELETED"))
        finally:
            connection.close()


def _version(document: dict[str, Any]) -> tuple[str, str]:
    meta = document["metadata"]
    return meta["uid"], meta["resourceVersion"]
