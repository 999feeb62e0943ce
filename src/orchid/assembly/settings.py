"""Every setting: those of the kernel, and those that features declare in their settings.py.

A new section is one line here. This file imports nothing else of a feature: `orchid serve --help`
must not wait for what only a server needs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchid.features.accounts.settings import AccountSettings
from orchid.features.acme.settings import AcmeSettings
from orchid.features.approving.settings import ApprovingSettings
from orchid.features.authorities.settings import AuthoritySettings
from orchid.features.console.settings import ConsoleSettings
from orchid.features.exchange.settings import ExchangeSettings
from orchid.features.ledger.settings import LedgerSettings
from orchid.features.notices.settings import ReceiverSettings
from orchid.features.objects.settings import ObjectSettings
from orchid.features.revocation.settings import RevocationSettings
from orchid.features.rights.settings import RightsSettings
from orchid.features.sealing.settings import SealingSettings
from orchid.features.sign_in.settings import SignInSettings
from orchid.features.token_keys.settings import TokenKeySettings
from orchid.kernel.settings import reading
from orchid.kernel.settings.given import Given
from orchid.kernel.settings.section import Section, joined

# In the order in which they are listed, if several follow one setting.
SECTIONS: Final[tuple[type[Section], ...]] = (
    ObjectSettings,
    SignInSettings,
    TokenKeySettings,
    AccountSettings,
    ExchangeSettings,
    RightsSettings,
    ApprovingSettings,
    AuthoritySettings,
    RevocationSettings,
    AcmeSettings,
    ReceiverSettings,
    ConsoleSettings,
    SealingSettings,
    LedgerSettings,
)
EverySetting: Final = joined(SECTIONS)


def read(config: Path | None, flags: Mapping[str, Any]) -> Given:
    """Merge a TOML file and flags; raises BadSettings."""
    return reading.read(EverySetting, config, flags)


def written_in(config: Path | None) -> dict[str, Any]:
    """The settings in a file, as written; raises BadSettings."""
    return reading.written_in(EverySetting, config)
