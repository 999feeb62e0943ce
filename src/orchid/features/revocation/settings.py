"""Settings of revocation lists: their URL, and how long they have the records that they need."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Address, Duration, Url


class RevocationSettings(Section, frozen=True):
    after: ClassVar = "api-audiences"

    crl_url: Annotated[
        Url,
        Help(
            description="Base URL of /crl/ for verifiers, like http://pki.example.com; "
            "issued certificates then have a CRL distribution point."
        ),
    ] = Url("")
    crl_listen: Annotated[
        Address,
        Help(
            description="Address and port to serve revocation lists on without TLS; empty for none."
        ),
    ] = Address("")
    issued_retention: Annotated[
        Duration,
        Help(
            description="How long the record of an issued certificate outlives it; at least 168h."
        ),
    ] = Duration("720h")

    def refuse_contradictions(self, _: Given) -> None:
        from orchid.kernel.credentials.x509.revocation_list import LISTED_AFTER_END  # noqa: PLC0415 -- slow, and no flag needs it

        # CRLs of revoked signers are computed from these records.
        least = LISTED_AFTER_END.total_seconds()
        if self.issued_retention.seconds < least:
            raise BadSettings(
                f"--issued-retention: at least {least / 3600:.0f}h: a revocation list has a "
                "certificate for that long after it expired"
            )
