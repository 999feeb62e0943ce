"""A command knows which server it changes."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.terminal.connection import (
    CommandRefused,
    NoAnswer,
    ServerConnection,
    retried,
)
from orchid.kernel.terminal.kubeconfig_file import ENVIRONMENT, SERVER_FLAG, FoundKubeconfig
from orchid.kernel.terminal.output import USAGE, Complaint
from tests.unit.kernel.credentials import chains

LONG_AGO = datetime.now(UTC) - timedelta(days=9)
ADDRESS = "https://10.0.0.1:6443"
FOUND = FoundKubeconfig((Path("config"),), ENVIRONMENT)


class Scripted(ServerConnection):
    """A server of some version that takes everything, and what it was sent."""

    def __init__(self, version: str, *, is_meant: bool) -> None:
        super().__init__(ServerAccess(server=ADDRESS), FOUND, is_meant=is_meant)
        self.version = version
        self.sent: list[str] = []

    def _exchange(
        self, method: str, place: str, body: object, *, warnings: bool = True
    ) -> tuple[int, bytes]:
        self.sent.append(f"{method} {place}")
        return 200, json.dumps({"gitVersion": self.version}).encode()


@pytest.mark.parametrize("is_ours", [True, False])
def test_only_an_orchid_is_started_with_orchid_serve(is_ours: bool) -> None:
    """The API server of a cluster is started by others."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        access = ServerAccess(server=f"https://127.0.0.1:{closed.getsockname()[1]}")
        server = ServerConnection(access, FOUND, is_ours=is_ours)

        with pytest.raises(NoAnswer) as refused:
            server.get("/version")

    assert ("orchid serve" in str(refused.value)) is is_ours


def test_other_server_of_the_environment_is_not_changed() -> None:
    """The kubeconfig of somebody's cluster lies where every program looks for it."""
    server = Scripted("v1.36.0", is_meant=False)

    with pytest.raises(Complaint, match="is not an Orchid") as caught:
        server.post("/api/v1/namespaces/ci/serviceaccounts", {})

    assert caught.value.code == USAGE
    assert "--context or --kubeconfig" in str(caught.value)
    assert server.sent == ["GET /version"]


def test_other_server_may_be_asked() -> None:
    """Reviews and reads change nothing."""
    server = Scripted("v1.36.0", is_meant=False)

    server.get("/api/v1/namespaces")
    server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    server.post("/api/v1/namespaces/ci/serviceaccounts/a/token", {})

    assert len(server.sent) == 3


@pytest.mark.parametrize(
    ("certificate", "text"),
    [
        (chains.make(end=datetime.now(UTC) - timedelta(hours=2), start=LONG_AGO), "ended 20"),
        (chains.make(end=datetime.now(UTC) + timedelta(hours=2)), "it may have expired"),
        (None, "it may have expired"),
    ],
)
def test_an_expired_certificate_is_named(certificate: x509.Certificate | None, text: str) -> None:
    """The server answers every bad credential alike; the holder can read the date."""
    server = Scripted("v1.36.0+orchid.1", is_meant=True)
    data = certificate.public_bytes(Encoding.PEM) if certificate else b""
    server.access = ServerAccess(server=ADDRESS, user="ann", certificate=data)

    refusal = server._refusal(401, {"message": "Unauthorized"})

    assert "does not accept the credential of 'ann'" in refusal
    assert text in refusal
    assert refusal.endswith("(Unauthorized)")


class Attempts:
    """An attempt that fails as listed, then has a result."""

    def __init__(self, *refusals: Exception | None) -> None:
        self.rest = list(refusals)

    def __call__(self) -> str | None:
        if not self.rest:
            return "signed"
        if (refusal := self.rest.pop(0)) is not None:
            raise refusal
        return None


@pytest.mark.parametrize(
    "refusal",
    [NoAnswer("nothing listens"), None]
    + [CommandRefused(status, "later") for status in (409, 422, 429, 500, 502, 503, 504)],
)
def test_what_passes_does_not_end_a_wait(refusal: Exception | None) -> None:
    """A server that restarts, or a key that is not published everywhere yet."""
    assert retried(Attempts(refusal), 1, {422}) == "signed"


@pytest.mark.parametrize(
    "refusal", [Complaint("denied")] + [CommandRefused(status, "no") for status in (400, 403, 422)]
)
def test_a_final_refusal_ends_a_wait(refusal: Exception) -> None:
    """No later attempt can succeed."""
    attempts = Attempts(refusal)

    with pytest.raises(Complaint, match=str(refusal)):
        retried(attempts, 60)


def test_when_the_time_is_over_the_last_refusal_is_raised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And each is printed once; without a wait, none but the last."""
    with pytest.raises(NoAnswer, match="nothing listens"):
        retried(Attempts(*[NoAnswer("nothing listens")] * 9), 0.3)
    assert capsys.readouterr().err == "not yet: nothing listens\n"

    with pytest.raises(CommandRefused):
        retried(Attempts(CommandRefused(503, "later")), 0)
    assert capsys.readouterr().err == ""
    assert retried(Attempts(None), 0) is None


@pytest.mark.parametrize(
    ("version", "is_meant"), [("v1.36.0", True), ("v1.36.0+orchid.0.1.0", False)]
)
def test_changed_server_is_named_once(
    version: str, is_meant: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, so that a pipe gets what it waits for."""
    server = Scripted(version, is_meant=is_meant)

    server.post("/api/v1/namespaces/ci/serviceaccounts", {})
    server.delete("/api/v1/namespaces/ci/serviceaccounts/a")

    out, err = capsys.readouterr()
    assert (out, err) == ("", f"server: {ADDRESS}\n")


def test_yes_of_a_person_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the question is asked, and no is the default."""
    answers = iter(["\n", "yes\n"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda size: next(answers))
    server = Scripted("v1.36.0", is_meant=False)

    with pytest.raises(Complaint, match="nothing was changed"):
        server.delete("/api/v1/namespaces/ci")
    server.delete("/api/v1/namespaces/ci")

    assert server.sent == ["GET /version", "DELETE /api/v1/namespaces/ci"]


@contextmanager
def serving(authority: trustme.CA, moment: datetime) -> Iterator[int]:
    """A TLS server for one connection, whose certificate is valid for an hour around a moment."""
    hour = timedelta(hours=1)
    certificate = authority.issue_cert(
        "127.0.0.1", not_before=moment - hour, not_after=moment + hour
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (40, r"is not valid yet by the clock of this machine, which says 20.*\. Set the clock\."),
        (-40, r"has expired by the clock of this machine, .*restart the server"),
    ],
)
def test_wrong_clock_is_the_first_suspect(days: int, words: str) -> None:
    """A certificate of another time is no certificate of another server."""
    authority = trustme.CA()
    with serving(authority, datetime.now(UTC) + timedelta(days=days)) as port:
        access = ServerAccess(
            server=f"https://127.0.0.1:{port}", authority=authority.cert_pem.bytes()
        )
        with pytest.raises(Complaint, match=words) as caught:
            ServerConnection(access, FOUND).get("/version")

    assert "created again" not in str(caught.value)


def test_certificate_of_another_authority_is_of_another_server() -> None:
    """As after a data directory was created again."""
    with serving(trustme.CA(), datetime.now(UTC)) as port:
        access = ServerAccess(
            server=f"https://127.0.0.1:{port}", authority=trustme.CA().cert_pem.bytes()
        )
        with pytest.raises(Complaint, match="Was the data directory created again"):
            ServerConnection(access, FOUND).get("/version")


def test_server_of_a_flag_needs_its_authority() -> None:
    """There is no kubeconfig that could be replaced, or named in the error."""
    with serving(trustme.CA(), datetime.now(UTC)) as port:
        access = ServerAccess(server=f"https://127.0.0.1:{port}")
        with pytest.raises(Complaint, match=r"server of --server, .*--certificate-authority"):
            ServerConnection(access, FoundKubeconfig((), SERVER_FLAG)).get("/version")
