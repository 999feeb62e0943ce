"""Records of clusters: of a removed one they are deleted, of the next one of its name they stay."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
)
from orchid.features.clusters.controllers.clean_clusters import ALL, CleanClusters
from orchid.features.clusters.kinds.cluster import Cluster
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.client.client import Client
from orchid.kernel.wire.errors import ErrorSubject, Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from tests.unit.features.small_client import SmallClient, change

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)


def meta(name: str, moment: datetime = NOW) -> ObjectMeta:
    return ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=moment)


def revocation(name: str, cluster: str, moment: datetime = NOW) -> CredentialRevocation:
    spec = CredentialRevocationSpec(cluster=cluster)
    return CredentialRevocation(metadata=meta(name, moment), spec=spec)


def record(name: str, cluster: str, moment: datetime = NOW) -> IssuedCertificate:
    spec = IssuedCertificateSpec(cluster=cluster)
    return IssuedCertificate(metadata=meta(name, moment), spec=spec)


async def cleaned(client: Any, name: str = ALL) -> list[str]:
    await CleanClusters(cast(Client, client)).attend(name, None)
    return [one.name for one in client.written("delete")]


async def test_records_of_removed_clusters_are_deleted() -> None:
    """Of a cluster that was created again, those of the earlier one; revocations stay."""
    client = SmallClient(
        Cluster(metadata=meta("prod")),
        revocation("revoked", "old"),
        record("kept", "prod", NOW + DAY),
        record("gone", "old"),
        record("earlier", "prod", NOW - DAY),
    )

    assert await cleaned(client) == ["gone", "earlier"]
    assert [(one.of, one.fields) for one in client.selections] == [
        (IssuedCertificate, "spec.cluster!="),
    ]


async def test_one_cluster_is_looked_at_by_itself() -> None:
    client = SmallClient()

    assert await cleaned(client, "prod") == []
    assert {one.fields for one in client.selections} == {"spec.cluster=prod"}


async def test_a_refusal_does_not_stop_the_others() -> None:
    """The server knows that the cluster is there again."""

    class Refusing(SmallClient):
        async def delete_gone(self, type_: Any, old: Any, **options: str) -> None:
            if old.name == "first":
                raise Forbidden(ErrorSubject("issuedcertificates", "x"), "exists")
            await super().delete_gone(type_, old, **options)

    client = Refusing(record("first", "old"), record("second", "old"))

    assert await cleaned(client) == ["second"]


async def test_changes_of_clusters_are_followed() -> None:
    """All after a list, and each that appears or goes; a change of one is no reason."""
    client = SmallClient()
    names = (("a", "ADDED"), ("b", "MODIFIED"), ("c", "DELETED"))
    client.batches = [[change(Cluster(metadata=meta(name)), type_) for name, type_ in names], []]
    controller = CleanClusters(cast(Client, client))

    await controller._follow_clusters()

    queued = [(await controller.queue.take())[0] for _ in range(len(controller.queue))]
    assert sorted(queued) == [ALL, "a", "c"]
    assert client.followed[0].of is Cluster
