"""Requests of OAuth endpoints: a form in the body, and errors as RFC 6749, section 5.2.

`read_form` returns the parameters of a request. A parameter that occurs twice is refused, because
two programs could read different values; a few may be repeated by their definition.
"""

from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from orchid.kernel.server.failures import BareRefusal
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.errors import MethodNotAllowed

FORM: Final = "application/x-www-form-urlencoded"
LARGEST_FORM: Final = 32 << 10  # bytes
MOST_PARAMETERS: Final = 32
JSON: Final = b"Content-Type: application/json\r\n"
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 400, 401, 403
TOO_MANY_REQUESTS, UNAVAILABLE_STATUS = 429, 503
LONGEST_DESCRIPTION: Final = 2048
LONGEST_SHOWN: Final = 64  # of the name of a parameter
BLANKS: Final = " \t\r\n"
NO_STORE: Final = b"no-store"
CHALLENGE: Final = b'WWW-Authenticate: Basic realm="oauth2"\r\n'


class OAuthRefusal(BareRefusal):
    """An error with its code and a sentence for people."""

    def __init__(
        self, code: str, text: str, *, status: int = BAD_REQUEST, headers: bytes = b""
    ) -> None:
        self.code, self.text, self.more = code, text, headers
        body = msgspec.json.encode({"error": code, "error_description": described(text)})
        super().__init__(status, JSON + headers, body, cache=NO_STORE)

    def with_audit_id(self, audit_id: str) -> "OAuthRefusal":
        """The same refusal, with the id under which the audit record has it."""
        text = f"{self.text[: LONGEST_DESCRIPTION - 64]} (audit id {audit_id})"
        return OAuthRefusal(self.code, text, status=self.status, headers=self.more)


class FormParameters:
    """The parameters of a request."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    def get(self, name: str) -> str:
        """The value of a parameter; "" if it is missing."""
        found = self._values.get(name)
        return found[0] if found else ""

    def token(self, name: str) -> str:
        """A token, without the line end that a file has."""
        return self.get(name).strip(BLANKS)

    def all(self, name: str) -> list[str]:
        """Every value of a parameter that may be repeated."""
        return self._values.get(name, [])

    __repr__ = object.__repr__  # shows no value: there are tokens in it


def described(text: str) -> str:
    """A description in the characters that RFC 6749 allows: no quotes and backslashes."""
    shown = text[:LONGEST_DESCRIPTION].replace('"', "'")
    return "".join(one if " " <= one <= "~" and one != "\\" else "?" for one in shown)


def read_form(state: RequestState, *, repeatable: Collection[str] = ()) -> FormParameters:
    http = state.http
    if http.method != "POST":
        raise MethodNotAllowed
    if http.too_large or len(http.body) > LARGEST_FORM:
        raise OAuthRefusal("invalid_request", f"the form is longer than {LARGEST_FORM} bytes")
    if state.head.client.media != FORM:
        raise OAuthRefusal("invalid_request", f"the media type of the body must be {FORM}")
    try:
        pairs = parse_qsl(
            http.body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(http.body),
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError:
        text = f"the body is not a form in UTF-8 with at most {MOST_PARAMETERS} parameters"
        raise OAuthRefusal("invalid_request", text) from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        if name in values and name not in repeatable:
            text = f"the parameter {name[:LONGEST_SHOWN]} occurs twice"
            raise OAuthRefusal("invalid_request", text)
        values.setdefault(name, []).append(value)
    return FormParameters(values)
