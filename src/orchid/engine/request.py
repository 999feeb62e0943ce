"""What a request asks for: `Target` (the path's meaning), `Options` (the query's) and `Request`.

A `Request` is given to every verb, hook, admission policy and acting kind. It also collects what
goes out beside the answer: warnings for the caller, annotations for the audit record.
"""

from datetime import datetime
from typing import NamedTuple

from orchid.wire.user import UserInfo


class Target(NamedTuple):
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


class Request:
    """Who asks for what, when, with which options."""

    __slots__ = (
        "audit_annotations",
        "body_weight",
        "manager",
        "now",
        "options",
        "real_user",
        "target",
        "user",
        "warnings",
    )

    def __init__(
        self,
        target: Target,
        user: UserInfo,
        now: datetime,
        options: Options = NO_OPTIONS,
        *,
        manager: str = "unknown",
        body_weight: int = 0,
        real_user: UserInfo | None = None,
        warnings: list[str] | None = None,
        audit_annotations: dict[str, str] | None = None,
    ) -> None:
        self.target = target
        self.user = user
        self.now = now
        self.options = options
        self.manager = manager  # the field manager: the option, else from the user agent
        self.body_weight = body_weight  # bytes of work in what was sent; see engine/offload.py
        self.real_user = real_user  # who is behind an impersonated user
        self.warnings = [] if warnings is None else warnings
        self.audit_annotations = {} if audit_annotations is None else audit_annotations

    @property
    def namespace(self) -> str:
        return self.target.namespace

    @property
    def name(self) -> str:
        return self.target.name

    def with_options(self, options: Options) -> "Request":
        return self._with(self.target, options)

    def with_target(self, target: Target) -> "Request":
        return self._with(target, self.options)

    def at(self, namespace: str, name: str) -> "Request":
        """The same request, aimed at one object."""
        return self._with(self.target._replace(namespace=namespace, name=name), self.options)

    def _with(self, target: Target, options: Options) -> "Request":
        """The same request otherwise; what is collected beside the answer is shared."""
        return Request(
            target,
            self.user,
            self.now,
            options,
            manager=self.manager,
            body_weight=self.body_weight,
            real_user=self.real_user,
            warnings=self.warnings,
            audit_annotations=self.audit_annotations,
        )

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def annotate(self, key: str, value: str) -> None:
        """Leave a note in the audit record. Never a secret."""
        self.audit_annotations[key] = value
