"""Requests as fast as the server answers them, one kind at a time, sent by wrk.

Start with `JOBS`: each builds the requests of one measurement from the stage. `measure` runs it.
"""

import json
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import LOAD_CORE, Sent
from benchmarks.issuing import DIFFERENT, REQUESTS, signing_requests
from benchmarks.setting import (
    AUTHENTICATION,
    HEADERS,
    IDENTITY,
    TOKEN,
    Stage,
    account,
    cluster,
    cluster_review,
    revocation,
    token_request,
)

TIMEOUT = "10s"
REVIEWS = 10  # revoked credentials
UNIQUE = "@N@"  # replaced by another text in every request
RESULT = re.compile(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)")

VARY = '  wrk.headers["X-Request-Id"] = wrk.salt .. "-" .. n\n'
SCRIPT = """
wrk.method = "%(method)s"
wrk.salt = "%(salt)s"
%(headers)s
local paths = {%(paths)s}
local bodies = {%(bodies)s}
local n = 0
request = function()
  n = n + 1
%(vary)s  local body = bodies[(n %% #bodies) + 1]
  if body == "" then body = nil else body = body:gsub("@N@", wrk.salt .. "-" .. n) end
  return wrk.format(nil, paths[(n %% #paths) + 1], nil, body)
end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.status,
    e.connect + e.read + e.write + e.timeout))
end
"""


@dataclass(frozen=True)
class Job:
    """The requests of one measurement: paths and bodies are taken in turn."""

    method: str
    paths: list[str]
    bodies: list[str]
    token: str = TOKEN  # of the caller
    varied: bool = False  # a header differs in each request, as with proxies and tracing

    def first(self) -> tuple[str, str, str | None]:
        """One request of its kind, to be sent by hand."""
        body = self.bodies[0].replace(UNIQUE, "first") if self.bodies else None
        return self.method, self.paths[0], body

    def script(self) -> str:
        given = {**HEADERS, "Authorization": f"Bearer {self.token}"}
        headers = (f'wrk.headers["{name}"] = "{value}"' for name, value in given.items())
        return SCRIPT % {
            "method": self.method,
            "vary": VARY if self.varied else "",
            "headers": "\n".join(headers),
            "paths": ",\n".join(f'"{path}"' for path in self.paths),
            "bodies": ",\n".join(f"[==[{body}]==]" for body in self.bodies or [""]),
            "salt": secrets.token_hex(4),
        }


@dataclass(frozen=True)
class Load:
    """Result of a measurement; latencies in milliseconds."""

    requests: int
    per_second: float
    p50: float
    p99: float
    refused: int  # answers of 400 and above
    broken: int  # connections that failed, and time-outs


def send(name: str, job: Job, url: str, *, seconds: int, connections: int) -> Sent:
    """Load a server from the load's core; every request must be answered as it should be."""
    result = measure(job, url, core=LOAD_CORE, seconds=seconds, connections=connections)
    if result.refused or result.broken:
        raise SystemExit(f"{name} at {url}: {result.refused} refused, {result.broken} broken")
    return Sent(result.requests, result.per_second)


def measure(job: Job, url: str, *, core: int, seconds: int, connections: int) -> Load:
    with tempfile.TemporaryDirectory() as directory:
        command = wrk(
            job, url, Path(directory), core=core, seconds=seconds, connections=connections
        )
        return result_of(subprocess.run(command, capture_output=True, text=True, check=False))


def wrk(
    job: Job, url: str, directory: Path, *, core: int, seconds: int, connections: int
) -> list[str]:
    """The command that sends the requests; its script is written to a directory."""
    script = directory / "job.lua"
    script.write_text(job.script())
    command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    return [*command, "--timeout", TIMEOUT, "-s", str(script), url]


def result_of(completed: subprocess.CompletedProcess[str]) -> Load:
    found = RESULT.search(completed.stdout)
    if found is None:
        raise SystemExit(f"wrk gave no result:\n{completed.stdout}\n{completed.stderr}")
    requests, microseconds, p50, p99, refused, broken = map(int, found.groups())
    rate = requests / (microseconds / 1e6)
    return Load(requests, round(rate, 1), p50 / 1000, p99 / 1000, refused, broken)


def livez(stage: Stage) -> Job:
    return Job("GET", ["/livez"], [])


def get(stage: Stage) -> Job:
    return Job("GET", [f"{stage.accounts}/{name}" for name in stage.names], [])


def list_all(stage: Stage) -> Job:
    return Job("GET", [stage.accounts], [])


def self_subject_review(stage: Stage) -> Job:
    body = {"apiVersion": "authentication.orch.io/v1", "kind": "SelfSubjectReview"}
    return Job("POST", [f"{AUTHENTICATION}/selfsubjectreviews"], [json.dumps(body)])


def varied(make: Callable[[Stage], Job]) -> Callable[[Stage], Job]:
    return lambda stage: replace(make(stage), varied=True)


def review_tokens(stage: Stage) -> Job:
    return token_reviews(stage.tokens())


def token_reviews(tokens: list[str]) -> Job:
    kind = {"apiVersion": "authentication.orch.io/v1", "kind": "TokenReview"}
    bodies = [json.dumps({**kind, "spec": {"token": token}}) for token in tokens]
    return Job("POST", [f"{AUTHENTICATION}/tokenreviews"], bodies)


def cluster_reviews(stage: Stage) -> Job:
    """Calls of a cluster's API server: one review in a hundred is of a revoked token."""
    name = stage.namespace
    stage.create(f"{IDENTITY}/clusters", [cluster(name)])
    stage.create(f"{IDENTITY}/credentialrevocations", (revocation(name, n) for n in range(REVIEWS)))
    path = f"/webhook/clusters/{name}/authorize"
    stage.allow(path)
    bodies = [json.dumps(cluster_review(number)) for number in range(100 * REVIEWS)]
    return Job("POST", [f"{path}?timeout=3s"], bodies, token=stage.tokens()[0])


def request_token(stage: Stage) -> Job:
    paths = [f"{stage.accounts}/{name}/token" for name in stage.names]
    return Job("POST", paths, [json.dumps(token_request())])


def create_account(stage: Stage) -> Job:
    return Job("POST", [stage.accounts], [json.dumps(account(f"w-{UNIQUE}"))])


def create_certificate_request(stage: Stage) -> Job:
    """The same request under another name each time, as the reference was measured."""
    return certificate_requests(f"{stage.namespace}-one", signing_requests(1))


def create_certificate_requests(stage: Stage) -> Job:
    """Different requests, so that a cached verification does not help."""
    return certificate_requests(f"{stage.namespace}-many", signing_requests(DIFFERENT))


def certificate_requests(name: str, requests: Iterator[str]) -> Job:
    bodies = [
        {
            "apiVersion": "certificates.orch.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": f"{name}-{UNIQUE}"},
            "spec": {
                "request": request,
                "signerName": "example.com/bench",
                "usages": ["client auth"],
            },
        }
        for request in requests
    ]
    return Job("POST", [REQUESTS], [json.dumps(body) for body in bodies])


# Rows that write come last: they change what the others read.
JOBS: dict[str, Callable[[Stage], Job]] = {
    "livez": livez,
    "get": get,
    "get-varied": varied(get),
    "list500": list_all,
    "selfsubjectreview": self_subject_review,
    "tokenreview": review_tokens,
    "tokenreview-varied": varied(review_tokens),
    "cluster-review": cluster_reviews,
    "tokenrequest": request_token,
    "create": create_account,
    "csr-create": create_certificate_request,
    "csr-create-many": create_certificate_requests,
}
