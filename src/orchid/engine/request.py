"""What a request asks for: `Target` (the path's meaning), `Options` (the query's) and `Request`.

A `Request` is given to every verb, hook, admission policy and acting kind. It also collects what
goes out beside the answer: warnings for the caller, annotations for the audit record.
"""

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from orchid.wire.struct import replace
from orchid.wire.user import UserInfo

# The pages that answer also while the store does not, and so by rights that may be out of date. No
# other request begins like these, encoded or not: for all others, rights and revocations are fresh.
HEALTH_PAGES: Final = ("/healthz", "/livez", "/readyz")


class Target(msgspec.Struct, frozen=True):
    """What is to be done to what: all that authorization looks at, besides the user."""

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
    """The query parameters of every verb, decoded; each verb reads those it knows."""

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


class OwnCertificate(NamedTuple):
    """The certificate whose key the caller has proven to hold, in the handshake with us."""

    sha256: str  # in hex
    serial: str  # in hex


class Request(msgspec.Struct, eq=False, weakref=True):
    """Who asks for what, when, with which options."""

    target: Target
    user: UserInfo
    now: datetime
    options: Options = NO_OPTIONS
    manager: str = "unknown"  # the field manager: the option, else from the user agent
    body_weight: int = 0  # bytes of work in what was sent; see engine/offload.py
    real_user: UserInfo | None = None  # who is behind an impersonated user
    certificate: OwnCertificate | None = None  # of the user; None while impersonating
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}

    @property
    def namespace(self) -> str:
        return self.target.namespace

    @property
    def name(self) -> str:
        return self.target.name

    # The same request otherwise; what is collected beside the answer is shared.

    def with_options(self, options: Options) -> "Request":
        return replace(self, options=options)

    def with_target(self, target: Target) -> "Request":
        return replace(self, target=target)

    def at(self, namespace: str, name: str) -> "Request":
        """The same request, aimed at one object."""
        return replace(self, target=replace(self.target, namespace=namespace, name=name))

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def annotate(self, key: str, value: str) -> None:
        """Leave a note in the audit record. Never a secret."""
        self.audit_annotations[key] = value
