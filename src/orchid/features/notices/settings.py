"""Settings of notices."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Duration


class ReceiverSettings(Section, frozen=True):
    after: ClassVar = "controllers"

    notice_url: Annotated[
        str,
        Help(
            description="URL that receives signed notices: waiting requests, ends, revocations, "
            "rotated keys. Without it, none are sent."
        ),
    ] = ""
    notice_ca_file: Annotated[
        str, Help(description="CA of the receiver's certificate. Default: those of the system.")
    ] = ""
    notice_token_file: Annotated[
        str, Help(description="File with a bearer token for the receiver; read at each use.")
    ] = ""
    notice_before: Annotated[
        Duration, Help(description="How long before the end of a certificate a notice is sent.")
    ] = Duration("720h")

    def refuse_contradictions(self, _: Given) -> None:
        if self.notice_url:
            from orchid.kernel.outbound import remote  # noqa: PLC0415 -- most servers send no notices

            try:
                remote.refuse_unfit_url(self.notice_url)
            except remote.InvalidRemote as problem:
                raise BadSettings(f"--notice-url: {problem}") from None
            return
        for flag, value in (
            ("notice-ca-file", self.notice_ca_file),
            ("notice-token-file", self.notice_token_file),
        ):
            if value:
                raise BadSettings(f"--{flag} needs --notice-url")
