"""Settings of encryption at rest."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.given import Given, Help
from orchid.kernel.settings.section import Section


class SealingSettings(Section, frozen=True):
    after: ClassVar = "etcd-keyfile"

    encryption_provider_config: Annotated[
        str,
        Help(
            description="EncryptionConfiguration: which resources are encrypted in the store, and "
            "with which keys. Default, with the embedded store: encryption.yaml in the data "
            "directory, created at the first start."
        ),
    ] = ""


def is_unsealed(given: Given) -> bool:
    """Whether Secrets are stored in clear text although no setting accepts that."""
    return bool(given.etcd_servers) and not given.of(SealingSettings).encryption_provider_config
