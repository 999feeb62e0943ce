"""Private keys of authorities in a hardware security module (HSM), used through PKCS#11.

Start with `Hsm.key(label)`. The result is a key of the X.509 library whose signatures the module
makes, so that everything that signs with a key of the store signs with it too; the private key
never leaves the module. `NO_HSM` is for servers without one.

Every call may take long: run it in a thread. A process has one session, which one thread uses at a
time. After an error it is opened once more, since modules end sessions when a token is removed or
the connection to it breaks. Each signature is verified before it is used: a key may be replaced
under its label at any time.

pkcs11_session.py has the calls. It needs the package python-pkcs11 (extra `hsm`), so it is imported
when a key is first used.
"""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.padding import AsymmetricPadding
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature

from orchid.kernel.credentials import files
from orchid.kernel.credentials.refusals import HsmUnavailable, Refusal, UnsupportedKey
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509 import der

BUSY_SECONDS: Final = 10.0  # that a thread waits for another one's signature
_CURVES: Final = ("secp256r1", "secp384r1")
_RSA_BITS: Final = (3072, 4096)
# RFC 8017 section 9.2: the DigestInfo of SHA-256, without the digest.
_SHA256: Final = der.encode(
    der.SEQUENCE, der.encode_oid("2.16.840.1.101.3.4.2.1"), der.encode(0x05)
)

R = TypeVar("R")
Data = bytes | bytearray | memoryview
HsmKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
SignDigest = Callable[[bytes], bytes]


class KeysOfHsm(Protocol):
    """Finds private keys by their labels."""

    def key(self, label: str) -> HsmKey:
        """The private key of a label; raises Refusal."""


class NoHsm:
    """A server without an HSM."""

    def key(self, label: str) -> HsmKey:
        text = "this server has no HSM: set --pkcs11-module, --pkcs11-token and --pkcs11-pin-file"
        raise HsmUnavailable(text)


NO_HSM: Final = NoHsm()


class HsmSettings(msgspec.Struct, frozen=True):
    """The library of an HSM, the label of its token, and the file with the user PIN."""

    module: Path
    token: str
    pin_file: Path


class HsmSession(Protocol):
    """An open session with a token; every method raises Refusal."""

    def public_key(self, label: str) -> object:
        """The public key of a pair."""

    def sign(self, label: str, mechanism: str, data: bytes) -> bytes:
        """Sign with the private key of a pair."""


class Hsm:
    """One token of an HSM."""

    def __init__(self, settings: HsmSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._session: HsmSession | None = None
        self._refused = b""  # the digest of a PIN that was wrong

    def key(self, label: str) -> HsmKey:
        """The private key of a label, with its public key; raises Refusal."""
        public = self._exclusively(lambda session: session.public_key(label))

        def signing(mechanism: str) -> SignDigest:
            return lambda data: self._exclusively(
                lambda session: session.sign(label, mechanism, data)
            )

        if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
            return EllipticCurveHsmKey(public, signing("ECDSA"))
        if isinstance(public, rsa.RSAPublicKey) and public.key_size in _RSA_BITS:
            return RsaHsmKey(public, signing("RSA_PKCS"))
        text = "a key in the HSM has to be ECDSA P-256 or P-384, or RSA with 3072 or 4096 bits"
        raise UnsupportedKey(text)

    def _exclusively(self, act: Callable[[HsmSession], R]) -> R:
        """Use the session; if it was open before and fails, it is opened again."""
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise HsmUnavailable("the HSM does not answer")
        try:
            if self._session is not None:
                try:
                    return act(self._session)
                except HsmUnavailable:
                    self._session = None
            self._session = self._opened()
            return act(self._session)
        except HsmUnavailable:
            self._session = None
            raise
        finally:
            self._lock.release()

    def _opened(self) -> HsmSession:
        settings = self._settings
        try:
            from orchid.kernel.credentials.authorities import pkcs11_session  # noqa: PLC0415 - an extra
        except ImportError:
            text = "the package python-pkcs11 is not installed; it is in the extra hsm"
            raise HsmUnavailable(text) from None
        try:
            pin = SecretValue(files.read_private(settings.pin_file).decode("utf-8").strip("\r\n"))
        except UnicodeDecodeError:
            raise HsmUnavailable(f"{settings.pin_file} is not text") from None
        except Refusal as refusal:
            raise HsmUnavailable(str(refusal)) from None
        digest = hashlib.sha256(pin.reveal().encode()).digest()
        if digest == self._refused:
            text = (
                f"the PIN in {settings.pin_file} is wrong; it is tried again when the file changes"
            )
            raise HsmUnavailable(text)
        try:
            return pkcs11_session.Pkcs11Session(settings.module, settings.token, pin)
        except pkcs11_session.PinRefused:
            self._refused = digest  # a few more attempts would lock the token
            raise


class EllipticCurveHsmKey(ec.EllipticCurvePrivateKey):
    """An ECDSA key in an HSM."""

    def __init__(self, public: ec.EllipticCurvePublicKey, sign: SignDigest) -> None:
        self._public = public
        self._sign = sign

    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._public

    @property
    def curve(self) -> ec.EllipticCurve:
        return self._public.curve

    @property
    def key_size(self) -> int:
        return self._public.key_size

    def sign(self, data: Data, signature_algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        algorithm = signature_algorithm.algorithm
        if isinstance(algorithm, Prehashed):
            raise UnsupportedKey("a key in the HSM signs data, not digests")
        plain = self._sign(_digest(data, algorithm))  # r and s, of equal length
        half = len(plain) // 2
        r, s = (int.from_bytes(part, "big") for part in (plain[:half], plain[half:]))
        signature = encode_dss_signature(r, s)
        with _verified():
            self._public.verify(signature, data, signature_algorithm)
        return signature

    def exchange(self, algorithm: ec.ECDH, peer_public_key: ec.EllipticCurvePublicKey) -> bytes:
        _refuse_use()

    def private_numbers(self) -> ec.EllipticCurvePrivateNumbers:
        _refuse_use()

    def private_bytes(self, *given: Any, **named: Any) -> bytes:
        _refuse_use()

    def __copy__(self) -> "EllipticCurveHsmKey":
        return self

    def __deepcopy__(self, memo: object) -> "EllipticCurveHsmKey":
        return self


class RsaHsmKey(rsa.RSAPrivateKey):
    """An RSA key in an HSM: PKCS #1 v1.5 with SHA-256, as authorities sign."""

    def __init__(self, public: rsa.RSAPublicKey, sign: SignDigest) -> None:
        self._public = public
        self._sign = sign

    def public_key(self) -> rsa.RSAPublicKey:
        return self._public

    @property
    def key_size(self) -> int:
        return self._public.key_size

    def sign(
        self,
        data: Data,
        padding: AsymmetricPadding,
        algorithm: object,
    ) -> bytes:
        if not isinstance(algorithm, hashes.SHA256) or not _is_pkcs1(padding):
            raise UnsupportedKey("an RSA key in the HSM signs with PKCS #1 v1.5 and SHA-256")
        digest = der.encode(der.SEQUENCE, _SHA256, der.encode(0x04, _digest(data, algorithm)))
        signature = self._sign(digest)
        with _verified():
            self._public.verify(signature, bytes(data), padding, algorithm)
        return signature

    def decrypt(self, ciphertext: Data, padding: AsymmetricPadding) -> bytes:
        _refuse_use()

    def private_numbers(self) -> rsa.RSAPrivateNumbers:
        _refuse_use()

    def private_bytes(self, *given: Any, **named: Any) -> bytes:
        _refuse_use()

    def __copy__(self) -> "RsaHsmKey":
        return self

    def __deepcopy__(self, memo: object) -> "RsaHsmKey":
        return self


def _is_pkcs1(given: AsymmetricPadding) -> bool:
    return isinstance(given, padding.PKCS1v15)


def _digest(data: Data, algorithm: hashes.HashAlgorithm) -> bytes:
    made = hashes.Hash(algorithm)
    made.update(data)
    return made.finalize()


@contextlib.contextmanager
def _verified() -> Iterator[None]:
    """Turn a wrong signature into a refusal."""
    try:
        yield
    except InvalidSignature:
        text = "the HSM signed with another key than that of the certificate"
        raise HsmUnavailable(text) from None


def _refuse_use() -> NoReturn:
    raise UnsupportedKey("the private key does not leave the HSM, and only signs")


_: type[KeysOfHsm] = Hsm
__: type[KeysOfHsm] = NoHsm
