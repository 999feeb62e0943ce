"""Settings of ACME."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Url


class AcmeSettings(Section, frozen=True):
    after: ClassVar = "crl-url"

    acme_url: Annotated[
        Url,
        Help(
            description="Base URL of /acme/ for clients, like https://acme.example.com. Default: "
            "the address at which clients reach the server."
        ),
    ] = Url("")

    def refuse_contradictions(self, _: Given) -> None:
        if self.acme_url and not self.acme_url.startswith("https://"):
            raise BadSettings("--acme-url: ACME clients need https")
