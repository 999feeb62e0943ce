"""The number of a stored list, if its key has signed it."""

from datetime import UTC, datetime, timedelta

import pytest

from orchid.features.token_keys.kinds.signing_key import authority_public_key
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import ALGORITHMS
from orchid.kernel.credentials.authorities.signed_list import signed_number
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509 import der
from orchid.kernel.credentials.x509.revocation_list import Edition, RevokedCertificates

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NUMBER = 1_795_084_499_752_190_000


def made(algorithm: str = "ECDSA-P256") -> tuple[str, bytes]:
    """The public key of a new authority, and a list of it."""
    authority = Authority.create(
        "Web CA", now=NOW, lifetime=timedelta(days=30), algorithm=algorithm
    )
    revoked = RevokedCertificates()
    revoked.add(7, NOW, "keyCompromise")
    edition = Edition(NUMBER, NOW, NOW + timedelta(days=7))
    public = authority_public_key(authority.chain_pem.decode())
    return public, authority.sign_revocation_list(revoked, edition)


@pytest.mark.starts  # a process makes RSA keys
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_number_of_a_signed_list_is_read(algorithm: str) -> None:
    """Whatever the algorithm of the authority; another key has not signed it."""
    public, data = made(algorithm)
    other, _ = made("Ed25519")

    assert signed_number(data, public) == NUMBER
    with pytest.raises(Refusal):
        signed_number(data, other)


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_changed_list_has_no_number(at: int) -> None:
    """Each of its bytes is signed, or part of the form."""
    public, data = made()
    changed = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]

    with pytest.raises(Refusal):
        signed_number(changed, public)


def test_what_is_no_list_has_no_number() -> None:
    """A list with something behind it, a part of one, other content, another key."""
    public, data = made()

    for text in (data + b"\0", data[:-1], b"", b"0", der.encode(der.SEQUENCE), public.encode()):
        with pytest.raises(Refusal):
            signed_number(text, public)
    with pytest.raises(Refusal):
        signed_number(data, "not a key")
