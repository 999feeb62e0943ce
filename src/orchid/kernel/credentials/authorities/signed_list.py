"""The number of a stored revocation list, if a key has signed it.

Only the ends of the list are parsed here, so that a list of many thousand entries costs little more
than its hash: the library takes half a second for a hundred thousand. Nothing here reads entries.
"""

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from orchid.kernel.credentials.authorities.authority_keys import verify
from orchid.kernel.credentials.refusals import BadRevocation, UnreadableKey, library_errors_as
from orchid.kernel.credentials.x509 import der

_EXTENSIONS = 0xA0
_NUMBER = der.encode_oid(x509.CRLNumber.oid.dotted_string)


def signed_number(data: bytes, public: str) -> int:
    """The number of a list in DER; raises Refusal unless a key (in PEM) has signed the list."""
    with library_errors_as(UnreadableKey, "the public key of the list cannot be read"):
        key = serialization.load_pem_public_key(public.encode())
    try:
        outer = der.element(data, 0, len(data), der.SEQUENCE)
        body, algorithm, bits = der.children(data, outer.start, outer.stop)
        _, signed_algorithm, *_ = der.children(data, body.start, body.stop)
        signature = data[bits.start + 1 : bits.stop]
        if (
            outer.stop != len(data)
            or data[bits.begin : bits.stop] != der.encode_bits(signature)
            or _whole(data, algorithm) != _whole(data, signed_algorithm)
        ):
            raise BadRevocation("the revocation list cannot be read")
        verify(key, signature, _whole(data, body))
        return _number(data, body)
    except InvalidSignature:
        raise BadRevocation("the revocation list has another signature") from None
    except ValueError:
        raise BadRevocation("the revocation list cannot be read") from None


def _number(data: bytes, body: der.Element) -> int:
    """The number among the extensions of a list (RFC 5280 section 5.2.3)."""
    *_, last = der.children(data, body.start, body.stop)
    if last.tag != _EXTENSIONS:
        raise BadRevocation("the revocation list has no number")
    all_of_them = der.element(data, last.start, last.stop, der.SEQUENCE)
    for extension in der.children(data, all_of_them.start, all_of_them.stop):
        name, *_, value = der.children(data, extension.start, extension.stop)
        if _whole(data, name) == _NUMBER:
            number = der.element(data, value.start, value.stop, der.INTEGER)
            return int.from_bytes(data[number.start : number.stop])
    raise BadRevocation("the revocation list has no number")


def _whole(data: bytes, element: der.Element) -> bytes:
    return data[element.begin : element.stop]
