"""A hardware security module in software: SoftHSM 2, with one token."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from orchid.kernel.credentials.authorities.hsm import HsmSettings
from tests.system_packages import MISSING, require_program

TOKEN, PIN = "authorities", "482913"
PLACES = ("/usr/lib/softhsm", "/usr/lib64/softhsm", "/usr/local/lib/softhsm")


class SoftHsm:
    """A token in a directory."""

    def __init__(self, directory: Path) -> None:
        tool = require_program("softhsm2-util")
        found = [Path(place, "libsofthsm2.so") for place in PLACES]
        self.module = next((one for one in found if one.exists()), Path())
        if self.module == Path():
            pytest.skip(f"{MISSING}libsofthsm2.so")
        self.configuration = directory / "softhsm2.conf"
        tokens, self.pin_file = directory / "tokens", directory / "pin"
        tokens.mkdir(parents=True)
        self.configuration.write_text(f"directories.tokendir = {tokens}\nlog.level = ERROR\n")
        self.write_pin(PIN)
        command = [tool, "--init-token", "--free", "--label", TOKEN, "--so-pin", PIN, "--pin", PIN]
        environment = {**os.environ, "SOFTHSM2_CONF": str(self.configuration)}
        subprocess.run(command, env=environment, check=True, capture_output=True)

    @property
    def settings(self) -> HsmSettings:
        return HsmSettings(self.module, TOKEN, self.pin_file)

    @property
    def flags(self) -> dict[str, str]:
        """The settings of a server."""
        return {
            "pkcs11_module": str(self.module),
            "pkcs11_token": TOKEN,
            "pkcs11_pin_file": str(self.pin_file),
        }

    def write_pin(self, pin: str) -> None:
        self.pin_file.write_text(f"{pin}\n")
        self.pin_file.chmod(0o600)

    def put_rsa(self, label: str, bits: int) -> None:
        """A pair of RSA keys; it is created outside, since SoftHSM takes seconds for one."""
        import pkcs11
        from pkcs11.util.rsa import decode_rsa_private_key, decode_rsa_public_key

        made = rsa.generate_private_key(65537, bits)
        numbers = made.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        public = made.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)
        both = decode_rsa_private_key(numbers), decode_rsa_public_key(public)
        with self._session() as session:
            for attributes in both:
                session.create_object(
                    {**attributes, pkcs11.Attribute.LABEL: label, pkcs11.Attribute.TOKEN: True}
                )

    def generate(self, label: str, curve: str = "secp256r1") -> None:
        """A pair of keys that cannot leave the token."""
        import pkcs11
        from pkcs11.util.ec import encode_named_curve_parameters

        with self._session() as session:
            oid = encode_named_curve_parameters(curve)
            domain = session.create_domain_parameters(
                pkcs11.KeyType.EC, {pkcs11.Attribute.EC_PARAMS: oid}, local=True
            )
            domain.generate_keypair(label=label, store=True)

    def destroy(self, label: str) -> None:
        """Delete both keys of a label."""
        import pkcs11

        with self._session() as session:
            for one in list(session.get_objects({pkcs11.Attribute.LABEL: label})):
                one.destroy()

    @contextmanager
    def _session(self) -> Iterator[Any]:
        import pkcs11

        library = pkcs11.lib(str(self.module))
        library.reinitialize()
        with library.get_token(token_label=TOKEN).open(rw=True, user_pin=PIN) as session:
            yield session
