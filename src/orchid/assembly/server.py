"""One API server, built from settings. Read `Assembly` from top to bottom: it lists all parts.

The kernel is built first, then the parts of each feature, in loops over FEATURES.
"""

from collections.abc import Iterator

from orchid.assembly import order
from orchid.assembly.authentication import as_bad_settings, authenticator, token_authenticator
from orchid.assembly.components import controller_accounts, default_policy
from orchid.assembly.controllers.running import UnknownController, chosen
from orchid.assembly.features import FEATURES, IDENTITIES
from orchid.assembly.kinds import served_kinds, stored_kinds
from orchid.assembly.listeners import api_listener
from orchid.assembly.setting_files import certificate_files
from orchid.assembly.stores import AuditRecord
from orchid.features.rights.bootstrap import BootstrapPolicy
from orchid.features.sealing.sealing import encrypted
from orchid.kernel.access.authenticators.union import UnionTokenAuthenticator
from orchid.kernel.access.impersonation.impersonation import Impersonation
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.base.metrics import Metric
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.context import SERVER, AuthorizerOffers, Components, Context
from orchid.kernel.engine.admission import Admission
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.internal_writes import InternalObjects
from orchid.kernel.engine.randomness import SystemRandomness
from orchid.kernel.engine.verbs.all_verbs import Verbs
from orchid.kernel.http.listener import Listener
from orchid.kernel.http.messages import Handler
from orchid.kernel.server.audit.trail import PolicyAudit
from orchid.kernel.server.chain import Chain
from orchid.kernel.server.discovery.documents import Discovery
from orchid.kernel.server.dispatch import Dispatch
from orchid.kernel.server.fairness import Fairness
from orchid.kernel.server.in_process.clients import InProcessClients
from orchid.kernel.server.loop_watchdog import LoopWatchdog
from orchid.kernel.server.metrics.certificate_ends import CertificateEnds
from orchid.kernel.server.metrics.host_conditions import HostConditions
from orchid.kernel.server.metrics.page import MetricsPage, OtherProcesses
from orchid.kernel.server.metrics.requests import CountedRequests
from orchid.kernel.server.open_watches import OpenWatches
from orchid.kernel.server.openapi.endpoints import OpenApi
from orchid.kernel.server.pages import openid
from orchid.kernel.server.pages.health import Check
from orchid.kernel.server.pages.readiness import Readiness
from orchid.kernel.server.pages.site import Page, Pages
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.encryption import EncryptedStore
from orchid.kernel.store.interface import Store
from orchid.kernel.store.probing import StoreProbe
from orchid.kernel.wire.meta import Object

# Pages of the kernel with a metric series of their own; all others share one.
COUNTED_PAGES = ("/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/apis")


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
        stored = stored_kinds(settings.naming)
        self.store = encryption = encrypted(store, settings, stored)
        # A store in this process needs no probe: it cannot hang without us.
        self.probe = StoreProbe(self.store) if settings.given.etcd_servers else None
        self.feed = Feed(self.store, Catalog(stored), self.clock.monotonic, sole_writer=sole_writer)
        self.readiness = Readiness(self.feed, encryption, self.probe, store_problem)
        self.context = Context(
            settings,
            files,
            encryption,
            self.feed,
            clock=self.clock,
            randomness=self.random,
            offload=self.offload,
            kinds=stored,
        )
        self._offer_parts()
        with as_bad_settings():
            self.authorizer = self.context.authorizer
            self.authenticator = authenticator(self.context)
            self.catalog = self.context.catalog
            self.audit = self._audit(audit)
            self.verbs = self._verbs()
            self.local = self.context.local
            self._watch_over()
            self.chain = self._chain(others)
            self.clients = self._clients(self.chain)

    # -- parts that features ask for ----------------------------------------------------------

    def _offer_parts(self) -> None:
        """Offer the parts of the kernel, and those of each feature; none is built yet."""
        context, encryption = self.context, self.store
        context.provide(EncryptedStore, lambda _: encryption)
        context.provide(Components, lambda _: Components(IDENTITIES))
        context.provide(BootstrapPolicy, lambda _: default_policy(context.naming))
        context.provide(AuthorizerOffers, lambda _: self._authorizers())
        context.provide(UnionTokenAuthenticator, token_authenticator)
        context.provide(Catalog, lambda _: Catalog(served_kinds(context)))
        context.provide(InternalObjects, lambda _: self._internal_objects())
        context.provide(InProcessClients, lambda _: self._clients(context.handle))
        context.provide(Chain, lambda _: self.chain)
        for feature in FEATURES:
            for part in feature.provides:
                context.provide(part.type, part.build)

    def _authorizers(self) -> AuthorizerOffers:
        offers = (each.authorizers(self.context) for each in FEATURES if each.authorizers)
        return AuthorizerOffers(tuple(offer for some in offers for offer in some))

    def _internal_objects(self) -> InternalObjects:
        return InternalObjects(self.catalog, self.feed, self.verbs, self.clock, SERVER)

    def _clients(self, handler: Handler) -> InProcessClients:
        naming = self.settings.naming
        accounts = controller_accounts(naming)
        return InProcessClients(
            handler, self.context.callers, self.context.catalog, naming, accounts
        )

    # -- life ----------------------------------------------------------------------------------

    def listener(self) -> Listener:
        """The HTTPS listener; it listens once it is started."""
        return api_listener(self.settings, self.files, self.chain, self.feed, self.clock.monotonic)

    def close(self) -> None:
        """Stop the threads."""
        for close in self.context.closing:
            close()
        self.offload.close()

    # -- the engine ------------------------------------------------------------------------------

    def _audit(self, record: AuditRecord | None) -> PolicyAudit | None:
        if record is None:
            return None
        naming, catalog = self.settings.naming, self.catalog
        return PolicyAudit(record.policy, record.log, naming, self.clock, catalog.is_confidential)

    def _verbs(self) -> Verbs:
        policies = order.policies(
            policy
            for feature in FEATURES
            if feature.policies is not None
            for policy in feature.policies(self.context)
        )
        return Verbs.over(
            self.store,
            self.feed,
            Admission(policies),
            self.settings.naming,
            self.random,
            offload=self.offload,
            is_stale=self.store.is_stale,
        )

    def _watch_over(self) -> None:
        """Limits of load, and conditions that no request shows."""
        settings = self.settings
        self.fairness = Fairness(
            settings.naming,
            settings.given.max_requests_inflight,
            settings.given.max_mutating_requests_inflight,
            patience=settings.request_timeout / 4,
            by_address=tuple(path for feature in FEATURES for path in feature.pages_by_address),
        )
        self.watchdog = LoopWatchdog(self.clock.monotonic, self.fairness.feel_lag)
        certificates = certificate_files(settings, self.files)
        self.ends = CertificateEnds(certificates, self.clock)
        self.host = HostConditions(
            settings.data_dir,
            certificates,
            self.clock,
            [name for feature in FEATURES for name in feature.data_files],
        )

    # -- the request chain -------------------------------------------------------------------

    def _chain(self, others: OtherProcesses | None) -> Chain:
        counted = (*COUNTED_PAGES, *(path for each in FEATURES for path in each.counted_pages))
        requests = CountedRequests(self.catalog, self.clock.monotonic, counted)
        naming = self.settings.naming
        impersonation = Impersonation(naming, self.authorizer, self.clock.monotonic)
        self.watches = OpenWatches(
            self.authenticator,
            impersonation,
            self.authorizer,
            self._caches(type_ for feature in FEATURES for type_ in feature.permission_kinds),
            ends_with=self._caches(type_ for each in FEATURES for type_ in each.revoking_kinds),
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
            naming=naming,
            clock=self.clock,
            authenticator=self.authenticator,
            impersonation=impersonation,
            authorizer=self.authorizer,
            fairness=self.fairness,
            watches=self.watches,
            pages=self._pages(),
            dispatch=self._dispatch(),
            audit=self.audit,
            metrics=requests,
            request_timeout=self.settings.request_timeout,
        )

    def _caches(self, types: Iterator[type[Object]]) -> list[KindCache[Object]]:
        return [self.feed.of(type_) for type_ in types]

    def _counted(self) -> Iterator[Metric]:
        """The metrics of everything but requests."""
        for feature in FEATURES:
            if feature.metrics is not None:
                yield from feature.metrics(self.context)
        yield from self.watches.metrics
        yield from (self.watchdog.lag, self.watchdog.held, self.ends.gauge, self.host.gauge)

    def _dispatch(self) -> Dispatch:
        return Dispatch(
            self.catalog,
            self.verbs,
            self.authorizer,
            self.settings.naming,
            clock=self.clock,
            offload=self.offload,
            shortest_watch=float(self.settings.given.min_request_timeout),
        )

    def _pages(self) -> Pages:
        pages: dict[str, Page] = {"/metrics": self.metrics}
        for feature in FEATURES:
            if feature.pages is not None:
                pages |= feature.pages(self.context)
        described = OpenApi(self.catalog, self.settings.naming, pages.keys() & openid.PATHS)
        prefixes = {path: page for path, page in pages.items() if path.endswith("/")}
        return Pages(
            Discovery(self.catalog, self.settings.url.removeprefix("https://")),
            self.readiness.health(),
            extra={**{path: pages[path] for path in pages.keys() - prefixes}, **described.exact},
            prefixes={**described.prefixed, **prefixes},
        )


def wanted_controllers(settings: Settings) -> frozenset[str]:
    try:
        return chosen(settings.given.controllers)
    except UnknownController as problem:
        raise BadSettings(f"--controllers: {problem}") from None
