"""Authentication and authorization, built from settings.

`Access` has an authenticator, an authorizer and the issuer of tokens.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchid.assembly.authorization import authorization
from orchid.features.accounts.authenticators.secret_token import SecretTokens
from orchid.features.accounts.authenticators.service_account_token import (
    ServiceAccountTokenAuthenticator,
    account_verifier,
    issuer_keys,
)
from orchid.features.accounts.token_issuer import (
    InvalidIssuingSettings,
    IssuingSettings,
    TokenIssuer,
)
from orchid.features.accounts.token_lifetimes import TokenLifetimes
from orchid.features.approval.case import SignerTerms, TermsOf
from orchid.features.approval.platform_signers import platform_profiles, pod_profiles, signer_terms
from orchid.features.approving.policy_explainer import PolicyExplainer
from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority, profile
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.authorities.policies.own_signers import AuthoritiesOf
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.certificates.authenticators.client_certificate import (
    ClientCertificateAuthenticator,
)
from orchid.features.certificates.authenticators.pod_certificate import PodCertificates
from orchid.features.certificates.authenticators.request_header import (
    InvalidRequestHeaderSettings,
    RequestHeaderAuthenticator,
    RequestHeaderSettings,
    refuse_shared_authorities,
)
from orchid.features.certificates.inventory_metrics import IssuedCounts
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.clusters.revoked import ClusterRevocations
from orchid.features.exchange.settings import ExchangeSettings
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.revocation.revocations import Revocations
from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.sign_in.authenticators.bootstrap_token import BootstrapTokenAuthenticator
from orchid.features.sign_in.authenticators.static_token import StaticTokenAuthenticator
from orchid.features.sign_in.authenticators.webhook_token import (
    WebhookTimes,
    WebhookTokenAuthenticator,
)
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.features.token_keys.past_keys import PastKeys
from orchid.features.token_keys.token_keys import FileKeys, StoredKeys, TokenKeys
from orchid.kernel.access.authenticators.anonymous import (
    AnonymousAuthenticator,
    InvalidAnonymousPath,
)
from orchid.kernel.access.authenticators.bearer import BearerAuthenticator, WebSocketAuthenticator
from orchid.kernel.access.authenticators.union import UnionAuthenticator, UnionTokenAuthenticator
from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.base.clock import Monotonic
from orchid.kernel.base.scheduling.offload import Offload
from orchid.kernel.context import Context
from orchid.kernel.credentials.authorities.hsm import KeysOfHsm
from orchid.kernel.credentials.files import Reloading
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.tokens import KeySet, Payload
from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.engine.interfaces import Authenticator, TokenAuthenticator
from orchid.kernel.outbound.remote import FollowedKubeconfig
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.wire.references import SecretReference

if TYPE_CHECKING:
    from orchid.features.exchange.subject_tokens import SubjectTokens
    from orchid.features.sign_in.oidc.authenticator import OidcAuthenticator

log = logging.getLogger(__name__)

LOOK_AT_KEYS_EVERY = 5.0
EXCHANGE_PATH = "/oauth2/token"
TokenUsed = Callable[[str, str, date], None]
TokenIssued = Callable[[str, str, int], None]


class Access:
    """Authentication and authorization of one server."""

    def __init__(
        self, context: Context, token_used: TokenUsed, token_issued: TokenIssued | None = None
    ) -> None:
        self.context = context
        settings, feed, clock, offload = (
            context.settings, context.feed, context.clock, context.offload,
        )  # fmt: skip
        names, given = settings.names, settings.given
        self.settings, self.files, self.feed, self.clock = settings, context.files, feed, clock
        self.random, self._token_used = context.random, token_used
        self.callers = context.callers
        self.rbac = RBAC(names, feed, offload)
        self.authorities = SignerAuthorities(feed.of(CertificateAuthority), names)
        self.authority_keys = self._authority_keys()
        self.authorization = authorization(settings, feed, self.rbac, self._holds_key, clock)
        self.authorizer = self.authorization.authorizer
        self.issued = IssuedCounts(feed.of(IssuedCertificate), clock)
        self.explainer = self._explainer(offload)
        self.revocations = Revocations(feed, {**platform_profiles(names), **pod_profiles(names)})
        self.cluster_revocations = ClusterRevocations(feed)
        self.platform = self._platform_authority()
        self.client_pools: list[Callable[[], ClientVerifier]] = []
        self.servers = ServerLeases(feed, names, clock.monotonic)
        self.keys_changed: list[Callable[[], None]] = []  # called when other keys verify tokens
        self.keys: TokenKeys = self._token_keys()
        self.lifetimes = TokenLifetimes(feed, lambda: context.local, names, clock)
        self.past_keys = PastKeys(context.store)
        self.long_tokens = LongTokens(context.store, feed, self.revocations)
        self.issuer = self._token_issuer(token_issued)
        self.verifier = account_verifier(settings.issuers, KeySet(()), names)
        self._use_keys(self.keys.verifying)
        self.oidc: OidcAuthenticator | None = None
        configured_paths = None
        if given.authentication_config or given.oidc_issuer_url or given.oidc_client_id:
            from orchid.assembly import outside_issuers  # noqa: PLC0415 -- most servers have none

            self.oidc, configured_paths = outside_issuers.configured(
                settings, clock, self.revocations
            )
        exchange = given.of(ExchangeSettings)
        self.subject_tokens = self._subject_tokens() if exchange.token_exchange_config else None
        self.tokens = UnionTokenAuthenticator(self._token_authenticators())
        self.authenticator = self._authenticator(_anonymous_paths(given, configured_paths))

    def username_of(self, issuer: str, claims: Payload) -> str:
        """The user of a verified token of an external issuer; "" if it authenticates none."""
        return self.oidc.username_of(issuer, claims) if self.oidc else ""

    def _subject_tokens(self) -> "SubjectTokens":
        from orchid.assembly import token_exchange  # noqa: PLC0415 -- most servers have none

        shared = self.oidc.sources if self.oidc else {}
        return token_exchange.subject_tokens(self.settings, self.clock, shared)

    def _authority_keys(self) -> AuthorityKeyIndex:
        has_hsm = bool(self.settings.given.pkcs11_module)
        return AuthorityKeyIndex(
            self.feed.of(SigningKey),
            self.feed.of(CertificateAuthority),
            self.settings.names,
            has_hsm=has_hsm,
        )

    def _holds_key(self, secret: SecretReference) -> bool:
        """Whether the key of an authority is in a Secret."""
        return self.authorities.is_named(secret) or self.authority_keys.is_named(secret)

    def _platform_authority(self) -> PlatformAuthority | None:
        """The authority `cluster`; None if the CAs of the platform are files."""
        settings, file = self.settings, self.files.ca_certificate
        if not settings.stores_authority:
            return None
        keys = self.authority_keys
        return PlatformAuthority(
            settings.names, self.feed, keys, self.revocations, file, hsm=self.hsm
        )

    def _explainer(self, offload: Offload) -> PolicyExplainer:
        names, longest = self.settings.names, timedelta(seconds=self.settings.signing_duration)
        return PolicyExplainer(
            names,
            self.feed,
            self.authorizer,
            _terms_of(signer_terms(names, longest), self.authorities.of),
            offload=offload,
            clock=self.clock,
            four_eyes=not self.settings.given.approve_own_requests,
        )

    def _token_issuer(self, counted: TokenIssued | None) -> TokenIssuer:
        settings = self.settings
        return TokenIssuer(
            IssuingSettings(
                api_audiences=settings.api_audiences,
                longest_seconds=settings.longest_token,
                extends_lifetime=settings.given.service_account_extend_token_expiration,
            ),
            self.keys.signer,
            self.feed,
            self.random,
            counted=counted,
            revocations=self.revocations,
            lifetimes=self.lifetimes,
            long_tokens=self.long_tokens,
        )

    def _token_keys(self) -> TokenKeys:
        """The token keys, as objects or as files."""
        settings, files = self.settings, self.files
        issuer, names = settings.issuers[0], settings.names
        if settings.stores_token_keys:
            return StoredKeys(
                self.feed,
                self.revocations,
                issuer,
                names,
                self._use_keys,
                publish_seconds=settings.token_key_publish_time,
            )
        given = [Path(path) for path in settings.given.service_account_key_file]
        return FileKeys(files.signing_key, given or [files.signing_key], issuer, names)

    def _use_keys(self, found: KeySet) -> None:
        """Verify tokens with these keys."""
        issuers = issuer_keys(self.settings.issuers, found, self.settings.names)
        level = logging.INFO if self.verifier.kids else logging.DEBUG  # at the start, no news
        self.verifier.replace_issuers(issuers)
        log.log(level, "tokens.keys", extra={"keys": len(found.keys)})
        for changed in self.keys_changed:
            changed()

    async def follow_keys(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Use other token keys when their files change, until cancelled."""
        while isinstance(self.keys, FileKeys):
            await asyncio.sleep(LOOK_AT_KEYS_EVERY)
            if self.keys.reload():
                self._use_keys(self.keys.verifying)
                await changed()

    def _token_authenticators(self) -> list[TokenAuthenticator]:
        given, names = self.settings.given, self.settings.names
        audiences = self.settings.api_audiences
        self.account_tokens = ServiceAccountTokenAuthenticator(
            self.verifier,
            self.feed,
            self.clock,
            api_audiences=audiences,
            names=names,
            legacy=SecretTokens(self.feed, self.clock, names, self._token_used, self.revocations),
            revocations=self.revocations,
            keys=self.keys if isinstance(self.keys, StoredKeys) else None,
        )
        members: list[TokenAuthenticator] = [
            self.account_tokens
        ]  # first: most tokens are of accounts
        if given.token_auth_file:
            path = Path(given.token_auth_file)
            try:
                members.append(StaticTokenAuthenticator.load(path, audiences, self.revocations))
            except ValueError as problem:
                raise BadSettings(f"--token-auth-file: {problem}") from None
        members.append(
            BootstrapTokenAuthenticator(self.feed, self.clock, audiences, names, self.revocations)
        )
        members += [self.oidc] if self.oidc else []
        if given.authentication_token_webhook_config_file:
            members.append(self._token_webhook())
        return members

    def _token_webhook(self) -> TokenAuthenticator:
        given, names = self.settings.given, self.settings.names
        kept = timedelta(seconds=self.settings.token_webhook_ttl)
        return WebhookTokenAuthenticator(
            _remote(
                "authentication-token-webhook-config-file",
                given.authentication_token_webhook_config_file,
                self.clock.monotonic,
            ).post_patiently,
            self.clock,
            self.settings.api_audiences,
            names,
            WebhookTimes(kept, kept),
            revocations=self.revocations,
        )

    def _authenticator(self, anonymous_paths: tuple[str, ...]) -> Authenticator:
        given, names = self.settings.given, self.settings.names
        audiences = self.settings.api_audiences
        members: list[Authenticator] = []
        if given.client_ca_file or self.platform is None:
            pool = self._client_pool(given.client_ca_file or str(self.files.ca_certificate))
        else:
            pool = self.platform.pool
            self.client_pools.append(pool)
        if given.requestheader_client_ca_file:
            members.append(self._front_proxy(pool))
        pods = PodCertificates(self.feed, self.clock, self.revocations)
        members.append(
            ClientCertificateAuthenticator(
                pool,
                self.clock,
                names,
                self.revocations,
                pods,
                warning=self.platform.warning if self.platform else lambda chain: "",
            )
        )
        members.append(BearerAuthenticator(self.tokens, audiences))
        members.append(WebSocketAuthenticator(self.tokens, audiences, names))
        # Callers in this process present no credential, so they are checked last.
        members.append(self.callers)
        anonymous = AnonymousAuthenticator(anonymous_paths)
        return UnionAuthenticator(members, audiences, anonymous)

    def _front_proxy(self, clients: Callable[[], ClientVerifier]) -> Authenticator:
        given = self.settings.given
        wanted = RequestHeaderSettings(
            username_headers=given.requestheader_username_headers,
            uid_headers=given.requestheader_uid_headers,
            group_headers=given.requestheader_group_headers,
            extra_prefixes=given.requestheader_extra_headers_prefix,
            allowed_names=given.requestheader_allowed_names,
        )
        pool = self._client_pool(given.requestheader_client_ca_file)

        def check() -> None:
            refuse_shared_authorities(pool(), clients(), wanted.allowed_names)

        if given.client_ca_file or self.platform is None:
            check()
        else:
            self.platform.checks.append(check)
        return RequestHeaderAuthenticator(
            wanted, pool, self.clock, self.settings.names, self.revocations
        )

    def _client_pool(self, path: str) -> Callable[[], ClientVerifier]:
        """The CAs of a file, reloaded as it changes."""
        file = Path(path)
        pool = Reloading([file], functools.partial(ClientVerifier.load, file)).current
        self.client_pools.append(pool)
        return pool

    @property
    def hsm(self) -> KeysOfHsm:
        """The HSM of this process."""
        return self.context.hsm


@contextmanager
def as_bad_settings() -> Iterator[None]:
    """Convert errors for the operator into BadSettings: a key open to others, a missing file."""
    try:
        yield
    except (
        Refusal,
        InvalidAnonymousPath,
        InvalidIssuingSettings,
        InvalidRequestHeaderSettings,
    ) as problem:
        raise BadSettings(str(problem)) from None


def _terms_of(platform: TermsOf, authorities_of: AuthoritiesOf) -> TermsOf:
    """The terms of each signer: of the platform, and of CertificateAuthorities."""

    def own(signer: str) -> SignerTerms | None:
        found = authorities_of(signer)
        return SignerTerms(profile(found[0]), timedelta.max) if found else None

    return lambda signer: platform(signer) or own(signer)


def _remote(flag: str, path: str, monotonic: Monotonic) -> JsonEndpoint:
    """A webhook, as its kubeconfig describes it now."""
    try:
        return JsonEndpoint(FollowedKubeconfig(Path(path), monotonic))
    except (ValueError, Refusal) as problem:
        raise BadSettings(f"--{flag}: {problem}") from None


def _anonymous_paths(given: Given, configured: tuple[str, ...] | None) -> tuple[str, ...]:
    """The paths that anonymous requests may use.

    `configured`: the paths of --authentication-config, or None; raises BadSettings.
    """
    exchange = (EXCHANGE_PATH,) if given.of(ExchangeSettings).token_exchange_config else ()
    if exchange and configured == ():
        raise BadSettings(
            "--token-exchange-config: clients of the exchange are anonymous, which "
            "--authentication-config forbids"
        )
    if configured is None:
        return (*given.anonymous_paths, *exchange)
    if given.anonymous_paths != Given().anonymous_paths:
        raise BadSettings(
            "--anonymous-paths: not to be given when --authentication-config speaks of "
            "anonymous callers"
        )
    return (*configured, *exchange)
