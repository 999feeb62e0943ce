"""How long requests hold a server's event loop, in processor time: neighbours do not count.

    python -m tests.e2e.measured_loop                every kind, form and place; some minutes
    python -m tests.e2e.measured_loop --kinds Pod,ConfigMap --forms yaml --worst 40

It starts a server whose every callback is timed (asyncio's own loop in place of uvloop, so that
there is something to hook into), sends it the bodies of tests/data/large_bodies.py one by one, and
prints the longest of each form and kind: `loop` is the longest single callback, `locked` the
longest garbage collection or, with `--threads`, call of a function written in C in another thread:
what keeps the interpreter to itself. Both are in milliseconds.
"""

import argparse
import asyncio
import base64
import gc
import http.client
import json
import mmap
import runpy
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import uvloop

from orchid.assembly.kinds import stored_kinds
from orchid.features.accounts.kinds import token_review
from orchid.features.approving.kinds import approval_review
from orchid.features.rights.kinds import self_subject_rules_review, subject_access_review
from orchid.features.sign_in.kinds import self_subject_review
from orchid.kernel.engine.kind import Kind
from orchid.kernel.wire.naming import ORCH
from tests.data import large_bodies
from tests.e2e.https import Https
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.credentials import samples

NUMBERS: Final = struct.Struct("=dd")  # the longest callback, the longest locked call; seconds
WORDS: Final = 200  # bytes for each name
SIZE: Final = NUMBERS.size + 2 * WORDS
FORMS: Final = large_bodies.CREATED + large_bodies.PATCHED
PATIENCE: Final = 300  # seconds; with every call looked at, a server takes its time
LEAST: Final = 0.002  # seconds; what is shorter is nobody's trouble
TOKEN: Final = "admin-token"
BAD_REQUEST: Final = 400


# --- inside the server ----------------------------------------------------------------------------


class Clock:
    """Writes the longest time of each kind to a file, which the parent process reads."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), SIZE)
        self._began = threading.local()

    def note(self, place: int, seconds: float, what: object) -> None:
        if seconds < LEAST:
            return
        times = list(NUMBERS.unpack_from(self._shared))
        if seconds > times[place]:
            times[place] = seconds
            NUMBERS.pack_into(self._shared, 0, *times)
            start = NUMBERS.size + place * WORDS
            self._shared[start : start + WORDS] = str(what).encode()[:WORDS].ljust(WORDS)

    def run_handle(self, handle: asyncio.Handle) -> None:
        began = time.thread_time()
        really_run(handle)
        self.note(0, time.thread_time() - began, handle)

    def profile(self, frame: FrameType, event: str, called: Any) -> None:
        """Time functions written in C, in threads other than the loop's."""
        if event == "c_call":
            self._began.time = time.thread_time()
        elif event in ("c_return", "c_exception"):
            seconds = time.thread_time() - getattr(self._began, "time", time.thread_time())
            self.note(1, seconds, f"{called.__qualname__} in {frame.f_code.co_qualname}")

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began.collection = time.thread_time()
        else:
            self.note(1, time.thread_time() - self._began.collection, f"collection {info}")


really_run = asyncio.Handle._run


def serve(path: Path, words: Sequence[str], *, threads: bool) -> None:
    """Be the server, with a clock on everything that it does."""
    clock = Clock(path)
    uvloop.run = asyncio.run
    # A function, not a method of the clock: asyncio calls it with the handle.
    asyncio.Handle._run = lambda handle: clock.run_handle(handle)  # type: ignore[method-assign]  # noqa: PLW0108 -- no method
    if threads:
        threading.setprofile(clock.profile)
    gc.callbacks.append(clock.collected)
    sys.argv = list(words)
    runpy.run_module("orchid", run_name="__main__", alter_sys=True)


# --- outside --------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """The measured effect of one request."""

    loop: float  # milliseconds
    locked: float
    status: int
    what: str
    by: str


class Measuring:
    """A server with a clock, and a connection to it."""

    def __init__(self, server: Server, shared: mmap.mmap) -> None:
        self._shared = shared
        http.client._MAXHEADERS = 1_000  # type: ignore[attr-defined] # a hundred are warnings
        self._https = Https(server.port, seconds=PATIENCE)
        self.server = server

    def send(self, what: str, method: str, target: str, body: bytes, form: str) -> Measured:
        self._shared[:SIZE] = bytes(SIZE)
        headers = {"Content-Type": form, "Connection": "close"}
        reply = self._https.send(method, target, body, token=TOKEN, headers=headers)
        loop, locked = NUMBERS.unpack_from(self._shared)
        names = bytes(self._shared[NUMBERS.size : SIZE])
        by = " | ".join(
            names[at : at + WORDS].decode(errors="replace").strip() for at in (0, WORDS)
        )
        return Measured(loop * 1000, locked * 1000, reply.status, what, by)


@contextmanager
def measured_server(directory: Path, *, threads: bool = False) -> Iterator[Measuring]:
    times = directory / "times"
    times.write_bytes(bytes(SIZE))
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{TOKEN},admin,uid-admin,"system:masters"\n')
    launcher = (
        sys.executable,
        "-m",
        "tests.e2e.measured_loop",
        "--serve",
        str(times),
        str(threads),
    )
    flags = ("--token-auth-file", str(tokens), "--log-level", "warning")
    with (
        running_server(directory / "data", *flags, launcher=launcher) as server,
        times.open("r+b") as file,
        mmap.mmap(file.fileno(), SIZE) as shared,
    ):
        yield Measuring(server, shared)


def collection(kind: Kind[Any]) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    inside = "namespaces/default/" if kind.namespaced else ""
    return f"{root}/{inside}{kind.plural}"


def kinds() -> list[Kind[Any]]:
    """Every kind that takes bodies; what acts is not asked to, so it needs nothing to act with."""
    unused: Any = None
    acting = [
        *token_review.declare(ORCH, unused, (), time.monotonic),
        self_subject_review.declare(ORCH),
        *subject_access_review.declare(ORCH, unused),
        self_subject_rules_review.declare(ORCH, unused),
        approval_review.declare(ORCH, unused, unused),
    ]
    return [kind for kind in (*stored_kinds(ORCH), *acting) if "create" in kind.verbs]


# What an object must have to be stored, so that there is something to patch.
NEEDED: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    "Event": {"involvedObject": {"namespace": "default"}, "metadata": {"namespace": "default"}},
    "CertificateSigningRequest": {
        "spec": {
            "request": base64.b64encode(samples.request("jane")).decode(),
            "signerName": "example.com/any",
            "usages": ["client auth"],
        }
    },
    "RoleBinding": {
        "roleRef": {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "view"},
    },
    "ClusterRoleBinding": {
        "roleRef": {"apiGroup": ORCH.rbac, "kind": "ClusterRole", "name": "view"},
    },
    "CredentialRevocation": {"spec": {"token": {"jti": "a", "namespace": "default", "name": "a"}}},
}


class Sent(NamedTuple):
    """One request to measure."""

    what: str
    method: str
    target: str
    body: bytes
    form: str


def requests_of(
    kind: Kind[Any], forms: Sequence[str], *, stored: bool, sample: bool
) -> Iterator[Sent]:
    """Large requests for a kind; patches only if there is something to patch.

    A sample has every place in one form, and every form for some place.
    """
    place = collection(kind)
    for number, (name, document) in enumerate(large_bodies.documents_of(kind)):
        what = f"{kind.name} {name}"
        for form in forms[number % len(forms) :][:1] if sample else forms:
            patches = form in large_bodies.PATCHED
            if patches and not stored:
                continue
            head = {"apiVersion": kind.api_version, "kind": kind.name}
            meta = {"name": "large", **document.get("metadata", {})}
            body = large_bodies.in_form(kind, form, {**head, **document, "metadata": meta})
            if body is None or len(body) > kind.largest_body:
                continue
            if patches:
                query = "?fieldManager=m&force=true" if form == large_bodies.APPLY else ""
                yield Sent(what, "PATCH", f"{place}/large{query}", body, form)
            else:
                yield Sent(what, "POST", place, body, form)


def measured(
    measuring: Measuring, kind: Kind[Any], forms: Sequence[str] = FORMS, *, sample: bool = False
) -> Iterator[Measured]:
    """Send large bodies to a kind, and report the effect of each."""
    place = collection(kind)
    least = {**NEEDED.get(kind.name, {})}
    least["metadata"] = {"name": "large", **least.get("metadata", {})}
    small = json.dumps(least).encode()

    def remake() -> bool:
        measuring.send("", "DELETE", f"{place}/large", b"", large_bodies.JSON)
        made = measuring.send("", "POST", place, small, large_bodies.JSON)
        return made.status == 201 and kind.acts is None

    stored = remake()
    for sent in requests_of(kind, forms, stored=stored, sample=sample):
        if sent.method == "POST" and kind.acts is None:
            measuring.send("", "DELETE", f"{place}/large", b"", large_bodies.JSON)
        found = measuring.send(sent.what, *sent[1:])
        yield found._replace(what=f"{sent.what}, {sent.form.rpartition('/')[2]}")
        if stored and (sent.method == "POST" or found.status < BAD_REQUEST):
            remake()


def report(found: Sequence[Measured], worst: int) -> Iterator[str]:
    """The lines to print."""
    yield f"{'':60} {'loop':>9}{'locked':>9}  status"
    for one in sorted(found, key=lambda one: -max(one.loop, one.locked))[:worst]:
        yield f"{one.what[:60]:60} {one.loop:9.1f}{one.locked:9.1f}  {one.status}  {one.by}"
    longest: dict[tuple[str, str], Measured] = {}
    yield "the longest of each kind and form, in ms"
    for one in found:
        place = one.what.split()[0], one.what.rpartition(", ")[2]
        if place not in longest or one.loop > longest[place].loop:
            longest[place] = one
    for (kind, form), one in sorted(longest.items()):
        yield f"{kind:28}{form:32}{one.loop:8.1f}  {one.status}"
    yield f"{len(found)} requests; statuses {dict(Counter(one.status for one in found))}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.measured_loop")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("--kinds", default="", help="names, with commas; all if not given")
    parser.add_argument("--forms", default="", help="what a form's media type must contain")
    parser.add_argument("--worst", type=int, default=25)
    parser.add_argument("--threads", action="store_true", help="time calls in threads too; slow")
    given = parser.parse_args()
    if given.serve:
        times, threads, *words = given.serve
        serve(Path(times), words[words.index("orchid") :], threads=threads == "True")
        return
    forms = [form for form in FORMS if given.forms in form]
    wanted = given.kinds.split(",") if given.kinds else None
    found: list[Measured] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        measured_server(Path(directory), threads=given.threads) as measuring,
    ):
        for kind in kinds():
            if wanted is None or kind.name in wanted:
                found += measured(measuring, kind, forms)
    sys.stdout.write("\n".join(report(found, given.worst)) + "\n")


if __name__ == "__main__":
    main()
