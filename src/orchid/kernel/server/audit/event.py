"""The format of an audit event, as in Kubernetes: `AuditEvent`. trail.py fills it."""

from datetime import datetime

import msgspec

from orchid.kernel.wire.status import ListMeta, StatusDetails
from orchid.kernel.wire.struct import Wire
from orchid.kernel.wire.user import UserInfo


class AuditObjectReference(Wire):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class AuditOutcome(Wire):
    """A Status without its kind and apiVersion."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0


class AuthenticationMetadata(Wire):
    """The authentication of an impersonated request."""

    impersonation_constraint: str = ""


class AuditEvent(Wire):
    kind: str
    api_version: str
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: UserInfo
    impersonated_user: UserInfo | None = None
    authentication_metadata: AuthenticationMetadata | None = None
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    object_ref: AuditObjectReference | None = None
    response_status: AuditOutcome | None = None
    request_object: msgspec.Raw | None = None
    response_object: msgspec.Raw | None = None
    request_received_timestamp: datetime | None = None
    stage_timestamp: datetime | None = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
