"""How many of our own functions are called for one request: a budget for each sort of request.

A count is the same on every machine, where a time is not. Requests come in as bytes to a connection
without a socket, and the store is in memory; TLS and SQLite are not counted. Of several requests
the cheapest counts: what runs beside a request by chance is not its own. docs/performance.md has
the table, and says what to do when a row goes over its budget.
"""

import asyncio
import base64
import cProfile
import datetime
import json
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

import orchid
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509.signing_request import parse
from orchid.kernel.http.connection import Connection
from orchid.kernel.http.listener_state import ConnectionLimits, ListenerState, plain
from tests.api.clusters import cluster, review, revoked, webhook
from tests.api.world import ADMIN, Api, api
from tests.security.certified import cluster_authority
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import CLIENT_USAGES, NOW

OURS = str(Path(orchid.__file__).parent)
WARM, COUNTED = 10, 20
ACCOUNTS = "/api/v1/namespaces/calls/serviceaccounts"
AUTHENTICATION = "authentication.orch.io/v1"
REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
ISSUED = "/apis/identity.orch.io/v1alpha1/issuedcertificates"
RBAC_GROUP = "rbac.authorization.orch.io"
CLUSTER_ROLE_BINDINGS = f"/apis/{RBAC_GROUP}/v1/clusterrolebindings"
SIGNING_REQUEST = base64.b64encode(samples.request("jane")).decode()
CLIENT_AUTH, HOUR = ExtendedKeyUsageOID.CLIENT_AUTH, datetime.timedelta(hours=1)
Job = Callable[[int], tuple[str, str, Any]]


class Wire(asyncio.Transport):
    """Records what a connection writes, and sets an event at each write."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = b""
        self.answered = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        self.answered.set()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0


class Counting:
    """One connection to a server, and what each request on it costs."""

    def __init__(self, server: Api, token: str = ADMIN) -> None:
        self._token = token
        chain = server.server.chain
        state = ListenerState(
            chain,
            ConnectionLimits(),
            plain(504),
            lambda _request, _error: plain(500),
            recognize=chain.recognize,
            monotonic=server.server.clock.monotonic,
        )
        state.loop, state.context = asyncio.get_running_loop(), copy_context()
        self._wire = Wire()
        self._connection = Connection(state)
        self._connection.connection_made(self._wire)

    async def cost(self, method: str, path: str, body: Any, *, apart: bool = False) -> int:
        """Send a request, perhaps its body `apart`; count the calls until its answer is written."""
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {self._token}\r\n"
        head += "Accept: application/json\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(sent)}\r\n\r\n" if sent else "\r\n"
        self._wire.written = b""
        self._wire.answered.clear()
        profile = cProfile.Profile(builtins=False)
        profile.enable()
        try:
            if apart:
                self._connection.data_received(head.encode())
                self._connection.data_received(sent)
            else:
                self._connection.data_received(head.encode() + sent)
            await self._wire.answered.wait()
        finally:
            profile.disable()
        assert self._wire.written.startswith(b"HTTP/1.1 20"), self._wire.written
        return self.counted(profile)

    def counted(self, profile: cProfile.Profile) -> int:
        return ours(profile)


def ours(profile: cProfile.Profile) -> int:
    """How many calls of our functions were counted."""
    return sum(entry.callcount for entry in profile.getstats() if _is_ours(entry.code))


def _is_ours(code: CodeType | str) -> bool:
    return isinstance(code, CodeType) and code.co_filename.startswith(OURS)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path / "data") as made:
        for number in range(50):
            await made.account(f"a{number}", "calls")
        yield made


def account(number: int) -> tuple[str, str, Any]:
    return "POST", ACCOUNTS, {"metadata": {"name": f"n-{number:03d}", "labels": {"app": "bench"}}}


def viewer(name: str) -> Any:
    role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "namespace": "calls", "name": name}
    return {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}


def signing_request(number: int, signer: str = "example.com/x") -> tuple[str, str, Any]:
    spec = {
        "request": SIGNING_REQUEST,
        "signerName": signer,
        "usages": ["client auth", "digital signature"],
    }
    body = {"metadata": {"name": f"c-{number:03d}"}, "spec": spec}
    return "POST", REQUESTS, body


def outcome(number: int, certificate: bytes = b"") -> Any:
    approved = {"type": "Approved", "status": "True", "reason": "Test"}
    status = {"conditions": [approved], "certificate": base64.b64encode(certificate).decode()}
    return {"metadata": {"name": f"c-{number:03d}"}, "status": status}


def certificate(server: Api, number: int) -> bytes:
    """One for an approved request, by the signer's authority; each has another name."""
    asked = samples.request(f"jane-{number}")
    return samples.certificate_for(cluster_authority(server.server.files.path), asked)


JOBS: dict[str, tuple[int, Job]] = {
    "livez": (35, lambda _: ("GET", "/livez", None)),
    "get": (46, lambda number: ("GET", f"{ACCOUNTS}/a{number:d}", None)),
    "list": (46, lambda _: ("GET", ACCOUNTS, None)),
    "selfsubjectreview": (
        47,
        lambda _: ("POST", f"/apis/{AUTHENTICATION}/selfsubjectreviews", {}),
    ),
    "tokenrequest": (
        124,  # it waits for the signatures of its turn, which costs calls and saves time
        lambda number: (
            "POST",
            f"{ACCOUNTS}/a{number:d}/token",
            {"spec": {"audiences": ["x"], "expirationSeconds": 3600}},
        ),
    ),
    "create": (133, account),
    "csr-create": (167, signing_request),
}


TOKEN_REVIEW = 63
CLUSTER_REVIEW = 54  # of the webhook of a cluster
BOUND_GET = 51  # by the token of an account, with a right from a binding
APART = 22  # more calls for a body that comes apart from its head
COMMIT = (
    1  # more or fewer, by when the thread that writes is done; parsing a new head takes a dozen
)
APPROVAL = 231  # of a request for a certificate
SIGNED = 132  # a certificate of a user; its name and key id may be those of another authority
HANDED_OUT = 408  # a certificate, in its request and on record; verified with others, 405
HANDED_OUT_INSIDE = 400  # the same by the controller that signs


async def cheapest(server: Api, job: Job, *, apart: bool = False, token: str = ADMIN) -> int:
    counting = Counting(server, token)
    costs = [await counting.cost(*job(n), apart=apart) for n in range(WARM + COUNTED)]
    return min(costs[WARM:])


@pytest.mark.parametrize("row", JOBS)
async def test_a_request_stays_within_its_budget(server: Api, row: str) -> None:
    """A row that goes over has got more to do on every request."""
    budget, job = JOBS[row]

    assert await cheapest(server, job) <= budget


async def test_a_review_of_a_cluster_stays_within_its_budget(server: Api) -> None:
    """Each request of a cluster waits for one; revocations of others cost nothing."""
    await cluster(server)
    for number in range(20):
        await revoked(server, f"r{number}", token={"jti": f"other-{number}"})

    def job(number: int) -> tuple[str, str, Any]:
        return "POST", f"{webhook('prod')}?timeout=3s", review("alice", f"JTI={number:03d}")

    assert await cheapest(server, job) <= CLUSTER_REVIEW


async def test_a_body_that_comes_apart_from_its_head_costs_little_more(server: Api) -> None:
    """Many clients send the head first; its headers are known then, too."""
    together = await cheapest(server, account)

    apart = await cheapest(server, lambda number: account(500 + number), apart=True)

    assert apart - together <= APART + COMMIT


async def test_a_body_of_another_length_costs_no_more(server: Api) -> None:
    """The names of objects differ in length, and so do bodies."""
    steady = await cheapest(server, account)

    changing = await cheapest(server, lambda number: account(10 ** (number % 7 + 3) + number))

    assert changing <= steady + COMMIT


async def test_a_right_by_a_binding_stays_within_its_budget(server: Api) -> None:
    """RBAC caches a grant until a role or a binding changes; other writes do not matter."""
    await server.make(CLUSTER_ROLE_BINDINGS, viewer("a0"))
    token = await server.token("a0", "calls")
    _, job = JOBS["get"]

    steady = await cheapest(server, job, token=token)
    await server.account("another", "calls")
    counting = Counting(server, token)
    for number in range(WARM):
        await counting.cost(*job(number))
    await server.account("yet-another", "calls")
    after_a_write = await counting.cost(*job(WARM))

    assert steady <= BOUND_GET
    assert after_a_write <= steady


async def test_an_approval_stays_within_its_budget(server: Api) -> None:
    """An update at an endpoint, each of another object."""
    for number in range(WARM + COUNTED):
        await server.make(*signing_request(number)[1:])

    def approving(number: int) -> tuple[str, str, Any]:
        return "PUT", f"{REQUESTS}/c-{number:03d}/approval", outcome(number)

    assert await cheapest(server, approving) <= APPROVAL


async def approve_all(server: Api) -> None:
    """Have requests for a signer of ours, and approve them."""
    for number in range(WARM + COUNTED):
        await server.make(*signing_request(number, "orch.io/orch-apiserver-client")[1:])
        await server.call("PUT", f"{REQUESTS}/c-{number:03d}/approval", outcome(number))


async def test_handing_out_a_certificate_stays_within_its_budget(server: Api) -> None:
    """Of a signer of ours: it is validated, and goes into inventory and ledger."""
    await approve_all(server)

    def handing_out(number: int) -> tuple[str, str, Any]:
        body = outcome(number, certificate(server, number))
        return "PUT", f"{REQUESTS}/c-{number:03d}/status", body

    assert await cheapest(server, handing_out) <= HANDED_OUT
    assert len((await server.call("GET", ISSUED)).json["items"]) == WARM + COUNTED


async def test_a_controller_hands_out_a_certificate_within_its_budget(server: Api) -> None:
    """It sends its object from inside the process; all else is as for anybody."""
    await approve_all(server)
    controller = server.server.clients("csrsigning")
    costs = []
    for number in range(WARM + COUNTED):
        approved = await controller.get(CertificateSigningRequest, f"c-{number:03d}")
        issued = approved.with_certificate(
            certificate(server, 500 + number)
        )  # for a name never seen
        profile = cProfile.Profile(builtins=False)
        with profile:
            await controller.update_status(issued)
        costs.append(ours(profile))

    assert min(costs[WARM:]) <= HANDED_OUT_INSIDE


def test_signing_a_certificate_stays_within_its_budget() -> None:
    """Of a user, for a key that was never seen: checked, written, looked at and signed."""
    ca = Authority.create("root", now=NOW)
    costs = []
    for number in range(WARM + COUNTED):
        key = ec.generate_private_key(ec.SECP256R1())
        asked = parse(samples.request(f"user-{number}", (), key=key))
        profile = cProfile.Profile(builtins=False)
        with profile:
            ca.sign(asked, CLIENT_USAGES, HOUR, profile=samples.CLIENT, now=NOW)
        costs.append(ours(profile))

    assert min(costs[WARM:]) <= SIGNED


async def test_a_token_review_stays_within_its_budget(server: Api) -> None:
    """Of a token that the server itself has issued."""
    token = await server.token("a0", "calls")
    path = f"/apis/{AUTHENTICATION}/tokenreviews"

    def review(number: int) -> tuple[str, str, Any]:
        return "POST", path, {"spec": {"token": token + " " * number}}

    assert await cheapest(server, review) <= TOKEN_REVIEW
