"""Settings of approval."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.given import Help
from orchid.kernel.settings.section import Section


class ApprovingSettings(Section, frozen=True):
    after: ClassVar = "authorization-config"

    approve_own_requests: Annotated[
        bool,
        Help(description="Allow the creator of a certificate request to approve it."),
    ] = False
