"""TokenRequest: issues a token for a service account, at `.../token` of the account.

Start with `RequestToken.create`, which has the checks in order; the first failure wins. The issuer
binds and signs (features/accounts/token_issuer.py, passed in as `Issuer`). Nothing is stored: a
token is valid until it expires or its bound object is deleted. The token appears only in the
response: never in an error, a warning or the audit record.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import field

from orchid.kernel.base.clock import whole_seconds
from orchid.kernel.engine.kind import LARGEST_REVIEW, Endpoint, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Conflict, ErrorSubject, Invalid
from orchid.kernel.wire.fields import METADATA, FieldError, Path, invalid
from orchid.kernel.wire.meta import Object, ObjectMeta, Time
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, always, confidential, describe, null, proto, replace

DEFAULT_SECONDS = 3600
SHORTEST_SECONDS = 600
LONGEST_SECONDS = 1 << 32

EXPIRATION = Path() / "spec" / "expirationSeconds"


class BoundObjectReference(Wire):
    """The object whose deletion invalidates the token."""

    kind: Annotated[str, proto(1), describe("The kind: Pod, Secret or Node.")] = ""
    api_version: Annotated[str, proto(2), describe("The API version of the object.")] = ""
    name: Annotated[str, proto(3), describe("The name of the object.")] = ""
    uid: Annotated[str, proto(4), describe("The uid of the object; if set, it must match.")] = ""


class TokenRequestSpec(Wire):
    """Properties of the requested token."""

    audiences: Annotated[
        tuple[str, ...] | None,
        proto(1),
        # As in Kubernetes, although an empty list is accepted.
        describe("The audiences of the token. Default: this server.", required=True),
    ] = always(null)
    expiration_seconds: Annotated[
        int | None,
        proto(4),
        describe("The requested lifetime; the server may shorten it."),
    ] = always(null)
    bound_object_ref: Annotated[
        BoundObjectReference | None,
        proto(3),
        describe("An object whose deletion invalidates the token."),
    ] = always(null)


class TokenRequestStatus(Wire):
    """The token."""

    token: Annotated[
        str, proto(1), confidential(), describe("The token itself, a JSON Web Token.")
    ] = always(str)
    expiration_timestamp: Annotated[
        Time | None, proto(2, embedded=True), describe("When the token expires.", required=True)
    ] = always(null)


class TokenRequest(Object):
    """Issues a token for a service account. Nothing is stored."""

    spec: Annotated[
        TokenRequestSpec, proto(2), describe("Properties of the requested token.", required=True)
    ] = field(default_factory=TokenRequestSpec)
    status: Annotated[
        TokenRequestStatus, proto(3), describe("The token; filled in by the server.")
    ] = field(default_factory=TokenRequestStatus)


class IssuedToken(msgspec.Struct, frozen=True):
    """A signed token, and its id for audit records."""

    token: str
    credential_id: str

    def __repr__(self) -> str:
        return f"IssuedToken({self.credential_id})"


class Issuer(Protocol):
    """Binds and signs tokens. Raises the ApiError for the caller."""

    api_audiences: tuple[str, ...]
    longest_seconds: int  # 0: no limit

    async def account_uid(self, namespace: str, name: str) -> str:
        """The uid of an existing account."""

    def bind(self, reference: BoundObjectReference, namespace: str, account: str) -> Any:
        """Resolve the bound object; the result is passed to `sign` unchanged."""

    async def sign(self, wanted: TokenRequest, bound: Any, now: Time) -> IssuedToken:
        """Sign a token for a complete request."""


class RequestToken:
    """Check a request step by step, then issue the token."""

    def __init__(self, naming: Naming, issuer: Issuer) -> None:
        self._group = naming.authentication
        self._audit_key = naming.issued_credential_id
        self._issuer = issuer

    async def create(self, new: TokenRequest, request: Request) -> TokenRequest:
        namespace, name = request.target.namespace, request.target.name
        about = ErrorSubject(self._group, "TokenRequest", name)
        refuse_other_name(about, new.metadata, namespace, name)
        uid = await self._issuer.account_uid(namespace, name)
        if new.metadata.uid:
            refuse_other_uid(about, new.metadata.uid, uid)
        new = self._filled_in(new, request, uid)
        if errors := tuple(spec_errors(new.spec)):
            # Kubernetes omits the name in this error only.
            raise Invalid(ErrorSubject(self._group, "TokenRequest"), errors)
        bound = None
        if new.spec.bound_object_ref is not None:
            bound = self._issuer.bind(new.spec.bound_object_ref, namespace, name)
        if self._issuer.longest_seconds:
            new = self._shortened(new, request)
        issued = await self._issuer.sign(new, bound, request.now)
        request.annotate(self._audit_key, issued.credential_id)
        assert new.spec.expiration_seconds is not None
        assert new.metadata.creation_timestamp is not None
        ends = new.metadata.creation_timestamp + timedelta(seconds=new.spec.expiration_seconds)
        status = TokenRequestStatus(token=issued.token, expiration_timestamp=ends)
        return replace(new, status=status)

    def _filled_in(self, new: TokenRequest, request: Request, uid: str) -> TokenRequest:
        spec = new.spec
        if not spec.audiences:
            spec = replace(spec, audiences=self._issuer.api_audiences)
        if spec.expiration_seconds is None:
            spec = replace(spec, expiration_seconds=DEFAULT_SECONDS)
        metadata = replace(
            new.metadata,
            name=request.target.name,
            namespace=request.target.namespace,
            uid=uid,
            creation_timestamp=whole_seconds(request.now),
        )
        return replace(new, metadata=metadata, spec=spec)

    def _shortened(self, new: TokenRequest, request: Request) -> TokenRequest:
        requested, longest = new.spec.expiration_seconds or 0, self._issuer.longest_seconds
        if requested <= longest:
            return new
        request.warn(f"requested expiration of {requested} seconds shortened to {longest} seconds")
        return replace(new, spec=replace(new.spec, expiration_seconds=longest))


def declare(naming: Naming, issuer: Issuer) -> Endpoint:
    """Declare the `token` endpoint, which assembly/kinds.py adds to ServiceAccount."""
    kind = Kind(
        type=TokenRequest,
        group=naming.authentication,
        version="v1",
        plural="tokenrequests",
        scope=Scope.NAMESPACED,
        acts=RequestToken(naming, issuer),
        writes=("metadata", "spec"),
        verbs=("create",),
        largest_body=LARGEST_REVIEW,
        defaults=with_default_lifetime,
    )
    return Endpoint("token", verbs=("create",), has_table=False, kind=kind)


def with_default_lifetime(sent: TokenRequest) -> TokenRequest:
    if sent.spec.expiration_seconds is not None:
        return sent
    return replace(sent, spec=replace(sent.spec, expiration_seconds=DEFAULT_SECONDS))


def refuse_other_name(about: ErrorSubject, sent: ObjectMeta, namespace: str, name: str) -> None:
    """Refuse a body that names another account than the path."""
    errors = []
    if sent.name and sent.name != name:
        text = "must match the service account name if specified"
        errors.append(invalid(METADATA / "name", sent.name, text))
    if sent.namespace and sent.namespace != namespace:
        text = "must match the service account namespace if specified"
        errors.append(invalid(METADATA / "namespace", sent.namespace, text))
    if errors:
        raise Invalid(about, errors)


def refuse_other_uid(about: ErrorSubject, sent: str, uid: str) -> None:
    """Refuse a uid that differs from the account's: it means an earlier or later account."""
    if sent != uid:
        raise Conflict(
            about,
            f"the UID in the token request ({sent}) does not match "
            f"the UID of the service account ({uid})",
        )


def spec_errors(spec: TokenRequestSpec) -> Iterator[FieldError]:
    seconds = spec.expiration_seconds or 0
    if seconds < SHORTEST_SECONDS:
        yield invalid(EXPIRATION, seconds, "may not specify a duration less than 10 minutes")
    if seconds > LONGEST_SECONDS:
        yield invalid(EXPIRATION, seconds, "may not specify a duration larger than 2^32 seconds")
