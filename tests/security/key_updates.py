"""Changes of keys by a TLS client (RFC 8446, 4.6.3), for which Python has no function."""

import _ssl
import ctypes
import ssl

import pytest

NOT_REQUESTED = 0  # the server keeps its own keys
_POINTER = 3 * ctypes.sizeof(ctypes.c_void_p)  # of OpenSSL's object, in CPython's


def key_update(tls: ssl.SSLObject) -> None:
    """Write one change of keys into the outgoing buffer of a client."""
    openssl = ctypes.CDLL(_ssl.__file__)
    if not hasattr(openssl, "SSL_key_update"):
        pytest.skip("this Python does not show its OpenSSL")
    inner = tls._sslobj  # type: ignore[attr-defined]  # not in typeshed
    made = ctypes.c_void_p.from_address(id(inner) + _POINTER)
    assert openssl.SSL_key_update(made, NOT_REQUESTED) == 1
    assert openssl.SSL_do_handshake(made) == 1
