"""The CA files of servers that this one calls: issuers of tokens, receivers of notices, etcd."""

from pathlib import Path

from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal, UnreadableKey
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.outbound.tls import trusting
from orchid.kernel.settings.errors import BadSettings


def authorities(name: str, path: str) -> str:
    """The CAs in the file of a setting, or "" without a file; raises BadSettings."""
    if not path:
        return ""
    try:
        return read(Path(path))
    except (Refusal, ValueError) as problem:
        raise BadSettings(f"--{name}: {problem}") from None


def read(path: Path) -> str:
    """The CAs in a file; raises Refusal and ValueError."""
    require_certificate(path)
    text = read_bounded(path).decode("latin-1")
    trusting(text)
    return text


def require_certificate(path: Path) -> None:
    """Refuse a file without any certificate; a key, for example."""
    if all(block.label != pem.CERTIFICATE for block in pem.split(read_bounded(path))):
        raise UnreadableKey(f"{path} does not contain a certificate in PEM form")
