"""Settings of the console on the server."""

from typing import Annotated, ClassVar

from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help, Many
from orchid.kernel.settings.section import Section, go_together
from orchid.kernel.settings.values import Address, Choice, Duration, is_plain_url

OIDC, CERTIFICATE = "oidc", "certificate"


class ConsoleLogin(Choice):
    choices = (OIDC, CERTIFICATE)


class ConsoleSettings(Section, frozen=True):
    after: ClassVar = "controllers"

    console_listen: Annotated[
        Address,
        Help(description="Address and port to serve the console on, for browsers; empty for none."),
    ] = Address("")
    console_url: Annotated[
        str, Help(description="URL of the console for browsers, like https://console.example.com.")
    ] = ""
    console_login: Annotated[
        ConsoleLogin,
        Help(description="How its users sign in: oidc, or certificate (a client certificate)."),
    ] = ConsoleLogin("oidc")
    console_oidc_issuer: Annotated[
        str,
        Help(
            description="Issuer that signs users in: one of the external OIDC issuers. Default: "
            "the only one."
        ),
    ] = ""
    console_oidc_client_id: Annotated[
        str,
        Help(
            description="Client id of the console: one of the audiences of the issuer. Default: "
            "the only one."
        ),
    ] = ""
    console_oidc_client_secret_file: Annotated[
        str, Help(description="File with the client secret, if it has one; read at each use.")
    ] = ""
    console_oidc_scopes: Annotated[
        Many,
        Help(
            description="Scopes of the sign-in; offline_access is added if the issuer supports it."
        ),
    ] = ("openid", "profile", "email")
    console_session: Annotated[
        Duration,
        Help(description="Maximum duration of a session; an idle one ends after 30 minutes."),
    ] = Duration("8h")
    console_tls_cert_file: Annotated[
        str,
        Help(
            description="Serving certificate of the console, with its chain. Default: that of the "
            "API."
        ),
    ] = ""
    console_tls_private_key_file: Annotated[str, Help(description="Its key.")] = ""

    def refuse_contradictions(self, options: Given) -> None:
        go_together(self, "console_listen", "console_url")
        go_together(self, "console_tls_cert_file", "console_tls_private_key_file")
        if not self.console_listen:
            return
        url = self.console_url
        rest = url.removeprefix("https://")
        if rest == url or "/" in rest.rstrip("/") or not is_plain_url(url):
            raise BadSettings(
                f"--console-url: {url!r} is not a URL like https://console.example.com"
            )
        sign_in = options.of(SignInSettings)
        if self.console_login == OIDC and not (
            sign_in.authentication_config or sign_in.oidc_issuer_url
        ):
            raise BadSettings(
                "--console-login: oidc needs an external issuer (--authentication-config or "
                "--oidc-issuer-url), whose tokens the server accepts"
            )
