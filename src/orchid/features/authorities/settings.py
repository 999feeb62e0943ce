"""Settings of the authorities that sign certificates."""

from orchid.features.sealing.settings import is_unsealed
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.signing_files import signing_files


def stores_authority(settings: Settings) -> bool:
    """Whether the platform's authority is a CertificateAuthority; otherwise it is files."""
    pairs = signing_files(settings.given, settings.naming)
    has_files = any(each.certificate or each.key for each in pairs)
    return not has_files and not is_unsealed(settings.given)
