"""Four eyes: the creator of a certificate request does not approve it, by hand or by policy.

Start with `FourEyes.review`. The creator is the user in the request and the user who impersonated
them when the request was created (a note of the server). Neither of them may approve it, under
their own name, by impersonation or by an earlier approval, and a policy whose spec one of them
wrote last approves nothing for them. Names are compared, not uids: the same user may have a uid in
one credential and none in another. Members of `system:masters` are exempt, by their own groups. The
creator may deny.

Not detected: a request created with a token or certificate that the approver obtained for another
user. The server sees only the user of the credential.
"""

from typing import Any

from orchid.features.approving.kinds.approval_policy import ApprovalPolicy, writers_in
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    creators_in,
)
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Conflict, ErrorSubject, Forbidden
from orchid.kernel.wire.request_conditions import APPROVED
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import MASTERS


class FourEyes(AdmissionPolicy):
    reviews = (CertificateSigningRequest,)

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._requests = feed.of(CertificateSigningRequest)
        self._policies = feed.of(ApprovalPolicy)

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None or old is None or old.has(APPROVED) or not new.has(APPROVED):
            return
        # If the request has changed since it was read, the commit fails.
        entry = self._requests.get("", new.name)
        creators = creators_in(old, entry.notes() if entry else {})
        for actor in (request.user, request.real_user):
            if actor is not None and actor.username in creators and MASTERS not in actor.groups:
                text = (
                    f"{quote(actor.username)} created this request and may not approve it: "
                    "somebody else has to"
                )
                raise Forbidden(kind.about(new.name), text)
        kept = new.kept_approval
        if kept is not None and kept.approver in creators:
            text = f"{quote(kept.approver)} created this request: an earlier approval by them"
            raise Forbidden(kind.about(new.name), f"{text} does not count for it")
        claimed = new.approving_policy
        if claimed is not None:
            await self._check_policy(kind.about(new.name), claimed, creators)

    async def _check_policy(
        self, about: ErrorSubject, claimed: tuple[str, str], creators: frozenset[str]
    ) -> None:
        """Refuse an approval by a policy of the creator, or by an outdated policy."""
        name, revision = claimed
        await self._feed.fresh()
        policy = self._policies.get("", name)
        if policy is None or str(policy.revision) != revision:
            raise Conflict(about, f"policy {quote(name)} has changed or is gone")
        for writer in sorted(writers_in(policy.notes()) & creators):
            text = (
                f"{quote(writer)} created this request and last wrote policy {quote(name)}, "
                "which therefore may not approve it"
            )
            raise Forbidden(about, text)
