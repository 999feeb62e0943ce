"""The webhook of clusters over HTTP: one path, one method, a limit, and JSON."""

import pytest

from orchid.features.clusters.pages.clusters import ClusterPages
from orchid.kernel.wire.errors import (
    ApiError,
    BadRequest,
    MethodNotAllowed,
    NoSuchRoute,
    TooLarge,
    UnsupportedMedia,
)
from tests.unit.kernel.server.request_states import state_of

PATH = "/webhook/clusters/prod/authorize"


class Reviews:
    """Answers each review with the cluster and the body, and records malformed ones."""

    largest = 8

    def __init__(self) -> None:
        self.bad: list[tuple[str, str]] = []

    async def answer(self, cluster: str, body: bytes, arrived: float) -> bytes:
        return f"{cluster} {body.decode()}".encode()

    def malformed(self, cluster: str, why: str) -> ApiError:
        self.bad.append((cluster, why))
        return BadRequest(why)


async def test_a_review_is_answered_for_the_cluster_of_the_path() -> None:
    reviews = Reviews()

    found = await ClusterPages(reviews)(state_of("POST", f"{PATH}?timeout=5s", b"12345678"))

    assert (found.status, found.body) == (200, b"prod 12345678")
    assert b"application/json" in found.headers
    assert reviews.bad == []


@pytest.mark.parametrize(
    "path",
    [
        "/webhook/clusters//authorize",
        "/webhook/clusters/prod",
        "/webhook/clusters/prod/",
        "/webhook/clusters/prod/authorize/",
        "/webhook/clusters/prod/authorize/x",
        "/webhook/clusters/prod/authorizer",
        "/webhook/clusters/a/prod/authorize",
    ],
)
async def test_no_other_path_is_served(path: str) -> None:
    """The right is one to this path, so a second way to the cluster would need none."""
    with pytest.raises(NoSuchRoute):
        await ClusterPages(Reviews())(state_of("POST", path, b"{}"))


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_no_other_method_is_served(method: str) -> None:
    with pytest.raises(MethodNotAllowed):
        await ClusterPages(Reviews())(state_of(method, PATH, b"{}"))


async def test_what_is_too_large_or_not_json_is_refused_and_counted() -> None:
    """A body over the limit of the server arrives empty."""
    reviews = Reviews()
    pages = ClusterPages(reviews)

    with pytest.raises(TooLarge):
        await pages(state_of("POST", PATH, b"123456789"))
    with pytest.raises(TooLarge):
        await pages(state_of("POST", PATH, too_large=True))
    with pytest.raises(UnsupportedMedia):
        await pages(state_of("POST", PATH, b"{}", content_type="application/yaml"))

    assert reviews.bad == [("prod", "too large"), ("prod", "too large"), ("prod", "not JSON")]
