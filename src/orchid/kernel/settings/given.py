"""`Given`: the settings of the kernel as written, before validation.

A setting is one field with its help text: the command line, the TOML file and the documentation all
use it. Features declare theirs in a `Section` (section.py). `reading.py` merges the file and the
flags, `checking.py` validates what one type of values.py cannot.
"""

from typing import Annotated, Any, ClassVar, TypeVar, cast

import msgspec

from orchid.kernel.settings.values import Address, Choice, Duration
from orchid.kernel.wire.naming import DEFAULT, SETS

Help = msgspec.Meta
Many = tuple[str, ...]
S = TypeVar("S", bound=msgspec.Struct)


class NamingName(Choice):
    choices = tuple(SETS)


class StoreName(Choice):
    choices = ("sqlite", "memory")


class LogFormat(Choice):
    choices = ("text", "json")


class LogLevel(Choice):
    choices = ("debug", "info", "warning", "error")


class Written(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Settings as written, with those of features in sections."""

    sections: ClassVar[tuple[type[Any], ...]] = ()

    def as_written(self) -> dict[str, Any]:
        """The settings as in a file."""
        return cast("dict[str, Any]", msgspec.to_builtins(self, enc_hook=str))

    def of(self, section: type[S]) -> S:
        """The settings of a feature."""
        return section(**{name: getattr(self, name) for name in section.__struct_fields__})


class Given(Written, frozen=True):
    """The settings of the kernel; section.py adds those of features."""

    data_dir: Annotated[
        str, Help(description="Directory of keys, certificates and the embedded store.")
    ] = "orchid-data"
    listen: Annotated[Address, Help(description="Address and port to serve on.")] = Address(
        "127.0.0.1:6443"
    )
    advertise_address: Annotated[
        str,
        Help(
            description="Address at which clients reach the server, also put into its "
            "certificate. Default: the listen address."
        ),
    ] = ""
    workers: Annotated[int, Help(description="API processes sharing the listening socket.")] = 1
    naming: Annotated[NamingName, Help(description=f"Set of names: {' or '.join(SETS)}.")] = (
        NamingName(DEFAULT)
    )
    anonymous_paths: Annotated[
        Many,
        Help(description="Paths for requests without credentials; a trailing /* means all below."),
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
        "/trust/*",
        "/renewal-info/*",
        "/acme/*",
        "/.well-known/oauth-authorization-server",
        "/oauth2/introspect",
        "/oauth2/revoke",
    )
    # serving
    tls_cert_file: Annotated[
        str,
        Help(description="Serving certificate, with its chain. Default: issued by the cluster CA."),
    ] = ""
    tls_private_key_file: Annotated[str, Help(description="Key of the serving certificate.")] = ""
    max_requests_inflight: Annotated[
        int,
        Help(
            description="Concurrent reading requests, added to the writing ones; 0 means no limit."
        ),
    ] = 400
    max_mutating_requests_inflight: Annotated[
        int,
        Help(
            description="Concurrent writing requests, added to the reading ones; 0 means no limit."
        ),
    ] = 200
    request_timeout: Annotated[Duration, Help(description="Maximum duration of a request.")] = (
        Duration("60s")
    )
    min_request_timeout: Annotated[
        int,
        Help(description="Minimum duration of a watch in seconds; the maximum is twice as long."),
    ] = 1800
    shutdown_grace: Annotated[
        Duration, Help(description="How long a stop waits for running requests.")
    ] = Duration("10s")
    # tokens
    service_account_issuer: Annotated[
        Many, Help(description="Issuer of tokens; the first signs, the others are accepted.")
    ] = ()
    api_audiences: Annotated[
        Many, Help(description="Audiences of this server. Default: the first issuer.")
    ] = ()
    # controllers
    controllers: Annotated[
        Many,
        Help(description="Controllers to run: '*' for all, '-name' for all but one, '' for none."),
    ] = ("*",)
    # store
    store: Annotated[
        StoreName,
        Help(
            description="Store of the objects: sqlite (in the data directory) or memory (volatile)."
        ),
    ] = StoreName("sqlite")
    history: Annotated[
        Duration, Help(description="How long old revisions can be listed and watched.")
    ] = Duration("5m")
    etcd_servers: Annotated[
        Many, Help(description="etcd endpoints; if set, objects are stored there.")
    ] = ()
    etcd_prefix: Annotated[str, Help(description="Prefix of the keys in etcd.")] = "/orchid"
    etcd_cafile: Annotated[str, Help(description="CA of etcd's certificates.")] = ""
    etcd_certfile: Annotated[str, Help(description="Client certificate for etcd.")] = ""
    etcd_keyfile: Annotated[str, Help(description="Its key.")] = ""
    # record
    audit_log_path: Annotated[
        str,
        Help(
            description="File for the audit record, together with --audit-policy-file; "
            "'-' for standard output; empty for none."
        ),
    ] = ""
    audit_policy_file: Annotated[str, Help(description="Policy of the audit record.")] = ""
    log_format: Annotated[LogFormat, Help(description="text or json.")] = LogFormat("text")
    log_level: Annotated[LogLevel, Help(description="debug, info, warning or error.")] = LogLevel(
        "info"
    )
