"""CertificateSearch: find issued certificates by words, filters and expiry. Nothing is stored.

Start with `Searching.create`. Field selectors support equality only, and lists are sorted by serial
number: a client that wants the first certificates to expire would have to read all of them. The
index is in features/certificates/certificate_search.py.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final, Protocol

from msgspec import field

from orchid.features.approval.issuing_terms import duration_errors
from orchid.kernel.engine.kind import Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import ErrorSubject, refuse_if_any
from orchid.kernel.wire.fields import FieldError, Path, invalid, unsupported
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, at_most, describe, null, proto, replace
from orchid.kernel.wire.user import UserInfo

SPEC: Final = Path() / "spec"
LIVE, REVOKED, EXPIRED, ALL = "Live", "Revoked", "Expired", "All"
STATES: Final = (LIVE, REVOKED, EXPIRED, ALL)
END, ISSUED, SIGNER, SUBJECT, REQUESTER = "end", "issued", "signer", "subject", "requester"
SORTS: Final = (END, ISSUED, SIGNER, SUBJECT, REQUESTER)
MOST_WORDS: Final = 16
LONGEST_TEXT: Final = 1_000
MOST_VALUES: Final = 100  # of one filter
MOST_ITEMS: Final = 1_000
DEFAULT_ITEMS: Final = 100
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=36_500)


class CertificateSearchSpec(Wire):
    """Conditions on the certificates; all of them must hold."""

    text: Annotated[
        str,
        proto(1),
        describe(
            "Words, each of which occurs in the subject, a name, the requester, the request or the "
            "serial number. Case is ignored."
        ),
    ] = ""
    signer_names: Annotated[
        tuple[str, ...], at_most(MOST_VALUES), proto(2), describe("Only of one of these signers.")
    ] = ()
    requesters: Annotated[
        tuple[str, ...],
        at_most(MOST_VALUES),
        proto(3),
        describe("Only requested by one of these users."),
    ] = ()
    approvers: Annotated[
        tuple[str, ...],
        at_most(MOST_VALUES),
        proto(4),
        describe("Only approved by one of these users or policies."),
    ] = ()
    clusters: Annotated[
        tuple[str, ...],
        at_most(MOST_VALUES),
        proto(5),
        describe("Only issued by one of these Clusters."),
    ] = ()
    authority_keys: Annotated[
        tuple[str, ...],
        at_most(MOST_VALUES),
        proto(12),
        describe("Only signed by a key with one of these identifiers, in hex."),
    ] = ()
    ends_within: Annotated[
        str, proto(6), describe("Only certificates that expire within this time, like 720h.")
    ] = ""
    state: Annotated[
        str, proto(7), describe("Live (neither expired nor revoked), Revoked, Expired or All.")
    ] = LIVE
    omit_replaced: Annotated[
        bool,
        proto(8),
        describe("Omit a certificate if a live one of the same signer and names expires later."),
    ] = False
    sort: Annotated[
        str, proto(9), describe("The order: end (expiry), issued, signer, subject or requester.")
    ] = END
    limit: Annotated[int, proto(10), describe("The most items, 1 to 1,000.")] = DEFAULT_ITEMS
    after: Annotated[
        str, proto(11), describe("`status.next` of the previous page, with the same conditions.")
    ] = ""


class FoundCertificate(Wire):
    """The summary of an IssuedCertificate."""

    name: Annotated[str, proto(1), describe("The name of the IssuedCertificate.")] = always(str)
    serial_number: Annotated[str, proto(2), describe("The serial number, in hex.")] = always(str)
    signer_name: Annotated[str, proto(3), describe("The signer.")] = always(str)
    subject: Annotated[str, proto(4), describe("The subject.")] = ""
    names: Annotated[tuple[str, ...], proto(5), describe("DNS names, addresses and URIs.")] = ()
    requester: Annotated[str, proto(6), describe("The requester.")] = ""
    request: Annotated[str, proto(7), describe("The name of the request.")] = ""
    approver: Annotated[str, proto(8), describe("The approver.")] = ""
    policy: Annotated[str, proto(9), describe("The ApprovalPolicy of the approval, if any.")] = ""
    impersonator: Annotated[
        str, proto(17), describe("The impersonator of the approver, if any.")
    ] = ""
    not_before: Annotated[Time | None, proto(10), describe("The start of its validity.")] = always(
        null
    )
    not_after: Annotated[Time | None, proto(11), describe("The end of its validity.")] = always(
        null
    )
    revoked: Annotated[Time | None, proto(12), describe("When it was revoked, if it was.")] = None
    reason: Annotated[str, proto(13), describe("Why, as named in RFC 5280.")] = ""
    cluster: Annotated[str, proto(14), describe("The Cluster that issued it, if any.")] = ""
    key_algorithm: Annotated[str, proto(15), describe("Algorithm and size of its key.")] = ""
    sha256: Annotated[str, proto(16), describe("SHA-256 of the certificate, in hex.")] = ""
    username: Annotated[str, proto(18), describe("The common name of the subject.")] = ""


class CertificateSearchStatus(Wire):
    """A page of the result."""

    items: Annotated[tuple[FoundCertificate, ...], proto(1), describe("The certificates.")] = (
        always(lambda: ())
    )
    matches: Annotated[int, proto(2), describe("How many there are on all pages.")] = always(int)
    next: Annotated[str, proto(3), describe("`spec.after` of the next page, if there is one.")] = ""


class CertificateSearch(Object):
    """Finds issued certificates. Nothing is stored."""

    spec: Annotated[CertificateSearchSpec, proto(2), describe("The conditions.")] = field(
        default_factory=CertificateSearchSpec
    )
    status: Annotated[CertificateSearchStatus, proto(3), describe("The result.")] = field(
        default_factory=CertificateSearchStatus
    )


class MalformedPosition(ValueError):
    """`spec.after` is not a position of this order."""


class Searcher(Protocol):
    async def find(self, spec: CertificateSearchSpec, user: UserInfo) -> CertificateSearchStatus:
        """Raises MalformedPosition, and Forbidden if the user may not list the inventory."""


class Searching:
    """The verb create."""

    def __init__(self, searcher: Searcher, group: str) -> None:
        self._searcher = searcher
        self._about = ErrorSubject(group, CertificateSearch.__name__)

    async def create(self, new: CertificateSearch, request: Request) -> CertificateSearch:
        refuse_if_any(self._about, spec_errors(new.spec))
        try:
            status = await self._searcher.find(new.spec, request.user)
        except MalformedPosition as problem:
            errors = [invalid(SPEC / "after", new.spec.after, str(problem))]
            refuse_if_any(self._about, errors)
            raise
        return replace(new, status=status)


def declare(naming: Naming, searcher: Searcher) -> Kind[CertificateSearch]:
    return Kind(
        type=CertificateSearch,
        group=naming.identity,
        version="v1alpha1",
        plural="certificatesearches",
        scope=Scope.CLUSTER,
        acts=Searching(searcher, naming.identity),
        creates=("metadata", "spec"),
        verbs=("create",),
    )


def spec_errors(spec: CertificateSearchSpec) -> Iterator[FieldError]:
    if len(spec.text) > LONGEST_TEXT or len(spec.text.split()) > MOST_WORDS:
        shown = spec.text[:50]
        text = f"must have at most {MOST_WORDS} words and {LONGEST_TEXT} characters"
        yield invalid(SPEC / "text", shown, text)
    if spec.ends_within:
        yield from duration_errors(SPEC / "endsWithin", spec.ends_within, SHORTEST, LONGEST)
    if spec.state not in STATES:
        yield unsupported(SPEC / "state", spec.state, STATES)
    if spec.sort not in SORTS:
        yield unsupported(SPEC / "sort", spec.sort, SORTS)
    if not 1 <= spec.limit <= MOST_ITEMS:
        yield invalid(SPEC / "limit", spec.limit, f"must be between 1 and {MOST_ITEMS}")
