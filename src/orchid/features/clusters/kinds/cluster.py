"""Cluster: a Kubernetes cluster whose API server asks Orchid whether a credential is revoked.

    main      issuer of its tokens, authorities of its client certificates     Rules
    status    calls of its webhook, and conditions                             StatusRules

A CredentialRevocation with `spec.cluster` revokes a credential of that cluster; the webhook
`/webhook/clusters/NAME/authorize` answers by it (access/clusters/). Issuer and authorities decide
nothing there: they identify the tokens and certificates of the cluster.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Final, Protocol

from msgspec import field

from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.names import has_control_characters
from orchid.kernel.engine.condition_rules import ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.conditions import Condition, is_true
from orchid.kernel.wire.fields import FieldError, Path, invalid, required, too_long
from orchid.kernel.wire.meta import Object, ObjectMeta, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors
from orchid.kernel.wire.struct import Wire, describe, merge_key, proto
from orchid.kernel.wire.text import human_duration

CONNECTED: Final = "Connected"
INVENTORIED: Final = "Inventoried"
SPEC: Final = Path() / "spec"
LONGEST_ISSUER: Final = 1024
LONGEST_URL: Final = 2048
LARGEST_BUNDLE: Final = 256 * 1024
CLOCKS_DIFFER: Final = timedelta(hours=1)  # at most, between two servers


class ClusterCredential(Wire):
    """The account by whose token the cluster's API server calls the webhook."""

    namespace: Annotated[str, proto(1), describe("The namespace of the account.")] = ""
    name: Annotated[str, proto(2), describe("The name of the account.")] = ""
    expires: Annotated[
        Time | None, proto(3), describe("When the token that was issued last ends.")
    ] = None
    url: Annotated[
        str, proto(4), describe("The URL of the webhook, as the API server reaches it.")
    ] = ""


class ClusterInventory(Wire):
    """Access to the certificate requests of the cluster."""

    secret_name: Annotated[
        str,
        proto(1),
        describe(
            "A Secret of the system namespace with a kubeconfig under the key `kubeconfig`. It may "
            "read the cluster's certificatesigningrequests. The Cluster is its controlling owner."
        ),
    ] = ""


class ClusterSpec(Wire):
    """The credentials of the cluster, and the addresses of it and of Orchid."""

    issuer: Annotated[
        str, proto(1), describe("The issuer of its service account tokens.", required=True)
    ] = ""
    client_authorities: Annotated[
        str,
        proto(2),
        describe("The authorities of its client certificates, in PEM; empty if it accepts none."),
    ] = ""
    credential: Annotated[
        ClusterCredential | None, proto(3), describe("The credential of its API server.")
    ] = None
    inventory: Annotated[
        ClusterInventory | None,
        proto(4),
        describe("Records its certificates in the inventory; without it, none are recorded."),
    ] = None


class ClusterStatus(Wire):
    """Calls of the webhook, written about once a minute, and what is wrong, if anything."""

    last_call: Annotated[Time | None, proto(1), describe("When the last call came.")] = None
    calls: Annotated[int, proto(2), describe("Reviews that were answered.")] = 0
    denials: Annotated[int, proto(3), describe("Reviews of revoked credentials.")] = 0
    malformed: Annotated[int, proto(4), describe("Calls that were no readable review.")] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(5),
        describe("Connected: its API server calls. Inventoried: its certificates are recorded."),
    ] = ()


class Cluster(Object):
    """A Kubernetes cluster whose credentials can be revoked here."""

    spec: Annotated[ClusterSpec, proto(2), describe("What the cluster is.", required=True)] = field(
        default_factory=ClusterSpec
    )
    status: Annotated[ClusterStatus, proto(3), describe("Whether it calls.")] = field(
        default_factory=ClusterStatus
    )

    @property
    def is_connected(self) -> bool:
        return is_true(self.status.conditions, CONNECTED)


class Rules(Strategy[Cluster]):
    """The main endpoint."""

    def name_errors(self, name: str, prefix: bool) -> tuple[str, ...]:
        """A label: the names of a cluster's records begin with its name and a dot."""
        return label_errors(name, prefix=prefix)

    def validate(self, new: Cluster) -> Iterator[FieldError]:
        yield from spec_errors(new.spec)

    def validate_update(self, new: Cluster, old: Cluster) -> Iterator[FieldError]:
        if new.spec != old.spec:
            yield from spec_errors(new.spec)


class StatusRules(ConditionRules[Cluster]):
    """The `status` endpoint."""

    def validate_status(self, new: Cluster, old: Cluster) -> Iterator[FieldError]:
        for name in ("calls", "denials", "malformed"):
            count = getattr(new.status, name)
            if count < 0:
                yield invalid(Path() / "status" / name, count, "must not be negative")


def declare(naming: Naming) -> Kind[Cluster]:
    return Kind(
        type=Cluster,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1beta1",),
        plural="clusters",
        scope=Scope.CLUSTER,
        counts_generation=True,
        rules=Rules(),
        writes=("metadata", "spec"),
        columns=COLUMNS,
        endpoints=(Endpoint("status", writes=("status",), rules=StatusRules()),),
    )


def spec_errors(spec: ClusterSpec) -> Iterator[FieldError]:
    path = SPEC / "issuer"
    if not spec.issuer:
        yield required(path)
    elif len(spec.issuer) > LONGEST_ISSUER:
        yield too_long(path, LONGEST_ISSUER, "character")
    elif has_control_characters(spec.issuer):
        yield invalid(path, spec.issuer, "must be printable")
    yield from bundle_errors(spec.client_authorities)
    if spec.credential:
        yield from name_errors(SPEC / "credential" / "namespace", spec.credential.namespace)
        yield from name_errors(SPEC / "credential" / "name", spec.credential.name)
        yield from url_errors(SPEC / "credential" / "url", spec.credential.url)
    if spec.inventory:
        yield from name_errors(SPEC / "inventory" / "secretName", spec.inventory.secret_name)


def bundle_errors(bundle: str) -> Iterator[FieldError]:
    path = SPEC / "clientAuthorities"
    if len(bundle) > LARGEST_BUNDLE:
        yield too_long(path, LARGEST_BUNDLE)
    elif bundle:
        try:
            certificates.parse_blocks(bundle)
        except Refusal as refusal:
            yield invalid(path, "<certificate data>", str(refusal))


def url_errors(path: Path, url: str) -> Iterator[FieldError]:
    if len(url) > LONGEST_URL:
        yield too_long(path, LONGEST_URL, "character")
    elif url and (not url.startswith("https://") or has_control_characters(url)):
        yield invalid(path, url, "must be an https URL")


def name_errors(path: Path, name: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    for problem in subdomain_errors(name):
        yield invalid(path, name, problem)


def inventory_secret(cluster: str) -> str:
    """The name of the Secret that `orchid cluster add` stores for a cluster."""
    return f"cluster-{cluster}"


class _NamesCluster(Protocol):
    @property
    def cluster(self) -> str: ...

    @property
    def cluster_uid(self) -> str: ...


class OfCluster(Protocol):
    """A revocation in a cluster, or the record of a certificate of one."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> _NamesCluster: ...


def is_of(object_: OfCluster, cluster: ObjectMeta) -> bool:
    """Whether a revocation or a record is of a cluster, and not of an earlier one of its name.

    Earlier versions of Orchid stored no uid of the cluster. Then the times of creation decide: one
    from the hour before the cluster counts, since the clocks of servers differ.
    """
    spec = object_.spec
    if spec.cluster_uid or spec.cluster != cluster.name:
        return (spec.cluster, spec.cluster_uid) == (cluster.name, cluster.uid)
    created, since = object_.metadata.creation_timestamp, cluster.creation_timestamp
    return created is None or since is None or created + CLOCKS_DIFFER >= since


def authorities_end(cluster: Cluster) -> datetime | None:
    """When the last authority of its client certificates ends; None if it has none."""
    if not cluster.spec.client_authorities:
        return None
    authorities = certificates.parse_blocks(cluster.spec.client_authorities)
    return max(authority.not_valid_after_utc for authority in authorities)


def record_end(end: datetime | None, authorities: datetime | None) -> datetime | None:
    """When the record of a certificate of a cluster ends, by the ends of both.

    The cluster chooses the end of a certificate; it is worth nothing after the authorities.
    """
    return min(end, authorities) if end and authorities else end


def _last_call(cluster: Cluster, now: datetime) -> str:
    last = cluster.status.last_call
    return f"{human_duration((now - last).total_seconds())} ago" if last else "never"


COLUMNS: Final = (
    NAME,
    Column("Issuer", lambda one, now: one.spec.issuer, description="The issuer of its tokens."),
    Column("Connected", lambda one, now: str(one.is_connected), description="Whether it calls."),
    Column("Last call", _last_call, description="When its API server called last."),
    Column(
        "Calls",
        lambda one, now: one.status.calls,
        type="integer",
        description="Reviews that were answered.",
    ),
    Column(
        "Denials",
        lambda one, now: one.status.denials,
        type="integer",
        description="Reviews of revoked credentials.",
    ),
    AGE,
)
