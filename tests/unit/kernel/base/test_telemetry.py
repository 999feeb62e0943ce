"""Log lines: readable, one event each, and without anything that looks like a credential."""

import base64
import json
import logging
import sys

import pytest

from orchid.kernel.base.telemetry import (
    JsonFormatter,
    TextFormatter,
    failure_story,
    has_shape,
    masked,
)

JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
KEY = "-----BEGIN {}PRIVATE KEY-----\nMIIabc\n-----END {}PRIVATE KEY-----\n"
KEYS = [KEY.format(sort, sort) for sort in ("", "EC ", "RSA ", "ENCRYPTED ", "OPENSSH ")]
FORMATTERS = [TextFormatter(), JsonFormatter()]


@pytest.mark.parametrize(
    "secret",
    [
        JWT,
        JWT.replace(".", "%2E"),
        JWT[:60],
        *KEYS,
        *(base64.b64encode(k.encode()).decode() for k in KEYS),
    ],
)
def test_credentials_are_masked_by_their_shape(secret: str) -> None:
    """Tokens and private keys, plain or in base64, are removed; the text around them stays."""
    assert masked(f"before {secret} after").replace("\n", "") == "before *** after"
    assert has_shape(json.dumps([secret, "left"]).encode())


@pytest.mark.parametrize(
    "text",
    ["eyJ2IjoibWV0YS5vcmNoLmlvL3YxIn0", "JTI=a-b", "-----BEGIN CERTIFICATE-----", "a.b.c", ""],
)
def test_other_text_is_left_alone(text: str) -> None:
    """Continue tokens, credential ids, certificates and names are not secrets."""
    assert masked(text) == text
    assert not has_shape(text.encode())


def logged(formatter: logging.Formatter, **extra: str) -> str:
    try:
        raise ValueError(f"bad value {JWT}")
    except ValueError:
        record = logging.getLogger("orchid").makeRecord(
            "orchid",
            logging.ERROR,
            "f",
            1,
            f"event.happened {JWT}",
            (),
            sys.exc_info(),
            extra=extra,
        )
    return formatter.format(record)


@pytest.mark.parametrize("formatter", FORMATTERS, ids=["text", "json"])
def test_no_line_shows_a_token(formatter: logging.Formatter) -> None:
    """Neither the message nor a value nor an exception carries a token into the log."""
    line = logged(formatter, why=JWT)

    assert "event.happened ***" in line
    assert JWT not in line
    assert "c2lnbmF0dXJl" not in line


def test_a_logged_failure_has_location_and_type_but_no_text() -> None:
    """An unexpected error is logged without its message, which may contain client data."""
    try:
        try:
            raise KeyError("canary")
        except KeyError as cause:
            raise RuntimeError("canary") from cause
    except RuntimeError as problem:
        story = failure_story(problem)

    assert story.startswith("RuntimeError from KeyError\n")
    assert "test_telemetry.py" in story
    assert story.count("canary") == story.count('raise RuntimeError("canary")')


FORGED = "23:59:59 error   forged.line"
BREAKS = ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r\n", "\x1b[2K\n"]


@pytest.mark.parametrize("sign", BREAKS)
def test_nobody_writes_a_line_of_their_own(sign: str) -> None:
    """Whatever breaks a line is escaped, in values, in messages and in the text of exceptions."""
    text = f"name{sign}{FORGED}"
    try:
        raise ValueError(text)
    except ValueError:
        made = logging.getLogger("orchid").makeRecord
        record = made(
            "orchid", logging.ERROR, "f", 1, "event.happened: %s", (text,), sys.exc_info(),
            extra={"name_": text, "story": f"KeyError{sign}{FORGED}"},
        )  # fmt: skip

    lines = TextFormatter().format(record).splitlines()

    assert "event.happened: name" in lines[0]
    assert not [line for line in lines[1:] if not line.startswith("    ")]
    assert not [line for line in lines if line.startswith(FORGED)]
    assert all(line.isprintable() for line in lines)
