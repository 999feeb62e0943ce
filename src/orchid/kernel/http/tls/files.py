"""TLS for the listener: the server's certificate, and the request for the client's.

Start with `TlsFiles`: it has the context for new connections and creates a new one when a file has
changed; open connections keep theirs. A failed reload leaves the old context in place.

A client certificate is requested, never required, and not verified in the handshake: an unknown or
expired one should get a response (401), not a broken connection. Python's ssl has no such mode, so
OpenSSL is called directly (`accept_unverified`), guarded by a handshake with ourselves at the
start; if that does not work, the handshake verifies against the client CAs, and `verifies_clients`
is true. In the first case **nothing is proven about the issuer**: authentication must verify the
chain itself.

Sessions are not resumed: a resumed session has no intermediate certificates, and would outlive the
removal of a CA.
"""

import ctypes
import logging
import ssl
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from orchid.kernel.credentials.files import Reloading, read_private
from orchid.kernel.credentials.refusals import Refusal

log = logging.getLogger(__name__)

_VERIFY_PEER: Final = 1  # SSL_VERIFY_PEER: request, but do not require
_SET_SESSION_CACHE_MODE: Final = 44  # SSL_CTRL_SET_SESS_CACHE_MODE; its value 0 means off
_SET_MAX_CERT_LIST: Final = 51  # SSL_CTRL_SET_MAX_CERT_LIST
_DER: Final = 2  # _ssl.ENCODING_DER

# Bytes of a client's certificate chain. OpenSSL parses the key of each certificate, which takes a
# third of a millisecond; its own limit has room for 280 of them.
MAX_CHAIN_BYTES: Final = 32 << 10


class TlsFilesUnusable(Refusal):
    """A certificate, key or CA file is broken or does not match the others."""


class TlsFiles:
    """A serving certificate with its key, and the CAs of client certificates.

    Without CAs, clients are not asked for a certificate. `judge_in_handshake` refuses unknown
    certificates in the handshake even where that could be left to authentication.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_cas: Sequence[Path] = (),
        *,
        judge_in_handshake: bool = False,
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._client_cas = tuple(client_cas)
        self._logged: str | None = None  # the last logged problem
        self.verifies_clients = judge_in_handshake
        paths = (certificate, key, *self._client_cas)
        followed = Reloading(paths, self._build)
        if self._client_cas and not judge_in_handshake and not self._asks_without_judging():
            log.warning("tls.client_certificates_verified_in_handshake")
            self.verifies_clients = True
            followed = Reloading(paths, self._build)
        self._followed = followed
        self.context = followed.current()

    def poll(self) -> bool:
        """Reload if a file has changed; return whether there is a new context. Never raises."""
        before, self.context = self.context, self._followed.current()
        if self._followed.problem is not None and self._followed.problem != self._logged:
            log.error("tls.reload_refused: %s", self._followed.problem)
        self._logged = self._followed.problem
        if self.context is before:
            return False
        log.info("tls.reloaded")
        return True

    def _build(self) -> ssl.SSLContext:
        read_private(self._key)  # refuses a key that others can read
        context = self._context_with_certificate()
        if self._client_cas:
            self._ask_for_certificates(context)
        return context

    def _context_with_certificate(self) -> ssl.SSLContext:
        context = _bare_context()
        try:
            # Without a password of ours, OpenSSL would ask for one on the terminal and wait.
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as problem:
            raise TlsFilesUnusable(
                f"cannot serve TLS with {self._certificate} and {self._key}: {_reason(problem)}"
            ) from problem
        return context

    def _ask_for_certificates(self, context: ssl.SSLContext) -> None:
        for file in self._client_cas:
            try:
                context.load_verify_locations(cafile=file)
            except (OSError, ValueError) as problem:
                raise TlsFilesUnusable(
                    f"cannot read client authorities from {file}: {_reason(problem)}"
                ) from problem
        context.verify_mode = ssl.CERT_OPTIONAL
        if not self.verifies_clients:
            accept_unverified(context)

    def _asks_without_judging(self) -> bool:
        """Test it: a handshake with ourselves, with a server that trusts nobody.

        The client presents our own certificate. Only a server that does not verify can then see it.
        """
        server = self._context_with_certificate()
        server.verify_mode = ssl.CERT_OPTIONAL
        accept_unverified(server)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        try:
            client.load_cert_chain(self._certificate, self._key, password=_no_password)
            seen = _handshake(server, client)
        except (OSError, ValueError):
            return False
        return seen == _first_certificate(self._certificate)


def intermediates_of(tls: Any) -> tuple[bytes, ...]:
    """The intermediates of the client's handshake, as DER."""
    try:
        if hasattr(tls, "get_unverified_chain"):  # Python 3.13 and later
            return tuple(tls.get_unverified_chain()[1:])
        chain = tls._sslobj.get_unverified_chain() or ()  # there is no other way
        return tuple(bytes(link.public_bytes(_DER)) for link in chain[1:])
    except (AttributeError, ssl.SSLError):
        return ()


# The server side


def _bare_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2; all of 1.3 are good
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _no_password() -> str:
    return ""


def _reason(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLError):
        return (problem.reason or "not usable").replace("_", " ").lower()
    if isinstance(problem, OSError):
        return problem.strerror or "not usable"
    return "not usable"


# Past the ssl module


@cache
def _libssl() -> ctypes.CDLL:
    """The OpenSSL that Python's own ssl module is linked with, and no other."""
    import _ssl  # noqa: PLC0415 - named here only for the library behind it

    return ctypes.CDLL(getattr(_ssl, "__file__", None))


# Replaces OpenSSL's own verification of a chain, which verifies as many signatures as a client
# sends certificates. OpenSSL stores the address, so this lives as long as the module.
_CHECK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GO_ON = _CHECK(lambda _store, _given: 1)


def accept_unverified(context: ssl.SSLContext) -> None:
    """Make handshakes request a certificate and accept any, if this Python allows it.

    Leaves the context verifying if anything is unexpected. The caller must verify the certificates.
    """
    if sys.implementation.name != "cpython":
        return
    try:
        library = _libssl()
        set_check = library.SSL_CTX_set_cert_verify_callback
        get_mode, control = library.SSL_CTX_get_verify_mode, library.SSL_CTX_ctrl
    except (OSError, AttributeError):
        return
    # The first field of CPython's context object, after the object header.
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    get_mode.argtypes = [ctypes.c_void_p]
    if not pointer.value or get_mode(pointer) != _VERIFY_PEER:
        return
    set_check.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    set_check.restype = None
    set_check(pointer, ctypes.cast(_GO_ON, ctypes.c_void_p), None)
    control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    control.restype = ctypes.c_long
    control(pointer, _SET_SESSION_CACHE_MODE, 0, None)
    control(pointer, _SET_MAX_CERT_LIST, MAX_CHAIN_BYTES, None)


def _handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> bytes | None:
    """A handshake in memory; returns the certificate that the server saw."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    waiting = [client, server]
    for _ in range(8):  # TLS 1.3 needs two rounds, 1.2 three
        waiting = [side for side in waiting if not _shook(side)]
        if not waiting:
            return server.getpeercert(binary_form=True)
    return None


def _shook(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _first_certificate(file: Path) -> bytes:
    text = file.read_text("ascii")
    end = "-----END CERTIFICATE-----"
    start = text.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[start : text.index(end, start) + len(end)])
