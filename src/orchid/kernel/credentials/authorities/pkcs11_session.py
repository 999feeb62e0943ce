"""A session with a PKCS#11 token: find a pair of keys by its label, and sign.

Import it only where it is used: it needs the package python-pkcs11, which is in the extra `hsm`.
The package releases the interpreter lock during each call of the library.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pkcs11
from cryptography.hazmat.primitives.serialization import load_der_public_key
from pkcs11.util.ec import encode_ec_public_key
from pkcs11.util.rsa import encode_rsa_public_key

from orchid.kernel.credentials.refusals import HsmUnavailable, UnsupportedKey
from orchid.kernel.credentials.secret import SecretValue

_ENCODERS = {pkcs11.KeyType.EC: encode_ec_public_key, pkcs11.KeyType.RSA: encode_rsa_public_key}


class PinRefused(HsmUnavailable):
    """The PIN is wrong; a token is locked after a few attempts."""


class Pkcs11Session:
    """An open session; raises HsmUnavailable if a call fails."""

    def __init__(self, module: Path, token: str, pin: SecretValue) -> None:
        self._token = token
        self._private: dict[str, Any] = {}  # by label
        with self._refusing():
            library = pkcs11.lib(str(module))
            library.reinitialize()  # tokens that were added since the last time
            device = library.get_token(token_label=token)
            self._session = device.open(user_pin=pin.reveal())

    def public_key(self, label: str) -> object:
        """The public key of a pair, whose private key is there too."""
        with self._refusing():
            self._private[label] = self._object(label, pkcs11.ObjectClass.PRIVATE_KEY)
            public = self._object(label, pkcs11.ObjectClass.PUBLIC_KEY)
            encode = _ENCODERS.get(public.key_type)
            try:
                return load_der_public_key(encode(public)) if encode else None
            except ValueError:
                text = f"the public key {label} of the HSM cannot be read"
                raise UnsupportedKey(text) from None

    def sign(self, label: str, mechanism: str, data: bytes) -> bytes:
        with self._refusing():
            if label not in self._private:
                self._private[label] = self._object(label, pkcs11.ObjectClass.PRIVATE_KEY)
            signature: bytes = self._private[label].sign(
                data, mechanism=pkcs11.Mechanism[mechanism]
            )
            return signature

    def _object(self, label: str, kind: pkcs11.ObjectClass) -> Any:
        what = kind.name.replace("_", " ").lower()
        try:
            return self._session.get_key(object_class=kind, label=label)
        except pkcs11.NoSuchKey:
            raise HsmUnavailable(f"the token {self._token} has no {what} {label}") from None
        except pkcs11.MultipleObjectsReturned:
            text = f"the token {self._token} has several keys {label}"
            raise HsmUnavailable(text) from None

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (pkcs11.PinIncorrect, pkcs11.PinLenRange, pkcs11.PinInvalid) as problem:
            text = f"the token {self._token} refuses the PIN: {type(problem).__name__}"
            raise PinRefused(text) from None
        except (pkcs11.PKCS11Error, RuntimeError) as problem:
            # Their messages have no more than names; many have none.
            text = str(problem) or type(problem).__name__
            raise HsmUnavailable(f"the token {self._token}: {text}") from None
