"""The webhook of clusters over HTTP: POST /webhook/clusters/NAME/authorize.

The API server of a cluster sends a review and gets it back with a status from
features/clusters/reviews.py. RBAC has authorized the caller for this path before
(`nonResourceURLs`).
"""

from collections.abc import Awaitable
from typing import Final, Protocol

from orchid.kernel.http.messages import Response
from orchid.kernel.server.negotiate import JSON
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import (
    ApiError,
    MethodNotAllowed,
    NoSuchRoute,
    TooLarge,
    UnsupportedMedia,
)

PREFIX: Final = "/webhook/clusters/"
_END: Final = "/authorize"
_JSON: Final = b"Content-Type: application/json\r\n"


class Reviews(Protocol):
    largest: int  # bytes of a review

    def answer(self, cluster: str, body: bytes, arrived: float) -> Awaitable[bytes]: ...

    def malformed(self, cluster: str, why: str) -> ApiError: ...


class ClusterPages:
    """Everything below the prefix; call it with an exchange."""

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    async def __call__(self, state: RequestState) -> Response:
        http = state.http
        name, end, rest = state.target.path.removeprefix(PREFIX).partition(_END)
        if not name or "/" in name or not end or rest:
            raise NoSuchRoute
        if http.method != "POST":
            raise MethodNotAllowed
        reviews = self._reviews
        if http.too_large or len(http.body) > reviews.largest:
            reviews.malformed(name, "too large")
            raise TooLarge(f"limit is {reviews.largest}")
        if state.head.client.media != JSON:
            reviews.malformed(name, "not JSON")
            raise UnsupportedMedia(f"the body of a review is {JSON}")
        answer = await reviews.answer(name, http.body, state.arrived)
        return Response(200, head(state, _JSON), answer)
