"""Settings of the tokens of service accounts."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.given import Help
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Duration


class AccountSettings(Section, frozen=True):
    after: ClassVar = "service-account-key-file"

    service_account_max_token_expiration: Annotated[
        Duration, Help(description="Maximum lifetime of a token; 0s means no limit.")
    ] = Duration("0s")
    service_account_extend_token_expiration: Annotated[
        bool,
        Help(
            description="Give tokens of Pods a longer lifetime than requested, with a warning time."
        ),
    ] = True
