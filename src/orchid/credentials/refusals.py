"""The refusals of this package, each with a name; the layers above turn them into answers.

A text says what is wrong and never holds a token, a key or the bytes of a request.

    Refusal
    ├── KeyRefused
    │   ├── UnreadableKey       no such file, no key in it, or not the kind of key that is asked for
    │   ├── ExposedKeyFile      others own, may read or may change a private key or its directory
    │   └── UnsupportedKey      too weak, too large, or of a type that we do not use
    ├── TokenRefused
    │   ├── NotAToken           not a compact JWS that we read: somebody else may know it
    │   │   └── UnsafeHeader    names a key of its own, or demands extensions
    │   ├── WrongIssuer         a token, but of an issuer that is not ours
    │   ├── UnknownKey          its key id belongs to none of the issuer's keys
    │   ├── BadSignature        no key of the issuer made this signature with this algorithm
    │   ├── MalformedClaims     signed, yet a claim has the wrong type
    │   ├── NotYetValid  CredentialExpired  IssuedInFuture
    ├── TooMuchPem              larger, or in more pieces, than we are willing to read
    ├── MalformedRequest        not a certificate request, or its signature does not fit
    ├── MalformedCertificate    not a certificate
    ├── CertificateRefused      a certificate that does not prove a client
    ├── BadRevocation           a revocation that no list can say
    ├── NotPermitted            a signer's rules forbid what is asked for
    └── SigningFailed           an authority cannot sign now; trying later may help
        ├── AuthorityUnusable   certificate and key are unreadable or cannot be used together
        │   ├── KeyMismatch         the key is not the certificate's
        │   ├── NotAnAuthority      a certificate of the chain is not an authority's
        │   ├── NotPermittedToSign  its key usage forbids to sign certificates, or lists
        │   ├── BrokenChain         a certificate was not issued by the next one
        │   ├── PathTooLong         a path length constraint forbids an authority below it
        │   └── NoCommonPurpose     the extended key usages of the chain exclude each other
        ├── NotYetAuthority     the authority's own time has not begun
        ├── AuthorityExpired    the authority's own time is over
        └── UnsoundCertificate  what was about to be signed is not what was agreed
"""

from types import TracebackType


class Refusal(Exception):
    """The common root: something handed to this package is not acceptable."""


class KeyRefused(Refusal):
    """A key or key file cannot be used."""


class UnreadableKey(KeyRefused):
    """There is no usable key where one is expected."""


class ExposedKeyFile(KeyRefused):
    """A private key lies where others can read or change it, or belongs to somebody else."""


class UnsupportedKey(KeyRefused):
    """The key's type or size is not one that we use."""


class TokenRefused(Refusal):
    """A token does not prove what it says."""


class NotAToken(TokenRefused):
    """These bytes are not a token of the form that we read."""


class UnsafeHeader(NotAToken):
    """The header tries to say how it is to be verified."""


class WrongIssuer(TokenRefused):
    """The issuer is not one of ours."""


class UnknownKey(TokenRefused):
    """No key of the issuer has this id."""


class BadSignature(TokenRefused):
    """The signature was not made by a key of the issuer."""


class MalformedClaims(TokenRefused):
    """A signed claim is not of the type it must have."""


class NotYetValid(TokenRefused):
    """The token's time has not begun."""


class CredentialExpired(TokenRefused):
    """The token's time is over."""


class IssuedInFuture(TokenRefused):
    """The token says that it was made later than now."""


class TooMuchPem(Refusal):
    """The text is larger, or holds more blocks, than we read."""


class MalformedRequest(Refusal):
    """The bytes are not a certificate request that proves its key."""


class MalformedCertificate(Refusal):
    """The bytes are not a certificate."""


class CertificateRefused(Refusal):
    """The certificate does not prove a client to us."""


class BadRevocation(Refusal):
    """A revocation has a number or a reason that no list can hold."""


class NotPermitted(Refusal):
    """The signer's rules forbid what the request asks for."""


class SigningFailed(Refusal):
    """The authority cannot sign this now."""


class AuthorityUnusable(SigningFailed):
    """The authority's certificate and key cannot be used together."""


class KeyMismatch(AuthorityUnusable):
    """The private key is not that of the certificate."""


class NotAnAuthority(AuthorityUnusable):
    """A certificate of the chain does not say that it is an authority's."""


class NotPermittedToSign(AuthorityUnusable):
    """The key usage of a certificate forbids to sign certificates, or revocation lists."""


class BrokenChain(AuthorityUnusable):
    """A certificate of the chain was not issued by the next one."""


class PathTooLong(AuthorityUnusable):
    """A path length constraint forbids an authority that stands below it."""


class NoCommonPurpose(AuthorityUnusable):
    """The extended key usages of the chain leave nothing that could be issued."""


class NotYetAuthority(SigningFailed):
    """The authority's certificate has not begun."""


class AuthorityExpired(SigningFailed):
    """The authority's certificate has ended."""


class UnsoundCertificate(SigningFailed):
    """The bytes to be signed do not say what was agreed."""


class panics_as:  # noqa: N801 - used like a function, in a with statement
    """Turn a panic of the X.509 library into a named refusal.

    The library's PanicException derives from BaseException, so that one hostile certificate
    would go past every `except Exception`. Everything else (cancellation, exit, ordinary errors)
    passes untouched.
    """

    __slots__ = ("_refusal", "_text")

    def __init__(self, refusal: type[Refusal], text: str) -> None:
        self._refusal = refusal
        self._text = text

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is not None and is_panic(kind):
            raise self._refusal(self._text) from None


def is_panic(kind: type[BaseException]) -> bool:
    """Say whether this is the library's PanicException, which cannot be imported."""
    return kind.__name__ == "PanicException"
