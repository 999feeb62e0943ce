"""Load and verifiers for the demonstration of rotation: tokens are issued and judged all the time.

`Load` runs threads that request and review tokens on all servers, each at its rate, and records
every outcome by key and by phase. A verifier is a function from a token to a reason for rejecting
it, "" if it accepts it: PyJWT and npm jose as they come, and one that obeys max-age to the letter.
"""

import base64
import json
import os
import random
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import jwt

from tests.e2e.https import Https

REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
JWKS = "/openid/v1/jwks"
AUDIENCE = "https://vault.example"
JOSE = "jose@6.2.17"
LIFETIME = 3600  # seconds
CREATED = 201

Verifier = Callable[[str], str]


@dataclass(frozen=True)
class Holder:
    """An account, or a Pod of it, that has tokens."""

    account: str
    pod: str = ""
    uid: str = ""

    def request(self, *audiences: str) -> tuple[str, dict[str, Any]]:
        spec: dict[str, Any] = {"audiences": audiences, "expirationSeconds": LIFETIME}
        if self.pod:
            pod = {"kind": "Pod", "apiVersion": "v1", "name": self.pod, "uid": self.uid}
            spec["boundObjectRef"] = pod
        return f"/api/v1/namespaces/ci/serviceaccounts/{self.account}/token", {"spec": spec}


def issue(https: Https, admin: str, holder: Holder, *audiences: str) -> tuple[int, str]:
    """The status of a token request, and the token; without audiences, for the server itself."""
    place, body = holder.request(*audiences)
    reply = https.send("POST", place, body, token=admin)
    return reply.status, str(reply.json["status"]["token"]) if reply.status == CREATED else ""


def review(https: Https, admin: str, token: str) -> tuple[int, bool]:
    """The status of a review, and whether the token is accepted."""
    body = {"spec": {"token": token, "audiences": [AUDIENCE]}}
    reply = https.send("POST", REVIEWS, body, token=admin)
    is_good = reply.status == CREATED and reply.json["status"].get("authenticated") is True
    return reply.status, is_good


def kid_of(token: str) -> str:
    head = token.partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(head + "=="))["kid"])


@dataclass
class Record:
    """Every outcome: by what was asked, by key, and how long it took in each phase."""

    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    reasons: Counter[str] = field(default_factory=Counter)
    phase: str = "before"
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str, kid: str, outcome: str, seconds: float = 0.0, why: str = "") -> None:
        with self._lock:
            self.outcomes[what, kid, outcome] += 1
            if seconds:
                self.times[self.phase].append(seconds)
            if why:
                self.reasons[f"{what}: {why}"] += 1

    def rejected(self, *, but_not: str = "") -> int:
        """Everything that was not as it should be, except for tokens of one key."""
        return sum(
            number
            for (_, kid, outcome), number in self.outcomes.items()
            if outcome != "accepted" and not (kid == but_not and outcome == "rejected")
        )


class Load:
    """Token requests and reviews on all servers until it is stopped."""

    def __init__(
        self, ports: list[int], admin: str, holders: list[Holder], verifiers: dict[str, Verifier]
    ) -> None:
        self.ports = ports
        self.record = Record()
        self.tokens: dict[str, list[str]] = defaultdict(list)  # by key id; the newest last
        self._admin = admin
        self.holders = holders
        self._verifiers = verifiers
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._random = random.Random(1)

    def keep(self, token: str) -> None:
        self.tokens[kid_of(token)].append(token)

    def start(self, *, reviews: float, requests: float, threads: int = 2) -> None:
        """Begin; the rates are those of all servers together."""
        each = len(self.ports) * threads
        for port in self.ports:
            for _ in range(threads):
                self._begin(self._review, port, reviews / each)
                self._begin(self._issue, port, requests / each)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _begin(self, act: Callable[[Https], None], port: int, rate: float) -> None:
        thread = threading.Thread(target=self._paced, args=(act, port, rate), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _paced(self, act: Callable[[Https], None], port: int, rate: float) -> None:
        due = time.monotonic() + self._random.random() / rate
        with Https(port) as https:
            while not self._stop.wait(max(due - time.monotonic(), 0)):
                try:
                    act(https)
                except (OSError, HTTPException, ValueError) as problem:
                    self.record.add("connection", "", "failed", why=repr(problem))
                due = max(due + 1 / rate, time.monotonic() - 1)

    def _review(self, https: Https) -> None:
        kids = [kid for kid, found in list(self.tokens.items()) if found]
        kid = self._random.choice(kids)
        token = self._random.choice(self.tokens[kid])
        begun = time.monotonic()
        status, is_good = review(https, self._admin, token)
        outcome = "accepted" if is_good else "rejected"
        if status != CREATED:
            outcome = f"status {status}"
        self.record.add("review", kid, outcome, time.monotonic() - begun)

    def _issue(self, https: Https) -> None:
        begun = time.monotonic()
        status, token = issue(https, self._admin, self._random.choice(self.holders), AUDIENCE)
        if not token:
            self.record.add("token request", "", f"status {status}")
            return
        kid = kid_of(token)
        self.record.add("token request", kid, "accepted", time.monotonic() - begun)
        for name, verify in self._verifiers.items():
            why = verify(token)
            self.record.add(name, kid, "rejected" if why else "accepted", why=why)
        self.keep(token)


class Watches:
    """Open watches that must not end."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._stopping = False

    def open(self, port: int, token: str) -> None:
        begun = threading.Event()
        threading.Thread(target=self._read, args=(port, token, begun), daemon=True).start()
        if not begun.wait(30):
            self.ended.append("never began")

    def stop(self) -> None:
        self._stopping = True

    def _read(self, port: int, token: str, begun: threading.Event) -> None:
        kid = kid_of(token)
        target = "/api/v1/namespaces/ci/configmaps?watch=1&timeoutSeconds=3600"
        try:
            for _ in Https(port, seconds=3600).events(target, token=token):
                begun.set()
        except (AssertionError, OSError, HTTPException) as problem:
            kid = f"{kid}: {problem!r}"
        if not self._stopping:
            self.ended.append(kid)


# -- verifiers ---------------------------------------------------------------------------------


def pyjwt(url: str, issuer: str, trust: ssl.SSLContext) -> Verifier:
    """PyJWT with its own client of the keys, as it comes: 300 s, and a fetch for an unknown id."""
    client = jwt.PyJWKClient(f"{url}{JWKS}", ssl_context=trust)
    lock = threading.Lock()

    def verify(token: str) -> str:
        try:
            with lock:
                key = client.get_signing_key_from_jwt(token).key
            jwt.decode(token, key, algorithms=["ES256"], audience=AUDIENCE, issuer=issuer)
        except jwt.PyJWTError as problem:
            return repr(problem)
        return ""

    return verify


class ObeysMaxAge:
    """Fetches the keys when they are older than max-age, and never for an unknown id."""

    def __init__(self, port: int, issuer: str) -> None:
        self._https = Https(port)
        self._issuer = issuer
        self._keys: dict[str, Any] = {}
        self._until = 0.0
        self._lock = threading.Lock()

    def __call__(self, token: str) -> str:
        with self._lock:
            if time.monotonic() >= self._until:
                self._fetch()
            key = self._keys.get(kid_of(token))
        if key is None:
            return "unknown key id"
        try:
            jwt.decode(token, key, algorithms=["ES256"], audience=AUDIENCE, issuer=self._issuer)
        except jwt.PyJWTError as problem:
            return repr(problem)
        return ""

    def close(self) -> None:
        self._https.close()

    def _fetch(self) -> None:
        reply = self._https.send("GET", JWKS)
        age = re.search(r"max-age=(\d+)", reply.headers.get("Cache-Control", ""))
        self._until = time.monotonic() + (int(age[1]) if age else 0)
        self._keys = {one["kid"]: jwt.PyJWK(one).key for one in reply.json["keys"]}


JOSE_PROGRAM = """
import { createInterface } from 'node:readline'
import { createRemoteJWKSet, jwtVerify } from 'jose'
const [url, issuer, audience] = process.argv.slice(2)
const keys = createRemoteJWKSet(new URL(url))
for await (const token of createInterface({ input: process.stdin })) {
  try {
    await jwtVerify(token, keys, { issuer, audience })
    console.log('')
  } catch (error) {
    console.log(error.code ?? String(error))
  }
}
"""


@contextmanager
def npm_jose(home: Path, url: str, issuer: str, authority: Path) -> Iterator[Verifier | str]:
    """The library jose for Node.js, installed by npm; or the reason why it is not there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        yield "there is no node or npm"
        return
    install = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(home), JOSE]
    done = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        yield f"npm cannot install {JOSE}"
        return
    program = home / "verify.mjs"
    program.write_text(JOSE_PROGRAM)
    process = subprocess.Popen(
        ["node", program, f"{url}{JWKS}", issuer, AUDIENCE],
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(authority)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    given, said, lock = process.stdin, process.stdout, threading.Lock()

    def verify(token: str) -> str:
        with lock:
            given.write(f"{token}\n")
            line = said.readline()
        return line.rstrip("\n") if line else "node has ended"

    try:
        yield verify
    finally:
        with suppress(OSError):
            given.close()
        process.terminate()
        process.wait(30)
        said.close()
