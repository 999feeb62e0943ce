"""Make an RSA key in a process of its own.

Start with `generate`. The library lets no other thread run while it looks for primes, which may
take seconds. Run as a program this module is that process: it writes one key and ends.
"""

import subprocess
import sys
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid import helper_process
from orchid.credentials.keys import encode_private

_EXPONENT: Final = 65537


def generate(bits: int) -> rsa.RSAPrivateKey:
    """Make a key of so many bits; waits for the process, so call it in a thread."""
    done = subprocess.run(  # noqa: S603 - our own module, by the interpreter that runs us
        helper_process.command(__name__, str(bits)),
        env=helper_process.environment(),
        cwd=helper_process.NEUTRAL_DIRECTORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    # It is ours and new: to prove its primes again would take as long as to find them.
    made = serialization.load_pem_private_key(
        done.stdout, None, unsafe_skip_rsa_key_validation=True
    )
    assert isinstance(made, rsa.RSAPrivateKey)
    return made


def main() -> None:
    """Write a new key of the size that is asked for."""
    sys.stdout.write(encode_private(rsa.generate_private_key(_EXPONENT, int(sys.argv[1]))))


if __name__ == "__main__":
    main()
