"""Settings of the ledger."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.given import Help, Many
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Choice


class LedgerTokens(Choice):
    choices = ("counted", "totals", "off")


class LedgerSettings(Section, frozen=True):
    after: ClassVar = "encryption-provider-config"

    ledger_key_file: Annotated[
        Many,
        Help(
            description="Ed25519 key that signs the ledger, the same on every server; given twice, "
            "the old one first: both sign for 30 days. Default: created in the data directory."
        ),
    ] = ()
    ledger_tokens: Annotated[
        LedgerTokens,
        Help(
            description="counted: the ledger has the number of tokens of each key and account, and "
            "their expiry; totals: of each key; off: of none."
        ),
    ] = LedgerTokens("counted")
