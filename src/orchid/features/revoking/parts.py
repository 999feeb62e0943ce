"""The parts of revoking: its rules, revocation lists, and the report of each server."""

from collections.abc import Iterable

from orchid.features.accounts.token_lifetimes import TokenLifetimes
from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.file_authorities import FileAuthorityObjects
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.platform_files import ServingKey
from orchid.features.certificates.client_pools import ClientPools
from orchid.features.certificates.renewal_information import ReplacedBy
from orchid.features.certificates.signer_issuers import SignerIssuers
from orchid.features.exchange.kinds.token_exchange_policy import TokenExchangePolicy
from orchid.features.exchange.ports import ConfiguredExchange
from orchid.features.objects.kinds.lease import keys_annotation, serves_annotation, signs_annotation
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocation
from orchid.features.revocation.revocations import Revocations
from orchid.features.revocation.settings import RevocationSettings
from orchid.features.revoking import revocation_file
from orchid.features.revoking.applied_revision import AppliedRevision
from orchid.features.revoking.pages import crl
from orchid.features.revoking.policies.certified_keys import CertifiedKeys
from orchid.features.revoking.policies.revocation_permission import RevocationPermission
from orchid.features.revoking.policies.revoked_keys import RevokedKeys
from orchid.features.revoking.policies.revoked_requesters import RevokedRequesters
from orchid.features.revoking.replaced_keys import ReplacedKeys
from orchid.features.revoking.revocation_copy import RevocationCopy
from orchid.features.revoking.revocation_lists import RevocationLists
from orchid.features.sealing.sealing import Sealing, SealingServers
from orchid.features.sign_in.parts import OutsideIssuers
from orchid.features.sign_in.settings import SignInSettings
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.policies.material import recording_signer
from orchid.kernel.context import SERVER, Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.feature import Background, PlainHttp
from orchid.kernel.server.pages.site import Page
from orchid.kernel.settings.errors import BadSettings


def _applied_revision(context: Context) -> AppliedRevision:
    """The report of this process: what it has applied, and the keys that it has."""
    feed, keys = context.feed, context.port(AuthorityKeyIndex)
    serving, sealing = ServingKey(context.files.serving_certificate), context.port(Sealing)
    tokens, files = context.port(FollowedKeys), context.port(FileAuthorityObjects)

    def annotations() -> dict[str, str]:
        usable = *tokens.keys.usable, *keys.waiting, *files.key_ids
        return {
            keys_annotation(context.naming): ",".join(usable),
            signs_annotation(context.naming): tokens.keys.signs,
            serves_annotation(context.naming): serving.current(),
            **sealing.annotations(),
        }

    client = context.clients.of_user(SERVER)
    applied = AppliedRevision(
        client, context.clock, context.naming, lambda: feed.revision, annotations
    )
    tokens.changed.append(applied.changed)
    sealing.changed = applied.changed
    keys.changed.append(applied.changed)
    feed.of(CredentialRevocation).listen(applied, applied.changed)
    return applied


def _sealing_servers(context: Context) -> SealingServers:
    leases = context.port(ServerLeases)
    return SealingServers(leases.live, lambda: context.port(AppliedRevision).name)


def _lists(context: Context) -> crl.ServedLists:
    keys = context.port(AuthorityKeyIndex)
    lists = RevocationLists(context.feed, context.naming, keys.lists, keys.of_list)
    return crl.ServedLists(lists.find, lists.all_of)


def _copy(context: Context) -> RevocationCopy | None:
    settings = context.settings
    if settings.given.store != "sqlite" or settings.given.etcd_servers:
        return None
    file = settings.data_dir / revocation_file.FILE
    return RevocationCopy(file, context.feed, context.store, context.clock)


PARTS = (
    ServerPart(AppliedRevision, _applied_revision),
    ServerPart(SealingServers, _sealing_servers),
    ServerPart(crl.ServedLists, _lists),
    ServerPart(RevocationCopy, _copy),
    ServerPart(ReplacedBy, lambda context: ReplacedBy(ReplacedKeys(context.feed).get)),
)


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    revocations = context.port(Revocations)
    yield RevokedRequesters(context.naming, context.feed, revocations)
    yield RevokedKeys(context.port(SignerIssuers).keys_of)
    yield _revocation_permission(context)


def _revocation_permission(context: Context) -> RevocationPermission:
    settings, feed, naming = context.settings, context.feed, context.naming
    revoked, issuers = context.port(Revocations).names, context.port(SignerIssuers)
    outside, pools = context.port(OutsideIssuers), context.port(ClientPools)
    authorities, exchanges = feed.of(CertificateAuthority), feed.of(TokenExchangePolicy)
    options = settings.given.of(SignInSettings)
    others = options.authentication_token_webhook_config_file, options.requestheader_client_ca_file
    # Tokens of external issuers have an unknown expiry.
    accepts_outside = outside.authenticator is not None or any(others)
    is_unknown = accepts_outside or options.token_auth_file

    def signer_of(name: str) -> str:
        entry = authorities.get("", name)
        return recording_signer(entry.object, naming) if entry else naming.legacy_signer

    def token_issuers() -> set[str]:
        """The issuers of tokens that can be revoked by their id."""
        exchange = context.optional(ConfiguredExchange)
        return {*settings.issuers, *outside.urls, *(exchange.issuers if exchange else ())}

    return RevocationPermission(
        naming,
        feed,
        context.authorizer,
        already=revoked,
        certified=CertifiedKeys(feed, context.random, signer_of, revoked),
        is_ours=issuers.signs_for,
        listed_keys=issuers.key_ids_of,
        tokens_end=context.port(TokenLifetimes).end_of,
        clients_end=pools.end,
        users_end=lambda: None if is_unknown else pools.end(),
        issuers=token_issuers,
        may_be_exchanged=lambda: bool(exchanges.entries),
        accepts_outside_tokens=accepts_outside,
    )


def pages(context: Context) -> dict[str, Page]:
    return {crl.PREFIX: crl.RevocationListPages(context.port(crl.ServedLists))}


def plain_http(context: Context) -> PlainHttp | None:
    """Revocation lists without TLS: clients fetch them before they trust a server."""
    listen = context.settings.given.of(RevocationSettings).crl_listen
    if not listen:
        return None
    handler = crl.PlainRevocationLists(context.port(crl.ServedLists))
    return PlainHttp("crl-listen", listen, handler, "crl.listening")


async def prepare(context: Context) -> None:
    """Bring back the revocations that a restored database lacks."""
    copy = context.optional(RevocationCopy)
    if copy is not None:
        try:
            await copy.put_back()
        except revocation_file.FileTooLarge as problem:
            raise BadSettings(str(problem)) from None


def background(context: Context, controls: bool) -> Iterable[Background]:
    applied, copy = context.port(AppliedRevision), context.optional(RevocationCopy)
    yield Background(report=applied.run, leave=applied.leave)
    if controls and copy is not None:
        yield Background(run=copy.run)
