"""Settings of sign-in: who clients are."""

from typing import Annotated, ClassVar

import msgspec

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help, Many
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Duration


class SignInSettings(Section, frozen=True):
    after: ClassVar = "shutdown-grace"

    client_ca_file: Annotated[
        str, Help(description="CAs of client certificates. Default: the cluster CA.")
    ] = ""
    token_auth_file: Annotated[
        str, Help(description='Static tokens: token,user,uid,"group,group" by line.')
    ] = ""
    requestheader_client_ca_file: Annotated[
        str,
        Help(
            description="CA of the front proxy's certificate; without it its headers are ignored."
        ),
    ] = ""
    requestheader_allowed_names: Annotated[
        Many, Help(description="Common names the front proxy may have; empty allows any.")
    ] = ()
    requestheader_username_headers: Annotated[
        Many, Help(description="Headers in which the front proxy names the user.")
    ] = ()
    requestheader_uid_headers: Annotated[
        Many, Help(description="Headers in which the front proxy gives the user's uid.")
    ] = ()
    requestheader_group_headers: Annotated[
        Many, Help(description="Headers in which the front proxy names groups.")
    ] = ()
    requestheader_extra_headers_prefix: Annotated[
        Many, Help(description="Prefixes of headers with extra attributes of the user.")
    ] = ()
    authentication_config: Annotated[
        str, Help(description="AuthenticationConfiguration file: external OIDC issuers.")
    ] = ""
    oidc_issuer_url: Annotated[str, Help(description="URL of an external OIDC issuer.")] = ""
    oidc_client_id: Annotated[str, Help(description="Audience that its tokens must have.")] = ""
    oidc_username_claim: Annotated[str, Help(description="Claim with the user name.")] = "sub"
    oidc_username_prefix: Annotated[
        str, Help(description="Prefix of the user name; '-' for none.")
    ] = ""
    oidc_groups_claim: Annotated[str, Help(description="Claim with the groups.")] = ""
    oidc_groups_prefix: Annotated[str, Help(description="Prefix of each group.")] = ""
    oidc_required_claim: Annotated[
        Many, Help(description="claim=value that a token must have.")
    ] = ()
    oidc_signing_algs: Annotated[Many, Help(description="Accepted signature algorithms.")] = (
        "RS256",
    )
    oidc_ca_file: Annotated[str, Help(description="CAs of the issuer's serving certificate.")] = ""
    authentication_token_webhook_config_file: Annotated[
        str, Help(description="kubeconfig of a webhook that reviews tokens; reloaded when changed.")
    ] = ""
    authentication_token_webhook_cache_ttl: Annotated[
        Duration, Help(description="How long its responses are cached.")
    ] = Duration("2m")

    @property
    def has_outside_issuers(self) -> bool:
        """Whether external issuers are configured."""
        return bool(self.authentication_config or self.oidc_issuer_url or self.oidc_client_id)

    def refuse_contradictions(self, _: Given) -> None:
        """Refuse headers of a front proxy without its CA: they could not be verified."""
        if self.requestheader_client_ca_file:
            return
        for field in msgspec.structs.fields(type(self)):
            flag = field.encode_name
            if flag.startswith("requestheader-") and getattr(self, field.name):
                raise BadSettings(
                    f"--{flag} needs --requestheader-client-ca-file, which verifies the front proxy"
                )
