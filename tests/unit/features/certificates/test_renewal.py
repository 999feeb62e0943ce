"""Renewal information over HTTP: the window, when to ask again, and nothing for others."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import pytest

from orchid.features.certificates.pages.renewal import RenewalPages, Window
from orchid.kernel.wire.errors import BadRequest, MethodNotAllowed, NoSuchRoute
from tests.unit.kernel.server.request_states import state_of

START = datetime(2026, 1, 2, 5, 0, tzinfo=timezone(timedelta(hours=2)))


class Slot(NamedTuple):
    start: datetime = START
    end: datetime = datetime(2026, 1, 3, tzinfo=UTC)
    ask_again_seconds: int = 21_600


def find(identifier: str) -> Window | None:
    if "." not in identifier:
        raise ValueError("no dot")
    return Slot() if identifier == "key.serial" else None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_gets_its_window_in_utc(method: str) -> None:
    found = RenewalPages(find)(state_of(method, "/renewal-info/key.serial"))

    window = {"start": "2026-01-02T03:00:00Z", "end": "2026-01-03T00:00:00Z"}
    assert json.loads(found.body) == {"suggestedWindow": window}
    assert b"Retry-After: 21600\r\n" in found.headers
    assert b"public, max-age=60" in found.headers


@pytest.mark.parametrize(
    ("method", "identifier", "refusal"),
    [
        ("POST", "key.serial", MethodNotAllowed),
        ("DELETE", "key.serial", MethodNotAllowed),
        ("GET", "key.other", NoSuchRoute),
        ("GET", "nonsense", BadRequest),
        ("GET", "", BadRequest),
    ],
)
def test_nothing_else_is_answered(method: str, identifier: str, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        RenewalPages(find)(state_of(method, f"/renewal-info/{identifier}"))
