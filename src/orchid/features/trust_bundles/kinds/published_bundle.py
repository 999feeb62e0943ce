"""PublishedBundle: certificates from ClusterTrustBundles, published below /trust/ for any client.

    main      which trust bundles it joins, and how often clients fetch it     Rules
    status    the current edition, earlier ones, and the consumers             StatusRules

The feature in order: `selects` matches a source with a ClusterTrustBundle; the certificates are
joined in kernel/credentials/x509/trust/anchor_set.py;
features/trust_bundles/controllers/publish_bundles.py stores an edition whenever they change
(features/trust_bundles/stored_edition.py); the package trust/ serves the editions over HTTPS and
records who fetched which.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Final

from msgspec import field

from orchid.features.approval.issuing_terms import duration_errors, duration_of
from orchid.kernel.engine.condition_rules import ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.conditions import READY, Condition, is_true
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import path_segment_errors, subdomain_errors
from orchid.kernel.wire.rules.signer_names import signer_name_errors
from orchid.kernel.wire.rules.trust_domains import trust_domain_errors
from orchid.kernel.wire.selectors.label_selectors import (
    LabelSelector,
    conditions_of,
    selector_errors,
)
from orchid.kernel.wire.selectors.label_selectors import selects as labels_match
from orchid.kernel.wire.struct import Wire, always, at_most, describe, merge_key, proto, replace

SPEC: Final = Path() / "spec"
SOURCES: Final = SPEC / "sources"
CONDITIONS: Final = Path() / "status" / "conditions"

MOST_SOURCES: Final = 16
MOST_CONDITIONS: Final = 64  # of one label selector
MOST_EDITIONS: Final = 8
MOST_SHOWN: Final = 5  # consumers in the status
LONGEST_NAME: Final = 200  # the names of the ConfigMaps with its editions are longer
OPEN_STORE: Final = ".nopassword"
REFRESH_HINT: Final = "5m"
SHORTEST_HINT, LONGEST_HINT = timedelta(minutes=1), timedelta(hours=24)


class BundleSource(Wire):
    """Some ClusterTrustBundles."""

    signer_name: Annotated[
        str,
        proto(1),
        describe("The trust bundles of this signer, those that labelSelector selects."),
    ] = ""
    label_selector: Annotated[
        LabelSelector | None,
        proto(2),
        describe("Without signerName: the trust bundles without a signer that have these labels."),
    ] = None
    name: Annotated[str, proto(3), describe("The one trust bundle of this name, alone.")] = ""


class PublishedBundleSpec(Wire):
    """The published certificates, and the form of the document."""

    sources: Annotated[
        tuple[BundleSource, ...],
        at_most(MOST_SOURCES),
        proto(1),
        describe(
            "The trust bundles that are joined, 1 to 16 sources. Each certificate is published "
            "once; expired ones are left out.",
            required=True,
        ),
    ] = always(lambda: ())
    trust_domain: Annotated[
        str,
        proto(2),
        describe("The SPIFFE trust domain whose authorities these are; needed for the JSON form."),
    ] = ""
    refresh_hint: Annotated[
        str, proto(3), describe("How often clients should fetch the bundle, 1m to 24h; else 5m.")
    ] = ""


class BundleEdition(Wire):
    """One published state of a bundle."""

    sequence: Annotated[
        int, proto(1), describe("The time of the change in seconds since 1970, or one more.")
    ] = always(int)
    sha256: Annotated[str, proto(2), describe("The SHA-256 of the PEM file, in hex.")] = always(str)
    certificates: Annotated[int, proto(3), describe("How many certificates it has.")] = always(int)


class BundleConsumer(Wire):
    """A client that fetched with a credential."""

    name: Annotated[str, proto(1), describe("The user name of the client.")] = always(str)
    sequence: Annotated[int, proto(2), describe("The edition that it received last.")] = always(int)
    seen: Annotated[Time | None, proto(3), describe("When it last fetched, by the hour.")] = None


class BundleConsumers(Wire):
    """The number of clients with the current edition."""

    current: Annotated[int, proto(1), describe("Clients, by name, that have it.")] = always(int)
    behind: Annotated[
        int, proto(2), describe("Clients, by name, that received only an earlier one.")
    ] = always(int)
    longest: Annotated[
        tuple[BundleConsumer, ...],
        proto(3),
        describe("The clients that are behind for the longest time, at most five."),
    ] = ()
    others: Annotated[
        int,
        proto(4),
        describe("How often clients without a name in the list fetched the current edition."),
    ] = always(int)


class PublishedBundleStatus(Wire):
    """The current edition, earlier ones, and the consumers."""

    sequence: Annotated[int, proto(1), describe("The current edition.")] = 0
    sha256: Annotated[str, proto(2), describe("The SHA-256 of its PEM file, in hex.")] = ""
    certificates: Annotated[int, proto(3), describe("How many certificates it has.")] = 0
    editions: Annotated[
        tuple[BundleEdition, ...],
        proto(4),
        describe("The last eight editions, the current one first."),
    ] = ()
    consumers: Annotated[
        BundleConsumers | None, proto(5), describe("Which clients have the current edition.")
    ] = None
    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(6),
        describe("Ready: the current edition has what the sources have."),
    ] = ()


class PublishedBundle(Object):
    """Trust anchors for any client that speaks HTTPS."""

    spec: Annotated[
        PublishedBundleSpec, proto(2), describe("What is published.", required=True)
    ] = field(default_factory=PublishedBundleSpec)
    status: Annotated[PublishedBundleStatus, proto(3), describe("The editions.")] = field(
        default_factory=PublishedBundleStatus
    )

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, READY)

    @property
    def refresh_seconds(self) -> int:
        hint = duration_of(self.spec.refresh_hint) or duration_of(REFRESH_HINT) or SHORTEST_HINT
        return int(hint.total_seconds())


class Rules(Strategy[PublishedBundle]):
    """The main endpoint."""

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return tuple(name_problems(name, prefix=prefix))

    def validate(self, new: PublishedBundle) -> Iterator[FieldError]:
        yield from spec_errors(new.spec)

    def validate_update(self, new: PublishedBundle, old: PublishedBundle) -> Iterator[FieldError]:
        if new.spec != old.spec:
            yield from spec_errors(new.spec)


class StatusRules(ConditionRules[PublishedBundle]):
    """The `status` endpoint."""

    def validate_status(self, new: PublishedBundle, old: PublishedBundle) -> Iterator[FieldError]:
        if new.status.sequence < old.status.sequence:
            path = Path() / "status" / "sequence"
            yield invalid(path, new.status.sequence, "must not decrease")
        if len(new.status.editions) > MOST_EDITIONS:
            path = Path() / "status" / "editions"
            yield too_many(path, len(new.status.editions), MOST_EDITIONS)


def declare(naming: Naming) -> Kind[PublishedBundle]:
    return Kind(
        type=PublishedBundle,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1beta1",),
        plural="publishedbundles",
        short_names=("pb",),
        scope=Scope.CLUSTER,
        counts_generation=True,
        keeps_dependents=True,
        rules=Rules(),
        defaults=with_defaults,
        writes=("metadata", "spec"),
        columns=COLUMNS,
        records=edition_changes,
        endpoints=(Endpoint("status", writes=("metadata", "status"), rules=StatusRules()),),
    )


def with_defaults(new: PublishedBundle) -> PublishedBundle:
    return replace(new, spec=replace(new.spec, refresh_hint=new.spec.refresh_hint or REFRESH_HINT))


def selects(source: BundleSource, name: str, signer: str, labels: Mapping[str, str]) -> bool:
    """Whether a source selects the ClusterTrustBundle with this name, signer and labels."""
    if source.name:
        return source.name == name
    if source.signer_name != signer:
        return False
    return source.label_selector is None or labels_match(source.label_selector, labels)


def edition_changes(
    new: PublishedBundle | None, old: PublishedBundle | None, request: Request
) -> Iterator[Fact]:
    """For the ledger: each edition."""
    if new is None or not new.status.sequence:
        return
    if old is None or new.status.sequence != old.status.sequence:
        status = new.status
        yield Fact(
            "bundle.changed",
            {
                "bundle": new.name,
                "sequence": status.sequence,
                "sha256": status.sha256,
                "certificates": status.certificates,
            },
        )


# --- validation -------------------------------------------------------------------------------


def name_problems(name: str, *, prefix: bool = False) -> Iterator[str]:
    """Errors in the name of a bundle, which is a part of URLs and of other names."""
    yield from subdomain_errors(name, prefix)
    if len(name) > LONGEST_NAME:
        yield f"must be no more than {LONGEST_NAME} characters"
    if name.endswith(OPEN_STORE):
        yield f"must not end in {OPEN_STORE}: that is the ending of a file"


def spec_errors(spec: PublishedBundleSpec) -> Iterator[FieldError]:
    if not spec.sources:
        yield required(SOURCES, "at least one source")
    elif len(spec.sources) > MOST_SOURCES:
        yield too_many(SOURCES, len(spec.sources), MOST_SOURCES)
    for index, source in enumerate(spec.sources[:MOST_SOURCES]):
        yield from source_errors(source, SOURCES[index])
        if source in spec.sources[:index]:
            yield duplicate(SOURCES[index], source.name or source.signer_name)
    yield from duration_errors(SPEC / "refreshHint", spec.refresh_hint, SHORTEST_HINT, LONGEST_HINT)
    if spec.trust_domain:
        yield from trust_domain_errors(SPEC / "trustDomain", spec.trust_domain)


def source_errors(source: BundleSource, path: Path) -> Iterator[FieldError]:
    if source.name:
        for problem in path_segment_errors(source.name):
            yield invalid(path / "name", source.name, problem)
        if source.signer_name or source.label_selector is not None:
            yield forbidden(path / "name", "may not be given with signerName or labelSelector")
        return
    if source.signer_name:
        yield from signer_name_errors(path / "signerName", source.signer_name)
    elif source.label_selector is None:
        yield required(path, "one of signerName, labelSelector and name")
    if source.label_selector is not None:
        yield from _label_errors(source.label_selector, path / "labelSelector")


def _label_errors(selector: LabelSelector, path: Path) -> Iterator[FieldError]:
    conditions = conditions_of(selector) - 1
    if conditions > MOST_CONDITIONS:
        yield too_many(path, conditions, MOST_CONDITIONS)
    elif not conditions:
        yield required(path, "an empty selector would select every trust bundle without a signer")
    else:
        yield from selector_errors(selector, path)


# --- tables -----------------------------------------------------------------------------------


def _behind(bundle: PublishedBundle) -> str:
    found = bundle.status.consumers
    return f"{found.behind}/{found.current + found.behind}" if found else "-"


COLUMNS: Final = (
    NAME,
    Column(
        "Certificates",
        lambda one, now: one.status.certificates,
        type="integer",
        description="How many certificates are published.",
    ),
    Column(
        "Sequence",
        lambda one, now: one.status.sequence,
        type="integer",
        description="The current edition: the time of the last change, in seconds since 1970.",
    ),
    Column(
        "Behind",
        lambda one, now: _behind(one),
        description="How many of the named consumers have an earlier edition.",
    ),
    Column("Ready", lambda one, now: str(one.is_ready), description="Whether it is current."),
    AGE,
)
