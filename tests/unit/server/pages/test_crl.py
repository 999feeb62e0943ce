"""Revocation lists over plain HTTP."""

import pytest

from orchid.server.pages.crl import PlainRevocationLists, ServedLists
from orchid.server.sockets.messages import HttpRequest, Peer, Response


async def asked(method: str, path: str, **headers: str) -> Response:
    pages = PlainRevocationLists(ServedLists(lambda name: b"list" if name == "web" else None))
    return await pages(HttpRequest(method, path, path, "", headers, Peer("127.0.0.1:1")))


async def test_a_list_is_not_sent_to_clients_that_have_it() -> None:
    """The entity tag of a list is answered with 304, any other with the list."""
    whole = await asked("GET", "/crl/web.crl")
    tag = whole.headers.partition(b"Etag: ")[2].partition(b"\r\n")[0].decode()

    again = await asked("GET", "/crl/web.crl", **{"if-none-match": tag})
    other = await asked("GET", "/crl/web.pem", **{"if-none-match": tag})

    assert (whole.status, whole.body) == (200, b"list")
    assert (again.status, again.body) == (304, b"")
    assert b"Etag" in again.headers
    assert other.status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/crl/web.crl", 200),
        ("HEAD", "/crl/mail.crl", 404),
        ("POST", "/crl/web.crl", 405),
        ("GET", "/metrics", 404),
    ],
)
async def test_lists_are_read_only(method: str, path: str, status: int) -> None:
    """GET and HEAD are answered for lists, and nothing else is there."""
    assert (await asked(method, path)).status == status
