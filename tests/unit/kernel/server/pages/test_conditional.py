"""Conditions and ranges, by RFC 9110, for a document that does not change."""

from datetime import UTC, datetime

import pytest

from orchid.kernel.http.messages import HttpRequest, Peer, Response
from orchid.kernel.server.memory.head_facts import facts_of
from orchid.kernel.server.pages.conditional import (
    LONGEST_CONDITION,
    LONGEST_DATE,
    StaticDocument,
    answer,
)
from orchid.kernel.server.request_state import RequestState
from tests.unit.kernel.server.published import header

MADE = datetime(2026, 11, 15, 0, 36, 47, 123_456, tzinfo=UTC)
DATE = "Sun, 15 Nov 2026 00:36:47 GMT"
EARLIER = "Sun, 15 Nov 2026 00:36:46 GMT"
DOCUMENT = StaticDocument(b"0123456789", "TAG", MADE)


def asked(method: str = "GET", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    http = HttpRequest(method, "/d", "/d", "", named, Peer("127.0.0.1:1"))
    return answer(
        RequestState(http, facts_of(http), "id", MADE), DOCUMENT, b"Content-Type: text/plain\r\n"
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"if_none_match": '"TAG"'}, 304),
        ({"if_none_match": 'W/"TAG"'}, 304),
        ({"if_none_match": "*"}, 304),
        ({"if_none_match": '"OTHER"'}, 200),
        ({"if_none_match": "TAG"}, 200),
        ({"if_modified_since": DATE}, 304),
        ({"if_modified_since": EARLIER}, 200),
        ({"if_modified_since": "yesterday"}, 200),
        ({"if_modified_since": "Sun, 15 Nov 99999999999999999999 00:36:47 GMT"}, 200),
        ({"if_modified_since": "Fri, 31 Dec 9999 23:59:59 GMT"}, 304),
        ({"if_unmodified_since": "Fri, 31 Dec 9999 23:59:59 GMT"}, 200),
        ({"if_modified_since": " " * LONGEST_DATE + DATE}, 200),
        ({"if_none_match": '"x", ' * 100 + '"TAG"'}, 304),
        ({"if_none_match": '"x", ' * LONGEST_CONDITION + '"TAG"'}, 200),
        ({"if_match": '"x", ' * LONGEST_CONDITION + '"TAG"'}, 412),
        ({"if_modified_since": DATE, "if_none_match": '"OTHER"'}, 200),
        ({"if_match": '"TAG"'}, 200),
        ({"if_match": '"OTHER"'}, 412),
        ({"if_unmodified_since": DATE}, 200),
        ({"if_unmodified_since": EARLIER}, 412),
    ],
)
def test_conditions_decide_whether_it_is_sent(headers: dict[str, str], status: int) -> None:
    """Tags come before times, and what cannot be read is no condition."""
    found = asked(**headers)

    assert found.status == status
    assert bool(found.body) is (status == 200)


def test_a_document_says_that_parts_of_it_can_be_had() -> None:
    """With the document; not with the news that the client has it."""
    assert header(asked(), "Accept-Ranges") == ["bytes"]
    assert not header(asked(if_none_match="*"), "Accept-Ranges")


def test_a_write_with_a_known_tag_fails() -> None:
    """Only reading can be answered with "you have it"."""
    assert asked("POST", if_none_match='"TAG"').status == 412


@pytest.mark.parametrize(
    ("wanted", "status", "place", "body"),
    [
        ("bytes=0-3", 206, "bytes 0-3/10", b"0123"),
        ("bytes=7-", 206, "bytes 7-9/10", b"789"),
        ("bytes=7-99", 206, "bytes 7-9/10", b"789"),
        ("bytes=-2", 206, "bytes 8-9/10", b"89"),
        ("bytes=-99", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=10-", 416, "bytes */10", b""),
        ("bytes=-0", 416, "bytes */10", b""),
        ("bytes=3-1", 200, "", b"0123456789"),
        ("bytes=0-1,4-5", 200, "", b"0123456789"),
        ("bytes=-", 200, "", b"0123456789"),
        ("pages=1-2", 200, "", b"0123456789"),
        ("bytes=" + "9" * 30 + "-", 200, "", b"0123456789"),
    ],
)
def test_range_gives_a_part(wanted: str, status: int, place: str, body: bytes) -> None:
    """One range is answered with a part; what is no range, or several, with the whole."""
    found = asked(range=wanted)

    assert (found.status, found.body) == (status, body)
    assert header(found, "Content-Range") == ([place] if place else [])


@pytest.mark.parametrize(
    ("condition", "status"),
    [('"TAG"', 206), ('"OTHER"', 200), (DATE, 206), (EARLIER, 200)],
)
def test_range_of_another_document_is_ignored(condition: str, status: int) -> None:
    """A part is sent only if it is a part of what the client has."""
    assert asked(range="bytes=0-3", if_range=condition).status == status
