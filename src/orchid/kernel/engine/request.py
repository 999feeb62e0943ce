"""A request: `Target` (from the path), `Options` (from the query) and `Request`.

A `Request` is passed to every verb, hook, admission policy and acting kind. It also collects
warnings for the client and annotations for the audit record.
"""

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo

# Pages that respond also while the store does not, and so with permissions that may be outdated. No
# other path begins like these, encoded or not: for all others, permissions and revocations are
# fresh.
HEALTH_PAGES: Final = ("/healthz", "/livez", "/readyz")


class Target(msgspec.Struct, frozen=True):
    """The target of a request: everything that authorization uses, besides the user."""

    verb: str
    path: str = ""
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Options(NamedTuple):
    """The decoded query parameters of all verbs; each verb uses those it knows."""

    # writes
    dry_run: bool = False
    field_manager: str = ""  # as given; Request.manager is never empty
    field_validation: str = ""
    force: bool | None = None
    # reads
    resource_version: str = ""
    resource_version_match: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_: str = ""
    watch: bool = False
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None


NO_OPTIONS = Options()
KEY_PREFIX: Final = "KEY="  # of the id of the token key that signed a credential


class OwnCertificate(NamedTuple):
    """The client certificate of the connection, whose key the handshake has proven."""

    sha256: str  # in hex
    serial: str  # in hex


class Request(msgspec.Struct, eq=False, weakref=True):
    """The user, target, time and options of a request."""

    target: Target
    user: UserInfo
    now: datetime
    options: Options = NO_OPTIONS
    manager: str = "unknown"  # the field manager: the option, else from the user agent
    body_weight: int = 0  # bytes of work in the body; see kernel/base/scheduling/offload.py
    real_user: UserInfo | None = None  # the impersonator, if any
    certificate: OwnCertificate | None = None  # of the user; None while impersonating
    key_id: str = ""  # of the token key that signed the credential, the impersonator's if any
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}

    @property
    def namespace(self) -> str:
        return self.target.namespace

    @property
    def name(self) -> str:
        return self.target.name

    def credential_ids(self, attribute: str) -> tuple[str, ...]:
        """The ids of the presented credential, from an extra attribute, and of its token key."""
        ids = (self.real_user or self.user).extra.get(attribute, ())
        return (*ids, f"{KEY_PREFIX}{self.key_id}") if self.key_id else ids

    # The same request with other values; warnings and annotations are shared.

    def with_options(self, options: Options) -> "Request":
        return replace(self, options=options)

    def with_target(self, target: Target) -> "Request":
        return replace(self, target=target)

    def at(self, namespace: str, name: str) -> "Request":
        """The same request for one object."""
        return replace(self, target=replace(self.target, namespace=namespace, name=name))

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the audit record. Never a secret."""
        self.audit_annotations[key] = value
