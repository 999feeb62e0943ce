"""One API server, built from settings. Read `Assembly` from top to bottom: it lists what exists."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from orchid.access.impersonation.impersonation import Impersonation
from orchid.access.policy.bootstrap import bootstrap_policy
from orchid.access.policy.reconcile import reconcile
from orchid.assembly import controlling, memory
from orchid.assembly.access import Access, told_as_settings
from orchid.assembly.encryption import encrypted
from orchid.assembly.kinds import RIGHTS_REST_ON, TAKES_BACK, served_kinds, stored_kinds
from orchid.assembly.ledger import ledger_pages
from orchid.assembly.own_certificates import OwnCertificates
from orchid.assembly.revocation_copy import copy_of
from orchid.assembly.stores import AuditRecord
from orchid.clock import SystemClock
from orchid.controllers.label_token_secrets import LabelTokenSecrets
from orchid.controllers.report_applied import ReportApplied
from orchid.controllers.running import UnknownController, chosen, run_controllers
from orchid.credentials.refusals import Refusal
from orchid.credentials.tokens import KeySet
from orchid.data_directory import DataDirectory, certificate_files
from orchid.engine.admission import Admission
from orchid.engine.cache.feed import Feed
from orchid.engine.catalog import Catalog
from orchid.engine.interfaces import SystemRandomness
from orchid.engine.internal_writes import InternalObjects
from orchid.engine.offload import Offload
from orchid.engine.verbs.all_verbs import Verbs
from orchid.issuance.authority_metrics import AuthorityEnds
from orchid.issuance.issuance_metrics import IssuanceMetrics
from orchid.issuance.kept_revocations import FileTooLarge
from orchid.issuance.revocation_lists import RevocationLists
from orchid.kinds.certificate_authority import CertificateAuthority
from orchid.kinds.namespace import Namespace
from orchid.ledger import standing
from orchid.ledger.known_keys import note_keys
from orchid.ledger.standing import LedgerStanding
from orchid.ledger.token_counts import TokenCounts
from orchid.server import crl_pages, openid
from orchid.server.audit.trail import PolicyAudit
from orchid.server.chain import Chain
from orchid.server.discovery.documents import Discovery
from orchid.server.dispatch import Dispatch
from orchid.server.fairness import Fairness
from orchid.server.health import Check, Health
from orchid.server.ledger_pages import PREFIX as LEDGER
from orchid.server.loop_watchdog import LoopWatchdog
from orchid.server.metrics.certificate_ends import CertificateEnds
from orchid.server.metrics.page import MetricsPage, OtherProcesses
from orchid.server.metrics.requests import CountedRequests
from orchid.server.open_watches import OpenWatches
from orchid.server.openapi.endpoints import OpenApi
from orchid.server.pages import Page, Pages, openid_page
from orchid.server.sockets.descriptors import fitted
from orchid.server.sockets.listener import ConnectionLimits, Listener
from orchid.server.sockets.messages import HttpRequest, Response
from orchid.server.sockets.tls import TlsFiles
from orchid.settings.checking import Settings, address
from orchid.settings.errors import BadSettings, NotAvailable
from orchid.store.interface import Store, StoreError
from orchid.store.probing import StoreProbe
from orchid.telemetry import failure_story
from orchid.wire.errors import Unavailable
from orchid.wire.user import MASTERS, UserInfo

log = logging.getLogger(__name__)

Ready = Callable[[], Awaitable[Sequence[socket.socket]]]
# Pages that have a metric series each; all others share one.
COUNTED_PAGES = ("/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/apis")
SELF = UserInfo(username="system:apiserver", groups=(MASTERS,))
TIMEOUT = Response(
    504,
    b"Content-Type: text/plain; charset=utf-8\r\n",
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n',
)


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
        names = settings.names
        self.others = others  # those that are one server with this one
        self.store_problem = store_problem  # says what is wrong with the store, if anything
        self.settings, self.files, self.store = settings, files, store
        self.clock, self.random = SystemClock(), SystemRandomness()
        self.offload = Offload()
        self.stopping = False
        self.wanted_controllers = wanted_controllers(settings)

        stored = stored_kinds(names)
        self.store = store = self.encryption = encrypted(store, settings, files, stored)
        # A store in this process needs no probe: it cannot hang without us.
        self.probe = StoreProbe(store) if settings.given.etcd_servers else None
        self.token_counts = TokenCounts(store, self.clock.now)
        self.counts_tokens = settings.given.ledger_tokens == "counted"

        self.feed = Feed(store, Catalog(stored), sole_writer=sole_writer)
        with told_as_settings():
            self.access = Access(
                settings,
                files,
                self.feed,
                offload=self.offload,
                clock=self.clock,
                randomness=self.random,
                token_used=self._token_used,
                token_issued=self.token_counts.issued if self.counts_tokens else None,
                objects=lambda: self.local,
            )
        self.issuance = IssuanceMetrics(names, self.feed, self.access.authorities)
        self.authority_ends = AuthorityEnds(self.feed.of(CertificateAuthority))
        self.ends = CertificateEnds(certificate_files(settings, files), self.clock)
        kinds = served_kinds(
            names,
            stored,
            tokens=self.access.tokens,
            api_audiences=settings.api_audiences,
            issuer=self.access.issuer,
            authorizer=self.access.authorizer,
            issuance=self.issuance,
            explainer=self.access.explainer,
            offload=self.offload,
        )
        self.catalog = Catalog(kinds)
        self.audit = self._audit(audit)
        admission = Admission(self.access.policies(self.ensure_namespace, self.catalog))
        self.verbs = Verbs.over(
            store,
            self.feed,
            admission,
            names,
            self.random,
            offload=self.offload,
            is_stale=self.encryption.is_stale,
        )
        self.own_certificates = OwnCertificates(
            files, self.feed, store, names=names, randomness=self.random, user=SELF
        )
        self.local = InternalObjects(self.catalog, self.feed, self.verbs, self.clock, SELF)
        self.lists = crl_pages.ServedLists(RevocationLists(self.feed, names).find)
        self.ledger = ledger_pages(settings, files, store)
        self.ledger_standing = LedgerStanding(
            store, settings.data_dir / standing.FILE, self.clock.now
        )
        self.fairness = Fairness(
            names,
            settings.given.max_requests_inflight,
            settings.given.max_mutating_requests_inflight,
            patience=settings.request_timeout / 4,
        )
        self.watchdog = LoopWatchdog(self.clock.monotonic, self.fairness.feel_lag)
        self.chain = self._chain()
        self.clients = controlling.InProcessClients(
            self.chain, self.access.callers, self.catalog, names
        )
        self.token_uses = LabelTokenSecrets(self.clients.of_user(SELF), self.clock, names)
        self.copy = copy_of(settings, self.feed, self.store, self.clock)
        self.applied = ReportApplied(
            self.clients.of_user(SELF), self.clock, names, lambda: self.feed.revision
        )
        for type_ in TAKES_BACK:
            self.feed.of(type_).listen(self.applied, lambda _changes: self.applied.changed())

    def _audit(self, record: AuditRecord | None) -> PolicyAudit | None:
        if record is None:
            return None
        names, catalog = self.settings.names, self.catalog
        return PolicyAudit(record.policy, record.log, names, self.clock, catalog.is_confidential)

    async def ensure_namespace(self, name: str) -> None:
        await self.local.ensure(Namespace().with_meta(name=name))

    def _token_used(self, namespace: str, name: str, day: date) -> None:
        self.token_uses.used(namespace, name, day)

    async def note_token_keys(self) -> None:
        """Record in the ledger which token keys were added or removed."""
        keys = {key.kid: {"algorithm": key.algorithm} for key in self.access.keys.verifying.keys}
        await self._note("token-key", keys)

    async def _note(self, what: str, keys: Mapping[str, Mapping[str, Any]]) -> None:
        try:
            await note_keys(self.store, what, keys, self.clock.now())
        except StoreError as failure:
            log.warning("ledger.keys_not_noted: %s", failure)

    # -- the way of a request ----------------------------------------------------------------

    def _chain(self) -> Chain:
        given, names = self.settings.given, self.settings.names
        requests = CountedRequests(self.catalog, self.clock.monotonic, COUNTED_PAGES)
        impersonation = Impersonation(names, self.access.authorizer, self.clock.monotonic)
        self.watches = OpenWatches(
            self.access.authenticator,
            impersonation,
            self.access.authorizer,
            [self.feed.of(type_) for type_ in RIGHTS_REST_ON],
            ends_with=[self.feed.of(type_) for type_ in TAKES_BACK],
        )
        self.metrics = metrics = MetricsPage(
            requests,
            self.audit,
            self.fairness,
            self.feed,
            self.catalog,
            offload=self.offload,
            counted=(
                *self.access.authorization.metrics.all,
                *impersonation.metrics.all,
                *self.issuance.all,
                *self.access.issued.metrics,
                self.authority_ends,
                *self.ledger_standing.metrics,
                *self.watches.metrics,
                self.watchdog.lag,
                self.watchdog.held,
                self.ends.gauge,
            ),
            others=self.others,
        )
        health = self._health()
        return Chain(
            clock=self.clock,
            authenticator=self.access.authenticator,
            impersonation=impersonation,
            authorizer=self.access.authorizer,
            fairness=self.fairness,
            watches=self.watches,
            pages=self._pages(metrics, health),
            dispatch=Dispatch(
                self.catalog,
                self.verbs,
                self.access.authorizer,
                names,
                clock=self.clock,
                offload=self.offload,
                shortest_watch=float(given.min_request_timeout),
            ),
            audit=self.audit,
            metrics=requests,
            request_timeout=self.settings.request_timeout,
        )

    def _pages(self, metrics: MetricsPage, health: Health) -> Pages:
        place = self.settings.url.removeprefix("https://")
        openid_pages = self._openid()
        described = OpenApi(self.catalog, self.settings.names, openid_pages)
        return Pages(
            Discovery(self.catalog, place),
            health,
            extra={"/metrics": metrics, **openid_pages, **described.exact},
            prefixes={
                **described.prefixed,
                LEDGER: self.ledger,
                crl_pages.PREFIX: crl_pages.RevocationListPages(self.lists),
            },
        )

    def _openid(self) -> dict[str, Page]:
        """The OpenID discovery documents; none if the issuer or a key does not allow them."""
        issuer = self.settings.issuers[0]
        uri = self.settings.given.service_account_jwks_uri or openid.default_jwks_uri(issuer)
        problem = openid.problem_with(issuer, uri, self.access.keys.verifying.keys)
        if problem:
            log.warning("openid.not_served: %s", problem)
            return {}

        def keys() -> KeySet:
            return self.access.keys.verifying

        return {
            openid.CONFIGURATION_PATH: openid_page(
                keys, lambda found: openid.configuration(issuer, uri, found.keys)
            ),
            openid.KEY_SET_PATH: openid_page(keys, lambda found: openid.key_set(found.keys)),
        }

    def _health(self) -> Health:
        ready = {
            "ping": None,
            "log": None,
            "etcd": self._store_check,
            "etcd-readiness": self._store_check,
            "informer-sync": self._feed_check,
        }
        # A restart does not help against an etcd that is out of reach.
        live_store = self._store_check if self.probe is None else self._restart_check
        live: dict[str, Check] = {"ping": None, "log": None, "etcd": live_store}
        return Health(
            {"healthz": live, "livez": live, "readyz": {**ready, "shutdown": self._stop_check}}
        )

    def _store_check(self) -> str | None:
        if not self.feed.following:
            return "the store is not followed"
        if self.probe is not None and self.probe.problem is not None:
            return self.probe.problem
        return None if self.store_problem is None else self.store_problem()

    def _restart_check(self) -> str | None:
        if self.probe is not None and self.probe.closed:
            return self.probe.problem
        return None if self.store_problem is None else self.store_problem()

    def _feed_check(self) -> str | None:
        if not self.feed.loaded:
            return "objects are still being loaded"
        if self.encryption.lacks_key(self.feed.is_unreadable):
            return (
                "objects are encrypted with a key that this server does not have: "
                "see --encryption-provider-config"
            )
        return None

    def _stop_check(self) -> str | None:
        return "process is shutting down" if self.stopping else None

    # -- running -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load every object, and write what must always be there."""
        try:
            await self._start()
        except Unavailable as problem:  # a full disk, or etcd went away
            raise NotAvailable(f"the server cannot start: {problem}") from None

    async def _start(self) -> None:
        await self.feed.wait_loaded()
        if self.copy is not None:
            try:
                await self.copy.put_back()
            except FileTooLarge as problem:
                raise BadSettings(str(problem)) from None
        names = self.settings.names
        for name in (
            "default", names.system_namespace, names.public_namespace, names.node_lease_namespace,
        ):  # fmt: skip
            await self.ensure_namespace(name)
        await self.access.lifetimes.begin()
        if self.access.authorization.uses("RBAC"):
            policy = bootstrap_policy(names, controlling.controller_rights(names))
            await reconcile(policy, self.local, names)
        await self.note_token_keys()

    async def run_controllers(self) -> None:
        """Run the wanted controllers until cancelled."""
        context = controlling.controller_context(self.settings, self.files, self.clock)
        await self._note("authority", controlling.authorities(context.signers))
        await run_controllers(self.wanted_controllers, self.clients, context)

    async def run(
        self,
        stop: asyncio.Event,
        ready: Ready,
        *,
        beside: Sequence[Coroutine[Any, Any, None]] = (),
        prepares: bool = True,
        listens: bool = True,
        controls: bool = True,
    ) -> None:
        """Load, prepare, serve until `stop` is set, then drain; flags leave out parts.

        `ready` is awaited before serving, and gives the sockets to listen on. The coroutines in
        `beside` run as long as the server does.
        """
        listener = self.listener()
        memory.prepare()
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(work) for work in (self.feed.run(), *beside)]
            await (self.start() if prepares else self.feed.wait_loaded())
            if prepares:
                await self.own_certificates.record(self.clock)
            memory.settle()
            sockets = await ready()
            if listens:
                await listener.start(sockets=sockets, shares=self.settings.given.workers > 1)
            plain = await self._plain_lists() if controls else None
            background += [tasks.create_task(work) for work in self._upkeep(controls)]
            reporting = tasks.create_task(self.applied.run()) if listens else None
            controllers = tasks.create_task(self.run_controllers()) if controls else None
            await stop.wait()
            self.stopping = True
            log.info("server.stopping")
            if controllers is not None:
                # First, so that another server may take over at once.
                controllers.cancel()
                await asyncio.wait([controllers])
            if listens:
                await listener.drain(self.settings.shutdown_grace)
            if plain is not None:
                await plain.drain(self.settings.shutdown_grace)
            if reporting is not None:
                reporting.cancel()
                await self.applied.leave()
            for task in background:
                task.cancel()
        await self.token_counts.write()
        self.access.issuer.close()
        self.offload.close()

    def _upkeep(self, warns: bool) -> list[Coroutine[Any, Any, None]]:
        """The background tasks; of several processes only one warns and copies revocations."""
        access = self.access
        work = [
            access.follow_keys(self.note_token_keys),
            access.authorization.follow(),
            self.watches.run(),
            self.watchdog.run(),
            self.token_uses.run(),
            self.token_counts.run(),
            self.ends.run(warns=warns),
            self.ledger_standing.run(keeps=warns),
            asyncio.to_thread(memory.enlarge_pages),
        ]
        if self.probe is not None:
            work.append(self.probe.run())
        if warns and self.copy is not None:
            work.append(self.copy.run())
        return [*work, access.oidc.run()] if access.oidc else work

    async def _plain_lists(self) -> Listener | None:
        """The listener without TLS, which serves only revocation lists, if one is configured."""
        given = self.settings.given.crl_listen
        if not given:
            return None
        listener = Listener(
            crl_pages.PlainRevocationLists(self.lists),
            timeout_response=TIMEOUT,
            failure=_failed,
            monotonic=self.clock.monotonic,
            limits=fitted(ConnectionLimits(request_timeout=self.settings.request_timeout)),
        )
        try:
            await listener.start(*address(given, "crl-listen"))
        except OSError as problem:
            why = problem.strerror or problem
            raise BadSettings(f"--crl-listen: {given}: {why}") from None
        log.info("crl.listening", extra={"addresses": listener.addresses})
        return listener

    def listener(self) -> Listener:
        given = self.settings.given
        authorities = [
            Path(given.client_ca_file) if given.client_ca_file else self.files.ca_certificate
        ]
        if given.requestheader_client_ca_file:
            authorities.append(Path(given.requestheader_client_ca_file))
        try:
            tls = TlsFiles(self.files.serving_certificate, self.files.serving_key, authorities)
        except Refusal as problem:
            raise BadSettings(str(problem)) from None
        return Listener(
            self.chain,
            timeout_response=TIMEOUT,
            failure=_failed,
            monotonic=self.clock.monotonic,
            limits=fitted(ConnectionLimits(request_timeout=self.settings.request_timeout)),
            tls=tls,
            recognize=self.chain.recognize,
            after_rush=memory.give_back,
        )


def wanted_controllers(settings: Settings) -> frozenset[str]:
    try:
        return chosen(settings.given.controllers)
    except UnknownController as problem:
        raise BadSettings(f"--controllers: {problem}") from None


_TEXT = b"Content-Type: text/plain; charset=utf-8\r\n"


def _failed(http: HttpRequest, problem: BaseException) -> Response:
    if isinstance(problem, asyncio.CancelledError):
        # The server stops in the middle of the request: its outcome is not known.
        return Response(503, _TEXT, b"the server is stopping\n")
    log.error("request.failed", extra={"story": failure_story(problem)})
    return Response(500, _TEXT, b"internal error\n")
