"""The exceptions of this package; the layers above turn them into responses.

A message gives the reason and never contains a token, a key or bytes of a request.

    Refusal
    ├── KeyRefused
    │   ├── UnreadableKey       no such file, no key in it, or another type of key
    │   ├── ExposedKeyFile      others own, can read or can change a private key or its directory
    │   └── UnsupportedKey      too weak, too large, or of an unsupported type
    ├── TokenRefused
    │   ├── NotAToken           not a supported compact JWS: another authenticator may accept it
    │   │   └── UnsafeHeader    contains a key of its own, or requires extensions
    │   ├── WrongIssuer         a token of an issuer that is not accepted
    │   ├── UnknownKey          the issuer has no key of this id
    │   ├── BadSignature        not signed with a key of the issuer and this algorithm
    │   ├── MalformedClaims     signed, but a claim has the wrong type
    │   ├── NotYetValid  CredentialExpired  IssuedInFuture
    ├── TooMuchPem              above the limit of bytes or blocks
    ├── MalformedRequest        not a certificate request, or an invalid signature
    ├── MalformedCertificate    not a certificate
    ├── CertificateRefused      does not authenticate a client
    ├── BadRevocation           cannot be expressed in a CRL
    ├── NotPermitted            forbidden by the signer's profile
    └── SigningFailed           an authority cannot sign now; a retry may help
        ├── AuthorityUnusable       certificate and key are unreadable or do not match
        │   ├── KeyMismatch         the key is not the certificate's
        │   ├── NotAnAuthority      a certificate of the chain is not a CA
        │   ├── NotPermittedToSign  its key usage forbids signing certificates, or CRLs
        │   ├── BrokenChain         a certificate was not issued by the next one
        │   ├── PathTooLong         a path length constraint forbids a CA below it
        │   └── NoCommonPurpose     the extended key usages of the chain exclude each other
        ├── HsmUnavailable          the module with the private key fails, or has no such key
        ├── NotYetAuthority         the CA certificate is not yet valid
        ├── AuthorityExpired        the CA certificate has expired
        └── UnsoundCertificate      the bytes to be signed differ from the template
"""

from types import TracebackType


class Refusal(Exception):
    """The base class: an input of this package is not acceptable."""


class KeyRefused(Refusal):
    """A key or key file cannot be used."""


class UnreadableKey(KeyRefused):
    """There is no usable key where one is expected."""


class ExposedKeyFile(KeyRefused):
    """A private key file belongs to others, or others can read or change it."""


class UnsupportedKey(KeyRefused):
    """The key's type or size is not supported."""


class TokenRefused(Refusal):
    """A token does not authenticate."""


class NotAToken(TokenRefused):
    """The bytes are not a token in a supported format."""


class UnsafeHeader(NotAToken):
    """The header of the token tries to control its verification."""


class WrongIssuer(TokenRefused):
    """The issuer is not accepted."""


class UnknownKey(TokenRefused):
    """The issuer has no key of this id."""


class BadSignature(TokenRefused):
    """The signature was not made with a key of the issuer."""


class MalformedClaims(TokenRefused):
    """A signed claim has the wrong type."""


class NotYetValid(TokenRefused):
    """The token is not valid yet."""


class CredentialExpired(TokenRefused):
    """The token has expired."""


class IssuedInFuture(TokenRefused):
    """The token was issued in the future."""


class TooMuchPem(Refusal):
    """The text exceeds the limit of bytes or blocks."""


class MalformedRequest(Refusal):
    """The bytes are not a certificate request with a valid signature."""


class MalformedCertificate(Refusal):
    """The bytes are not a certificate."""


class CertificateRefused(Refusal):
    """The certificate does not authenticate a client."""


class BadRevocation(Refusal):
    """The serial number or reason cannot be expressed in a CRL."""


class NotPermitted(Refusal):
    """The signer's profile forbids the request."""


class SigningFailed(Refusal):
    """The authority cannot sign this now."""


class AuthorityUnusable(SigningFailed):
    """The authority's certificate and key cannot be used together."""


class HsmUnavailable(SigningFailed):
    """The hardware security module with the private key cannot be used."""


class KeyMismatch(AuthorityUnusable):
    """The private key is not that of the certificate."""


class NotAnAuthority(AuthorityUnusable):
    """A certificate of the chain is not a CA certificate."""


class NotPermittedToSign(AuthorityUnusable):
    """The key usage of a certificate forbids signing certificates, or CRLs."""


class BrokenChain(AuthorityUnusable):
    """A certificate of the chain was not issued by the next one."""


class PathTooLong(AuthorityUnusable):
    """A path length constraint forbids a CA below it."""


class NoCommonPurpose(AuthorityUnusable):
    """The extended key usages of the chain exclude each other."""


class NotYetAuthority(SigningFailed):
    """The authority's certificate is not yet valid."""


class AuthorityExpired(SigningFailed):
    """The authority's certificate has expired."""


class UnsoundCertificate(SigningFailed):
    """The bytes to be signed differ from the template."""


class library_errors_as:  # noqa: N801 - used like a function, in a with statement
    """Convert every exception of the X.509 library into a named refusal.

    Certificates of strangers raise what no documentation lists: KeyError for a TLS feature,
    UnsupportedGeneralNameType for a name, and PanicException, which derives from BaseException and
    would pass every `except Exception`. Refusals, cancellation and exit pass through.
    """

    __slots__ = ("_refusal", "_text")

    def __init__(self, refusal: type[Refusal], text: str) -> None:
        self._refusal = refusal
        self._text = text

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is not None and is_library_error(error):
            raise self._refusal(self._text) from None


def is_library_error(problem: BaseException) -> bool:
    """Whether the library may have raised it: everything but our refusals, and ends of a task."""
    if isinstance(problem, Exception):
        return not isinstance(problem, Refusal)
    return is_panic(type(problem))


def is_panic(kind: type[BaseException]) -> bool:
    """Whether this is the library's PanicException, which cannot be imported."""
    return kind.__name__ == "PanicException"
