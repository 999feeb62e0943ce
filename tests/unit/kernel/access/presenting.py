"""Credentials of a caller, and a clock that moves only when it is set."""

import datetime
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from orchid.kernel.credentials.x509.trust.certification_path import ClientVerifier
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.http.messages import HttpRequest, Peer
from orchid.kernel.wire.user import UserInfo

START = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
API = ("https://orchid.test",)


class FakeClock:
    """Time that moves only when a test moves it."""

    def __init__(self, now: datetime.datetime = START) -> None:
        self.moment = now

    def now(self) -> datetime.datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    def advance(self, seconds: float) -> None:
        self.moment += datetime.timedelta(seconds=seconds)


class Repeatable:
    """Uids that can be foretold."""

    def __init__(self) -> None:
        self._count = 0

    def uid(self) -> str:
        self._count += 1
        return f"00000000-0000-4000-8000-{self._count:012d}"

    def suffix(self) -> str:
        return "bcdfg"


def presented(
    *headers: tuple[str, str], path: str = "/api", peer: Peer | None = None
) -> HttpRequest:
    """A request with these headers, in this order, as the listener would hand it on."""
    first: dict[str, str] = {}
    repeated: list[tuple[str, str]] = []
    for name, value in headers:
        if name.lower() in first:
            repeated.append((name.lower(), value))
        else:
            first[name.lower()] = value
    peer = peer or Peer("127.0.0.1:1")
    return HttpRequest("GET", path, path, "", first, peer, repeated=repeated)


class Authority:
    """A certificate authority for one test."""

    def __init__(
        self, name: str = "test authority", key: ec.EllipticCurvePrivateKey | None = None
    ) -> None:
        self.name = name
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(START - datetime.timedelta(days=1))
            .not_valid_after(START + datetime.timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.pool = ClientVerifier([self.certificate])

    def renewed(self) -> "Authority":
        """The same authority with another certificate."""
        return Authority(self.name, self._key)

    def issue(
        self,
        common_name: str,
        organizations: Sequence[str] = (),
        *,
        uids: Sequence[str] = (),
        usage: ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
        lasts: datetime.timedelta = datetime.timedelta(hours=1),
    ) -> bytes:
        """A client certificate in DER."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
        if common_name:
            parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        parts += [x509.NameAttribute(ObjectIdentifier("1.3.6.1.4.1.57683.2"), one) for one in uids]
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(parts))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(START - datetime.timedelta(minutes=5))
            .not_valid_after(START + lasts)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.DER)
        )


class TokensOf:
    """A token authenticator that knows some tokens, and refuses some with a reason."""

    def __init__(self, known: dict[str, str], refused: dict[str, str] | None = None) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self._known = known
        self._refused = refused or {}

    async def authenticate_token(
        self, token: str, audiences: tuple[str, ...]
    ) -> Authenticated | None:
        self.asked.append((token, audiences))
        if token in self._refused:
            raise Rejected(self._refused[token])
        if token in self._known:
            return Authenticated(UserInfo(username=self._known[token]), audiences)
        return None
