"""Generate an RSA key in a child process.

Start with `generate`. The library holds the interpreter lock while it searches for primes, which
may take seconds. Run as a program, this module is the child process: it writes one key and exits.
"""

import subprocess
import sys
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid.kernel.base import helper_process
from orchid.kernel.credentials.keys import encode_private

_EXPONENT: Final = 65537


def generate(bits: int) -> rsa.RSAPrivateKey:
    """Generate a key of this size; waits for the process, so call it in a thread."""
    done = subprocess.run(  # noqa: S603 - our own module, by the interpreter that runs us
        helper_process.command(__name__, str(bits)),
        env=helper_process.environment(),
        cwd=helper_process.NEUTRAL_DIRECTORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    # The key is new and ours: proving its primes again would take as long as generating them.
    key = serialization.load_pem_private_key(done.stdout, None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def main() -> None:
    """Write a new key of the requested size."""
    sys.stdout.write(encode_private(rsa.generate_private_key(_EXPONENT, int(sys.argv[1]))))


if __name__ == "__main__":
    main()
