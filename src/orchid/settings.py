"""Settings: as read (`Given`) and as checked (`Settings`).

Every setting is one field of `Given`, with its help text beside it: the command line, the
TOML file and the documentation all come from there. Flags override the file. A misspelt key
or a bad value raises `BadSettings` with a sentence for the person who typed it.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from orchid.wire.errors import BadRequest
from orchid.wire.naming import DEFAULT, SETS, Naming
from orchid.wire.options import duration

Help = msgspec.Meta
Many = tuple[str, ...]


LAST_PORT = 65_535


class BadSettings(ValueError):
    """A setting that cannot be used; the text says which and why."""


class NotAvailable(BadSettings):
    """What a setting names is not there now; trying again may help."""


class Given(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Every setting as it is written, before it is checked."""

    data_dir: Annotated[
        str, Help(description="Where keys, certificates and the embedded store live.")
    ] = "orchid-data"
    listen: Annotated[str, Help(description="Address and port to serve on.")] = "127.0.0.1:6443"
    advertise_address: Annotated[
        str,
        Help(
            description="Address under which clients reach the server, also put into its "
            "certificate. Default: the listen address."
        ),
    ] = ""
    workers: Annotated[int, Help(description="API processes sharing the listening socket.")] = 1
    naming: Annotated[str, Help(description=f"Which names to speak: {' or '.join(SETS)}.")] = (
        DEFAULT
    )
    namespaces: Annotated[
        str,
        Help(
            description="lenient: a namespace comes into being with its first object; "
            "strict: it must exist."
        ),
    ] = "lenient"
    namespace_creators: Annotated[
        Many,
        Help(
            description="Users and groups whose first object brings its namespace, besides those "
            "who may create namespaces; for lenient namespaces only."
        ),
    ] = ()
    anonymous_paths: Annotated[
        Many,
        Help(
            description="Paths open to callers without credentials; a trailing /* means all below."
        ),
    ] = (
        "/healthz",
        "/healthz/*",
        "/livez",
        "/livez/*",
        "/readyz",
        "/readyz/*",
        "/version",
        "/version/*",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/crl/*",
    )
    # serving
    tls_cert_file: Annotated[
        str,
        Help(description="Serving certificate, with its chain. Default: issued by the cluster CA."),
    ] = ""
    tls_private_key_file: Annotated[str, Help(description="Key of the serving certificate.")] = ""
    max_requests_inflight: Annotated[
        int,
        Help(description="Reading requests at once, added to the writing ones; 0 means no limit."),
    ] = 400
    max_mutating_requests_inflight: Annotated[
        int,
        Help(description="Writing requests at once, added to the reading ones; 0 means no limit."),
    ] = 200
    request_timeout: Annotated[str, Help(description="How long one request may take.")] = "60s"
    min_request_timeout: Annotated[
        int,
        Help(
            description="Seconds that a watch lasts at least by default; none lasts twice as long."
        ),
    ] = 1800
    shutdown_grace: Annotated[
        str, Help(description="How long a stop waits for requests under way.")
    ] = "10s"
    # who is calling
    client_ca_file: Annotated[
        str, Help(description="Authorities of client certificates. Default: the cluster CA.")
    ] = ""
    token_auth_file: Annotated[
        str, Help(description='Static tokens: token,user,uid,"group,group" by line.')
    ] = ""
    requestheader_client_ca_file: Annotated[
        str,
        Help(
            description="Authority of the front proxy's certificate; without it none is believed."
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
        Many, Help(description="Prefixes of headers with further facts about the user.")
    ] = ()
    authentication_config: Annotated[
        str, Help(description="AuthenticationConfiguration file: outside OIDC issuers.")
    ] = ""
    oidc_issuer_url: Annotated[str, Help(description="URL of one outside OIDC issuer.")] = ""
    oidc_client_id: Annotated[str, Help(description="Audience that its tokens must have.")] = ""
    oidc_username_claim: Annotated[str, Help(description="Claim that names the user.")] = "sub"
    oidc_username_prefix: Annotated[
        str, Help(description="Put before the user's name; '-' for nothing.")
    ] = ""
    oidc_groups_claim: Annotated[str, Help(description="Claim that lists groups.")] = ""
    oidc_groups_prefix: Annotated[str, Help(description="Put before each group.")] = ""
    oidc_required_claim: Annotated[
        Many, Help(description="claim=value that a token must have.")
    ] = ()
    oidc_signing_algs: Annotated[
        Many, Help(description="Signature algorithms that are accepted.")
    ] = ("RS256",)
    oidc_ca_file: Annotated[
        str, Help(description="Authorities of the issuer's own certificate.")
    ] = ""
    authentication_token_webhook_config_file: Annotated[
        str, Help(description="kubeconfig of a webhook that reviews tokens.")
    ] = ""
    authentication_token_webhook_cache_ttl: Annotated[
        str, Help(description="How long its answers are kept.")
    ] = "2m"
    # accounts and tokens
    service_account_issuer: Annotated[
        Many, Help(description="Issuer of tokens; the first signs, the others are accepted.")
    ] = ()
    api_audiences: Annotated[
        Many, Help(description="Audiences of this server. Default: the first issuer.")
    ] = ()
    service_account_signing_key_file: Annotated[
        str, Help(description="Key that signs tokens. Default: made in the data directory.")
    ] = ""
    service_account_key_file: Annotated[
        Many, Help(description="Keys by which tokens are verified. Default: the signing key.")
    ] = ()
    service_account_max_token_expiration: Annotated[
        str, Help(description="Longest life of a token; 0s means no limit.")
    ] = "0s"
    service_account_extend_token_expiration: Annotated[
        bool,
        Help(
            description="Give tokens of Pods a longer life than they ask for, with a warning time."
        ),
    ] = True
    service_account_jwks_uri: Annotated[
        str, Help(description="Where the keys can be fetched. Default: under the first issuer.")
    ] = ""
    # what they may do
    authorization_mode: Annotated[
        Many, Help(description="Ways to decide, in order: Node, RBAC, Webhook, AlwaysAllow.")
    ] = ("Node", "RBAC")
    authorization_config: Annotated[
        str, Help(description="AuthorizationConfiguration file, in place of the other settings.")
    ] = ""
    approve_own_requests: Annotated[
        bool,
        Help(description="Whoever created a certificate request may approve it too."),
    ] = False
    authorization_webhook_config_file: Annotated[
        str, Help(description="kubeconfig of a webhook that authorizes.")
    ] = ""
    authorization_webhook_version: Annotated[
        str, Help(description="SubjectAccessReview version it is asked with: v1 or v1beta1.")
    ] = "v1"
    authorization_webhook_cache_authorized_ttl: Annotated[
        str, Help(description="How long a yes is kept.")
    ] = "5m"
    authorization_webhook_cache_unauthorized_ttl: Annotated[
        str, Help(description="How long a no is kept.")
    ] = "30s"
    # certificates
    cluster_signing_cert_file: Annotated[
        str, Help(description="Authority that signs certificate requests. Default: the cluster CA.")
    ] = ""
    cluster_signing_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_duration: Annotated[
        str, Help(description="Longest life of an issued certificate.")
    ] = "8760h"
    cluster_signing_client_cert_file: Annotated[
        str, Help(description="Authority of the API client signer alone.")
    ] = ""
    cluster_signing_client_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_node_client_cert_file: Annotated[
        str, Help(description="Authority of the node client signer alone.")
    ] = ""
    cluster_signing_node_client_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_node_serving_cert_file: Annotated[
        str, Help(description="Authority of the node serving signer alone.")
    ] = ""
    cluster_signing_node_serving_key_file: Annotated[str, Help(description="Its key.")] = ""
    cluster_signing_legacy_unknown_cert_file: Annotated[
        str, Help(description="Authority of the legacy signer alone.")
    ] = ""
    cluster_signing_legacy_unknown_key_file: Annotated[str, Help(description="Its key.")] = ""
    crl_url: Annotated[
        str,
        Help(
            description="Where others reach /crl/ of this server, like http://pki.example.com; "
            "issued certificates then say where their revocation list is."
        ),
    ] = ""
    crl_listen: Annotated[
        str,
        Help(
            description="Address and port to serve revocation lists on without TLS; empty for none."
        ),
    ] = ""
    issued_retention: Annotated[
        str, Help(description="How long the record of an issued certificate outlives it.")
    ] = "720h"
    # controllers
    controllers: Annotated[
        Many,
        Help(description="Controllers to run: '*' for all, '-name' for all but one, '' for none."),
    ] = ("*",)
    # store
    store: Annotated[
        str,
        Help(
            description="Where objects are kept: sqlite (in the data directory) or memory (lost)."
        ),
    ] = "sqlite"
    history: Annotated[str, Help(description="How long the past can be read and watched from.")] = (
        "5m"
    )
    etcd_servers: Annotated[
        Many, Help(description="etcd endpoints; given these, objects are kept there.")
    ] = ()
    etcd_prefix: Annotated[str, Help(description="Where in etcd the objects stand.")] = "/orchid"
    etcd_cafile: Annotated[str, Help(description="Authority of etcd's certificates.")] = ""
    etcd_certfile: Annotated[str, Help(description="Our certificate towards etcd.")] = ""
    etcd_keyfile: Annotated[str, Help(description="Its key.")] = ""
    encryption_provider_config: Annotated[
        str,
        Help(
            description="EncryptionConfiguration: which resources are sealed in the store, and "
            "with which keys. Default, with the embedded store: encryption.yaml in the data "
            "directory, made at the first start."
        ),
    ] = ""
    # ledger
    ledger_key_file: Annotated[
        str,
        Help(
            description="Ed25519 key that signs the ledger, the same on every server. "
            "Default: made in the data directory."
        ),
    ] = ""
    ledger_tokens: Annotated[
        str,
        Help(
            description="counted: the ledger says how many tokens each key and account has, and "
            "until when; off: it does not."
        ),
    ] = "counted"
    # record
    audit_log_path: Annotated[
        str, Help(description="File for the audit record; '-' for standard output; empty for none.")
    ] = ""
    audit_policy_file: Annotated[str, Help(description="What is recorded, and how much of it.")] = (
        ""
    )
    log_format: Annotated[str, Help(description="text or json.")] = "text"
    log_level: Annotated[str, Help(description="debug, info, warning or error.")] = "info"


@dataclass(frozen=True)
class Settings:
    """Settings that are known to make sense, with defaults that depend on others filled in."""

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
    token_webhook_ttl: float
    webhook_allowed_ttl: float
    webhook_refused_ttl: float

    @property
    def url(self) -> str:
        return _url(self.given.advertise_address or self.host, self.port)

    def path(self, given: str, default: str) -> Path:
        """A file that was named, or its default place in the data directory."""
        return Path(given) if given else self.data_dir / default


def read(config: Path | None, flags: Mapping[str, Any]) -> Given:
    """Join the file and the flags; flags win."""
    written = written_in(config)
    try:
        return msgspec.convert({**written, **flags}, Given, strict=False)
    except msgspec.ValidationError as problem:
        raise BadSettings(_sentence(str(problem))) from None


def written_in(path: Path | None) -> dict[str, Any]:
    """The settings in a file, as they are written there; none without a file."""
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            written = tomllib.load(file)
    except OSError as problem:
        raise BadSettings(f"--config: {problem.strerror}: {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadSettings(f"--config: {path} is not TOML: {problem}") from None
    known = [field.encode_name for field in msgspec.structs.fields(Given)]
    for name in written:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise BadSettings(f"--config: {path}: there is no setting {name!r}{hint}")
    return written


def _sentence(problem: str) -> str:
    text, _, place = problem.partition(" - at `$.")
    return f"--{place.rstrip('`')}: {text}" if place else text


def check(given: Given) -> Settings:
    """Make settings out of what was given, or say what is wrong with it."""
    _one_of("naming", given.naming, tuple(SETS))
    _one_of("namespaces", given.namespaces, ("lenient", "strict"))
    _one_of("store", given.store, ("sqlite", "memory"))
    _one_of("ledger-tokens", given.ledger_tokens, ("counted", "off"))
    _one_of("log-format", given.log_format, ("text", "json"))
    _one_of("log-level", given.log_level, ("debug", "info", "warning", "error"))
    for mode in given.authorization_mode:
        _one_of("authorization-mode", mode, ("Node", "RBAC", "Webhook", "AlwaysAllow"))
    if not given.authorization_mode:
        raise BadSettings("--authorization-mode: at least one way to decide is needed")
    if given.workers < 1:
        raise BadSettings("--workers: at least 1 is needed")
    _together(given, "tls_cert_file", "tls_private_key_file")
    _together(given, "cluster_signing_cert_file", "cluster_signing_key_file")
    _front_proxy(given)
    _refuse_odd_url("crl-url", given.crl_url)
    if given.crl_listen:
        address(given.crl_listen, "crl-listen")
    host, port = address(given.listen, "listen")
    issuers = given.service_account_issuer or (_url(given.advertise_address or host, port),)
    return Settings(
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
        issued_retention=_seconds("issued-retention", given.issued_retention),
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
    )


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
    """Refuse headers of a front proxy without its CA: nobody could prove them."""
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
                f"--{flag} needs --requestheader-client-ca-file, "
                "by which a front proxy proves itself"
            )


def _refuse_odd_url(name: str, text: str) -> None:
    """Refuse a URL that clients could not fetch: it is written into certificates."""
    if text and not (text.startswith(("http://", "https://")) and _is_plain_url(text)):
        raise BadSettings(f"--{name}: {text!r} is no address like http://pki.example.com")


def _is_plain_url(text: str) -> bool:
    rest = text.partition("://")[2].rstrip("/")
    return bool(rest) and text.isascii() and text.isprintable() and not set(text) & set(' "<>?#%')


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
