"""External account binding (RFC 8555, section 7.3.4): the proof that a client has a shared key.

The only place with HMAC signatures: the keys are those of Secrets for this purpose, the input is
the `externalAccountBinding` of a new account, and no token reaches `verify_binding`.
"""

import hashlib
import hmac
from typing import Final

from orchid.features.acme.acme_accounts import ExternalKey, ExternalKeys
from orchid.features.acme.protocol.jws import Flattened, decode
from orchid.features.acme.protocol.problems import AcmeProblem, malformed, unauthorized
from orchid.kernel.credentials.jwk import AccountKey, read_jwk_text
from orchid.kernel.credentials.refusals import Refusal

HASHES: Final = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}
ALGORITHMS: Final = tuple(HASHES)
REFUSED: Final = (
    "the external account key is unknown, expired or revoked, or the binding is not signed with it"
)


def verify_binding(
    binding: Flattened | None, keys: ExternalKeys, account_key: AccountKey, url: str
) -> ExternalKey:
    """The external key of a valid binding; raises AcmeProblem, without saying what is wrong."""
    if binding is None:
        text = "a new account needs an external account binding: see orchid acme key"
        raise AcmeProblem("externalAccountRequired", text)
    jws = decode(binding, ALGORITHMS)
    header = jws.header
    if header.url != url or not header.kid or header.jwk is not None or header.nonce:
        text = "the header of the binding must have kid and the url of the request, and no nonce"
        raise malformed(text)
    external_key = keys.find(header.kid)
    secret = external_key.secret if external_key is not None else b"\0"
    expected = hmac.new(secret, jws.signed, HASHES[header.alg]).digest()
    if not hmac.compare_digest(expected, jws.signature) or external_key is None:
        raise unauthorized(REFUSED)
    try:
        bound = read_jwk_text(jws.payload)
    except Refusal:
        raise malformed("the payload of the binding is not a JWK") from None
    if bound.thumbprint != account_key.thumbprint:
        raise malformed("the binding is for another account key")
    return external_key
