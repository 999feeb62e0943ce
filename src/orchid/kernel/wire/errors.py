"""Every way a request can fail, as exceptions that know their own answer.

    ApiError                    code, reason, message, details
    ├── BadRequest         400  free text
    ├── Unauthorized       401
    ├── Forbidden          403  the user lacks a permission
    ├── NotFound           404  no such object
    ├── NoSuchRoute        404  no such path
    ├── MethodNotAllowed   405
    ├── NotAcceptable      406
    ├── AlreadyExists      409
    ├── Conflict           409  modified concurrently, or a precondition failed
    ├── ApplyConflict      409  fields of other managers
    ├── Expired            410  the revision was compacted
    ├── TooLarge           413
    ├── UnsupportedMedia   415
    ├── Invalid            422  field errors, all of them
    ├── Unprocessable      422  a patch that cannot be applied; mostly without details
    ├── TooManyRequests    429
    ├── InternalError      500  the text is logged, not returned
    ├── Unavailable        503
    └── Timeout            504

Raise the class; `kernel/server/respond.py` alone turns it into bytes.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from orchid.kernel.wire.fields import FieldError, aggregate, gathered
from orchid.kernel.wire.status import ListMeta, Status, StatusCause, StatusDetails
from orchid.kernel.wire.text import quote, shown


class ErrorSubject(NamedTuple):
    """The subject of an error: resource (plural or kind, depending on the reason), group, name."""

    group: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def details(self, *causes: StatusCause, uid: str = "", retry: int = 0) -> StatusDetails:
        return StatusDetails(
            name=self.name,
            group=self.group,
            kind=self.resource,
            uid=uid,
            causes=causes,
            retry_after_seconds=retry,
        )


class ApiError(Exception):
    """An error with an HTTP response. `metadata` and `details` go into the Status."""

    code = 500
    reason = ""

    def __init__(self, message: str, details: StatusDetails | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.metadata = ListMeta()

    def status(self) -> Status:
        return Status(
            metadata=self.metadata,
            status="Failure",
            message=self.message,
            reason=self.reason,
            details=self.details,
            code=self.code,
        )

    def has_cause(self, reason: str) -> bool:
        return bool(self.cause_among((reason,)))

    def cause_among(self, reasons: Collection[str]) -> str:
        """The first cause that is one of these reasons, or ""."""
        causes = self.details.causes if self.details else ()
        return next((cause.reason for cause in causes if cause.reason in reasons), "")


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"

    def __init__(self, about: ErrorSubject, text: str, *causes: StatusCause) -> None:
        if not about.resource:
            message = f"forbidden: {text}"
        elif about.name:
            message = f"{about} {quote(about.name)} is forbidden: {text}"
        else:
            message = f"{about} is forbidden: {text}"
        super().__init__(message, about.details(*causes))


class NotFound(ApiError):
    code, reason = 404, "NotFound"

    def __init__(self, about: ErrorSubject) -> None:
        super().__init__(f"{about} {quote(about.name)} not found", about.details())


class NoSuchRoute(ApiError):
    code, reason = 404, "NotFound"

    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource", StatusDetails())


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"

    def __init__(self) -> None:
        super().__init__(
            "the server does not allow this method on the requested resource", StatusDetails()
        )


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"

    def __init__(self, about: ErrorSubject) -> None:
        super().__init__(f"{about} {quote(about.name)} already exists", about.details())


class NoUniqueName(ApiError):
    code, reason = 409, "AlreadyExists"

    def __init__(self, about: ErrorSubject, *, terminating: bool = False) -> None:
        start = "object is being deleted: " if terminating else ""
        super().__init__(
            f"{start}{about} {quote(about.name)} already exists, "
            "the server was not able to generate a unique name for the object",
            about.details(retry=1),
        )


class StillTerminating(ApiError):
    code, reason = 409, "AlreadyExists"

    def __init__(self, about: ErrorSubject) -> None:
        super().__init__(
            f"object is being deleted: {about} {quote(about.name)} already exists",
            about.details(),
        )


class Conflict(ApiError):
    code, reason = 409, "Conflict"

    def __init__(self, about: ErrorSubject, cause: str) -> None:
        super().__init__(
            f"Operation cannot be fulfilled on {about} {quote(about.name)}: {cause}",
            about.details(),
        )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class ApplyConflict(ApiError):
    code, reason = 409, "Conflict"

    def __init__(self, message: str, causes: Iterable[StatusCause]) -> None:
        super().__init__(message, StatusDetails(causes=tuple(causes)))


class Expired(ApiError):
    code, reason = 410, "Expired"


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"

    def __init__(self, text: str) -> None:
        super().__init__(f"Request entity too large: {text}")


class UnsupportedMedia(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """Field errors; `about` has the KIND here, not the resource."""

    code, reason = 422, "Invalid"

    def __init__(self, about: ErrorSubject, errors: Iterable[FieldError]) -> None:
        reported = gathered(errors)
        about = about._replace(name=shown(about.name))
        message = f"{about} {quote(about.name)} is invalid"
        if reported:
            message += f": {aggregate(reported)}"
        super().__init__(message, about.details(*(error.cause() for error in reported)))


class Unprocessable(ApiError):
    code, reason = 422, "Invalid"

    def __init__(
        self, text: str = "the server rejected our request due to an error in our request"
    ) -> None:
        super().__init__(text, StatusDetails())


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message, StatusDetails(retry_after_seconds=retry_after))


class InternalError(ApiError):
    code, reason = 500, "InternalError"

    def __init__(self, text: str) -> None:
        super().__init__(
            f"Internal error occurred: {text}", StatusDetails(causes=(StatusCause(message=text),))
        )


class StoreReadError(ApiError):
    """Stored objects that cannot be decoded."""

    code, reason = 500, "StorageReadError"

    def __init__(self, about: ErrorSubject, keys: Sequence[str]) -> None:
        text = "the stored object cannot be decoded"
        causes = [StatusCause("UnexpectedServerResponse", text, key) for key in keys]
        super().__init__(
            f"failed to read one or more {about} from the storage: {', '.join(keys)}",
            about.details(*causes),
        )


class Unavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"

    def __init__(self, text: str, *causes: StatusCause, retry_after: int = 0) -> None:
        super().__init__(
            f"Timeout: {text}", StatusDetails(causes=causes, retry_after_seconds=retry_after)
        )


def refuse_if_any(about: ErrorSubject, errors: Iterable[FieldError]) -> None:
    """Raise Invalid with all errors, if there are any."""
    found = gathered(errors)
    if found:
        raise Invalid(about, found)
