"""Requests for X.509-SVIDs: a requester gets the SPIFFE ID of its own service account, no other."""

from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.refusals import NotPermitted
from orchid.kernel.credentials.spiffe_ids import account_id
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.wire.user import account_of


def refuse_other_identity(profile: Profile, request: SigningRequest, username: str) -> None:
    """Raise NotPermitted if a signer of X.509-SVIDs would give a user another ID than its own."""
    if not profile.trust_domain:
        return
    account = account_of(username)
    if account is None:
        raise NotPermitted("only service accounts have SPIFFE IDs")
    own = account_id(profile.trust_domain, *account)
    if request.uris != (own,):
        raise NotPermitted(f"the SPIFFE ID of the requester is {own}")
