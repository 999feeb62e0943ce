"""TLS settings of a client: trusted CAs, and the client certificate.

`trusting` creates a context that verifies names, TLS 1.2 and later; `present` adds a client
certificate. Keys never touch a disk, and no error message has one.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager


class UnusableTls(ValueError):
    """Certificates or keys that are invalid for TLS; the message says which."""


def trusting(authorities: str = "") -> ssl.SSLContext:
    """TLS settings that trust these PEM CAs, or the system's if there are none."""
    # Comments of a bundle are not always ASCII, which the library requires.
    data = authorities.encode("ascii", "replace").decode("ascii")
    try:
        context = ssl.create_default_context(cadata=data or None)
    except (ssl.SSLError, ValueError):
        raise UnusableTls("the authorities are not certificates in PEM form") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A server of TLS 1.2 chooses the group of DHE: one of 10,000 bits takes more than a second.
    ciphers = [each["name"] for each in context.get_ciphers() if each["kea"] != "kx-dhe"]
    context.set_ciphers(":".join(ciphers))
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Present a client certificate on all connections."""
    # The library only takes paths; memory files keep the key off every disk.
    with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, password=lambda: "")
        except (ssl.SSLError, OSError, ValueError):
            raise UnusableTls("client certificate and key do not belong together") from None


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """An anonymous file in memory, as a path, within the block."""
    descriptor = os.memfd_create("orchid", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
