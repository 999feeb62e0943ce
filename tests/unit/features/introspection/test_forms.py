"""Forms of OAuth endpoints: each part of what refuses one."""

import json
from typing import Any

import pytest

from orchid.features.introspection.forms import (
    FORM,
    LARGEST_FORM,
    LONGEST_DESCRIPTION,
    MOST_PARAMETERS,
    FormParameters,
    OAuthRefusal,
    described,
    read_form,
)
from orchid.kernel.wire.errors import MethodNotAllowed
from tests.unit.kernel.server.request_states import state_of


def read(body: bytes, *, media: str = FORM, too_large: bool = False) -> FormParameters:
    exchange = state_of("POST", "/f", body, too_large=too_large, content_type=media)
    return read_form(exchange, repeatable=("audience",))


def refusal(body: bytes, **options: Any) -> str:
    with pytest.raises(OAuthRefusal) as found:
        read(body, **options)
    assert (found.value.code, found.value.status) == ("invalid_request", 400)
    return found.value.text


def many(count: int) -> bytes:
    return "&".join(f"p{number}=1" for number in range(count)).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"a=1&a=2", "the parameter a occurs twice"),
        (b"a=1&a=1", "the parameter a occurs twice"),
        (b"a=&a=1", "the parameter a occurs twice"),
        (b"a=%ff", "not a form in UTF-8"),
        (b"a=\xc3\xa9", "not a form in UTF-8"),
        (b"a", "not a form in UTF-8"),
        (b"a=1&&b=2", "not a form in UTF-8"),
        (many(MOST_PARAMETERS + 1), "not a form in UTF-8"),
        (b"a=" + b"1" * (LARGEST_FORM - 1), "the form is longer"),
    ],
)
def test_a_form_that_two_programs_could_read_differently_is_refused(body: bytes, text: str) -> None:
    assert text in refusal(body)


def test_a_form_at_each_limit_is_read() -> None:
    assert read(many(MOST_PARAMETERS)).get("p31") == "1"
    assert len(read(b"a=" + b"1" * (LARGEST_FORM - 2)).get("a")) == LARGEST_FORM - 2
    assert read(b"a=1", media=f"{FORM}; charset=utf-8").get("a") == "1"
    assert read(b"").get("a") == ""


def test_only_named_parameters_are_repeated() -> None:
    form = read(b"audience=b&audience=a&x=%C3%A9+1&t=%20tok%0D%0A")

    assert form.all("audience") == ["b", "a"]
    assert form.all("missing") == []
    assert form.get("x") == "é 1"
    assert form.token("t") == "tok"
    assert "tok" not in repr(form)


def test_other_methods_media_types_and_lengths_are_refused() -> None:
    """A body over the limit of the server arrives empty, and is no empty form."""
    for method in ("GET", "PUT"):
        with pytest.raises(MethodNotAllowed):
            read_form(state_of(method, "/f", b"a=1", content_type=FORM))
    for media in ("application/json", "", "text/plain"):
        assert "media type" in refusal(b"a=1", media=media)
    assert "longer than" in refusal(b"", too_large=True)


def test_a_description_has_no_other_characters_and_an_end() -> None:
    """Those of RFC 6749, section 5.2; a value of the client cannot end the JSON string."""
    assert described('a "b" \\ \n é ~') == "a 'b' ? ? ? ~"
    assert len(described("x" * 5000)) == LONGEST_DESCRIPTION


def test_the_audit_id_fits_behind_every_description() -> None:
    long = OAuthRefusal("invalid_request", "x" * 5000, status=429, headers=b"Retry-After: 1\r\n")

    found = long.with_audit_id("the-id")

    assert json.loads(found.body)["error_description"].endswith("(audit id the-id)")
    assert (found.status, found.code) == (429, "invalid_request")
    assert b"Retry-After: 1" in found.headers
