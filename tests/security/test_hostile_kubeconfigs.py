"""The attack: a kubeconfig for the inventory of a cluster that takes the server long to use.

Its author may create Clusters and Secrets; the server reads it again and again, beside everybody's
requests.
"""

import base64
import datetime
import json
import secrets
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from orchid.kernel.outbound.kubeconfig import LARGEST_EMBEDDED
from orchid.kernel.outbound.remote import InvalidRemote, embedded_remote
from tests.unit.kernel.outbound.loopback import CA, PEM

DAY = datetime.timedelta(days=1)


def kubeconfig(user: dict[str, Any], authority: str = PEM) -> bytes:
    cluster = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
    }
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
    ).encode()


def odd(bits: int) -> int:
    return secrets.randbits(bits) | 1 | 3 << bits - 2


def pair(bits: int) -> dict[str, Any]:
    """A client certificate and its key, of no primes: nobody multiplies to find out."""
    p, q = odd(bits // 2), odd(bits // 2)
    public = rsa.RSAPublicNumbers(65537, p * q)
    key = rsa.RSAPrivateNumbers(p, q, odd(bits - 1), 3, 3, 3, public).private_key(
        unsafe_skip_rsa_key_validation=True
    )
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "reader")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, public.public_key(), 1, now - DAY, now + DAY)
    certificate = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    data = certificate.public_bytes(serialization.Encoding.PEM)
    return {
        "client-certificate-data": base64.b64encode(data).decode(),
        "client-key-data": base64.b64encode(text).decode(),
    }


def test_no_client_key_signs_for_minutes() -> None:
    """Each handshake signs with it, on the event loop."""
    with pytest.raises(InvalidRemote, match="more than 8192 bits"):
        embedded_remote(kubeconfig(pair(16384)), "Secret a")


def test_other_client_keys_are_used() -> None:
    leaf = CA.issue_cert("reader.example")
    data = {
        "client-certificate-data": base64.b64encode(leaf.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": base64.b64encode(leaf.private_key_pem.bytes()).decode(),
    }

    assert embedded_remote(kubeconfig(data), "Secret a").url == "https://127.0.0.1:1"


def test_no_kubeconfig_brings_thousands_of_authorities() -> None:
    """A megabyte of them took half a second, in C, with the interpreter held."""
    authorities = PEM * (LARGEST_EMBEDDED // len(PEM))

    with pytest.raises(InvalidRemote, match="more than 131072 bytes"):
        embedded_remote(kubeconfig({"token": "abc"}, authorities), "Secret a")
