"""The one place where things are built and joined. Read it top to bottom: it lists what exists.

`Assembly` opens the store, loads the feed, builds who-and-may-they, the kinds, the verbs and the
chain, and serves until it is told to stop. Adding a kind is one line in `stored_kinds`.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from orchid import controlling, data_directory
from orchid.access.authenticators.anonymous import AnonymousAuthenticator
from orchid.access.authenticators.bearer import BearerAuthenticator, WebSocketAuthenticator
from orchid.access.authenticators.bootstrap_token import BootstrapTokenAuthenticator
from orchid.access.authenticators.client_certificate import ClientCertificateAuthenticator
from orchid.access.authenticators.in_process import InProcessCallers
from orchid.access.authenticators.oidc import OidcAuthenticator
from orchid.access.authenticators.oidc_settings import (
    IssuerSettings,
    from_flags,
    read_configuration,
)
from orchid.access.authenticators.request_header import (
    RequestHeaderAuthenticator,
    RequestHeaderSettings,
)
from orchid.access.authenticators.secret_token import SecretTokens
from orchid.access.authenticators.service_account_token import (
    ServiceAccountTokenAuthenticator,
    account_verifier,
    issuer_keys,
)
from orchid.access.authenticators.static_token import StaticTokenAuthenticator
from orchid.access.authenticators.union import UnionAuthenticator, UnionTokenAuthenticator
from orchid.access.authenticators.webhook_token import (
    WebhookTimes,
    WebhookTokenAuthenticator,
)
from orchid.access.authorizers.always_allow import AlwaysAllow
from orchid.access.authorizers.node import NodeAuthorizer
from orchid.access.authorizers.rbac import RBAC
from orchid.access.authorizers.union import ListingAuthorizer, Union
from orchid.access.authorizers.webhook import Webhook, WebhookSettings
from orchid.access.bootstrap_policy import bootstrap_policy
from orchid.access.impersonation import Impersonation
from orchid.access.issuing import IssuingSettings, TokenIssuer
from orchid.access.outbound import InvalidRemote, read_kubeconfig
from orchid.access.outbound import HttpsClient, read_kubeconfig
from orchid.access.reconcile_policy import reconcile
from orchid.admission.namespace_lifecycle import NamespaceLifecycle
from orchid.admission.node_restriction import NodeRestriction
from orchid.admission.role_escalation import RoleEscalation
from orchid.admission.signer_permission import SignerPermission
from orchid.admission.subject_restriction import SubjectRestriction
from orchid.controllers.label_token_secrets import LabelTokenSecrets
from orchid.controllers.running import UnknownController, chosen, run_controllers
from orchid.credentials import keys as key_files
from orchid.credentials.certificates import ClientVerifier
from orchid.credentials.files import Reloading, read_bounded
from orchid.credentials.refusals import Refusal
from orchid.credentials.tokens import Issuer, KeySet
from orchid.engine.admission import Admission
from orchid.engine.catalog import Catalog
from orchid.engine.feed import Feed
from orchid.engine.interfaces import (
    AdmissionPolicy,
    Authenticator,
    SystemClock,
    SystemRandomness,
    TokenAuthenticator,
)
from orchid.engine.kind import Kind
from orchid.engine.local import LocalObjects
from orchid.engine.verbs import Verbs
from orchid.kinds import (
    certificate_signing_request,
    cluster_trust_bundle,
    config_map,
    event,
    lease,
    namespace,
    node,
    pod,
    role,
    role_binding,
    secret,
    self_subject_review,
    self_subject_rules_review,
    service_account,
    subject_access_review,
    token_request,
    token_review,
)
from orchid.server import audit_policy, openid
from orchid.server.audit import NoAudit, PolicyAudit
from orchid.server.audit_log import AuditLog, AuditLogUnusable
from orchid.server.chain import Chain
from orchid.server.discovery import Discovery
from orchid.server.dispatch import Dispatch
from orchid.server.exchange import HttpRequest, Response
from orchid.server.health import Health
from orchid.server.limits import InFlight
from orchid.server.listen import Limits, Listener, bind
from orchid.server.metrics_page import MetricsPage
from orchid.server.openapi import OpenApi
from orchid.server.pages import Page, Pages, openid_page
from orchid.server.request_metrics import CountedRequests
from orchid.server.tls import TlsFiles, TlsFilesUnusable
from orchid.settings import BadSettings, Settings
from orchid.store.interface import Store, StoreError
from orchid.store.memory import MemoryStore
from orchid.store.retention import Retention
from orchid.store.sqlite import SQLiteStore
from orchid.telemetry import failure_story
from orchid.wire.naming import Naming
from orchid.wire.user import MASTERS, UserInfo
from orchid.workers.parent import Parent
from orchid.workers.remote_store import RemoteStore

log = logging.getLogger(__name__)

LOOK_AT_KEYS_EVERY = 5.0
WORKER_PROGRAM = (sys.executable, "-m", "orchid.worker")
Ready = Callable[[], Awaitable[Sequence[socket.socket]]]
EPOCH = 1_577_836_800  # 2020: revisions of a new store count seconds from there, see decision 11
# Pages that are counted each by its own path; all others are counted together.
COUNTED_PAGES = ("/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/apis")
SELF = UserInfo(username="system:apiserver", groups=(MASTERS,))
TIMEOUT = Response(
    504,
    b"Content-Type: text/plain; charset=utf-8\r\n",
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n',
)


def stored_kinds(names: Naming) -> list[Kind[Any]]:
    """Every kind that is kept in the store."""
    return [
        service_account.declare(names),
        namespace.declare(names),
        secret.declare(names),
        config_map.declare(names),
        pod.declare(names),
        node.declare(names),
        event.declare(names),
        lease.declare(names),
        certificate_signing_request.declare(names),
        cluster_trust_bundle.declare(names),
        *role.declare(names),
        *role_binding.declare(names),
    ]


def served_kinds(
    stored: list[Kind[Any]],
    names: Naming,
    settings: Settings,
    tokens: TokenAuthenticator,
    issuer: TokenIssuer,
    authorizer: Union,
) -> list[Kind[Any]]:
    """Every kind that clients see: what is stored, and what acts when it is created."""
    token = token_request.declare(names, issuer)
    accounts, *others = stored
    return [
        dataclasses.replace(accounts, endpoints=(token,)),
        *others,
        token_review.declare(names, tokens, settings.api_audiences),
        self_subject_review.declare(names),
        *subject_access_review.declare(names, authorizer),
        self_subject_rules_review.declare(names, authorizer),
    ]


@contextlib.asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[Store]:
    """The store that the settings ask for, closed at the end."""
    backend: Store
    # A store that is made anew begins ahead of any that was there before, so that a client which
    # remembers a version of the old one is told so instead of waiting for it in silence.
    first = int(time.time()) - EPOCH
    try:
        if settings.given.store == "memory":
            backend = MemoryStore(first=first)
        else:
            backend = await SQLiteStore.open(settings.data_dir / "orchid.db", first=first)
    except StoreError as problem:
        raise BadSettings(f"the store cannot be opened: {problem}") from None
    try:
        yield backend
    finally:
        await backend.close()


@contextlib.asynccontextmanager
async def opened_audit(settings: Settings) -> AsyncIterator[PolicyAudit | NoAudit]:
    """The audit record that the settings ask for, written to the end."""
    path, policy_file = settings.given.audit_log_path, settings.given.audit_policy_file
    if bool(path) != bool(policy_file):
        raise BadSettings("--audit-log-path and --audit-policy-file go together")
    if not path:
        yield NoAudit()
        return
    try:
        policy = audit_policy.load(Path(policy_file), settings.names)
        record = AuditLog(path)
    except audit_policy.BadPolicy as problem:
        raise BadSettings(f"--audit-policy-file: {problem}") from None
    except AuditLogUnusable as problem:
        raise BadSettings(f"--audit-log-path: {problem}") from None
    try:
        yield PolicyAudit(policy, record, settings.names, SystemClock())
    finally:
        record.close()


class Keys:
    """The token keys as their files say now: one that signs, several that verify."""

    def __init__(self, settings: Settings, files: data_directory.DataDirectory) -> None:
        given, names = settings.given, settings.names
        signing = files.signing_key
        verifying = [Path(path) for path in given.service_account_key_file] or [signing]

        def issuer() -> Issuer:
            key = key_files.load_signing_key(signing)
            return Issuer(key, settings.issuers[0], names.private_claim)

        def key_set() -> KeySet:
            found = [key for path in verifying for key in key_files.load_verification_keys(path)]
            return KeySet(found)

        self.issuer = Reloading([signing], issuer)
        self.verifying = Reloading(verifying, key_set)


class Assembly:
    """One API server, built from settings."""

    def __init__(
        self,
        settings: Settings,
        files: data_directory.DataDirectory,
        store: Store,
        audit: PolicyAudit | NoAudit | None = None,
        store_problem: Callable[[], str | None] = lambda: None,
    ) -> None:
        names = settings.names
        self.store_problem = store_problem  # what the store knows to be wrong with itself
        self.settings, self.files, self.store = settings, files, store
        self.audit = audit or NoAudit()
        self.clock, self.random = SystemClock(), SystemRandomness()
        self.stopping = False
        self.wanted_controllers = wanted_controllers(settings)
        self.callers = InProcessCallers()

        stored = stored_kinds(names)
        self.feed = Feed(store, Catalog(stored))
        self.rbac = RBAC(names, self.feed)
        self.authorizer = Union(self._authorizers())
        self.keys = Keys(settings, files)
        self.issuer = TokenIssuer(
            IssuingSettings(
                api_audiences=settings.api_audiences,
                longest_seconds=settings.longest_token,
                extends_lifetime=settings.given.service_account_extend_token_expiration,
            ),
            self.keys.issuer.current,
            self.feed,
            self.random,
        )
        self.verifier = account_verifier(settings.issuers, self.keys.verifying.current(), names)
        self.oidc = self._oidc()
        self.tokens = UnionTokenAuthenticator(self._token_authenticators())
        self.authenticator = self._authenticator()
        kinds = served_kinds(stored, names, settings, self.tokens, self.issuer, self.authorizer)
        self.catalog = Catalog(kinds)
        self.verbs = Verbs.over(store, self.feed, Admission(self._policies()), names, self.random)
        self.local = LocalObjects(self.catalog, self.feed, self.verbs, self.clock, SELF)
        self.chain = self._chain()
        self.clients = controlling.InProcessClients(self.chain, self.callers, self.catalog, names)
        self.token_uses = LabelTokenSecrets(self.clients.of_user(SELF), self.clock, names)

    # -- who is calling, and may they --------------------------------------------------------

    def _authorizers(self) -> list[ListingAuthorizer]:
        built: dict[str, Any] = {
            "RBAC": lambda: self.rbac,
            "Node": lambda: NodeAuthorizer(self.settings.names, self.feed.of(pod.Pod)),
            "AlwaysAllow": AlwaysAllow,
            "Webhook": self._webhook_authorizer,
        }
        return [built[mode]() for mode in self.settings.given.authorization_mode]

    def _token_authenticators(self) -> list[TokenAuthenticator]:
        given, names = self.settings.given, self.settings.names
        audiences = self.settings.api_audiences
        members: list[TokenAuthenticator] = []
        if given.token_auth_file:
            path = Path(given.token_auth_file)
            try:
                members.append(StaticTokenAuthenticator.load(path, audiences))
            except ValueError as problem:
                raise BadSettings(f"--token-auth-file: {problem}") from None
        members.append(
            ServiceAccountTokenAuthenticator(
                self.verifier,
                self.feed,
                self.clock,
                api_audiences=audiences,
                names=names,
                legacy=SecretTokens(self.feed, self.clock, names, self._token_used),
            )
        )
        members.append(BootstrapTokenAuthenticator(self.feed, self.clock, audiences, names))
        members += [self.oidc] if self.oidc else []
        if given.authentication_token_webhook_config_file:
            members.append(self._token_webhook())
        return members

    def _oidc(self) -> OidcAuthenticator | None:
        """Outside issuers, from the file or from the flags."""
        given, names, own = self.settings.given, self.settings.names, self.settings.issuers
        issuers: tuple[IssuerSettings, ...] = ()
        try:
            if given.authentication_config:
                text = read_bounded(Path(given.authentication_config))
                issuers = tuple(read_configuration(text, names, own).issuers)
            elif given.oidc_issuer_url or given.oidc_client_id:
                ca = given.oidc_ca_file
                issuers = (
                    from_flags(
                        issuer_url=given.oidc_issuer_url,
                        client_id=given.oidc_client_id,
                        username_claim=given.oidc_username_claim,
                        username_prefix=given.oidc_username_prefix,
                        groups_claim=given.oidc_groups_claim,
                        groups_prefix=given.oidc_groups_prefix,
                        required_claims=given.oidc_required_claim,
                        signing_algorithms=given.oidc_signing_algs,
                        authorities=read_bounded(Path(ca)).decode() if ca else "",
                        own_issuers=own,
                    ),
                )
        except (ValueError, Refusal) as problem:
            raise BadSettings(f"outside issuers: {problem}") from None
        if not issuers:
            return None
        return OidcAuthenticator(issuers, self.clock, self.settings.api_audiences, names)

    def _token_webhook(self) -> TokenAuthenticator:
        given, names = self.settings.given, self.settings.names
        kept = timedelta(seconds=self.settings.token_webhook_ttl)
        return WebhookTokenAuthenticator(
            _remote(
                "authentication-token-webhook-config-file",
                given.authentication_token_webhook_config_file,
            ).post_patiently,
            self.clock,
            self.settings.api_audiences,
            names,
            WebhookTimes(kept, kept),
        )

    def _webhook_authorizer(self) -> Webhook:
        given = self.settings.given
        if not given.authorization_webhook_config_file:
            raise BadSettings(
                "--authorization-mode: Webhook needs --authorization-webhook-config-file"
            )
        return Webhook(
            self.settings.names,
            _remote("authorization-webhook-config-file", given.authorization_webhook_config_file),
            WebhookSettings(
                version=given.authorization_webhook_version,
                allowed_seconds=self.settings.webhook_allowed_ttl,
                refused_seconds=self.settings.webhook_refused_ttl,
            ),
        )

    def _token_used(self, namespace: str, name: str, day: date) -> None:
        self.token_uses.used(namespace, name, day)

    def _authenticator(self) -> Authenticator:
        given, names = self.settings.given, self.settings.names
        audiences = self.settings.api_audiences
        members: list[Authenticator] = [self.callers]
        if given.requestheader_client_ca_file:
            members.append(self._front_proxy())
        pool = _client_pool(given.client_ca_file or str(self.files.ca_certificate))
        members.append(ClientCertificateAuthenticator(pool, self.clock, names))
        members.append(BearerAuthenticator(self.tokens, audiences))
        members.append(WebSocketAuthenticator(self.tokens, audiences, names))
        anonymous = AnonymousAuthenticator(given.anonymous_paths)
        return UnionAuthenticator(members, audiences, anonymous)

    def _front_proxy(self) -> Authenticator:
        given = self.settings.given
        wanted = RequestHeaderSettings(
            username_headers=given.requestheader_username_headers,
            uid_headers=given.requestheader_uid_headers,
            group_headers=given.requestheader_group_headers,
            extra_prefixes=given.requestheader_extra_headers_prefix,
            allowed_names=given.requestheader_allowed_names,
        )
        pool = _client_pool(given.requestheader_client_ca_file)
        return RequestHeaderAuthenticator(wanted, pool, self.clock, self.settings.names)

    def _policies(self) -> list[AdmissionPolicy]:
        names = self.settings.names
        lenient = self.settings.given.namespaces == "lenient"
        return [
            NamespaceLifecycle(
                names,
                self.feed,
                self.feed.of(namespace.Namespace),
                self.ensure_namespace if lenient else None,
            ),
            NodeRestriction(names, self.feed, self.authorizer),
            RoleEscalation(self.authorizer, self.rbac),
            SignerPermission(names, self.authorizer),
            SubjectRestriction(names),
        ]

    async def ensure_namespace(self, name: str) -> None:
        await self.local.ensure(namespace.Namespace().with_meta(name=name))

    # -- the way of a request ----------------------------------------------------------------

    def _chain(self) -> Chain:
        given, names = self.settings.given, self.settings.names
        in_flight = InFlight(given.max_requests_inflight, given.max_mutating_requests_inflight)
        requests = CountedRequests(self.catalog, COUNTED_PAGES)
        metrics = MetricsPage(requests, self.audit, in_flight, self.feed, self.catalog)
        return Chain(
            clock=self.clock,
            authenticator=self.authenticator,
            impersonation=Impersonation(names, self.authorizer),
            authorizer=self.authorizer,
            in_flight=in_flight,
            pages=self._pages(metrics),
            dispatch=Dispatch(
                self.catalog,
                self.verbs,
                self.authorizer,
                names,
                shortest_watch=float(given.min_request_timeout),
            ),
            audit=self.audit,
            metrics=requests,
            flow_headers=flow_headers(names),
            request_timeout=self.settings.request_timeout,
        )

    def _pages(self, metrics: MetricsPage) -> Pages:
        address = self.settings.url.removeprefix("https://")
        openid_pages = self._openid()
        described = OpenApi(self.catalog, self.settings.names, openid_pages)
        return Pages(
            Discovery(self.catalog, address),
            self._health(),
            extra={"/metrics": metrics, **openid_pages, **described.exact},
            prefixes=described.prefixed,
        )

    def _openid(self) -> dict[str, Page]:
        """The documents by which others verify our tokens, unless the issuer cannot have them."""
        issuer, port = self.settings.issuers[0], self.settings.port
        host = self.settings.given.advertise_address or self.settings.host
        uri = self.settings.given.service_account_jwks_uri or openid.default_jwks_uri(host, port)
        problem = openid.problem_with(issuer, uri, self.keys.verifying.current().keys)
        if problem:
            log.warning("openid.not_served: %s", problem)
            return {}
        keys = self.keys.verifying.current
        return {
            openid.CONFIGURATION_PATH: openid_page(
                keys, lambda found: openid.configuration(issuer, uri, found.keys)
            ),
            openid.KEY_SET_PATH: openid_page(keys, lambda found: openid.key_set(found.keys)),
        }

    def _health(self) -> Health:
        live = {"ping": _well, "log": _well, "etcd": self._store_check}
        ready = {**live, "etcd-readiness": self._store_check, "informer-sync": self._feed_check}
        return Health(
            {"healthz": live, "livez": live, "readyz": {**ready, "shutdown": self._stop_check}}
        )

    def _store_check(self) -> str | None:
        return self.store_problem() if self.feed.following else "the store is not followed"

    def _feed_check(self) -> str | None:
        return None if self.feed.loaded else "objects are still being loaded"

    def _stop_check(self) -> str | None:
        return "process is shutting down" if self.stopping else None

    # -- running -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load every object, and write what must always be there."""
        await self.feed.wait_loaded()
        names = self.settings.names
        for name in (
            "default", names.system_namespace, names.public_namespace, names.node_lease_namespace,
        ):  # fmt: skip
            await self.ensure_namespace(name)
        if "RBAC" in self.settings.given.authorization_mode:
            await reconcile(bootstrap_policy(names), self.local, names)

    async def follow_keys(self) -> None:
        """Verify with the keys that the files hold now; the signing key is asked for at each use."""
        known = self.keys.verifying.current()
        while True:
            await asyncio.sleep(LOOK_AT_KEYS_EVERY)
            found = self.keys.verifying.current()
            if found is not known:
                known = found
                issuers = issuer_keys(self.settings.issuers, found, self.settings.names)
                self.verifier.replace_issuers(issuers)
                log.info("tokens.keys_reloaded", extra={"keys": len(found.keys)})

    async def run_controllers(self) -> None:
        """Work beside the server until cancelled; what is not wanted does not run."""
        means = controlling.means(self.settings, self.files, self.clock)
        await run_controllers(self.wanted_controllers, self.clients, means)

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
        """Load, prepare, serve until `stop` is set, then drain; each part only if it is ours.

        `ready` is awaited in between, and gives the sockets to listen on. What stands `beside` ends
        with the server.
        """
        listener = self.listener()
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(work) for work in (self.feed.run(), *beside)]
            await (self.start() if prepares else self.feed.wait_loaded())
            sockets = await ready()
            if listens:
                await listener.start(sockets=sockets, shares=self.settings.given.workers > 1)
            background += [tasks.create_task(work) for work in self._upkeep()]
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
            for task in background:
                task.cancel()
        self.issuer.close()

    def _upkeep(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on beside the requests."""
        work = [self.follow_keys(), self.token_uses.run()]
        return [*work, self.oidc.run()] if self.oidc else work

    def listener(self) -> Listener:
        given = self.settings.given
        authorities = [
            Path(given.client_ca_file) if given.client_ca_file else self.files.ca_certificate
        ]
        if given.requestheader_client_ca_file:
            authorities.append(Path(given.requestheader_client_ca_file))
        try:
            tls = TlsFiles(self.files.serving_certificate, self.files.serving_key, authorities)
        except TlsFilesUnusable as problem:
            raise BadSettings(str(problem)) from None
        return Listener(
            self.chain,
            timeout_response=TIMEOUT,
            failure=_failed,
            limits=Limits(request_timeout=self.settings.request_timeout),
            tls=tls,
        )


async def serve(settings: Settings, stop: asyncio.Event, announce: Any) -> None:
    """Serve until `stop` is set, then drain. `announce` is told when the server is ready."""
    files = data_directory.prepare(settings, SystemClock().now())
    async with opened_store(settings) as store:
        if settings.given.workers > 1:
            sockets = await _bound(settings)
            workers = Parent(settings, store, sockets, WORKER_PROGRAM)
            await workers.run(stop, lambda: announce(settings, files))
            return
        async with opened_audit(settings) as audit:
            server = Assembly(settings, files, store, audit)
            retention = Retention(
                store, time.monotonic, keep=settings.history, forgotten=server.feed.forget_before
            )

            async def ready() -> list[socket.socket]:
                sockets = await _bound(settings)
                announce(settings, files)
                return sockets

            await server.run(stop, ready, beside=[retention.run()])


async def serve_as_worker(settings: Settings, store: RemoteStore, stop: asyncio.Event) -> None:
    """Do the part of the work that the parent process has given to this one."""
    begin = store.begin
    async with opened_audit(settings) as audit:
        files = data_directory.located(settings)
        server = Assembly(settings, files, store, audit, store_problem=store.problem)
        store.forgotten = server.feed.forget_before

        async def ready() -> list[socket.socket]:
            await store.ready()
            return [socket.socket(fileno=number) for number in begin.sockets]

        await server.run(
            stop,
            ready,
            prepares=begin.prepares,
            listens=begin.listens,
            controls=begin.controls,
        )


async def _bound(settings: Settings) -> list[socket.socket]:
    try:
        return await bind(settings.host, settings.port)
    except OSError as problem:
        why = problem.strerror or problem
        raise BadSettings(f"--listen: {settings.given.listen}: {why}") from None


async def control(settings: Settings, kubeconfig: Path, stop: asyncio.Event) -> None:
    """Run the controllers of a server elsewhere until `stop` is set."""
    names = settings.names
    files = data_directory.located(settings)
    try:
        remote = read_kubeconfig(kubeconfig)
    except InvalidRemote as problem:
        raise BadSettings(f"--kubeconfig: {problem}") from None
    reviews = subject_access_review.declare(names, Union([]))
    catalog = Catalog([*stored_kinds(names), *reviews])
    clients = controlling.RemoteClients(remote, catalog, names)
    means = controlling.means(settings, files, SystemClock())
    working = asyncio.ensure_future(run_controllers(wanted_controllers(settings), clients, means))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await clients.close()


def wanted_controllers(settings: Settings) -> frozenset[str]:
    try:
        return chosen(settings.given.controllers)
    except UnknownController as problem:
        raise BadSettings(f"--controllers: {problem}") from None


def _remote(flag: str, path: str) -> HttpsClient:
    """A webhook, as a kubeconfig describes it."""
    try:
        return HttpsClient(read_kubeconfig(Path(path)))
    except (ValueError, Refusal) as problem:
        raise BadSettings(f"--{flag}: {problem}") from None


def _client_pool(path: str) -> Any:
    """The authorities of a file, followed as it changes."""
    file = Path(path)
    return Reloading([file], functools.partial(ClientVerifier.load, file)).current


def _well() -> str | None:
    return None


def _failed(http: HttpRequest, problem: BaseException) -> Response:
    log.error("request.failed: %s", failure_story(problem))
    return Response(500, b"Content-Type: text/plain; charset=utf-8\r\n", b"internal error\n")


def flow_headers(names: Naming) -> bytes:
    """Two headers that clients of the reference find on every answer past the limits."""
    schema, level = uuid.uuid4(), uuid.uuid4()
    return (
        f"X-{names.flow_header}-Pf-Flowschema-Uid: {schema}\r\n"
        f"X-{names.flow_header}-Pf-Prioritylevel-Uid: {level}\r\n"
    ).encode()
