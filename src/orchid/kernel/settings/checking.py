"""`Settings`: the validated settings, with defaults that depend on other settings.

Start with `check`. An invalid value raises `BadSettings`, which names the flag.
"""

from pathlib import Path

import msgspec

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.settings.section import go_together
from orchid.kernel.settings.values import is_plain, is_plain_url
from orchid.kernel.wire.naming import SETS, Naming

PAIRS = (
    ("tls_cert_file", "tls_private_key_file"),
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

    @property
    def url(self) -> str:
        return _url(self.given.advertise_address or self.host, self.port)

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
    return Settings(
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
    )


def _refuse_contradictions(options: Given) -> None:
    """Refuse values that contradict each other."""
    if not options.listen:
        raise BadSettings("--listen: '' is not an address and a port, like 127.0.0.1:6443")
    for name, least in LEAST.items():
        if getattr(options, name) < least:
            raise BadSettings(f"--{name.replace('_', '-')}: at least {least} is needed")
    _issuers(options)
    for pair in PAIRS:
        go_together(options, *pair)


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


def _url(host: str, port: int) -> str:
    """The URL at which clients reach the server; a wildcard address becomes the loopback one."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 -- recognised, not bound to
        host = "127.0.0.1"
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
