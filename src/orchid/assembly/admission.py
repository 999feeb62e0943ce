"""Admission policies, built from settings: rules that need another object or the caller's rights.

Read `Policies.all`: it lists them in the order in which they run.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta

from orchid.assembly.access import Access
from orchid.assembly.controllers.controlling import signing_certificates
from orchid.features.accounts.policies.bound_object import BoundObject
from orchid.features.accounts.policies.service_account import PodAccount
from orchid.features.accounts.token_secrets import TokenSecrets
from orchid.features.approving.policies.four_eyes import FourEyes
from orchid.features.approving.policies.kept_approvals import KeptApprovals
from orchid.features.approving.policies.policy_forecast import PolicyForecast
from orchid.features.authorities.authority_keys import AuthorityKeyIndex
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.authorities.platform_issuers import PlatformIssuers
from orchid.features.authorities.policies.authority_names import AuthorityNames
from orchid.features.authorities.policies.dependents import AuthorityDependents
from orchid.features.authorities.policies.own_signers import OwnSigners
from orchid.features.authorities.policies.unsealed_keys import REFUSAL, UnsealedKeys
from orchid.features.certificates.inventory_metrics import IssuedCounts
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import IssuedCertificate
from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.features.certificates.policies.record_issued import Issuers, RecordIssued
from orchid.features.certificates.policies.signer_permission import SignerPermission
from orchid.features.certificates.policies.subject_restriction import SubjectRestriction
from orchid.features.clusters.policies.cluster_records import ClusterRecords
from orchid.features.clusters.policies.cluster_revocation import ClusterRevocation
from orchid.features.clusters.record_usage import ClusterRecordUsage
from orchid.features.exchange.kinds.token_exchange_policy import TokenExchangePolicy
from orchid.features.exchange.policies.exchange_policy_authors import ExchangePolicyAuthors
from orchid.features.exchange.settings import ExchangeSettings
from orchid.features.nodes.policies.node_restriction import NodeRestriction
from orchid.features.objects.kinds import namespace
from orchid.features.objects.kinds.secret import Secret
from orchid.features.objects.policies.namespace_lifecycle import Ensure, NamespaceLifecycle
from orchid.features.objects.policies.owner_permission import OwnerPermission
from orchid.features.revoking.policies.certified_keys import CertifiedKeys
from orchid.features.revoking.policies.revocation_permission import RevocationPermission
from orchid.features.revoking.policies.revoked_keys import RevokedKeys
from orchid.features.revoking.policies.revoked_requesters import RevokedRequesters
from orchid.features.rights.policies.role_escalation import RoleEscalation
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.features.token_keys.policies.authority_material import PrivateKeys, SignerReferences
from orchid.features.token_keys.policies.chains import SigningKeyChains
from orchid.features.token_keys.policies.conditions import (
    AuthorityKeyConditions,
    KeyConditions,
    TokenKeyConditions,
)
from orchid.features.token_keys.policies.material import SigningKeyMaterial, recording_signer
from orchid.features.token_keys.policies.steps import SigningKeySteps
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.credentials.authorities.issuer_chain import subject_key_id
from orchid.kernel.credentials.x509.trust.verified_chain import key_fingerprint
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.settings.checking import Settings
from orchid.kernel.wire.references import SecretReference, belongs_to
from orchid.kernel.wire.signing_key_status import KeyDependents


class Policies:
    """The admission policies of one server."""

    def __init__(self, access: Access) -> None:
        self._access, self._settings = access, access.settings
        self._feed, self._authorizer = access.feed, access.authorizer
        certificates = signing_certificates(access.settings, access.files)
        self._platform_issuers = PlatformIssuers(certificates)
        self._private_keys = PrivateKeys(self._secret_data, access.hsm)
        self._references = SignerReferences(
            home=access.settings.names.system_namespace, crl_url=str(access.settings.given.crl_url)
        )

    def all(self, ensure_namespace: Ensure, catalog: Catalog) -> list[AdmissionPolicy]:
        """Rules beyond one object, in the order in which they run."""
        names = self._settings.names
        lenient = self._settings.given.namespaces == "lenient"
        ensure = ensure_namespace if lenient else None
        return [
            NamespaceLifecycle(
                names,
                self._feed,
                self._feed.of(namespace.Namespace),
                self._authorizer,
                ensure=ensure,
                creators=self._settings.given.namespace_creators,
            ),
            PodAccount(names, self._feed, self._access.random, ensure),
            NodeRestriction(names, self._feed, self._authorizer),
            BoundObject(self._authorizer),
            RoleEscalation(self._authorizer, self._access.rbac),
            OwnerPermission(self._authorizer, catalog),
            *((UnsealedKeys(),) if self._settings.is_unsealed else ()),
            SignerPermission(names, self._authorizer, self._access.authorities.of),
            *(() if self._settings.given.approve_own_requests else (FourEyes(self._feed),)),
            RevokedRequesters(names, self._feed, self._access.revocations),
            KeptApprovals(
                names, self._feed, self._authorizer, self._access.revocations.refuse_action
            ),
            OwnSigners(
                names,
                self._authorizer,
                self._feed,
                self._access.authorities.of,
                stores_platform=self._settings.stores_authority,
            ),
            AuthorityNames(self._feed, self._access.authority_keys.named),
            AuthorityDependents(self._feed, self._access.issued.live),
            SubjectRestriction(names),
            PolicyForecast(self._access.explainer),
            self._record_issued(),
            RevokedKeys(self._keys_of),
            self._signing_key_material(),
            self._signing_key_chains(),
            self._signing_key_steps(),
            self._revocation_permission(),
            self._exchange_policy_authors(),
            ClusterRecords(self._feed, ClusterRecordUsage(self._feed)),
            ClusterRevocation(
                names, self._feed, self._authorizer, self._access.cluster_revocations.names
            ),
        ]

    def _record_issued(self) -> RecordIssued:
        return RecordIssued(
            self._feed.of(IssuedCertificate),
            self._feed.of(CertificateSigningRequest),
            self._issuers_of,
            self._access.revocations.revoked_until,
            self._access.random,
            pod_requests=self._feed.of(PodCertificateRequest),
            account_until=self._access.revocations.account_until,
            names=self._settings.names,
        )

    def _exchange_policy_authors(self) -> ExchangePolicyAuthors:
        return ExchangePolicyAuthors(
            self._authorizer,
            self._exchange_issuers,
            is_on=self._access.subject_tokens is not None,
            is_strict=self._settings.given.of(ExchangeSettings).token_exchange_strict,
        )

    def _revocation_permission(self) -> RevocationPermission:
        return RevocationPermission(
            self._settings.names,
            self._feed,
            self._authorizer,
            already=self._access.revocations.names,
            certified=CertifiedKeys(
                self._feed,
                self._access.random,
                self._recording_signer,
                self._access.revocations.names,
            ),
            is_ours=self._signs_for,
            listed_keys=self._key_ids_of,
            tokens_end=self._access.lifetimes.end_of,
            clients_end=self._clients_end,
            users_end=self._users_end,
            issuers=self._known_issuers,
            may_be_exchanged=lambda: bool(self._feed.of(TokenExchangePolicy).entries),
            accepts_outside_tokens=self._accepts_outside_tokens(),
        )

    def _known_issuers(self) -> set[str]:
        """The issuers of tokens that can be revoked by their id."""
        outside = self._access.oidc.sources if self._access.oidc else ()
        return {*self._settings.issuers, *outside, *self._exchange_issuers()}

    def _exchange_issuers(self) -> Collection[str]:
        return self._access.subject_tokens.issuers if self._access.subject_tokens else ()

    def _clients_end(self) -> datetime:
        """Expiry of the last CA for client certificates."""
        return max(pool().end for pool in self._access.client_pools)

    def _users_end(self) -> datetime | None:
        """Expiry of the last credential of a user; None if some have an unknown expiry."""
        is_unknown = self._accepts_outside_tokens() or self._settings.given.token_auth_file
        return None if is_unknown else self._clients_end()

    def _signing_key_material(self) -> SigningKeyMaterial:
        return SigningKeyMaterial(
            self._settings.names,
            self._feed,
            self._authorizer,
            self._access.random,
            publish_time=str(self._settings.given.token_key_publish_time),
            authority_keys=self._access.authority_keys.of,
            revoked=self._access.revocations.revoked_keys,
            past=self._access.past_keys.name,
            references=self._references,
            private_keys=self._private_keys,
            unsealed=REFUSAL if self._settings.is_unsealed else "",
        )

    def _signing_key_chains(self) -> SigningKeyChains:
        return SigningKeyChains(
            self._settings.names,
            self._feed,
            self._authorizer,
            authority_keys=self._access.authority_keys.of,
            references=self._references,
            private_keys=self._private_keys,
        )

    def _recording_signer(self, name: str) -> str:
        authority = self._feed.of(CertificateAuthority).get("", name)
        names = self._settings.names
        return recording_signer(authority.object, names) if authority else names.legacy_signer

    def _secret_data(self, reference: SecretReference) -> Mapping[str, bytes] | None:
        entry = self._feed.of(Secret).get(reference.namespace, reference.name)
        return entry.object.data if entry else None

    def _signing_key_steps(self) -> SigningKeySteps:
        settings, names = self._settings, self._settings.names
        conditions = key_conditions(
            settings,
            self._feed,
            tokens=self._access.long_tokens,
            issued=self._access.issued,
            authority_keys=self._access.authority_keys,
        )
        return SigningKeySteps(
            names,
            self._feed,
            self._authorizer,
            servers=self._access.servers.live,
            revoked=self._access.revocations.revoked_keys,
            conditions=conditions,
            keys_of=self._access.authority_keys.of,
            publish_time=(
                str(settings.given.token_key_publish_time),
                settings.token_key_publish_time,
            ),
        )

    def _accepts_outside_tokens(self) -> bool:
        """Whether tokens of external issuers, with an unknown expiry, are accepted."""
        given = self._settings.given
        others = given.authentication_token_webhook_config_file, given.requestheader_client_ca_file
        return self._access.oidc is not None or any(others)

    def _issuers_of(self, signer: str) -> Issuers | None:
        """The CAs of a signer; None if it is not one of this server's."""
        if signer in self._settings.names.issuing_signers:
            if self._access.platform is None or not self._access.platform.is_stored:
                return Issuers(self._platform_issuers.of(signer), is_platform=True)
            return Issuers(self._access.platform.issuers, is_platform=True)
        found = self._access.authorities.of(signer)
        if not found:
            return None
        issuers = self._access.authority_keys.issuers(
            found[0].name, self._access.revocations.revoked_keys()
        )
        if not self._access.authority_keys.of(
            found[0].name
        ):  # of an earlier version, until it has objects
            issuer = self._access.authorities.issuer(signer)
            issuers = [issuer] if issuer else []
        return Issuers(issuers, is_platform=False)

    def _keys_of(self, signer: str) -> set[str]:
        """The keys of a signer."""
        issuers = self._issuers_of(signer)
        return {key_fingerprint(one) for one in issuers.certificates} if issuers else set()

    def _key_ids_of(self, signer: str) -> set[str]:
        """The key identifiers of a signer, in hex."""
        issuers = self._issuers_of(signer)
        return {subject_key_id(one).hex() for one in issuers.certificates} if issuers else set()

    def _signs_for(self, signer: str) -> bool:
        """Whether a signer is one of this server's, by its name."""
        platform = self._settings.names.issuing_signers
        return signer in platform or bool(self._access.authorities.of(signer))


def key_conditions(
    settings: Settings,
    feed: Feed,
    *,
    tokens: LongTokens,
    issued: IssuedCounts,
    authority_keys: AuthorityKeyIndex,
) -> Callable[[SigningKey], KeyConditions]:
    """The conditions of the steps of SigningKeys, by purpose: counts and waiting times."""
    publish = timedelta(seconds=settings.token_key_publish_time)
    authorities, bundles = feed.of(CertificateAuthority), feed.of(PublishedBundle)
    default_hint = timedelta(seconds=PublishedBundle().refresh_seconds)

    def live_certificates(key: SigningKey) -> KeyDependents:
        entry = authorities.get("", key.spec.authority)
        is_owned = entry is not None and belongs_to(key, entry.object)
        signers = entry.object.signers if entry and is_owned else ()
        found = issued.of_key(key.key_id, signers)
        end = datetime.fromtimestamp(found.end, UTC) if found.live else None
        return KeyDependents(live=found.live, end=end)

    def refresh_hint(authority: str) -> timedelta:
        bundle, owner = bundles.get("", authority), authorities.get("", authority)
        # Nobody owns the bundles of the platform; the server creates them at its first start.
        if bundle is None or owner is None:
            return default_hint
        is_own = owner.object.is_platform or belongs_to(bundle.object, owner.object)
        return timedelta(seconds=bundle.object.refresh_seconds) if is_own else default_hint

    secrets_of = TokenSecrets(feed, settings.names).of_key
    of_tokens = TokenKeyConditions(tokens.dependents, secrets_of, publish, settings.keys_elsewhere)
    of_authorities = AuthorityKeyConditions(
        live_certificates, authority_keys.of, authority_keys.below, publish, refresh_hint
    )
    return lambda key: of_authorities if key.spec.authority else of_tokens
