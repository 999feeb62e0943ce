"""Default roles: who may read the ledger."""

from orchid.kernel.wire.default_roles import DefaultRole, urls
from orchid.kernel.wire.naming import Naming


def roles(_: Naming) -> tuple[DefaultRole, ...]:
    return (DefaultRole("ledger-viewer", (urls("/ledger/*"),)),)
