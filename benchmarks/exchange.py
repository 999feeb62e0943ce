"""Token exchange, introspection and batches beside TokenRequest and TokenReview, in one run.

    python -m benchmarks.exchange [--turns 7] [--tokens 300] [--policies 10000]

One server on one core serves all operations in turn. A ratio is that of the CPU time per request:
what one core could answer. Clients use many addresses, because the exchange is limited per address.
The exit code is 1 if a ratio is below its limit.
"""

import argparse
import http.client
import itertools
import json
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.harness import Ratio, cpu_nanoseconds, prepare, processes, serving, write_results
from benchmarks.setting import AUTHENTICATION, HEADERS, IDENTITY, Administrator
from tests.conformance.exchanges import TOKENS as USERS
from tests.e2e.outside_issuer import OutsideIssuer
from tests.e2e.serving import Server

ADDRESSES = 100  # clients, each with an address of its own
SUBJECTS = 50
AUDIENCE, ACCOUNTS = "https://vault.example", "/api/v1/namespaces/bench/serviceaccounts"
AGREES = {"identity.orch.io/token-exchange": "outside"}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
LIMITS = {
    "exchange, new tokens": ("token requests", 0.5),
    "exchange, tokens seen before": ("token requests", 0.8),
    "introspection": ("reviews", 0.85),
    "batch, tokens seen before": ("reviews", 6.0),
    "batch, new tokens": ("reviews of new tokens", 1.5),
}


@dataclass
class Stage:
    """A server, its clients, and the tokens of the measurement."""

    server: Server
    issuer: OutsideIssuer
    tokens: int
    administrator: Administrator
    clients: list[http.client.HTTPSConnection] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        tls = ssl._create_unverified_context()  # noqa: S323 -- a throw-away server on loopback
        for number in range(ADDRESSES):
            client = http.client.HTTPSConnection(
                "127.0.0.1", self.server.port, context=tls, timeout=60,
                source_address=(f"127.0.1.{number + 1}", 0),
            )  # fmt: skip
            self.clients.append(client)
        self._turns = itertools.cycle(self.clients)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        client = next(self._turns)
        client.request("POST", path, body, headers)
        answer = client.getresponse()
        found = answer.read()
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise SystemExit(f"{path}: {answer.status} {found.decode(errors='replace')}")
        return found

    # -- the operations, each for all tokens -------------------------------------------------

    def token_requests(self) -> list[str]:
        body = json.dumps({"spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600}}).encode()
        path = f"{ACCOUNTS}/deployer/token"
        answers = [self.post(path, body, HEADERS) for _ in range(self.tokens)]
        return [json.loads(one)["status"]["token"] for one in answers]

    def sign_outside(self) -> None:
        self.outside = [
            self.issuer.github(sub=f"repo:acme/app:{number % SUBJECTS}")
            for number in range(self.tokens)
        ]

    def exchange(self) -> None:
        for token in self.outside:
            form = {
                "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "subject_token": token,
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            }
            self.post("/oauth2/token?account=bench/deployer", urlencode(form).encode(), FORM)

    def introspect(self, tokens: list[str]) -> None:
        headers = {**HEADERS, **FORM}
        for token in tokens:
            self.post("/oauth2/introspect", urlencode({"token": token}).encode(), headers)

    def review(self, tokens: list[str]) -> None:
        for token in tokens:
            body = {"spec": {"token": token, "audiences": [AUDIENCE]}}
            self.post(f"{AUTHENTICATION}/tokenreviews", json.dumps(body).encode(), HEADERS)

    def batch(self, tokens: list[str]) -> None:
        body = {"spec": {"tokens": tokens, "audiences": [AUDIENCE]}}
        self.post(f"{IDENTITY}/tokenreviewbatches", json.dumps(body).encode(), HEADERS)

    def cost(self, work: Callable[[], object]) -> float:
        """Microseconds of CPU time for each token."""
        pids = processes(self.server)
        before = cpu_nanoseconds(pids)
        work()
        return (cpu_nanoseconds(pids) - before) / self.tokens / 1000


def turn(stage: Stage) -> dict[str, float]:
    """Each operation once."""
    first, second = stage.token_requests(), stage.token_requests()
    stage.sign_outside()
    return {
        "token requests": stage.cost(stage.token_requests),
        "exchange, new tokens": stage.cost(stage.exchange),
        "exchange, tokens seen before": stage.cost(stage.exchange),
        "reviews of new tokens": stage.cost(lambda: stage.review(first)),
        "reviews": stage.cost(lambda: stage.review(first)),
        "introspection": stage.cost(lambda: stage.introspect(first)),
        "batch, new tokens": stage.cost(lambda: stage.batch(second)),
        "batch, tokens seen before": stage.cost(lambda: stage.batch(second)),
    }


def policies(issuer: str, count: int) -> Iterator[dict[str, object]]:
    """Policies of other repositories, and the one of ours."""
    for number in range(count):
        is_ours = number == count - 1
        claims = {
            "repository_id": "456789" if is_ours else f"9{number}",
            "repository_owner_id": "123456",
            "ref": "refs/heads/main",
        }
        spec = {"issuer": issuer, "claims": claims, "account": "deployer", "audiences": [AUDIENCE]}
        yield {"metadata": {"name": f"p-{number}"}, "spec": spec}


def measured(turns: int, tokens: int, count: int) -> dict[str, Ratio]:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        issuer = stack.enter_context(OutsideIssuer())
        file = issuer.exchange_configuration(place / "exchange.json")
        flags = ("--token-exchange-config", file, "--token-auth-file", str(USERS))
        server = stack.enter_context(serving(place / "data", *flags))
        administrator = Administrator(server.url)
        stack.callback(administrator.close)
        account = {"metadata": {"name": "deployer", "annotations": AGREES}}
        administrator.call("POST", ACCOUNTS, account)
        path = f"{IDENTITY}/namespaces/bench/tokenexchangepolicies"
        for policy in policies(issuer.url, count):
            administrator.call("POST", path, policy)
        stage = Stage(server, issuer, tokens, administrator)
        turn(stage)  # warm
        found = [turn(stage) for _ in range(turns)]
    return {
        name: Ratio.of([one[reference] / one[name] for one in found])
        for name, (reference, _) in LIMITS.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--policies", type=int, default=10_000)
    chosen = parser.parse_args()
    prepare()
    found = measured(chosen.turns, chosen.tokens, chosen.policies)
    for name, (reference, limit) in LIMITS.items():
        print(f"{name:30} {found[name]!s:24} of {reference}, at least {limit}")
    write_results("exchange", {name: vars(ratio) for name, ratio in found.items()})
    return int(any(found[name].median < limit for name, (_, limit) in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
