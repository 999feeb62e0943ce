"""Metrics of issued and refused credentials: certificates by signer, tokens by type of account.

Certificate requests are counted when their outcome appears, whichever client wrote it: every server
counts all of them, so that several servers agree. Tokens are counted by the server of the request.

Labels come from closed sets: platform signers and signers of existing authorities have their names,
up to a limit; all others are `other`.
"""

import dataclasses
from typing import Final

from orchid.features.accounts.kinds.token_request import TokenRequest
from orchid.features.authorities.signer_authorities import SignerAuthorities
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.kernel.base.metrics import Counter, Joining
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import ObjectChange
from orchid.kernel.engine.kind import Acting, Endpoint
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.request_conditions import DENIED, FAILED
from orchid.kernel.wire.struct import replace

ISSUED: Final = "issued"
REFUSED: Final = "refused"
OTHER: Final = "other"
MOST_NAMED: Final = 100  # signers of authorities with a label of their own
BOUND_TO: Final = {"Pod": "pod", "Secret": "secret", "Node": "node"}

# Without one of these in its status there is no outcome, and the request is not decoded. The
# status is the last field, so it is searched from the end.
_STATUS: Final = b',"status":{'
_SIGNS: Final = (b'"certificate":"', b'"Denied"', b'"Failed"')


class IssuanceMetrics:
    def __init__(self, naming: Naming, feed: Feed, authorities: SignerAuthorities) -> None:
        self.certificates = Counter(
            "orchid_certificate_requests_total",
            "Certificate requests by signer and outcome: issued, denied or failed.",
            "signer",
            "outcome",
            joins=Joining.MOST,  # every process sees all requests
        )
        self.tokens = Counter(
            "orchid_token_requests_total",
            "Requests for tokens by namespace of the account, bound object and outcome.",
            "account",
            "bound_to",
            "outcome",
        )
        self.all = (self.certificates, self.tokens)
        self._system_namespace = naming.system_namespace
        self._signers = frozenset(naming.issuing_signers)
        self._authorities = authorities
        self._named: set[str] = set()  # signers of authorities with a label
        feed.of(CertificateSigningRequest).listen(self, self._on_changes)
        feed.of(PodCertificateRequest).listen(self, self._count_settled)

    def _on_changes(self, changes: list[ObjectChange[CertificateSigningRequest]]) -> None:
        for change in changes:
            outcome = outcome_of(change.new)
            if change.new is not None and outcome and outcome != outcome_of(change.old):
                signer = change.new.object.spec.signer_name
                self.certificates.count(self._label(signer), outcome)

    def _count_settled(self, changes: list[ObjectChange[PodCertificateRequest]]) -> None:
        for change in changes:
            new, old = change.new, change.old
            if new is None or b'"conditions":[' not in new.tail:
                continue
            if new.object.is_settled and not (old and old.object.is_settled):
                signer = new.object.spec.signer_name
                self.certificates.count(self._label(signer), new.object.state.lower())

    def _label(self, signer: str) -> str:
        if signer in self._signers or signer in self._named:
            return signer
        if len(self._named) < MOST_NAMED and self._authorities.of(signer):
            self._named.add(signer)
            return signer
        return OTHER

    def counting(self, endpoint: Endpoint) -> Endpoint:
        """The token endpoint, with its responses counted."""
        kind = endpoint.kind
        assert kind is not None
        assert kind.acts is not None
        counted = dataclasses.replace(kind, acts=_CountedTokens(kind.acts, self))
        return replace(endpoint, kind=counted)

    def count_token(self, wanted: TokenRequest, namespace: str, outcome: str) -> None:
        account = "system" if namespace == self._system_namespace else OTHER
        reference = wanted.spec.bound_object_ref
        bound_to = BOUND_TO.get(reference.kind, OTHER) if reference else "nothing"
        self.tokens.count(account, bound_to, outcome)


class _CountedTokens:
    """Wraps the token endpoint and counts its results."""

    def __init__(self, asked: Acting[TokenRequest], metrics: IssuanceMetrics) -> None:
        self._asked, self._metrics = asked, metrics

    async def create(self, new: TokenRequest, request: Request) -> TokenRequest:
        try:
            token_request = await self._asked.create(new, request)
        except ApiError:
            self._metrics.count_token(new, request.target.namespace, REFUSED)
            raise
        self._metrics.count_token(new, request.target.namespace, ISSUED)
        return token_request


def outcome_of(entry: Entry[CertificateSigningRequest] | None) -> str:
    """The outcome of a request, or "" while there is none."""
    if entry is None:
        return ""
    tail = entry.tail
    status = tail.rfind(_STATUS)
    for sign in _SIGNS:
        if tail.find(sign, status) >= 0:
            break
    else:
        return ""
    request = entry.object
    if request.is_issued:
        return ISSUED
    if request.has(DENIED):
        return "denied"
    return "failed" if request.has(FAILED) else ""
