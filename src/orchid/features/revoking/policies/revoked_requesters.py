"""Nothing is approved or signed for a request whose requester was revoked since.

A request may wait for its approval, or for its authority. A certificate that is issued to it after
a revocation would be newer than the revocation, and so not be covered: the thief of a credential
would only have to ask before its owner notices. So an approval and a new certificate are refused if
the credential with which the request was sent would be refused now: by its user, by its id, by the
key that signed it, by the token, the person or the policy of its exchange, or because its account
or Pod is gone. The same applies to the user who impersonated the requester, with their credential,
and to the node that requests for a Pod. (A Pod goes on after the revocation of its account, with
new tokens and certificates.)

The refusal has the cause `RequesterRevoked`; the signing controllers let such a request fail, and
the approving controller denies it. Start with `RevokedRequesters.review`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
)
from orchid.features.certificates.kinds.pod_certificate_request import (
    REQUESTER,
    PodCertificateRequest,
)
from orchid.features.certificates.requester_notes import CREATED_BY, credential_ids_in
from orchid.features.exchange.kinds.token_exchange_policy import TokenExchangePolicy
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Rejected
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.request_conditions import APPROVED, REQUESTER_REVOKED
from orchid.kernel.wire.status import StatusCause
from orchid.kernel.wire.user import UserInfo, account_of


class RevokedCredentials(Protocol):
    """Raises Rejected for what is revoked (features/revocation/revocations.py)."""

    def refuse_action(self, user: UserInfo, ids: Sequence[str], moment: datetime) -> None: ...
    def refuse_outside_token(
        self, issuer: str, claims: Mapping[str, Any], username: str
    ) -> None: ...


class RevokedRequesters(AdmissionPolicy):
    reviews = (CertificateSigningRequest, PodCertificateRequest)

    def __init__(self, naming: Naming, feed: Feed, revocations: RevokedCredentials) -> None:
        self._revocations = revocations
        self._requests = feed.of(CertificateSigningRequest)
        self._pod_requests = feed.of(PodCertificateRequest)
        self._accounts = feed.of(ServiceAccount)
        self._pods = feed.of(Pod)
        self._policies = feed.of(TokenExchangePolicy)
        self._credential_id = naming.credential_id
        self._extra = naming.extra

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None or old is None or not _is_granted(new, old):
            return
        try:  # the stored object was read as of the arrival of the request, and revocations, too
            if isinstance(old, PodCertificateRequest):
                self._refuse_pod_request(old)
            else:
                self._refuse_request(old)
        except Rejected as refusal:
            text = f"{refusal}, since the request was created: it has to be requested again"
            cause = StatusCause(reason=REQUESTER_REVOKED, message=str(refusal))
            raise Forbidden(kind.about(new.name), text, cause) from None

    def _refuse_request(self, csr: CertificateSigningRequest) -> None:
        spec, created = csr.spec, _created(csr)
        user = UserInfo(username=spec.username, uid=spec.uid, extra=spec.extra)
        self._refuse_credential(user, self._requests.get("", csr.name), created)
        account = account_of(user.username)
        if account is not None and user.uid:  # a certificate has no uid: it outlives the account
            self._refuse_gone(user, account)
            self._refuse_origin(user, created)

    def _refuse_pod_request(self, found: PodCertificateRequest) -> None:
        entry = self._pod_requests.get(found.namespace, found.name)
        requester = (entry.notes() if entry else {}).get(REQUESTER, "")
        self._refuse_credential(UserInfo(username=requester), entry, _created(found))

    def _refuse_credential(
        self, user: UserInfo, entry: Entry[Any] | None, created: datetime
    ) -> None:
        """Refuse a revoked requester, or impersonator, with the credential that was presented."""
        notes = entry.notes() if entry else {}
        presented = credential_ids_in(notes) if notes else ()
        if impersonator := notes.get(CREATED_BY):
            caller = UserInfo(username=impersonator)
            self._revocations.refuse_action(caller, presented, created)
            presented = ()
        ids = user.extra.get(self._credential_id, ())
        self._revocations.refuse_action(user, (*ids, *presented), created)

    def _refuse_gone(self, user: UserInfo, account: tuple[str, str]) -> None:
        """Refuse a requester whose account, Pod or exchange policy does not exist any more."""
        namespace, name = account
        pod, policy = self._extra_of(user, "pod-name"), self._extra_of(user, "exchange-policy")
        for cache, word, named, uid in (
            (self._accounts, "account", name, user.uid),
            (self._pods, "Pod", pod, self._extra_of(user, "pod-uid")),
            (self._policies, "policy", policy, self._extra_of(user, "exchange-policy-uid")),
        ):
            entry = cache.get(namespace, named) if named else None
            if named and (entry is None or entry.meta.uid != uid):
                raise Rejected(f"the {word} of the requester is gone")

    def _refuse_origin(self, user: UserInfo, created: datetime) -> None:
        """Refuse a requester whose token was exchanged for one that is revoked, or of a person."""
        issuer = self._extra_of(user, "exchange-issuer")
        jti = self._extra_of(user, "exchange-credential-id").removeprefix("JTI=")
        claims = {"jti": jti, "iat": created.timestamp()}
        if issuer:
            person = self._extra_of(user, "exchange-user")
            self._revocations.refuse_outside_token(issuer, claims, person)

    def _extra_of(self, user: UserInfo, word: str) -> str:
        return next(iter(user.extra.get(self._extra(word), ())), "")


def _is_granted(new: Any, old: Any) -> bool:
    """Whether a change approves a request or adds its certificate."""
    if isinstance(old, PodCertificateRequest):
        return bool(new.status.certificate_chain != old.status.certificate_chain)
    is_approved = new.has(APPROVED) and not old.has(APPROVED)
    return bool(is_approved or new.status.certificate != old.status.certificate)


def _created(found: CertificateSigningRequest | PodCertificateRequest) -> datetime:
    created = found.metadata.creation_timestamp
    assert created is not None  # set by the server at the creation
    return created
