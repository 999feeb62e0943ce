"""One API server, built from settings. Read `Assembly` from top to bottom: it lists all parts."""

import logging
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from orchid.assembly.access import EXCHANGE_PATH, Access, as_bad_settings
from orchid.assembly.admission import Policies
from orchid.assembly.controllers import controlling
from orchid.assembly.controllers.running import UnknownController, chosen
from orchid.assembly.encryption import Sealing, encrypted
from orchid.assembly.features import FEATURES
from orchid.assembly.host_conditions import HostConditions
from orchid.assembly.kinds import PERMISSION_KINDS, REVOKING_KINDS, served_kinds, stored_kinds
from orchid.assembly.ledger import ledger_pages
from orchid.assembly.listeners import api_listener
from orchid.assembly.platform.files import ServingKey, project
from orchid.assembly.stores import AuditRecord
from orchid.assembly.token_pages import issuer_documents, oauth_pages
from orchid.features.accounts.secret_token_uses import SecretTokenUses
from orchid.features.authorities.authorities_metrics import AuthorityEnds
from orchid.features.authorities.file_authorities import FileAuthorityObjects
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.certificate_search import CertificateIndex
from orchid.features.certificates.credentials_metrics import IssuanceMetrics
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.certificates.own_certificates import OwnCertificates, OwnFiles
from orchid.features.certificates.pages import renewal
from orchid.features.certificates.renewal_information import RenewalInformation
from orchid.features.clusters.calls import ClusterCalls
from orchid.features.clusters.cluster_status import ClusterStatusWriter
from orchid.features.clusters.pages import clusters
from orchid.features.clusters.reviews import ClusterReviews
from orchid.features.introspection import introspection, revocation
from orchid.features.ledger import status as ledger_status
from orchid.features.ledger.known_keys import note_keys
from orchid.features.ledger.pages.ledger import PREFIX as LEDGER
from orchid.features.ledger.status import LedgerStatus
from orchid.features.ledger.token_counts import TokenCounts
from orchid.features.objects.kinds.lease import keys_annotation, serves_annotation, signs_annotation
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.revocation.revocations import Revocations
from orchid.features.revoking import revocation_file
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.revoking.pages import crl
from orchid.features.revoking.replaced_keys import ReplacedKeys
from orchid.features.revoking.revocation_copy import RevocationCopy
from orchid.features.revoking.revocation_lists import RevocationLists
from orchid.features.token_keys.file_keys import FileKeyObjects
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.token_keys import FileKeys
from orchid.features.token_keys.token_keys_metrics import KeyMetrics
from orchid.features.trust_bundles import pages as trust_pages
from orchid.features.trust_bundles import server as trust_server
from orchid.features.trust_bundles.server import TrustServer
from orchid.kernel.access.impersonation.impersonation import Impersonation
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.base.metrics import Metric
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.context import SERVER, Context
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.objects import IsStale
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.internal_writes import InternalObjects
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.randomness import SystemRandomness
from orchid.kernel.engine.verbs.all_verbs import Verbs
from orchid.kernel.http.listener import Listener
from orchid.kernel.http.messages import Handler
from orchid.kernel.runtime.context import NoticeMetrics
from orchid.kernel.server.audit.trail import PolicyAudit
from orchid.kernel.server.chain import Chain
from orchid.kernel.server.discovery.documents import Discovery
from orchid.kernel.server.dispatch import Dispatch
from orchid.kernel.server.fairness import Fairness
from orchid.kernel.server.in_process.clients import InProcessClients
from orchid.kernel.server.loop_watchdog import LoopWatchdog
from orchid.kernel.server.metrics.certificate_ends import CertificateEnds
from orchid.kernel.server.metrics.page import MetricsPage, OtherProcesses
from orchid.kernel.server.metrics.requests import CountedRequests
from orchid.kernel.server.open_watches import OpenWatches
from orchid.kernel.server.openapi.endpoints import OpenApi
from orchid.kernel.server.pages import openid
from orchid.kernel.server.pages.health import Check, Health
from orchid.kernel.server.pages.readiness import Readiness
from orchid.kernel.server.pages.site import Page, Pages
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory, certificate_files, renew
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.interface import Store
from orchid.kernel.store.probing import StoreProbe

if TYPE_CHECKING:
    from orchid.assembly.token_exchange import TokenExchangeParts

log = logging.getLogger(__name__)

# Pages with a metric series of their own; all others share one.
COUNTED_PAGES = (
    "/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/apis", clusters.PREFIX,
)  # fmt: skip


class Assembly:
    """One API server."""

    def __init__(
        self,
        settings: Settings,
        files: DataDirectory,
        store: Store,
        audit: AuditRecord | None = None,
        *,
        store_problem: Check = None,
        others: OtherProcesses | None = None,
        sole_writer: bool = False,
    ) -> None:
        """`sole_writer`: no other server writes to the store."""
        self.settings, self.files = settings, files
        self.clock, self.random, self.offload = SystemClock(), SystemRandomness(), Offload()
        self.wanted_controllers = wanted_controllers(settings)
        stored = stored_kinds(settings.names)
        self.store = encryption = encrypted(store, settings, files, stored)
        # A store in this process needs no probe: it cannot hang without us.
        self.probe = StoreProbe(self.store) if settings.given.etcd_servers else None
        self.feed = Feed(self.store, Catalog(stored), self.clock.monotonic, sole_writer=sole_writer)
        self.readiness = Readiness(self.feed, encryption, self.probe, store_problem)
        self.token_counts = TokenCounts(self.store, self.clock.now)
        self.context = self._context()
        with as_bad_settings():
            self.access = self._access()
        self.sealing = Sealing(
            settings,
            files,
            stored,
            encryption,
            self.feed,
            servers=self.access.servers.live,
            own_lease=lambda: self.applied.name,
        )
        self.issuance = IssuanceMetrics(settings.names, self.feed, self.access.authorities)
        self.catalog = Catalog(self._served(stored))
        self.audit = self._audit(audit)
        self.verbs = self._verbs(encryption.is_stale)
        self.local = InternalObjects(self.catalog, self.feed, self.verbs, self.clock, SERVER)
        self._record_credentials()
        self._limit_load()
        # Its pages are part of the chain, which its client calls.
        self.trust = TrustServer(
            self.context.clients(trust_server.IDENTITY.name), settings.names, self.clock
        )
        self.exchange = self._token_exchange()
        self.chain = self._chain(others)
        self.clients = self._clients(self.chain)
        self._report_to_controllers()

    def _token_exchange(self) -> "TokenExchangeParts | None":
        access = self.access
        if access.subject_tokens is None:
            return None
        from orchid.assembly.token_exchange import TokenExchangeParts  # noqa: PLC0415 -- often off

        return TokenExchangeParts(
            self.settings,
            access.subject_tokens,
            self.feed,
            self.store,
            issuer=access.issuer,
            revocations=access.revocations,
            username_of=access.username_of,
            authorizer=access.authorizer,
            offload=self.offload,
            clock=self.clock,
            client=self.context.clients.of_user(SERVER),
        )

    def listener(self) -> Listener:
        """The HTTPS listener; it listens once it is started."""
        return api_listener(self.settings, self.files, self.chain, self.feed, self.clock.monotonic)

    def close(self) -> None:
        """Stop the threads."""
        self.access.issuer.close()
        self.offload.close()

    def _context(self) -> Context:
        """The context of the features, and the parts of every server."""
        context = Context(
            self.settings,
            self.files,
            self.store,
            self.feed,
            clock=self.clock,
            randomness=self.random,
            offload=self.offload,
        )
        context.provide(Catalog, lambda _: self.catalog)
        context.provide(InternalObjects, lambda _: self.local)
        context.provide(InProcessClients, lambda _: self._clients(context.handle))
        context.provide(Chain, lambda _: self.chain)
        context.provide(Revocations, lambda _: self.access.revocations)
        for feature in FEATURES:
            for part in feature.provides:
                context.provide(part.type, part.build)
        return context

    def _clients(self, handler: Handler) -> InProcessClients:
        names, callers = self.settings.names, self.context.callers
        accounts = controlling.controller_accounts(names)
        return InProcessClients(handler, callers, self.catalog, names, accounts)

    def _access(self) -> Access:
        return Access(
            self.context,
            token_used=self._token_used,
            token_issued=self.token_counts.counter(self.settings.given.ledger_tokens),
        )

    def _served(self, stored: list[Kind[Any]]) -> list[Kind[Any]]:
        return served_kinds(
            self.settings.names,
            stored,
            tokens=self.access.tokens,
            api_audiences=self.settings.api_audiences,
            issuer=self.access.issuer,
            authorizer=self.access.authorizer,
            issuance=self.issuance,
            explainer=self.access.explainer,
            exchange_explainer=lambda: self.exchange.explainer if self.exchange else None,
            monotonic=self.clock.monotonic,
            offload=self.offload,
            searcher=CertificateIndex(self.feed, self.access.authorizer, self.clock),
        )

    def _verbs(self, is_stale: IsStale) -> Verbs:
        return Verbs.over(
            self.store,
            self.feed,
            Admission(Policies(self.access).all(self.ensure_namespace, self.catalog)),
            self.settings.names,
            self.random,
            offload=self.offload,
            is_stale=is_stale,
        )

    def _record_credentials(self) -> None:
        """Issued and revoked credentials: inventory, ledger, revocation lists and their copy."""
        settings, files, names = self.settings, self.files, self.settings.names
        self.own_certificates = OwnCertificates(
            OwnFiles(files.ca_certificate, files.serving_certificate, files.kubeconfig),
            self.feed,
            self.store,
            names=names,
            randomness=self.random,
            user=SERVER,
            renewal=self._own_renewal,
        )
        if self.access.platform is not None:
            self.access.platform.changed.append(self.own_certificates.changed)
        self.file_authorities = FileAuthorityObjects(
            controlling.file_authorities(settings, files),
            self.feed,
            self.store,
            clock=self.clock,
            randomness=self.random,
            keys=self.access.authority_keys,
            shown=self.access.authorities,
            servers=self.access.servers.live,
        )
        self.authority_ends = AuthorityEnds(self.feed.of(CertificateAuthority))
        self.key_metrics = KeyMetrics(
            self.feed.of(SigningKey),
            self.access.account_tokens.verifications,
            self.clock.now,
            timedelta(seconds=settings.token_key_rotation),
        )
        used = certificate_files(settings, files)
        self.ends = CertificateEnds(used, self.clock)
        self.host = HostConditions(settings.data_dir, used, self.clock)
        of_authorities = self.access.authority_keys
        lists = RevocationLists(self.feed, names, of_authorities.lists, of_authorities.of_list)
        self.lists = crl.ServedLists(lists.find, lists.all_of)
        self.revocation_copy = None
        if settings.given.store == "sqlite" and not settings.given.etcd_servers:
            file = settings.data_dir / revocation_file.FILE
            self.revocation_copy = RevocationCopy(file, self.feed, self.store, self.clock)
        self.cluster_calls = ClusterCalls(self.clock)
        self.notice_metrics = NoticeMetrics()
        self.ledger = ledger_pages(settings, files, self.store)
        self.ledger_standing = LedgerStatus(
            self.store, settings.data_dir / ledger_status.FILE, self.clock.now
        )

    def _own_renewal(self) -> Callable[[datetime], bool]:
        """A function that renews the server's own certificates where that is due."""
        settings, files, platform = self.settings, self.files, self.access.platform
        if platform is None or not platform.is_stored:
            return lambda now: renew(settings, files, now)
        found = platform.snapshot()
        return lambda now: project(settings, files, found, now)

    def _limit_load(self) -> None:
        given = self.settings.given
        self.fairness = Fairness(
            self.settings.names,
            given.max_requests_inflight,
            given.max_mutating_requests_inflight,
            patience=self.settings.request_timeout / 4,
            by_address=(introspection.PATH, revocation.PATH, EXCHANGE_PATH),
        )
        self.watchdog = LoopWatchdog(self.clock.monotonic, self.fairness.feel_lag)

    def _report_to_controllers(self) -> None:
        """State of this process that controllers read through the API."""
        names, client = self.settings.names, self.clients.of_user(SERVER)
        self.cluster_status = ClusterStatusWriter(self.cluster_calls, client, self.clock)
        self.token_uses = SecretTokenUses(client, self.clock, names)
        self.serving = ServingKey(self.files.serving_certificate)
        self.applied = AppliedRevision(
            client, self.clock, names, lambda: self.feed.revision, self._reported_keys
        )
        self.access.keys_changed.append(self.applied.changed)
        self.sealing.changed = self.applied.changed
        self.access.authority_keys.changed.append(self.applied.changed)
        for type_ in REVOKING_KINDS:
            self.feed.of(type_).listen(self.applied, self.applied.changed)

    def _audit(self, record: AuditRecord | None) -> PolicyAudit | None:
        if record is None:
            return None
        names, catalog = self.settings.names, self.catalog
        return PolicyAudit(record.policy, record.log, names, self.clock, catalog.is_confidential)

    async def ensure_namespace(self, name: str) -> None:
        await self.local.ensure(Namespace().with_meta(name=name))

    def _token_used(self, namespace: str, name: str, day: date) -> None:
        self.token_uses.used(namespace, name, day)

    def file_keys(self) -> FileKeyObjects | None:
        """Objects that show the token keys, if those are files."""
        keys = self.access.keys
        if not isinstance(keys, FileKeys):
            return None
        return FileKeyObjects(
            keys,
            self.feed,
            self.store,
            clock=self.clock,
            randomness=self.random,
            servers=self.access.servers.live,
        )

    def _reported_keys(self) -> dict[str, str]:
        """The keys of this process, as annotations of its Lease."""
        names, keys = self.settings.names, self.access.keys
        of_authorities = *self.access.authority_keys.waiting, *self.file_authorities.key_ids
        return {
            keys_annotation(names): ",".join([*keys.usable, *of_authorities]),
            signs_annotation(names): keys.signs,
            serves_annotation(names): self.serving.current(),
            **self.sealing.annotations(),
        }

    async def note_token_keys(self) -> None:
        """Record added and removed token keys of files in the ledger."""
        keys = {key.kid: {"algorithm": key.algorithm} for key in self.access.keys.verifying.keys}
        await note_keys(self.store, "token-key", keys, self.clock.now())

    # -- the request chain -------------------------------------------------------------------

    def _chain(self, others: OtherProcesses | None) -> Chain:
        requests = CountedRequests(self.catalog, self.clock.monotonic, COUNTED_PAGES)
        impersonation = Impersonation(
            self.settings.names, self.access.authorizer, self.clock.monotonic
        )
        self.watches = OpenWatches(
            self.access.authenticator,
            impersonation,
            self.access.authorizer,
            [self.feed.of(type_) for type_ in PERMISSION_KINDS],
            ends_with=[self.feed.of(type_) for type_ in REVOKING_KINDS],
        )
        self.metrics = MetricsPage(
            requests,
            self.audit,
            self.fairness,
            self.feed,
            self.catalog,
            offload=self.offload,
            now=self.clock.now(),
            counted=(*impersonation.metrics.all, *self._counted()),
            others=others,
        )
        return Chain(
            names=self.settings.names,
            clock=self.clock,
            authenticator=self.access.authenticator,
            impersonation=impersonation,
            authorizer=self.access.authorizer,
            fairness=self.fairness,
            watches=self.watches,
            pages=self._pages(self.metrics, self.readiness.health()),
            dispatch=self._dispatch(),
            audit=self.audit,
            metrics=requests,
            request_timeout=self.settings.request_timeout,
        )

    def _counted(self) -> Iterator[Metric]:
        """The metrics of everything but requests."""
        yield from self.access.authorization.metrics.all
        yield from self.issuance.all
        yield from self.access.issued.metrics
        yield self.authority_ends
        yield from self.key_metrics.all
        yield from self.sealing.metrics
        yield from self.ledger_standing.metrics
        yield from self.watches.metrics
        yield self.cluster_calls.results
        yield from self.notice_metrics.all
        yield from (self.watchdog.lag, self.watchdog.held, self.ends.gauge, self.host.gauge)
        yield from self.trust.metrics
        for feature in FEATURES:
            if feature.metrics is not None:
                yield from feature.metrics(self.context)
        if self.exchange is not None:
            yield self.exchange.exchanger.exchanges

    def _dispatch(self) -> Dispatch:
        return Dispatch(
            self.catalog,
            self.verbs,
            self.access.authorizer,
            self.settings.names,
            clock=self.clock,
            offload=self.offload,
            shortest_watch=float(self.settings.given.min_request_timeout),
        )

    def _pages(self, metrics: MetricsPage, health: Health) -> Pages:
        address = self.settings.url.removeprefix("https://")
        documents = issuer_documents(
            self.settings, self.access.keys, exchanges=self.exchange is not None
        )
        described = OpenApi(self.catalog, self.settings.names, documents.keys() & openid.PATHS)
        return Pages(
            Discovery(self.catalog, address),
            health,
            extra={
                "/metrics": metrics,
                **self._oauth_pages(),
                **documents,
                **described.exact,
            },
            prefixes={
                **described.prefixed,
                **self._feature_pages(),
                LEDGER: self.ledger,
                crl.PREFIX: crl.RevocationListPages(self.lists),
                clusters.PREFIX: clusters.ClusterPages(self._cluster_reviews()),
                trust_pages.PREFIX: self.trust.pages,
                renewal.PREFIX: renewal.RenewalPages(self._renewals().of),
            },
        )

    def _feature_pages(self) -> dict[str, Page]:
        return {
            path: page
            for feature in FEATURES
            if feature.pages is not None
            for path, page in feature.pages(self.context).items()
        }

    def _renewals(self) -> RenewalInformation:
        records = self.feed.of(IssuedCertificate)
        replaced = ReplacedKeys(self.feed)
        return RenewalInformation(records, self.access.revocations, self.clock, replaced.get)

    def _oauth_pages(self) -> dict[str, Page]:
        exchange = {EXCHANGE_PATH: self.exchange.page} if self.exchange else {}
        return exchange | oauth_pages(
            self.settings,
            self.access,
            acting=self.context.clients.acting,
            server=SERVER,
            monotonic=self.clock.monotonic,
        )

    def _cluster_reviews(self) -> ClusterReviews:
        return ClusterReviews(self.feed, self.access.cluster_revocations, self.cluster_calls)


def wanted_controllers(settings: Settings) -> frozenset[str]:
    try:
        return chosen(settings.given.controllers)
    except UnknownController as problem:
        raise BadSettings(f"--controllers: {problem}") from None
