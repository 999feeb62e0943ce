"""The pages below /trust/, for anything that speaks HTTPS.

    <name>.pem              the certificates of the current edition
    <name>.p12              a Java trust store with the password `changeit`
    <name>.nopassword.p12   a Java trust store without a password
    <name>.json             a SPIFFE bundle, if the bundle has a trust domain
    <name>/<sequence>.pem   one of the last eight editions

The entity tag is the sequence of the edition. `?wait=50s` with `If-None-Match` holds the request
until there is another edition, or for that time. No credential is needed, but a client that sends
one is listed as a consumer (consumers.py).
"""

from typing import Final, NamedTuple

from orchid.features.trust_bundles.consumers import Consumers
from orchid.features.trust_bundles.editions import (
    OPEN_PKCS12,
    PEM,
    PKCS12,
    SPIFFE,
    PublishedEditions,
    ServedEdition,
)
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Counter
from orchid.kernel.http.messages import Response
from orchid.kernel.server.failures import NoSuchPage
from orchid.kernel.server.pages.conditional import is_current
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import BadRequest, MethodNotAllowed, NoSuchRoute, Unavailable
from orchid.kernel.wire.options import seconds_of
from orchid.kernel.wire.user import ANONYMOUS

PREFIX: Final = "/trust/"
LONGEST_PATH: Final = 300
LONGEST_SEQUENCE: Final = 15  # digits
LONGEST_WAIT: Final = 60.0
MARGIN: Final = 5.0  # seconds between the end of a wait and the deadline of its request
BUSY_SECONDS: Final = 10  # after which a client tries again that could not wait
UNCHANGED: Final = 304
FOR_EVER: Final = b"public, max-age=31536000, immutable"
MEDIA: Final = {
    PEM: b"application/x-pem-file",
    OPEN_PKCS12: b"application/x-pkcs12",
    PKCS12: b"application/x-pkcs12",
    SPIFFE: b"application/json",
}


class TrustPath(NamedTuple):
    """The bundle and format of a path."""

    bundle: str
    form: str
    sequence: int | None = None  # of an earlier edition


class TrustPages:
    """All pages below the prefix; call it with an exchange."""

    def __init__(self, editions: PublishedEditions, consumers: Consumers, clock: Clock) -> None:
        self._editions = editions
        self._consumers = consumers
        self._clock = clock
        self.requests = Counter(
            "orchid_trust_requests_total", "Requests for published bundles.", "form", "code"
        )

    async def __call__(self, state: RequestState) -> Response:
        if state.http.method not in ("GET", "HEAD"):
            raise MethodNotAllowed
        path = named_by(state.target.path)
        if path is None:
            raise NoSuchRoute
        if path.sequence is not None:
            answer = await self._earlier(state, path.bundle, path.sequence)
        else:
            answer = await self._current(state, path)
        self.requests.count(path.form, str(answer.status))
        return answer

    async def _current(self, state: RequestState, path: TrustPath) -> Response:
        bundle, edition = self._found(path.bundle)
        if path.form == SPIFFE and not bundle.spec.trust_domain:
            raise NoSuchPage(f"{path.bundle} has no spec.trustDomain")
        seconds = self._wait(state)
        retry = b""
        if seconds > 0 and is_current(state.http, str(edition.sequence)):
            if self._editions.is_full:
                retry = b"Retry-After: %d\r\n" % BUSY_SECONDS
            else:
                await self._hold(state, path.bundle, seconds)
                bundle, edition = self._found(path.bundle)
        return await self._answer(state, path, bundle, edition, retry)

    async def _answer(
        self,
        state: RequestState,
        path: TrustPath,
        bundle: PublishedBundle,
        edition: ServedEdition,
        retry: bytes,
    ) -> Response:
        tag = b'Etag: "%d"\r\n' % edition.sequence
        cache = b"public, max-age=%d" % bundle.refresh_seconds
        unchanged = is_current(state.http, str(edition.sequence))
        self._note(state, path.bundle, edition.sequence, sent=not unchanged)
        if unchanged:
            return Response(UNCHANGED, head(state, tag + retry, cache=cache))
        body = await edition.form(path.form, bundle.refresh_seconds)
        content = b"Content-Type: %b\r\n" % MEDIA[path.form]
        return Response(200, head(state, content + tag, cache=cache), body, is_cached=True)

    async def _earlier(self, state: RequestState, name: str, sequence: int) -> Response:
        bundle, _ = self._found(name)
        editions = {edition.sequence: edition.sha256 for edition in bundle.status.editions}
        if sequence not in editions:
            raise NoSuchRoute
        tag = b'Etag: "%d"\r\n' % sequence
        if is_current(state.http, str(sequence)):
            return Response(UNCHANGED, head(state, tag, cache=FOR_EVER))
        body = await self._editions.stored(name, sequence, editions[sequence])
        if body is None:
            raise NoSuchRoute
        content = b"Content-Type: %b\r\n" % MEDIA[PEM]
        return Response(200, head(state, content + tag, cache=FOR_EVER), body)

    def _found(self, name: str) -> tuple[PublishedBundle, ServedEdition]:
        bundle, edition = self._editions.bundles.get(name), self._editions.current(name)
        if bundle is not None and edition is not None:
            return bundle, edition
        if not self._editions.is_loaded:
            raise Unavailable("the published bundles are still being loaded")
        raise NoSuchRoute

    # -- waiting -----------------------------------------------------------------------------

    def _wait(self, state: RequestState) -> float:
        """The seconds that a request may wait for a change, within its deadline."""
        parameter = state.query.get("wait") if state.query else None
        if not parameter or not parameter[0]:
            return 0.0
        try:
            asked = seconds_of(parameter[0])
        except ValueError as fault:
            raise BadRequest(f"wait: {fault}") from None
        spent = (self._clock.now() - state.now).total_seconds()
        return min(asked, LONGEST_WAIT, state.http.timeout - MARGIN - max(spent, 0.0))

    async def _hold(self, state: RequestState, name: str, seconds: float) -> None:
        begun = self._clock.monotonic()
        await self._editions.wait_for_change(name, seconds)
        state.waited = self._clock.monotonic() - begun

    # -- counting ----------------------------------------------------------------------------

    def _note(self, state: RequestState, bundle: str, sequence: int, *, sent: bool) -> None:
        http, request = state.http, state.request
        if http.method == "HEAD" or (not sent and http.headers["if-none-match"].strip() == "*"):
            return  # it did not prove that it has the edition
        user = request.user.username if request is not None else ANONYMOUS
        self._consumers.seen(bundle, user, sequence, state.now, sent=sent)


def named_by(path: str) -> TrustPath | None:
    """The bundle and the format of a path; None for other paths."""
    name = path.removeprefix(PREFIX)
    if len(name) > LONGEST_PATH:
        return None
    bundle, slash, file = name.partition("/")
    if slash:
        number, _, ending = file.partition(".")
        is_number = number.isascii() and number.isdecimal() and len(number) <= LONGEST_SEQUENCE
        return TrustPath(bundle, PEM, int(number)) if is_number and ending == PEM else None
    for form in (OPEN_PKCS12, PEM, PKCS12, SPIFFE):
        if name.endswith(f".{form}"):
            return TrustPath(name.removesuffix(f".{form}"), form)
    return None
