"""`Settings`: the validated settings, with defaults that depend on other settings.

Start with `check`. An invalid value raises `BadSettings`, which names the flag.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from orchid.kernel.credentials.x509.revocation_list import LISTED_AFTER_END
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.settings.signing_files import own_pairs, signing_files
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.naming import SETS, Naming
from orchid.kernel.wire.options import duration

LAST_PORT = 65_535
STORED, FILES = "stored", "files"  # where token keys are
CONSOLE_LOGINS = ("oidc", "certificate")
LEAST = {
    "workers": 1,
    "max_requests_inflight": 0,
    "max_mutating_requests_inflight": 0,
    "min_request_timeout": 0,
}


class Settings(msgspec.Struct, frozen=True):
    """Validated settings, with defaults that depend on others filled in."""

    given: Given
    data_dir: Path
    host: str
    port: int
    names: Naming
    issuers: tuple[str, ...]
    api_audiences: tuple[str, ...]
    request_timeout: float
    shutdown_grace: float
    history: float
    longest_token: int
    signing_duration: float
    issued_retention: float
    jwks_max_age: float
    token_key_rotation: float
    token_key_publish_time: float
    token_webhook_ttl: float
    webhook_allowed_ttl: float
    webhook_refused_ttl: float
    notice_before: float
    console_session: float

    @property
    def url(self) -> str:
        return _url(self.given.advertise_address or self.host, self.port)

    @property
    def is_unsealed(self) -> bool:
        """Whether Secrets are stored in clear text although no setting accepts that."""
        return bool(self.given.etcd_servers) and not self.given.encryption_provider_config

    @property
    def keys_elsewhere(self) -> str:
        """The URL of the published token keys, if it is not this server's."""
        uri = self.given.service_account_jwks_uri
        return "" if uri.startswith(self.url) else uri

    @property
    def stores_token_keys(self) -> bool:
        """Whether token keys are SigningKey objects; otherwise they are files."""
        given = self.given
        if given.token_keys:
            return given.token_keys == STORED
        has_files = given.service_account_signing_key_file or given.service_account_key_file
        return not has_files and not self.is_unsealed

    @property
    def stores_authority(self) -> bool:
        """Whether the platform's authority is a CertificateAuthority; otherwise it is files."""
        given = self.given
        has_files = any(each.certificate or each.key for each in signing_files(given, self.names))
        return not has_files and not self.is_unsealed

    def path(self, given: str, default: str) -> Path:
        """The path of a file: as given, or its default in the data directory."""
        return Path(given) if given else self.data_dir / default


def check(given: Given) -> Settings:
    """Validate the given settings; raises BadSettings."""
    _refuse_contradictions(given)
    host, port = address(given.listen, "listen")
    issuers = given.service_account_issuer or (_url(given.advertise_address or host, port),)
    max_age = _seconds("service-account-jwks-max-age", given.service_account_jwks_max_age)
    checked = Settings(
        given=given,
        data_dir=Path(given.data_dir),
        host=host,
        port=port,
        names=SETS[given.naming],
        issuers=issuers,
        api_audiences=given.api_audiences or issuers[:1],
        request_timeout=_seconds("request-timeout", given.request_timeout),
        shutdown_grace=_seconds("shutdown-grace", given.shutdown_grace),
        history=_seconds("history", given.history),
        longest_token=int(
            _seconds(
                "service-account-max-token-expiration", given.service_account_max_token_expiration
            )
        ),
        signing_duration=_seconds("cluster-signing-duration", given.cluster_signing_duration),
        issued_retention=_retention(given.issued_retention),
        jwks_max_age=max_age,
        token_key_rotation=_seconds("token-key-rotation", given.token_key_rotation),
        token_key_publish_time=_publish_time(given.token_key_publish_time, max_age),
        token_webhook_ttl=_seconds(
            "authentication-token-webhook-cache-ttl", given.authentication_token_webhook_cache_ttl
        ),
        webhook_allowed_ttl=_seconds(
            "authorization-webhook-cache-authorized-ttl",
            given.authorization_webhook_cache_authorized_ttl,
        ),
        webhook_refused_ttl=_seconds(
            "authorization-webhook-cache-unauthorized-ttl",
            given.authorization_webhook_cache_unauthorized_ttl,
        ),
        notice_before=_seconds("notice-before", given.notice_before),
        console_session=_seconds("console-session", given.console_session),
    )
    if checked.stores_token_keys and checked.is_unsealed:
        raise BadSettings(
            "--token-keys: stored keys are in Secrets, which are not sealed in etcd; start every "
            "server with the same --encryption-provider-config"
        )
    return checked


def _publish_time(text: str, max_age: float) -> float:
    seconds = _seconds("token-key-publish-time", text)
    if seconds < max_age:
        raise BadSettings(
            "--token-key-publish-time: must not be below --service-account-jwks-max-age, for which "
            "verifiers cache the published keys"
        )
    return seconds


def _refuse_contradictions(given: Given) -> None:
    """Refuse values that are not among the choices, or contradict each other."""
    _one_of("naming", given.naming, tuple(SETS))
    _one_of("namespaces", given.namespaces, ("lenient", "strict"))
    _one_of("store", given.store, ("sqlite", "memory"))
    _one_of("ledger-tokens", given.ledger_tokens, ("counted", "totals", "off"))
    _one_of("token-keys", given.token_keys, ("", STORED, FILES))
    _one_of("log-format", given.log_format, ("text", "json"))
    _one_of("log-level", given.log_level, ("debug", "info", "warning", "error"))
    for mode in given.authorization_mode:
        _one_of("authorization-mode", mode, ("Node", "RBAC", "Webhook"))
    if not given.authorization_mode:
        raise BadSettings("--authorization-mode: at least one authorizer is needed")
    for name, least in LEAST.items():
        if getattr(given, name) < least:
            raise BadSettings(f"--{name.replace('_', '-')}: at least {least} is needed")
    _urls(given)
    own_pairs(given, SETS[given.naming])
    _together(given, "tls_cert_file", "tls_private_key_file")
    _together(given, "cluster_signing_cert_file", "cluster_signing_key_file")
    _together(given, "pkcs11_module", "pkcs11_token")
    _together(given, "pkcs11_module", "pkcs11_pin_file")
    _together(given, "audit_log_path", "audit_policy_file")
    _together(given, "etcd_certfile", "etcd_keyfile")
    _front_proxy(given)
    if given.crl_listen:
        address(given.crl_listen, "crl-listen")
    for flag, value in (
        ("notice-ca-file", given.notice_ca_file),
        ("notice-token-file", given.notice_token_file),
    ):
        if value and not given.notice_url:
            raise BadSettings(f"--{flag} needs --notice-url")
    _console(given)


def _urls(given: Given) -> None:
    """Refuse URLs that clients, or this server, could not use."""
    for issuer in given.service_account_issuer:
        # As in Kubernetes, a word without a colon is an issuer, too.
        if not (_is_plain_url(issuer) if ":" in issuer else _is_plain(issuer)):
            raise BadSettings(
                f"--service-account-issuer: {issuer!r} is not a URL like https://id.example.org"
            )
    _refuse_odd_url("service-account-jwks-uri", given.service_account_jwks_uri)
    _refuse_odd_url("crl-url", given.crl_url)
    _refuse_odd_url("acme-url", given.acme_url)
    if given.acme_url and not given.acme_url.startswith("https://"):
        raise BadSettings("--acme-url: ACME clients need https")
    if given.advertise_address and not _is_plain(given.advertise_address):
        raise BadSettings(
            f"--advertise-address: {given.advertise_address!r} is not a host name or an IP address"
        )
    if given.notice_url:
        from orchid.kernel.outbound import remote  # noqa: PLC0415 -- most servers send no notices

        try:
            remote.refuse_unfit_url(given.notice_url)
        except remote.InvalidRemote as problem:
            raise BadSettings(f"--notice-url: {problem}") from None


def _console(given: Given) -> None:
    """Refuse settings of the console that contradict each other."""
    _together(given, "console_listen", "console_url")
    _together(given, "console_tls_cert_file", "console_tls_private_key_file")
    _one_of("console-login", given.console_login, CONSOLE_LOGINS)
    if not given.console_listen:
        return
    address(given.console_listen, "console-listen")
    rest = given.console_url.removeprefix("https://")
    if rest == given.console_url or "/" in rest.rstrip("/") or not _is_plain_url(given.console_url):
        raise BadSettings(
            f"--console-url: {given.console_url!r} is not a URL like https://console.example.com"
        )
    if given.console_login == "oidc" and not (given.authentication_config or given.oidc_issuer_url):
        raise BadSettings(
            "--console-login: oidc needs an external issuer (--authentication-config or "
            "--oidc-issuer-url), whose tokens the server accepts"
        )


def _retention(text: str) -> float:
    """The retention of inventory records, from which CRLs of revoked signers are computed."""
    seconds, least = _seconds("issued-retention", text), LISTED_AFTER_END.total_seconds()
    if seconds < least:
        raise BadSettings(
            f"--issued-retention: at least {least / 3600:.0f}h: a revocation list has a "
            "certificate for that long after it expired"
        )
    return seconds


def _url(host: str, port: int) -> str:
    """The URL at which clients reach the server; a wildcard address becomes the loopback one."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- recognised, not bound to
        host = "127.0.0.1"
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _one_of(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BadSettings(f"--{name}: {value!r} is none of {', '.join(choices)}")


def _together(given: Given, first: str, second: str) -> None:
    if bool(getattr(given, first)) != bool(getattr(given, second)):
        names = (f"--{name.replace('_', '-')}" for name in (first, second))
        raise BadSettings(f"{' and '.join(names)} go together")


def _front_proxy(given: Given) -> None:
    """Refuse headers of a front proxy without its CA: they could not be verified."""
    if given.requestheader_client_ca_file:
        return
    for name in (
        "requestheader_allowed_names",
        "requestheader_username_headers",
        "requestheader_uid_headers",
        "requestheader_group_headers",
        "requestheader_extra_headers_prefix",
    ):
        if getattr(given, name):
            flag = name.replace("_", "-")
            raise BadSettings(
                f"--{flag} needs --requestheader-client-ca-file, which verifies the front proxy"
            )


def _refuse_odd_url(name: str, text: str) -> None:
    """Refuse a URL that clients could not fetch: it is written into certificates."""
    if text and not (text.startswith(("http://", "https://")) and _is_plain_url(text)):
        raise BadSettings(f"--{name}: {text!r} is not a URL like http://pki.example.com")


def _is_plain_url(text: str) -> bool:
    return bool(text.partition("://")[2].rstrip("/")) and _is_plain(text)


def _is_plain(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and not set(text) & set(' "<>?#%')


def address(text: str, name: str) -> tuple[str, int]:
    """The host and port of a setting."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise BadSettings(f"--{name}: {text!r} is not an address and a port, like 127.0.0.1:6443")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 -- ":6443" means everywhere


def _seconds(name: str, text: str) -> float:
    try:
        seconds = duration(text)
    except BadRequest:
        raise BadSettings(f"--{name}: {text!r} is not a duration, like 90s or 5m") from None
    if seconds < 0:
        raise BadSettings(f"--{name}: a duration may not be negative")
    return seconds
