"""Revocation lists over plain HTTP."""

import pytest

from orchid.features.revoking.pages.crl import PlainRevocationLists, ServedLists
from orchid.kernel.http.messages import HttpRequest, Peer, Response
from orchid.kernel.wire.errors import MethodNotAllowed, NoSuchRoute

LISTS = {"web": b"list", "web-2": b"second"}


async def asked(method: str, path: str, **headers: str) -> Response:
    lists = ServedLists(LISTS.get, lambda name: tuple(LISTS.values()) if name == "web" else ())
    pages = PlainRevocationLists(lists)
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


async def test_the_pem_file_of_an_authority_has_the_lists_of_all_its_keys() -> None:
    """The list in DER is always that of one key."""
    both = await asked("GET", "/crl/web.pem")

    assert both.body.count(b"BEGIN X509 CRL") == 2
    assert (await asked("GET", "/crl/web-2.crl")).body == b"second"


@pytest.mark.parametrize(
    ("method", "path", "refusal"),
    [
        ("HEAD", "/crl/mail.crl", NoSuchRoute),
        ("POST", "/crl/web.crl", MethodNotAllowed),
        ("GET", "/metrics", NoSuchRoute),
    ],
)
async def test_lists_are_read_only(method: str, path: str, refusal: type[Exception]) -> None:
    """GET and HEAD are answered for lists, and nothing else is served."""
    assert (await asked("HEAD", "/crl/web.crl")).status == 200
    with pytest.raises(refusal):
        await asked(method, path)
