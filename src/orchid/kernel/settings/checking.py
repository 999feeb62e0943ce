"""`Settings`: the validated settings, with defaults that depend on other settings.

Start with `check`. An invalid value raises `BadSettings`, which names the flag.
"""

from pathlib import Path

import msgspec

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import STORED, Given
from orchid.kernel.settings.section import go_together
from orchid.kernel.settings.signing_files import own_pairs, signing_files
from orchid.kernel.settings.values import is_plain, is_plain_url
from orchid.kernel.wire.naming import SETS, Naming

PAIRS = (
    ("tls_cert_file", "tls_private_key_file"),
    ("cluster_signing_cert_file", "cluster_signing_key_file"),
    ("pkcs11_module", "pkcs11_token"),
    ("pkcs11_module", "pkcs11_pin_file"),
    ("audit_log_path", "audit_policy_file"),
    ("etcd_certfile", "etcd_keyfile"),
)
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
    naming: Naming
    issuers: tuple[str, ...]
    api_audiences: tuple[str, ...]
    request_timeout: float
    shutdown_grace: float
    history: float
    signing_duration: float
    jwks_max_age: float
    token_key_rotation: float
    token_key_publish_time: float

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
        options = self.given
        if options.token_keys:
            return options.token_keys == STORED
        has_files = options.service_account_signing_key_file or options.service_account_key_file
        return not has_files and not self.is_unsealed

    @property
    def stores_authority(self) -> bool:
        """Whether the platform's authority is a CertificateAuthority; otherwise it is files."""
        given = self.given
        has_files = any(each.certificate or each.key for each in signing_files(given, self.naming))
        return not has_files and not self.is_unsealed

    def path(self, given: str, default: str) -> Path:
        """The path of a file: as given, or its default in the data directory."""
        return Path(given) if given else self.data_dir / default


def check(options: Given) -> Settings:
    """Validate the given settings; raises BadSettings."""
    _refuse_contradictions(options)
    for section in options.sections:
        options.of(section).refuse_contradictions(options)
    host, port = options.listen.parts
    issuers = options.service_account_issuer or (_url(options.advertise_address or host, port),)
    checked = Settings(
        given=options,
        data_dir=Path(options.data_dir),
        host=host,
        port=port,
        naming=SETS[options.naming],
        issuers=issuers,
        api_audiences=options.api_audiences or issuers[:1],
        request_timeout=options.request_timeout.seconds,
        shutdown_grace=options.shutdown_grace.seconds,
        history=options.history.seconds,
        signing_duration=options.cluster_signing_duration.seconds,
        jwks_max_age=options.service_account_jwks_max_age.seconds,
        token_key_rotation=options.token_key_rotation.seconds,
        token_key_publish_time=options.token_key_publish_time.seconds,
    )
    if checked.stores_token_keys and checked.is_unsealed:
        raise BadSettings(
            "--token-keys: stored keys are in Secrets, which are not sealed in etcd; start every "
            "server with the same --encryption-provider-config"
        )
    return checked


def _refuse_contradictions(options: Given) -> None:
    """Refuse values that contradict each other."""
    if not options.listen:
        raise BadSettings("--listen: '' is not an address and a port, like 127.0.0.1:6443")
    for name, least in LEAST.items():
        if getattr(options, name) < least:
            raise BadSettings(f"--{name.replace('_', '-')}: at least {least} is needed")
    _issuers(options)
    own_pairs(options, SETS[options.naming])
    for pair in PAIRS:
        go_together(options, *pair)
    _ages(options)


def _issuers(options: Given) -> None:
    """Refuse issuers and hosts that clients could not use."""
    for issuer in options.service_account_issuer:
        # As in Kubernetes, a word without a colon is an issuer, too.
        if not (is_plain_url(issuer) if ":" in issuer else is_plain(issuer)):
            raise BadSettings(
                f"--service-account-issuer: {issuer!r} is not a URL like https://id.example.org"
            )
    if options.advertise_address and not is_plain(options.advertise_address):
        raise BadSettings(
            f"--advertise-address: {options.advertise_address!r} "
            "is not a host name or an IP address"
        )


def _ages(options: Given) -> None:
    """Refuse durations that are too short for others."""
    if options.token_key_publish_time.seconds < options.service_account_jwks_max_age.seconds:
        raise BadSettings(
            "--token-key-publish-time: must not be below --service-account-jwks-max-age, for which "
            "verifiers cache the published keys"
        )


def _url(host: str, port: int) -> str:
    """The URL at which clients reach the server; a wildcard address becomes the loopback one."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- recognised, not bound to
        host = "127.0.0.1"
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
