"""A client that speaks protobuf and nothing else, in the names that such clients know."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import TokenRequest, TokenRequestSpec
from orchid.features.accounts.kinds.token_review import TokenReview, TokenReviewSpec
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.rights.kinds.subject_access_review import (
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
)
from orchid.features.sign_in.kinds.self_subject_review import SelfSubjectReview
from orchid.kernel.engine.verbs.delete import DeleteOptions, Preconditions
from orchid.kernel.wire.codec.protobuf import message_of, opened, sealed
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.status import Status
from orchid.kernel.wire.struct import replace
from tests.conformance.exchanges import TOKENS
from tests.e2e.conftest import StartServer
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.wire.protobuf_samples import google_message

PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCOUNTS = "/api/v1/namespaces/here/serviceaccounts"
AUTHENTICATION = "authentication.k8s.io/v1"
SECONDS = 15.0


@dataclass
class Client:
    """Sends and reads protobuf, as the administrator of the token file."""

    server: Server

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        accept: str = PROTOBUF,
        content_type: str = PROTOBUF,
    ) -> tuple[int, str, bytes]:
        with self.opened(method, path, body, accept, content_type) as response:
            return response.status, response.headers["Content-Type"], response.read()

    @contextmanager
    def opened(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        accept: str = PROTOBUF,
        content_type: str = PROTOBUF,
    ) -> Iterator[http.client.HTTPResponse]:
        tls = ssl._create_unverified_context()  # noqa: S323 -- whom we trust is tested elsewhere
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.server.port, context=tls, timeout=SECONDS
        )
        headers = {"Authorization": "Bearer admin-token-0001", "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        with closing(connection):
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                yield response

    def send(self, method: str, path: str, new: Any, api_version: str = "v1") -> tuple[int, Any]:
        """Send an object; the answer is read as what it says it is."""
        name = type(new).__name__
        body = sealed(api_version, name, message_of(type(new)).encode(new))
        status, content_type, answer = self.ask(method, path, body)
        assert content_type == PROTOBUF
        return status, read(answer, type(new))


def read(body: bytes, type_: type[Any]) -> Any:
    said, message = opened(body)
    if said.kind == "Status":
        type_ = Status
    assert said.kind == type_.__name__
    return message_of(type_).decode(message, kind=said.kind, api_version=said.api_version)


def account(name: str, **meta: Any) -> ServiceAccount:
    return ServiceAccount(metadata=ObjectMeta(name=name, **meta))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server in the names of Kubernetes, for all tests of this file."""
    flags = ("--token-auth-file", str(TOKENS), "--naming", "kubernetes")
    with running_server(tmp_path_factory.mktemp("protobuf") / "data", *flags) as server:
        yield Client(server)


def test_create_get_update_and_delete(client: Client) -> None:
    """An object goes through its life in protobuf, and JSON shows the same object."""
    created, made = client.send("POST", ACCOUNTS, account("life", labels={"a": "b"}))
    updated, changed = client.send(
        "PUT", f"{ACCOUNTS}/life", replace(made, automount_service_account_token=False)
    )
    got, _, body = client.ask("GET", f"{ACCOUNTS}/life")
    as_json = json.loads(client.ask("GET", f"{ACCOUNTS}/life", accept="application/json")[2])
    options = DeleteOptions(preconditions=Preconditions(uid=made.metadata.uid), dry_run=("All",))
    refused = replace(options, preconditions=Preconditions(uid="another"))

    assert (created, updated, got) == (201, 200, 200)
    assert made.metadata.labels == {"a": "b"}
    assert read(body, ServiceAccount) == changed
    assert as_json["automountServiceAccountToken"] is False
    assert as_json["metadata"]["uid"] == made.metadata.uid
    assert delete(client, "life", refused)[0] == 409
    assert delete(client, "life", options)[0] == 200
    assert client.ask("GET", f"{ACCOUNTS}/life")[0] == 200, "a dry run deletes nothing"
    assert delete(client, "life", DeleteOptions())[0] == 200
    assert client.ask("GET", f"{ACCOUNTS}/life")[0] == 404


def delete(client: Client, name: str, options: DeleteOptions) -> tuple[int, bytes]:
    body = sealed("v1", "DeleteOptions", message_of(DeleteOptions).encode(options))
    status, _, answer = client.ask("DELETE", f"{ACCOUNTS}/{name}", body)
    return status, answer


def test_list_is_read_by_another_implementation(client: Client) -> None:
    """A list holds every object, its revision, and is understood by Google's library."""
    for name in ("list-a", "list-b"):
        client.send("POST", ACCOUNTS.replace("here", "listed"), account(name))

    status, content_type, body = client.ask("GET", ACCOUNTS.replace("here", "listed"))
    said, message = opened(body)
    listed = google_message("ServiceAccountList").FromString(message)

    assert (status, content_type) == (200, PROTOBUF)
    assert (said.api_version, said.kind) == ("v1", "ServiceAccountList")
    names = [item.metadata.name for item in listed.items]
    assert [name for name in names if name.startswith("list-")] == ["list-a", "list-b"]
    assert int(listed.metadata.resourceVersion) > 0


def test_metadata_alone(client: Client) -> None:
    """Metadata can be asked for alone, of one object and of a list."""
    client.send("POST", ACCOUNTS, account("meta"))
    of_one = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    of_list = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

    said, message = opened(client.ask("GET", f"{ACCOUNTS}/meta", accept=of_one)[2])
    said_list, listed = opened(client.ask("GET", ACCOUNTS, accept=of_list)[2])

    assert (said.api_version, said.kind) == ("meta.k8s.io/v1", "PartialObjectMetadata")
    assert message_of(ServiceAccount).decode(message).name == "meta"
    assert said_list.kind == "PartialObjectMetadataList"
    assert b"meta" in listed


def test_watch_frames_every_event(client: Client) -> None:
    """A stream begins with what is there, marks the end of it, and follows the changes."""
    place = ACCOUNTS.replace("here", "watched")
    client.send("POST", place, account("one"))
    query = "?watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3Done"

    with client.opened("GET", place + query) as stream:
        content_type = stream.headers["Content-Type"]
        first, mark = next_event(stream), next_event(stream)
        client.send("PUT", f"{place}/one", replace(first[1], automount_service_account_token=True))
        changed = next_event(stream)
        client.ask("DELETE", f"{place}/one")
        gone = next_event(stream)

    assert content_type == f"{PROTOBUF};stream=watch"
    assert [first[0], mark[0], changed[0], gone[0]] == ["ADDED", "BOOKMARK", "MODIFIED", "DELETED"]
    assert mark[1].metadata.annotations["k8s.io/initial-events-end"] == "true"
    assert changed[1].automount_service_account_token is True
    assert int(gone[1].metadata.resource_version) > int(changed[1].metadata.resource_version)


def next_event(stream: http.client.HTTPResponse) -> tuple[str, Any]:
    size = int.from_bytes(stream.read(4), "big")
    event = google_message("WatchEvent").FromString(stream.read(size))
    return event.type, read(event.object.raw, ServiceAccount)


def test_error_in_a_stream_is_an_event(client: Client) -> None:
    """A stream that cannot begin says so in an event, with a Status in it."""
    query = "resourceVersion=1000000000&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

    status, _, data = client.ask("GET", f"{ACCOUNTS}?watch=true&{query}")
    event = google_message("WatchEvent").FromString(data[4:])

    assert status == 200
    assert event.type == "ERROR"
    assert read(event.object.raw, Status).code == 504


def test_errors_are_a_status(client: Client) -> None:
    """Errors have the requested encoding."""
    _, missing = status_of(client.ask("GET", f"{ACCOUNTS}/nobody"))
    code, invalid = client.send("POST", ACCOUNTS, account("Not_A_Name"))

    assert (missing.code, missing.reason) == (404, "NotFound")
    assert missing.details is not None
    assert missing.details.name == "nobody"
    assert (code, invalid.reason) == (422, "Invalid")
    assert invalid.details.causes[0].field == "metadata.name"


def status_of(answer: tuple[int, str, bytes]) -> tuple[int, Status]:
    assert answer[1] == PROTOBUF
    return answer[0], read(answer[2], Status)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b'{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"a"}}',
        sealed("v1", "ServiceAccount", b"\x0a\x7f"),
        sealed("v1", "ServiceAccount", b"\x08\x01"),
        sealed("v1", "ServiceAccount", b"\xc3\x3e" * 1000),
        sealed("v1", "Secret", b""),
        sealed("v9", "ServiceAccount", b""),
        sealed("v1", "ServiceAccount", b"\x0a\x03\x0a\x01\xff"),
    ],
    ids=["empty", "text", "json", "cut", "type", "groups", "kind", "version", "utf-8"],
)
def test_unreadable_bodies_are_bad_requests(client: Client, body: bytes) -> None:
    """A body that is no message of the kind is a 400 that says why, also for delete options."""
    code, status = status_of(client.ask("POST", ACCOUNTS, body))

    assert (code, status.code, status.reason) == (400, 400, "BadRequest")
    assert status.message
    if body:
        assert client.ask("DELETE", f"{ACCOUNTS}/any", body)[0] in (400, 404)


def test_kind_and_version_may_be_left_out(client: Client) -> None:
    """A body that does not say what it is, is what the endpoint takes."""
    message = message_of(ServiceAccount).encode(account("unnamed"))

    status, _, answer = client.ask("POST", ACCOUNTS, sealed("", "", message))

    assert status == 201
    assert read(answer, ServiceAccount).name == "unnamed"


def test_token_is_requested_and_reviewed(client: Client) -> None:
    """A token is requested, issued and reviewed in protobuf only."""
    client.send("POST", ACCOUNTS, account("holder"))
    wanted = TokenRequest(spec=TokenRequestSpec(expiration_seconds=1200))
    made, answer = client.send("POST", f"{ACCOUNTS}/holder/token", wanted, AUTHENTICATION)
    review = TokenReview(spec=TokenReviewSpec(token=answer.status.token))

    judged, verdict = client.send(
        "POST", f"/apis/{AUTHENTICATION}/tokenreviews", review, AUTHENTICATION
    )

    assert (made, judged) == (201, 201)
    assert answer.spec.expiration_seconds == 1200
    assert answer.status.expiration_timestamp is not None
    assert verdict.status.authenticated
    assert verdict.status.user.username == "system:serviceaccount:here:holder"


def test_reviews_of_oneself(client: Client) -> None:
    """SelfSubjectReview and SelfSubjectAccessReview, as kubectl sends them in protobuf."""
    whoami = client.send(
        "POST", f"/apis/{AUTHENTICATION}/selfsubjectreviews", SelfSubjectReview(), AUTHENTICATION
    )[1]
    question = SelfSubjectAccessReview(
        spec=SelfSubjectAccessReviewSpec(
            resource_attributes=ResourceAttributes(verb="get", resource="pods")
        )
    )
    may = client.send(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        question,
        "authorization.k8s.io/v1",
    )[1]

    assert whoami.status.user_info.username == "admin"
    assert may.status.allowed


def test_certificate_requests_are_validated_in_protobuf(client: Client) -> None:
    """The errors of an empty request name each field, as in JSON."""
    code, status = client.send(
        "POST",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        CertificateSigningRequest(metadata=ObjectMeta(name="empty")),
        "certificates.k8s.io/v1",
    )

    assert (code, status.reason) == (422, "Invalid")


def test_what_has_no_protobuf_form_falls_to_the_next_clause(client: Client) -> None:
    """Tables exist only as JSON: 406 for others. Discovery has both encodings."""
    either = f"{PROTOBUF},application/json"
    table = f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1"

    assert client.ask("GET", ACCOUNTS, accept=table)[0] == 406
    assert client.ask("GET", ACCOUNTS, accept=f"{table},application/json")[1] == "application/json"
    assert client.ask("GET", "/api/v1", accept=either)[1] == PROTOBUF
    assert client.ask("GET", "/apis", accept=PROTOBUF)[1] == PROTOBUF


def test_default_naming_speaks_protobuf_too(start_server: StartServer) -> None:
    """The media type is the same in both namings; only the groups differ."""
    client = Client(start_server())

    status, made = client.send("POST", ACCOUNTS, account("here"))

    assert (status, made.name) == (201, "here")
