"""The attack: RSA keys of authorities that take long to read, to make or to sign with.

The library proves that the factors of a key are prime, looks for primes and signs without letting
any other thread run. A Secret with a key of 8,192 bits stopped the whole server for 6 s, every half
minute; a CertificateAuthority that asked for one of 4,096 bits for as long as it took to find it.
"""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid.kernel.credentials.authorities import authority_keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.keys import encode_private
from orchid.kernel.credentials.refusals import UnreadableKey, UnsupportedKey
from tests.unit.features.authorities.test_keep_authorities import (
    KEEPER,
    bring,
    from_secret,
    until_ready,
)
from tests.unit.features.beside import beside
from tests.unit.kernel.credentials.own_authorities import own
from tests.unit.kernel.credentials.samples import NOW, rsa_key


def with_factors(p: int, q: int) -> bytes:
    """A key that says it has these factors."""
    public = rsa.RSAPublicNumbers(65537, p * q)
    numbers = rsa.RSAPrivateNumbers(p, q, 3, 3, 3, 3, public)
    return encode_private(numbers.private_key(unsafe_skip_rsa_key_validation=True)).encode()


async def test_a_given_key_is_taken_without_a_proof_of_its_primes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the Secret to an authority that is Ready: nobody asks the library for the proof."""
    asked: list[Any] = []
    read = serialization.load_der_private_key

    def reading(data: bytes, password: None, **how: Any) -> Any:
        found = read(data, password, **how)
        if isinstance(found, rsa.RSAPrivateKey):
            asked.append(how.get("unsafe_skip_rsa_key_validation"))
        return found

    made = own("RSA-3072")
    async with beside(tmp_path) as world, world.running(KEEPER):
        monkeypatch.setattr(serialization, "load_der_private_key", reading)
        await bring(world, crt=made.chain_pem, key=made.key_pem().reveal().encode())
        await from_secret(world)
        await until_ready(world)

    assert set(asked) == {True}


def test_a_given_key_that_is_slow_to_sign_with_is_refused() -> None:
    """Before anything is done with it."""
    with pytest.raises(UnsupportedKey, match="at most 4096 bits, not 8192"):
        authority_keys.read_untrusted(with_factors((1 << 4096) - 1, (1 << 4096) - 3))


def test_a_given_key_whose_numbers_do_not_fit_is_refused() -> None:
    """The library's own check would have found the same fault."""
    good = rsa_key()
    factor = good.private_numbers().p

    assert authority_keys.read_untrusted(encode_private(good).encode()) is not None
    with pytest.raises(UnreadableKey):
        authority_keys.read_untrusted(with_factors(factor, factor + 2))


def test_a_key_is_made_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The primes are not looked for in ours."""
    monkeypatch.delattr(rsa, "generate_private_key")

    made = Authority.create("own", now=NOW, algorithm="RSA-3072")

    assert authority_keys.algorithm_name(made.certificate.public_key()) == "RSA-3072"
