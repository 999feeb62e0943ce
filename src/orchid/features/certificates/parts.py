"""The parts of certificates: their authenticators, the inventory, and their policies."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from orchid.features.accounts.parts import TokenRequestCounts
from orchid.features.authorities.parts import CertificatesInUse
from orchid.features.authorities.platform_authority import PlatformAuthority
from orchid.features.authorities.platform_files import project
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
from orchid.features.certificates.certificate_search import CertificateIndex
from orchid.features.certificates.client_pools import ClientPools
from orchid.features.certificates.credentials_metrics import IssuanceMetrics
from orchid.features.certificates.inventory_metrics import IssuedCounts
from orchid.features.certificates.kinds import certificate_search
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.features.certificates.own_certificates import OwnCertificates, OwnFiles
from orchid.features.certificates.pages import renewal
from orchid.features.certificates.platform_import import (
    import_authority,
    import_later,
    report_older,
)
from orchid.features.certificates.policies.record_issued import RecordIssued
from orchid.features.certificates.policies.signer_permission import SignerPermission
from orchid.features.certificates.policies.subject_restriction import SubjectRestriction
from orchid.features.certificates.renewal_information import RenewalInformation, ReplacedBy
from orchid.features.certificates.signer_issuers import SignerIssuers
from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import SERVER, Context, ServerPart
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.interfaces import AdmissionPolicy, Authenticator
from orchid.kernel.engine.kind import Kind
from orchid.kernel.feature import Background
from orchid.kernel.server.pages.site import Page
from orchid.kernel.settings.data_directory import renew
from orchid.kernel.settings.errors import BadSettings


class StartChecks(NamedTuple):
    """Checks of the authorities of clients, once these are loaded."""

    all: list[Callable[[], None]]


def _issuance(context: Context) -> IssuanceMetrics:
    return IssuanceMetrics(context.naming, context.feed, context.port(SignerAuthorities))


def _issued(context: Context) -> IssuedCounts:
    return IssuedCounts(context.feed.of(IssuedCertificate), context.clock)


def _in_use(context: Context) -> CertificatesInUse:
    issued = context.port(IssuedCounts)
    return CertificatesInUse(issued.live, issued.of_key)


def _own_certificates(context: Context) -> OwnCertificates:
    files, platform = context.files, context.optional(PlatformAuthority)
    certificates = OwnCertificates(
        OwnFiles(files.ca_certificate, files.serving_certificate, files.kubeconfig),
        context.feed,
        context.store,
        naming=context.naming,
        randomness=context.random,
        user=SERVER,
        renewal=lambda: _renewal(context),
    )
    if platform is not None:
        platform.changed.append(certificates.changed)
    return certificates


def _renewal(context: Context) -> Callable[[datetime], bool]:
    """A function that renews the server's own certificates where that is due."""
    settings, files = context.settings, context.files
    platform = context.optional(PlatformAuthority)
    if platform is None or not platform.is_stored:
        return lambda now: renew(settings, files, now)
    keys = platform.snapshot()
    return lambda now: project(settings, files, keys, now)


PARTS = (
    ServerPart(StartChecks, lambda context: StartChecks([])),
    ServerPart(ClientPools, ClientPools),
    ServerPart(SignerIssuers, SignerIssuers),
    ServerPart(IssuanceMetrics, _issuance),
    ServerPart(IssuedCounts, _issued),
    ServerPart(CertificatesInUse, _in_use),
    ServerPart(OwnCertificates, _own_certificates),
    ServerPart(
        TokenRequestCounts,
        lambda context: TokenRequestCounts(context.port(IssuanceMetrics).counting),
    ),
)


def authenticators(context: Context) -> Iterable[Authenticator]:
    pools, platform = context.port(ClientPools), context.optional(PlatformAuthority)
    revocations = context.port(Revocations)
    if pools.proxies is not None:
        yield _front_proxy(context)
    yield ClientCertificateAuthenticator(
        pools.clients,
        context.clock,
        context.naming,
        revocations,
        PodCertificates(context.feed, context.clock, revocations),
        warning=platform.warning if platform else lambda chain: "",
    )


def _front_proxy(context: Context) -> Authenticator:
    options, pools = context.settings.given.of(SignInSettings), context.port(ClientPools)
    proxies = pools.proxies
    assert proxies is not None
    try:
        headers = RequestHeaderSettings(
            username_headers=options.requestheader_username_headers,
            uid_headers=options.requestheader_uid_headers,
            group_headers=options.requestheader_group_headers,
            extra_prefixes=options.requestheader_extra_headers_prefix,
            allowed_names=options.requestheader_allowed_names,
        )
    except InvalidRequestHeaderSettings as problem:
        raise BadSettings(str(problem)) from None

    def check() -> None:
        try:
            refuse_shared_authorities(proxies(), pools.clients(), headers.allowed_names)
        except (Refusal, InvalidRequestHeaderSettings) as problem:
            raise BadSettings(str(problem)) from None

    if pools.follows_platform:
        context.port(StartChecks).all.append(check)
    else:
        check()
    return RequestHeaderAuthenticator(
        headers, proxies, context.clock, context.naming, context.port(Revocations)
    )


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    feed, revocations = context.feed, context.port(Revocations)
    yield SignerPermission(context.naming, context.authorizer, context.port(SignerAuthorities).of)
    yield SubjectRestriction(context.naming)
    yield RecordIssued(
        feed.of(IssuedCertificate),
        feed.of(CertificateSigningRequest),
        context.port(SignerIssuers).of,
        revocations.revoked_until,
        context.random,
        pod_requests=feed.of(PodCertificateRequest),
        account_until=revocations.account_until,
        key_problem=revocations.key_problem,
        naming=context.naming,
    )


def served_kinds(context: Context) -> Iterable[Kind[Any]]:
    index = CertificateIndex(context.feed, context.authorizer, context.clock)
    yield certificate_search.declare(context.naming, index)


def pages(context: Context) -> dict[str, Page]:
    records, revocations = context.feed.of(IssuedCertificate), context.port(Revocations)
    replaced = context.port(ReplacedBy).get
    information = RenewalInformation(records, revocations, context.clock, replaced)
    return {renewal.PREFIX: renewal.RenewalPages(information.of)}


def metrics(context: Context) -> Iterable[Metric]:
    yield from context.port(IssuanceMetrics).all
    yield from context.port(IssuedCounts).metrics


async def prepare(context: Context) -> None:
    """Have the authority of the platform, if it is an object, and check those of clients."""
    if context.optional(PlatformAuthority) is not None:
        await import_authority(context)
        for check in context.port(StartChecks).all:
            check()


def background(context: Context, controls: bool) -> Iterable[Background]:
    own = context.port(OwnCertificates)
    yield Background(begin=lambda: own.record(context.clock))
    if controls:
        yield Background(run=lambda: own.run(context.clock))
        yield Background(run=lambda: import_later(context))
        yield Background(run=lambda: report_older(context))
