"""Four eyes: whoever created a certificate request does not approve it.

Start with `FourEyes.review`. The creator is in the request, written by the server; the approver is
the caller, and also whoever impersonates the caller, so that nobody approves their own request
under another name. Members of `system:masters` could change anything anyway and are exempt, by
their own groups, not by those of whom they impersonate. A request may be denied by its creator.
"""

from typing import Any

from orchid.engine.interfaces import AdmissionPolicy
from orchid.engine.kind import Kind
from orchid.engine.request import Request
from orchid.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.wire.errors import Forbidden
from orchid.wire.request_conditions import APPROVED
from orchid.wire.text import quote
from orchid.wire.user import MASTERS, UserInfo


class FourEyes(AdmissionPolicy):
    reviews = (CertificateSigningRequest,)

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None or old is None or old.has(APPROVED) or not new.has(APPROVED):
            return
        creator = UserInfo(username=old.spec.username, uid=old.spec.uid)
        for actor in (request.user, request.real_user):
            if actor is not None and is_same(actor, creator) and MASTERS not in actor.groups:
                text = (
                    f"{quote(actor.username)} created this request and may not approve it: "
                    "somebody else has to"
                )
                raise Forbidden(kind.about(new.name), text)


def is_same(one: UserInfo, other: UserInfo) -> bool:
    """Whether two are the same person: of one name, and of one uid where both are known."""
    return one.username == other.username and (one.uid == other.uid or not one.uid or not other.uid)
