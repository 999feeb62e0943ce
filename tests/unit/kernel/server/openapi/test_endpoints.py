"""The OpenAPI pages: which document, in which form, and how clients may keep it."""

import gzip
import hashlib

import pytest
from openapi_spec_validator import validate

from orchid.kernel.server.openapi.endpoints import V2, V3
from orchid.kernel.server.openapi.pages import OLD_PROTOBUF_V2, PROTOBUF_V2
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming
from tests.unit.kernel.server.published import NOW, OPENID, ask, document, header, published

GROUP = f"{V3}/apis/fruit.garden.k8s.io/v1beta1"


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES], ids=lambda naming: naming.name)
def test_every_document_is_valid(naming: Naming) -> None:
    """A validator of OpenAPI accepts the old document and all the new ones, in both namings."""
    pages = published(naming)

    validate(document(pages, V2))
    for entry in document(pages, V3)["paths"].values():
        validate(document(pages, entry["serverRelativeURL"]))


def test_index_names_every_document_with_its_hash() -> None:
    """The index has a key for each root, and an address with the tag of the document there."""
    pages = published()

    answer = ask(pages, V3)
    paths = document(pages, V3)["paths"]

    assert sorted(paths) == [
        "api",
        "apis",
        "apis/fruit.garden.k8s.io",
        "apis/fruit.garden.k8s.io/v1beta1",
        OPENID.strip("/"),
        "version",
    ]
    tag = header(ask(pages, GROUP), "Etag")[0].strip('"')
    url = paths["apis/fruit.garden.k8s.io/v1beta1"]["serverRelativeURL"]
    assert url == f"{GROUP}?hash={tag}"
    assert header(answer, "Content-Type") == ["text/plain; charset=utf-8"]
    assert header(answer, "Etag") == []
    assert header(answer, "Last-Modified") == ["Sun, 15 Nov 2026 00:36:47 GMT"]


def test_tag_is_the_hash_of_the_document() -> None:
    """The tag is the SHA-512 of the JSON form, in upper case, for the protobuf form too."""
    pages = published()

    plain, packed = ask(pages, V2), ask(pages, V2, accept=PROTOBUF_V2)

    digest = hashlib.sha512(plain.body).hexdigest().upper()
    assert header(plain, "Etag") == [f'"{digest}"'] == header(packed, "Etag")


def test_documents_are_made_once() -> None:
    """A later request gets the same bytes and the time of the first."""
    pages = published()

    first, second = ask(pages, V2), ask(pages, V2, now=NOW.replace(year=2027))

    assert second.body is first.body
    assert header(second, "Last-Modified") == header(first, "Last-Modified")


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json;q=0.5, text/html", "application/json"),
        (PROTOBUF_V2, PROTOBUF_V2),
        (OLD_PROTOBUF_V2, PROTOBUF_V2),
        (f"{PROTOBUF_V2}, application/json", PROTOBUF_V2),
    ],
)
def test_old_document_comes_in_the_form_asked_for(accept: str, media: str) -> None:
    """JSON is for everyone who does not insist on protobuf."""
    answer = ask(published(), V2, accept=accept)

    assert answer.status == 200
    assert header(answer, "Content-Type") == [media]
    assert header(answer, "Vary") == ["Accept-Encoding", "Accept"]


@pytest.mark.parametrize("path", [V2, GROUP])
def test_other_forms_are_refused_without_a_body(path: str) -> None:
    """A client that accepts neither form gets a bare 406."""
    answer = ask(published(), path, accept="text/html")

    assert (answer.status, answer.body) == (406, b"")
    assert "Accept" in header(answer, "Vary")


def test_old_document_is_compressed_on_request() -> None:
    """With gzip accepted the same document comes smaller, under the same tag."""
    pages = published()

    plain, small = ask(pages, V2), ask(pages, V2, accept_encoding="gzip")

    assert header(small, "Content-Encoding") == ["gzip"]
    assert gzip.decompress(small.body) == plain.body
    assert header(small, "Etag") == header(plain, "Etag")


def test_new_document_is_never_compressed() -> None:
    """The documents of single groups are sent as they are."""
    answer = ask(published(), GROUP, accept_encoding="gzip")

    assert header(answer, "Content-Encoding") == []
    assert answer.body.startswith(b"{")


def test_right_hash_may_be_kept_for_ever() -> None:
    """A document asked for by its hash is public, immutable, and good for a year."""
    pages = published()
    url = document(pages, V3)["paths"]["version"]["serverRelativeURL"]

    answer = ask(pages, url)

    assert answer.status == 200
    assert header(answer, "Cache-Control") == ["public, immutable"]
    assert header(answer, "Expires") == ["Mon, 15 Nov 2027 00:36:47 UTC"]


def test_wrong_hash_leads_to_the_right_one() -> None:
    """An outdated hash is redirected to the document there is now."""
    pages = published()
    url = document(pages, V3)["paths"]["version"]["serverRelativeURL"]

    answer = ask(pages, f"{V3}/version?hash=OLD")

    assert (answer.status, answer.body) == (301, b"")
    assert header(answer, "Location") == [url]


def test_a_document_without_a_hash_is_revalidated() -> None:
    """Without a hash a document is not to be kept."""
    answer = ask(published(), GROUP)

    assert header(answer, "Cache-Control") == ["no-cache, private"]


@pytest.mark.parametrize("key", ["", "apis/other.k8s.io/v1", "../v2"])
def test_unknown_key_is_not_found(key: str) -> None:
    """A key that no document has is a bare 404."""
    answer = ask(published(), f"{V3}/{key}")

    assert (answer.status, answer.body) == (404, b"")


@pytest.mark.parametrize("path", [V2, GROUP])
def test_known_document_is_not_sent_again(path: str) -> None:
    """A client with a matching ETag gets 304."""
    pages = published()
    (tag,) = header(ask(pages, path), "Etag")

    answer = ask(pages, path, if_none_match=f'"other", {tag}')

    assert (answer.status, answer.body) == (304, b"")
    assert header(answer, "Etag") == [tag]
