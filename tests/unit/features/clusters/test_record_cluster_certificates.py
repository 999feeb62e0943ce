"""Certificates of clusters: which are recorded, for which cluster, and what one cannot stop."""

import asyncio
import base64
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    cluster_record_name,
)
from orchid.features.clusters.controllers.record_cluster_certificates import (
    LONGEST_REASON,
    MOST_WARNINGS,
    CannotRecord,
    RecordClusterCertificates,
    _authorities,
    _Listing,
    _reason,
)
from orchid.features.clusters.kinds.cluster import Cluster, ClusterInventory
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.client.client import WatchedChange
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import CallFailed
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.conditions import TRUE
from orchid.kernel.wire.errors import (
    MODIFIED,
    AlreadyExists,
    Conflict,
    ErrorSubject,
    Forbidden,
    Invalid,
    NotFound,
)
from orchid.kernel.wire.meta import ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import DAY, HOUR, NOW, OTHER_P256, P256

ABOUT = ErrorSubject("", "issuedcertificates", "x")
CA, OTHER_CA = chains.authority(key=P256), chains.authority(key=OTHER_P256)
TWO = [CA, chains.authority("second", key=OTHER_P256)]


def recorder(*stored: Any) -> tuple[RecordClusterCertificates, SmallClient]:
    client = SmallClient(*stored)
    parts: Any = client, None, FakeClock(NOW), ORCH
    return RecordClusterCertificates(*parts), client


def request(*found: Any, name: str = "r", **more: Any) -> Request:
    chain = b"".join(one.public_bytes(Encoding.PEM) for one in found)
    meta = {"name": name, "uid": "u1"}
    spec = {"signerName": "example.com/web", "username": "alice", "uid": "a1", "groups": ["g"]}
    made = convert({"metadata": meta, "spec": spec}, Request).with_meta(creation_timestamp=NOW)
    return replace(made, status=replace(made.status, certificate=chain, **more))


def a_cluster(name: str = "prod", uid: str = "c1") -> Cluster:
    return Cluster(metadata=ObjectMeta(name=name, uid=uid))


async def record(
    found: Request, authorities: Any = (CA,), *stored: Any, cluster: str = "prod"
) -> tuple[SmallClient, _Listing]:
    made, client = recorder(*stored)
    listing = _Listing()
    await made._record(a_cluster(cluster), list(authorities), change(found, "ADDED"), listing)
    return client, listing


async def test_a_certificate_is_recorded_with_its_request_and_requester() -> None:
    leaf = chains.make(end=NOW + DAY)

    client, listing = await record(request(leaf))

    (made,) = client.written("create")
    assert (made.spec.cluster, made.spec.cluster_uid) == ("prod", "c1")
    assert made.spec.certificate == leaf.public_bytes(Encoding.DER)
    assert (made.spec.request.name, made.spec.request.uid) == ("r", "u1")
    assert made.spec.request.created == NOW
    assert (made.spec.requester.username, made.spec.requester.groups) == ("alice", ("g",))
    assert made.spec.signer_name == "example.com/web"
    assert listing.text == "Its certificates are recorded."


async def test_one_certificate_in_two_clusters_is_two_records() -> None:
    """A requester of one cluster cannot take the name of a record of another."""
    leaf = request(chains.make())
    names = {
        cluster: (await record(leaf, cluster=cluster))[0].written("create")[0].name
        for cluster in ("prod", "test")
    }

    assert names["prod"] != names["test"]
    assert names["prod"].startswith("prod.")


@pytest.mark.parametrize(
    ("found", "authorities"),
    [
        (request(), (CA,)),
        (replace(request(), status=replace(request().status, certificate=b"nonsense")), (CA,)),
        (request(chains.make()), ()),
        (request(chains.make()), (OTHER_CA,)),
        (request(chains.make(issuer="other")), (CA,)),
        (request(chains.make(end=NOW)), (CA,)),
        (request(chains.make(end=NOW - timedelta(seconds=1))), (CA,)),
    ],
)
async def test_what_no_authority_of_the_cluster_issued_is_not_recorded(
    found: Request, authorities: Any
) -> None:
    """By its signature, and not by its name alone; nor what has ended or cannot be read."""
    client, listing = await record(found, authorities)

    assert client.writes == []
    assert listing.unread == 0


@pytest.mark.parametrize(("issuer", "signer"), [("ca", P256), ("second", OTHER_P256)])
async def test_each_of_two_authorities_counts(issuer: str, signer: Any) -> None:
    client, _ = await record(request(chains.make(issuer=issuer, signer=signer)), TWO)

    assert len(client.written("create")) == 1


async def test_a_record_that_is_there_is_not_written_again() -> None:
    leaf = chains.make()
    client, _ = await record(request(leaf))
    (made,) = client.written("create")

    again, _ = await record(request(leaf, name="second"), (CA,), made)

    assert again.writes == []
    assert made.name == cluster_record_name("prod", made.name.partition(".")[2])


async def test_the_record_of_an_earlier_cluster_is_none_of_this_one() -> None:
    """Until the cleaner has deleted it, the certificate cannot be recorded."""
    leaf = chains.make()
    client, _ = await record(request(leaf))
    (made,) = client.written("create")
    earlier = replace(made, spec=replace(made.spec, cluster_uid="c0"))

    with pytest.raises(CannotRecord, match="an earlier cluster"):
        await record(request(leaf), (CA,), earlier)


async def refused(refusal: Any, count: int = 1) -> _Listing:
    made, client = recorder()
    client.refuses["create"] = refusal
    listing = _Listing()
    for _ in range(count):
        await made._record(a_cluster(), [CA], change(request(chains.make())), listing)
    return listing


async def test_a_missing_right_ends_the_list() -> None:
    """Otherwise the condition would be that all is recorded."""
    with pytest.raises(CannotRecord, match="cannot be recorded"):
        await refused(Forbidden(ABOUT, "no right"))


async def test_a_record_of_another_server_is_no_failure() -> None:
    assert (await refused(AlreadyExists(ABOUT))).unread == 0


async def test_certificates_that_are_refused_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The first of them are logged."""
    listing = await refused(Invalid(ABOUT, []), MOST_WARNINGS + 2)

    assert listing.text.endswith(f"except {MOST_WARNINGS + 2} that cannot be read.")
    assert len(caplog.records) == MOST_WARNINGS


class Broken:
    """Cannot be decoded."""

    def decode(self, _data: bytes) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")


async def test_a_request_that_cannot_be_read_is_counted() -> None:
    made, client = recorder()
    listing = _Listing()

    await made._record(a_cluster(), [CA], WatchedChange("ADDED", b"\xff", Broken()), listing)

    assert (listing.unread, client.writes) == (1, [])


def test_an_authority_that_has_ended_issues_nothing() -> None:
    """Of several, those that are valid now; a cluster may have none."""
    found = [
        chains.authority("ended", start=NOW - DAY, end=NOW),
        chains.authority("valid", start=NOW - DAY, end=NOW + timedelta(seconds=1)),
        chains.authority("also", key=OTHER_P256, start=NOW - DAY, end=NOW + HOUR),
    ]
    text = b"".join(one.public_bytes(Encoding.PEM) for one in found).decode()
    cluster = convert({"spec": {"clientAuthorities": text}}, Cluster)

    assert _authorities(cluster, NOW) == found[1:]
    assert _authorities(Cluster(), NOW) == []


# -- conditions -----------------------------------------------------------------------------------


async def test_the_condition_is_written_when_it_differs() -> None:
    made, client = recorder(a_cluster())
    client.get = client.find

    for message in ("one", "one", "two"):
        await made._report(a_cluster(), TRUE, "Listed", message)

    assert [one.status.conditions[0].message for one in client.written("status")] == ["one", "two"]


async def test_no_condition_is_written_to_the_next_cluster_of_the_name() -> None:
    made, client = recorder(a_cluster(uid="c2"))
    client.get = client.find

    await made._report(a_cluster(uid="c1"), TRUE, "Listed", "one")

    assert client.writes == []


@pytest.mark.parametrize("refusal", [Conflict(ABOUT, MODIFIED), NotFound(ABOUT)])
async def test_a_cluster_that_changes_meanwhile_is_no_failure(refusal: Any) -> None:
    made, client = recorder(a_cluster())
    client.get = client.find
    client.refuses["status"] = refusal

    await made._report(a_cluster(), TRUE, "Listed", "one")

    assert client.writes == []


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (CannotRecord("no Secret"), "no Secret"),
        (CallFailed("a\nb\x1b"), "its certificate requests cannot be read: a?b?"),
        (ValueError("a secret"), "its certificate requests cannot be read: ValueError"),
    ],
)
def test_a_reason_is_printable_and_shows_nothing_unexpected(failure: Any, expected: str) -> None:
    """The server of a cluster writes what it quotes."""
    assert _reason(failure) == expected


def test_a_reason_is_short() -> None:
    assert len(_reason(CallFailed("x" * 9999))) == LONGEST_REASON


@pytest.mark.parametrize(
    ("data", "why"), [(None, "there is no Secret"), ({}, "has no key 'kubeconfig'")]
)
async def test_a_cluster_without_its_kubeconfig_is_not_read(data: Any, why: str) -> None:
    made, client = recorder(*([] if data is None else [secret_of("c1", data=data)]))

    with pytest.raises(CannotRecord, match=why):
        await made._record_all(with_inventory())

    assert IssuedCertificate not in [type(one) for _, one in client.writes]


def with_inventory() -> Cluster:
    document = {"spec": {"inventory": {"secretName": "cluster-prod"}}}
    meta = replace(a_cluster().metadata, creation_timestamp=NOW)
    return replace(convert(document, Cluster), metadata=meta)


def secret_of(*uids: str, data: Any = (), **meta: Any) -> Secret:
    """The Secret of the clusters named prod with these uids."""
    owners = tuple(
        OwnerReference(api_version="x/v1", kind="Cluster", name="prod", uid=uid, controller=True)
        for uid in uids
    )
    given = {"name": "cluster-prod", "owner_references": owners, **meta}
    return Secret(metadata=ObjectMeta(namespace=ORCH.system_namespace, **given), data=dict(data))


@pytest.mark.parametrize(
    ("secret", "belongs"),
    [
        (secret_of("c1"), True),
        (secret_of("c0"), False),
        (secret_of(), False),
        (secret_of(creation_timestamp=NOW - HOUR), True),
        (secret_of(creation_timestamp=NOW + DAY), True),
        (secret_of(creation_timestamp=NOW - HOUR - timedelta(seconds=1)), False),
        (secret_of("c0", creation_timestamp=NOW), False),
    ],
    ids=["its own", "earlier", "no time", "from before", "later", "too old", "another owner"],
)
async def test_only_a_secret_of_the_cluster_is_used(secret: Secret, belongs: bool) -> None:
    """By uid; without an owner, which earlier versions stored, by the times of creation."""
    made, _ = recorder(secret)

    with pytest.raises(CannotRecord, match="has no key" if belongs else "does not belong"):
        await made._record_all(with_inventory())


async def test_a_secret_without_an_owner_is_for_the_cluster_of_its_name_alone() -> None:
    made, _ = recorder(secret_of(name="cluster-other", creation_timestamp=NOW))
    cluster = with_inventory()
    other = replace(cluster.spec, inventory=ClusterInventory(secret_name="cluster-other"))

    with pytest.raises(CannotRecord, match="does not belong"):
        await made._record_all(replace(cluster, spec=other))


# -- what is followed -----------------------------------------------------------------------------


class Keeping(RecordClusterCertificates):
    """Notes which clusters it keeps, and which end."""

    def __init__(self, *batches: Any) -> None:
        client: Any = SmallClient()
        client.batches = [[one] for one in batches]
        parts: Any = client, None, FakeClock(NOW), ORCH
        super().__init__(*parts)
        self.noted: list[str] = []

    async def _keep(self, cluster: Cluster) -> None:
        secret = cluster.spec.inventory.secret_name if cluster.spec.inventory else ""
        self.noted.append(f"begin {cluster.name} {secret}")
        try:
            await asyncio.Event().wait()
        finally:
            self.noted.append(f"end {cluster.name} {secret}")


def cluster(name: str, secret: str = "", calls: int = 0, type_: str = "MODIFIED") -> Any:
    given = {"inventory": {"secretName": secret}} if secret else {}
    found = {"metadata": {"name": name}, "spec": given, "status": {"calls": calls}}
    return change(convert(found, Cluster), type_)


A, B = cluster("a", "s"), cluster("b", "s")


@pytest.mark.parametrize(
    ("batches", "noted"),
    [
        ((A, B), ["begin a s", "begin b s"]),
        ((cluster("a"),), []),
        ((A, cluster("a", "s", calls=1)), ["begin a s"]),
        ((A, B, cluster("a", "t")), ["begin a s", "begin b s", "end a s", "begin a t"]),
        ((A, B, cluster("a")), ["begin a s", "begin b s", "end a s"]),
        ((A, B, cluster("a", "s", type_="DELETED")), ["begin a s", "begin b s", "end a s"]),
        (
            (A, cluster("a", "s", type_="DELETED"), A),
            ["begin a s", "end a s", "begin a s"],
        ),
        ((A, cluster("a"), A), ["begin a s", "end a s", "begin a s"]),
    ],
)
async def test_each_cluster_has_one_task_for_its_inventory(
    batches: Any, noted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with its inventory, its Secret or the cluster, and not with a change of status."""
    made = Keeping(*batches)
    tasks: list[asyncio.Task[None]] = []

    class Group:
        def create_task(self, coroutine: Any) -> Any:
            tasks.append(asyncio.create_task(coroutine))
            return tasks[-1]

    group: Any = Group()
    following = made._client.follow

    async def follow(wanted: Any) -> Any:
        async for batch in following(wanted):
            yield batch
            await asyncio.sleep(0)  # the tasks begin, or end
            await asyncio.sleep(0)

    monkeypatch.setattr(made._client, "follow", follow)

    await made._follow_clusters(group)
    running = list(made.noted)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert running == noted


# -- the token ------------------------------------------------------------------------------------


def token(issued: int, subject: str = "system:serviceaccount:kube-system:reader") -> str:
    """A token for two hours, issued so many seconds before now."""
    begin = int(NOW.timestamp()) - issued
    text = json.dumps({"sub": subject, "iat": begin, "exp": begin + 7200}).encode()
    return f"e30.{base64.urlsafe_b64encode(text).decode().rstrip('=')}.c2ln"


async def renewed(old: str, new: str, status: int = 201) -> tuple[list[Any], SmallClient]:
    kubeconfig = json.dumps({"users": [{"name": "u", "user": {"token": old}}], "more": 1})
    meta = ObjectMeta(name="cluster-prod", resource_version="7")
    made, client = recorder()
    sent: list[Any] = []

    async def send(method: str, path: str, _body: bytes) -> Answer:
        sent.append((method, path))
        return Answer(status, json.dumps({"status": {"token": new}}).encode())

    connection: Any = SimpleNamespace(transport=SimpleNamespace(send=send))
    data = {"kubeconfig": kubeconfig.encode(), "more": b"x"}
    await made._renew(Secret(metadata=meta, data=data), connection)
    return sent, client


@pytest.mark.parametrize(
    ("old", "asked"), [(token(3599), 0), (token(3600), 1), (token(9999), 1), ("opaque", 0)]
)
async def test_a_token_is_renewed_from_half_of_its_lifetime(old: str, asked: int) -> None:
    """The rest of the Secret stays; of its version, so that no other change is lost."""
    sent, client = await renewed(old, token(0))

    path = "/api/v1/namespaces/kube-system/serviceaccounts/reader/token"
    assert sent == [("POST", path)] * asked
    written = client.written("update")
    assert len(written) == asked
    for one in written:
        assert token(0).encode() in one.data["kubeconfig"]
        assert (one.data["more"], one.metadata.resource_version) == (b"x", "7")


@pytest.mark.parametrize(
    ("new", "status"),
    [
        (token(0, "system:serviceaccount:kube-system:other"), 201),
        (token(3600), 201),
        ("opaque", 201),
        (token(0), 200),
        (token(0), 403),
    ],
)
async def test_a_token_that_cannot_replace_the_old_one_is_not_stored(new: str, status: int) -> None:
    """Of another account, as old, unreadable, or without success: the old one is used on."""
    sent, client = await renewed(token(3600), new, status)

    assert len(sent) == 1
    assert client.writes == []
