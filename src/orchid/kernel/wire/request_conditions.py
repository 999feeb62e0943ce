"""Conditions of a certificate request: Approved, Denied and Failed.

Start with `CertificateSigningRequestCondition`. Conditions of these three types are permanent;
`removal_errors` and `addition_errors` define the rules of each endpoint. Stored faults are
tolerated, so that such a request stays writable. Permissions are checked elsewhere.
"""

import operator
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.wire.conditions import FALSE, TRUE, UNKNOWN
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from orchid.kernel.wire.meta import Time
from orchid.kernel.wire.struct import Wire, always, describe, null, proto, replace
from orchid.kernel.wire.text import quote

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"
# Cause of a refusal, and reason of a condition: the requester was revoked since.
REQUESTER_REVOKED: Final = "RequesterRevoked"
# The same: a revocation says that the key of the request is compromised.
KEY_COMPROMISED: Final = "KeyCompromised"
ENDING_CAUSES: Final = (REQUESTER_REVOKED, KEY_COMPROMISED)  # the request cannot succeed any more
OPPOSITES: Final = {APPROVED: DENIED, DENIED: APPROVED}
TYPE: Final = operator.attrgetter("type")
CONDITIONS: Final = Path() / "status" / "conditions"


class CertificateSigningRequestCondition(Wire):
    """A decision or an outcome."""

    type: Annotated[str, proto(1), describe("Approved, Denied or Failed.")] = always(str)
    status: Annotated[
        str, proto(6), describe("Always True for these types; others may also be False or Unknown.")
    ] = always(str)
    reason: Annotated[str, proto(2), describe("The reason as one word.")] = ""
    message: Annotated[str, proto(3), describe("The reason as a sentence.")] = ""
    last_update_time: Annotated[
        Time | None, proto(4, embedded=True), describe("When the condition was last written.")
    ] = always(null)
    last_transition_time: Annotated[
        Time | None, proto(5, embedded=True), describe("When the status last changed.")
    ] = always(null)


Conditions = tuple[CertificateSigningRequestCondition, ...]


def with_stored_decision(new: Conditions, old: Conditions) -> Conditions:
    """Restore the stored Approved and Denied conditions, unless some were added or removed."""
    if new == old:
        return new
    for type_ in (APPROVED, DENIED):
        stored = [condition for condition in old if condition.type == type_]
        if stored and len(stored) == list(map(TYPE, new)).count(type_):
            following = iter(stored)
            new = tuple(next(following) if sent.type == type_ else sent for sent in new)
    return new


def timed(new: Conditions, old: Conditions, now: datetime) -> Conditions:
    """Fill in missing times; an equal condition keeps its transition time."""
    for sent in new:
        if not (sent.last_update_time and sent.last_transition_time):
            break
    else:
        return new
    moment = whole_seconds(now)
    since = {
        (condition.type, condition.status): condition.last_transition_time
        for condition in reversed(old)
        if condition.last_transition_time
    }
    return tuple(
        replace(
            sent,
            last_update_time=sent.last_update_time or moment,
            last_transition_time=sent.last_transition_time
            or since.get((sent.type, sent.status), moment),
        )
        for sent in new
    )


def condition_errors(new: Conditions, old: Conditions) -> Iterator[FieldError]:
    """Validate every condition and their combination; stored faults may stay."""
    stored = list(map(TYPE, old))
    may_contradict = APPROVED in stored and DENIED in stored
    may_repeat = len(set(stored)) < len(stored)
    seen: set[str] = set()
    for index, condition in enumerate(new):
        type_ = condition.type
        if not type_ and "" not in stored:
            yield required(CONDITIONS[index] / "type")
        if condition.status != TRUE:
            yield from status_errors(condition, CONDITIONS[index] / "status")
        if OPPOSITES.get(type_) in seen and not may_contradict:
            text = "Approved and Denied conditions are mutually exclusive"
            yield invalid(CONDITIONS, type_, text)
        if type_ in seen and not may_repeat:
            yield duplicate(CONDITIONS[index] / "type", type_)
        seen.add(type_)


def status_errors(
    condition: CertificateSigningRequestCondition, path: Path
) -> Iterator[FieldError]:
    is_decision = condition.type in (APPROVED, DENIED, FAILED)
    supported = (TRUE,) if is_decision else (FALSE, TRUE, UNKNOWN)
    if not condition.status:
        yield required(path)
    elif condition.status not in supported:
        yield unsupported(path, condition.status, supported)


def removal_errors(new: Conditions, old: Conditions) -> Iterator[FieldError]:
    now, before = list(map(TYPE, new)), list(map(TYPE, old))
    for type_ in (APPROVED, DENIED, FAILED):
        if now.count(type_) < before.count(type_):
            yield forbidden(
                CONDITIONS, f"updates may not remove a condition of type {quote(type_)}"
            )


def addition_errors(new: Conditions, old: Conditions, *types: str) -> Iterator[FieldError]:
    now, before = list(map(TYPE, new)), list(map(TYPE, old))
    for type_ in types:
        if now.count(type_) > before.count(type_):
            yield forbidden(CONDITIONS, f"updates may not add a condition of type {quote(type_)}")
