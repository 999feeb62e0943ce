"""Signed requests (RFC 8555, section 6.2): flattened JWS with a protected header only.

`parse` checks the form and decodes the header and the payload; the caller finds the key and calls
`Jws.verify`. The algorithm follows from the key: the one in the header must be equal. A header that
is not protected, another serialization, and critical extensions are refused.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from orchid.features.acme.protocol.problems import AcmeProblem, malformed
from orchid.kernel.credentials.jwk import ALGORITHMS, AccountKey, Jwk, read_jwk
from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.credentials.refusals import BadSignature, Refusal

LARGEST: Final = 64 << 10  # bytes of a request
DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Flattened(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A flattened JWS (RFC 7515, section 7.2.2)."""

    protected: str
    payload: str
    signature: str


class JwsHeader(msgspec.Struct, frozen=True):
    """The protected header; unknown members are ignored, as RFC 7515 requires."""

    alg: str
    url: str = ""
    nonce: str = ""
    kid: str | None = None
    jwk: Jwk | None = None
    crit: msgspec.Raw | UnsetType = UNSET
    b64: msgspec.Raw | UnsetType = UNSET


class Jws(msgspec.Struct, frozen=True):
    """A decoded JWS whose signature is not verified yet."""

    header: JwsHeader
    payload: bytes
    signed: bytes  # the input of the signature
    signature: bytes

    def verify(self, key: AccountKey) -> None:
        """Raise AcmeProblem unless the key signed it, with the algorithm of the key."""
        if self.header.alg != key.algorithm:
            raise bad_algorithm(f"the key needs the algorithm {key.algorithm}")
        try:
            key.key.verify(self.signature, self.signed)
        except BadSignature:
            raise malformed("the signature is not valid") from None

    def key(self) -> AccountKey:
        """The key in the header."""
        assert self.header.jwk is not None
        try:
            return read_jwk(self.header.jwk)
        except Refusal as refusal:
            raise AcmeProblem("badPublicKey", str(refusal), algorithms=list(ALGORITHMS)) from None


_flattened = msgspec.json.Decoder(Flattened).decode
_header = msgspec.json.Decoder(JwsHeader).decode


def parse(body: bytes, algorithms: tuple[str, ...] = ALGORITHMS) -> Jws:
    """Decode a JWS; raises AcmeProblem."""
    if len(body) > LARGEST:
        raise malformed(f"a request has at most {LARGEST} bytes", code=413)
    try:
        flattened = _flattened(body)
    except DECODE_ERRORS:
        text = "the body is not a flattened JWS: an object of protected, payload and signature"
        raise malformed(text) from None
    return decode(flattened, algorithms)


def decode(flattened: Flattened, algorithms: tuple[str, ...]) -> Jws:
    try:
        protected, payload = flattened.protected.encode("ascii"), flattened.payload.encode("ascii")
        header = _header(b64url_decode(protected))
        jws = Jws(
            header,
            b64url_decode(payload),
            protected + b"." + payload,
            b64url_decode(flattened.signature.encode("ascii")),
        )
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise malformed("protected, payload or signature cannot be decoded") from None
    if header.crit is not UNSET or header.b64 is not UNSET:
        raise malformed("critical extensions are not supported")
    if header.alg not in algorithms:
        raise bad_algorithm(f"the algorithms are {', '.join(algorithms)}", algorithms)
    return jws


def payload_of(data: bytes, type_: Any) -> Any:
    """The payload as an object of some type; raises AcmeProblem."""
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as problem:
        raise malformed(f"the payload is not acceptable: {problem}") from None
    except DECODE_ERRORS:
        raise malformed("the payload is not a JSON object") from None


def bad_algorithm(text: str, algorithms: tuple[str, ...] = ALGORITHMS) -> AcmeProblem:
    return AcmeProblem("badSignatureAlgorithm", text, algorithms=list(algorithms))
