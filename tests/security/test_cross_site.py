"""A browser shows the certificate of its user to whatever page asks: other sites get nothing by it.

kubectl and other programs send neither Origin nor Sec-Fetch-Site, and notice nothing of this.
"""

import pytest

from orchid.kernel.wire.user import MASTERS
from tests.api.world import ADMIN, Api
from tests.security.certified import cluster_authority, issued

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
OWN = "https://orchid.test"
FOREIGN = [
    {"origin": "https://evil.test"},
    {"origin": "http://orchid.test"},
    {"origin": "https://orchid.test:8443"},
    {"origin": "https://sub.orchid.test"},
    {"origin": "null"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "Cross-Site"},
    {"origin": OWN, "sec-fetch-site": "cross-site"},
    {"origin": "https://evil.test", "sec-fetch-site": "same-origin"},
]
OURS = [
    {},
    {"origin": OWN},
    {"origin": "https://Orchid.test:443"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"origin": OWN, "sec-fetch-site": "same-origin"},
]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_site_writes_nothing_by_certificate(
    server: Api, method: str, headers: dict[str, str]
) -> None:
    """Certificates of an administrator, who may do everything, and of a front proxy."""
    jane = issued(cluster_authority(server.server.files.path), "jane", MASTERS)
    await server.account("a")
    path = ACCOUNTS if method == "POST" else f"{ACCOUNTS}/a"
    body = None if method == "DELETE" else {"metadata": {"name": "b"}}

    answer = await server.call(method, path, body, token=None, peer=jane.peer, headers=headers)

    assert answer.status == 403
    assert "a page of another site may not act by the certificate of a browser" in answer.text
    assert (await server.call("GET", f"{ACCOUNTS}/a")).status == 200
    assert (await server.call("GET", f"{ACCOUNTS}/b")).status == 404


async def test_a_second_origin_hides_nothing(server: Api) -> None:
    """Every value of a header counts."""
    jane = issued(cluster_authority(server.server.files.path), "jane", MASTERS)

    answer = await server.call(
        "POST",
        ACCOUNTS,
        {"metadata": {"name": "b"}},
        token=None,
        peer=jane.peer,
        headers={"origin": OWN},
        repeated=[("origin", "https://evil.test")],
    )

    assert answer.status == 403


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_site_watches_nothing_by_certificate(
    server: Api, headers: dict[str, str]
) -> None:
    """A WebSocket is a GET, but any page may read what comes on it."""
    jane = issued(cluster_authority(server.server.files.path), "jane", MASTERS)
    websocket = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }

    answer = await server.call(
        "GET", f"{ACCOUNTS}?watch=1", token=None, peer=jane.peer, headers=websocket | headers
    )

    assert answer.status == 403


@pytest.mark.parametrize("headers", OURS)
async def test_everybody_else_writes_as_before(server: Api, headers: dict[str, str]) -> None:
    """Programs, and pages of this server's own origin."""
    jane = issued(cluster_authority(server.server.files.path), "jane", MASTERS)
    body = {"metadata": {"name": "b"}}

    answer = await server.call("POST", ACCOUNTS, body, token=None, peer=jane.peer, headers=headers)

    assert answer.status == 201


@pytest.mark.parametrize("headers", FOREIGN)
async def test_who_knows_a_token_may_write_from_anywhere(
    server: Api, headers: dict[str, str]
) -> None:
    """A page cannot send a token that it does not know."""
    body = {"metadata": {"name": "b"}}

    answer = await server.call("POST", ACCOUNTS, body, token=ADMIN, headers=headers)

    assert answer.status == 201
