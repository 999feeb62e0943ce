"""The pages, one file per subject."""

from orchid.features.console.page import ConsolePage, Download
from orchid.features.console.pages import (
    accounts,
    authorities,
    issued,
    ledger,
    overview,
    policies,
    requests,
    revocations,
    revoke,
    rights,
    server,
)

PAGES: tuple[ConsolePage | Download, ...] = (
    *overview.PAGES,
    *requests.PAGES,
    *issued.PAGES,
    *revoke.PAGES,
    *revocations.PAGES,
    *accounts.PAGES,
    *authorities.PAGES,
    *policies.PAGES,
    *rights.PAGES,
    *ledger.PAGES,
    *server.PAGES,
)
