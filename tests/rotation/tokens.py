"""Show a rotation of token keys under load: three servers over one etcd, and nothing is rejected.

    make demo-rotation
    make demo-rotation KUBE_APISERVER=path/to/kube-apiserver ARGS='--accounts 10000 --pods 1000 \\
        --tokens 100000 --reviews 500 --requests 100 --watches 200 --rotations 5 --period 60'

Accounts and Pods get tokens and use them, all the time, while the leader replaces the key a few
times. PyJWT, npm jose, a verifier that never fetches for an unknown key id and, if its path is
given, the reference's API server judge each token. Then the key that signs is revoked. Every
rejection that was not meant, and every step that does not come out as it should, ends the
demonstration with exit code 1.
"""

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.serving import Server, free_port, running_server, sealing_flags
from tests.e2e.test_openid import trust_in
from tests.rotation.reference_verifier import reference, wait_until_it_accepts
from tests.rotation.token_load import (
    AUDIENCE,
    JWKS,
    Holder,
    Load,
    ObeysMaxAge,
    Verifier,
    Watches,
    issue,
    kid_of,
    npm_jose,
    pyjwt,
    review,
)
from tests.unit.kernel.store import etcd_process

NAMES = ("one", "two", "three")
ADMIN = tokens_by_user()["admin"]
KEYS = "/apis/identity.orch.io/v1alpha1/signingkeys"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
RBAC = "rbac.authorization.orch.io"
BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "watchers", "namespace": "ci"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
    "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccounts:ci"}],
}
MAX_AGE = 5  # seconds
PUBLISH_TIME = 20  # seconds
DURING = 10.0  # seconds after an activation that count as during it
LOOK_EVERY = 0.1  # seconds
FETCHED = 36.0  # seconds between two fetches of a verifier for unknown key ids, and some more
SETTLED = 1.0  # seconds within which every server refuses a revoked key
PATIENCE = 180.0


class Unexpected(Exception):
    """Something did not come out as it should."""


def require(condition: object, text: str) -> None:
    if not condition:
        raise Unexpected(text)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass
class Observer:
    """Looks at one server: its published ids, which key signs, and whether both agree."""

    name: str
    port: int
    load: Load
    looks: int = 0
    differences: list[str] = field(default_factory=list)
    published: dict[str, float] = field(default_factory=dict)  # when a key was seen first
    signing: dict[str, float] = field(default_factory=dict)  # when it was the first of the list
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Observer":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        with Https(self.port) as https:
            while not self.stopping.wait(LOOK_EVERY):
                self._look(https)

    def _look(self, https: Https) -> None:
        """The ids in the JWKS are the accepted ones, of those keys that have signed a token."""
        before, now = self._ids(https), time.monotonic()
        for kid in before:
            self.published.setdefault(kid, now)
        self.signing.setdefault(before[0], now)
        samples = {kid: found[-1] for kid, found in list(self.load.tokens.items()) if found}
        accepted = {kid for kid, token in samples.items() if review(https, ADMIN, token)[1]}
        if self._ids(https) != before:
            return  # a step between two requests
        self.looks += 1
        if accepted != set(before) & set(samples):
            self.differences.append(f"{self.name}: published {before}, accepted {accepted}")

    def _ids(self, https: Https) -> list[str]:
        return [one["kid"] for one in https.send("GET", JWKS).json["keys"]]


class Demonstration:
    """Three servers, the load on them, and what was seen."""

    def __init__(self, servers: list[Server], load: Load, chosen: argparse.Namespace) -> None:
        self.servers, self.load, self.chosen = servers, load, chosen
        self.ports = [server.port for server in servers]
        self.watches = Watches()
        self.observers = [
            Observer(name, port, load) for name, port in zip(NAMES, self.ports, strict=True)
        ]
        self.activated: list[tuple[str, str]] = []  # name and id of each key that began to sign
        self.lasted: Counter[str] = Counter()  # seconds of each phase
        self._since = self._signs_since = time.monotonic()

    def run(self) -> None:
        self._fill()
        for one in self.observers:
            one.start()
        self.load.start(
            reviews=self.chosen.reviews,
            requests=self.chosen.requests,
            threads=2 + round(self.chosen.reviews / 100),
        )
        self._since = time.monotonic()
        try:
            self._rotate()
        finally:
            for one in self.observers:
                one.stop()
        self._report()
        try:
            self._emergency()
        finally:
            self.watches.stop()
            self.load.stop()

    # -- before --------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Tokens of accounts and Pods, and open watches."""
        chosen, holders = self.chosen, self.load.holders
        say(f"{chosen.tokens} tokens of {chosen.accounts} accounts and {chosen.pods} Pods")
        begun = time.monotonic()

        def some(worker: int) -> None:
            with Https(self.ports[worker % len(self.ports)]) as https:
                for number in range(worker, chosen.tokens, 6):
                    holder = holders[number % len(holders)]
                    status, token = issue(https, ADMIN, holder, AUDIENCE)
                    require(token, f"a token request got {status}")
                    self.load.keep(token)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(some, range(6)))
        with Https(self.ports[0]) as https:
            for number in range(chosen.watches):
                _, token = issue(https, ADMIN, holders[number % len(holders)])
                self.watches.open(self.ports[number % len(self.ports)], token)
        took = time.monotonic() - begun
        say(f"issued in {took:.0f} s; {chosen.watches} watches are open")

    # -- run 1: rotations ----------------------------------------------------------------------

    def _rotate(self) -> None:
        with Https(self.ports[0]) as https:
            known = {name for name, state, _ in states(https) if state == "Active"}
            while len(self.activated) < self.chosen.rotations:
                name, kid = self._next_active(https, known)
                self.activated.append((name, kid))
                self._signs_since = time.monotonic()
                self._phase("during")
                say(f"{name} signs")
                known.add(name)
                self.wait(DURING)
                self._phase("after")
            self.wait(DURING if self.activated else 1)
            self._phase("after")

    def _next_active(self, https: Https, known: set[str]) -> tuple[str, str]:
        limit = time.monotonic() + PATIENCE + self.chosen.period
        while True:
            for name, state, kid in states(https):
                if state == "Active" and name not in known:
                    return name, kid
            require(time.monotonic() < limit, f"no rotation: {states(https)}")
            time.sleep(LOOK_EVERY)

    def _phase(self, name: str) -> None:
        now, record = time.monotonic(), self.load.record
        self.lasted[record.phase] += now - self._since
        record.phase, self._since = name, now

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # the load goes on

    def _report(self) -> None:
        record = self.load.record
        names = {kid: name for name, _, kid in self._all_states()}
        outcomes = sorted(
            (what, names.get(kid, kid), outcome, number)
            for (what, kid, outcome), number in record.outcomes.items()
        )
        for what, name, outcome, number in outcomes:
            say(f"{what:14} {name:10} {outcome:10} {number}")
        for phase in ("before", "during", "after"):
            taken = max(self.lasted[phase], 1e-9)
            rate = len(record.times[phase]) / taken
            say(f"{phase:7} {summed_up(record.times[phase])}, {rate:.0f} requests/s")
        for name, kid in self.activated:
            at = min(one.signing[kid] for one in self.observers)
            for one in self.observers:
                delay = (one.signing[kid] - at) * 1000
                ahead = at - one.published[kid]
                say(
                    f"{name}: server {one.name} signs with it {delay:.0f} ms after the first, "
                    f"and has published it for {ahead:.0f} s"
                )
        looks = sum(one.looks for one in self.observers)
        differences = [text for one in self.observers for text in one.differences]
        say(
            f"{looks} looks: the ids in the JWKS are the accepted ids, {len(differences)} times not"
        )
        say(f"rejected: {record.rejected()}; watches ended: {len(self.watches.ended)}")
        require(not differences, str(differences[:3]))
        require(not self.watches.ended, f"watches ended: {self.watches.ended[:3]}")
        require(record.rejected() == 0, f"rejected: {dict(record.reasons)} {record.outcomes}")

    def _all_states(self) -> list[tuple[str, str, str]]:
        with Https(self.ports[0]) as https:
            return states(https)

    # -- run 5: emergency ----------------------------------------------------------------------

    def _emergency(self) -> None:
        """Revoke the key that signs, under the same load.

        Its successor was created when it became Active. Every verifier has it by now, or may fetch
        for an unknown key id again.
        """
        self.wait(max(self._signs_since + FETCHED - time.monotonic(), 0) if self.activated else 0)
        name, kid = self._signer()
        token = self.load.tokens[kid][-1]
        spec = {"key": {"name": name}, "reason": "keyCompromise"}
        body = {
            "apiVersion": "identity.orch.io/v1alpha1",
            "kind": "CredentialRevocation",
            "metadata": {"name": f"{name}-stolen"},
            "spec": spec,
        }
        with ExitStack() as opened:
            clients = [opened.enter_context(Https(port)) for port in self.ports]
            reply = clients[0].send("POST", REVOCATIONS, body, token=ADMIN)
            since = time.monotonic()
            require(reply.status == 201, reply.body.decode())
            with ThreadPoolExecutor(len(clients)) as pool:
                moments = list(pool.map(lambda https: until_refused(https, token), clients))
            for server, moment in zip(NAMES, moments, strict=True):
                say(f"{name} is revoked: server {server} refuses it after {moment - since:.3f} s")
            require(max(moments) - since < SETTLED, "a server still accepts the revoked key")
            for https in clients:
                _, new = issue(https, ADMIN, self.load.holders[0], AUDIENCE)
                require(kid_of(new) != kid, "a server signs with the revoked key")
                accepted = [review(other, ADMIN, new)[1] for other in clients]
                require(all(accepted), "a new token is not accepted everywhere")
        say("new tokens of every server are accepted by all")
        self.wait(2)
        bad = self.load.record.rejected(but_not=kid)
        say(f"rejected beside the tokens of {name}: {bad}")
        require(bad == 0, f"{self.load.record.outcomes}")

    def _signer(self) -> tuple[str, str]:
        """The key that is first in the JWKS."""
        with Https(self.ports[0]) as https:
            kid = str(https.send("GET", JWKS).json["keys"][0]["kid"])
            (name,) = [name for name, _, found in states(https) if found == kid]
        return name, kid


def states(https: Https) -> list[tuple[str, str, str]]:
    """Name, state and id of each key."""
    found = https.send("GET", KEYS, token=ADMIN).json["items"]
    return [
        (one["metadata"]["name"], one["spec"]["state"], one["status"]["keyID"]) for one in found
    ]


def until_refused(https: Https, token: str) -> float:
    limit = time.monotonic() + 30
    while review(https, ADMIN, token)[1]:
        require(time.monotonic() < limit, "the revoked key is accepted")
    return time.monotonic()


def summed_up(times: list[float]) -> str:
    if not times:
        return "nothing was measured"
    found = sorted(seconds * 1000 for seconds in times)
    last = found[min(len(found) - 1, int(len(found) * 0.99))]
    return f"{len(found)} requests, p50 {statistics.median(found):.1f} ms, p99 {last:.1f} ms"


def made_holders(https: Https, accounts: int, pods: int) -> list[Holder]:
    """Accounts, and Pods of some of them."""

    def make(place: str, body: dict[str, object]) -> str:
        reply = https.send("POST", place, body, token=ADMIN)
        require(reply.status == 201, reply.body.decode())
        return str(reply.json["metadata"]["uid"])

    home = "/api/v1/namespaces/ci"
    found = []
    for number in range(accounts):
        make(f"{home}/serviceaccounts", {"metadata": {"name": f"account-{number}"}})
        found.append(Holder(f"account-{number}"))
    for number in range(pods):
        account = f"account-{number % accounts}"
        spec = {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}
        uid = make(f"{home}/pods", {"metadata": {"name": f"pod-{number}"}, "spec": spec})
        found.append(Holder(account, f"pod-{number}", uid))
    make(f"{home}/configmaps", {"metadata": {"name": "news"}})
    make(f"/apis/{RBAC}/v1/namespaces/ci/rolebindings", dict(BINDING))
    return found


@contextmanager
def demonstration(home: Path, chosen: argparse.Namespace) -> Iterator[Demonstration]:
    """Three servers over one etcd, and the verifiers of their tokens."""
    port = free_port()
    issuer = f"https://127.0.0.1:{port}"
    flags = [
        "--service-account-issuer", issuer, "--token-auth-file", str(TOKENS),
        "--service-account-jwks-max-age", f"{MAX_AGE}s",
        "--token-key-publish-time", f"{PUBLISH_TIME}s",
        "--token-key-rotation", f"{chosen.period}s", *sealing_flags(home),
    ]  # fmt: skip
    with etcd_process.running() as cluster, ExitStack() as running:
        asyncio.run(cluster.wait_healthy())
        flags += ["--etcd-servers", cluster.urls[0]]
        servers: list[Server] = []
        for name in NAMES:
            if servers:
                shutil.copytree(servers[0].data_dir, home / name)
            at = port if not servers else None
            servers.append(running.enter_context(running_server(home / name, *flags, port=at)))
        say("three servers over one etcd")
        with Https(port) as https:
            holders = made_holders(https, chosen.accounts, chosen.pods)
        obeys = running.enter_context(closing(ObeysMaxAge(servers[1].port, issuer)))
        verifiers: dict[str, Verifier] = {
            "PyJWT": pyjwt(issuer, issuer, trust_in(servers[0])),
            "obeys max-age": obeys,
        }
        authority = servers[0].data_dir / "ca.crt"
        if not chosen.no_npm:
            jose = running.enter_context(npm_jose(home, issuer, issuer, authority))
            if isinstance(jose, str):
                say(f"npm jose takes no part: {jose}")
            else:
                verifiers["npm jose"] = jose
        if chosen.kube_apiserver:
            program = Path(chosen.kube_apiserver)
            verifiers["reference"] = running.enter_context(
                reference(program, home, issuer, authority)
            )
            with Https(port) as https:
                _, token = issue(https, ADMIN, holders[0], AUDIENCE)
            wait_until_it_accepts(verifiers["reference"], token)
        load = Load([server.port for server in servers], ADMIN, holders, verifiers)
        yield Demonstration(servers, load, chosen)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Show a rotation of token keys under load.")
    add: Callable[..., argparse.Action] = parser.add_argument
    add("--accounts", type=int, default=100, help="accounts (default: 100)")
    add("--pods", type=int, default=20, help="Pods with tokens (default: 20)")
    add("--tokens", type=int, default=1000, help="live tokens before the load (default: 1000)")
    add("--reviews", type=float, default=30, help="token reviews per second (default: 30)")
    add("--requests", type=float, default=10, help="token requests per second (default: 10)")
    add("--watches", type=int, default=20, help="open watches (default: 20)")
    add("--rotations", type=int, default=2, help="how often the key changes (default: 2)")
    add("--period", type=int, default=60, help="seconds that a key signs (default: 60)")
    add("--kube-apiserver", default="", help="the path of the reference's API server")
    add("--no-npm", action="store_true", help="leave out jose, which npm installs")
    return parser


def main() -> int:
    chosen = arguments().parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            with demonstration(Path(directory), chosen) as shown:
                shown.run()
        except Unexpected as problem:
            sys.stderr.write(f"not as it should be: {problem}\n")
            return 1
    say("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
