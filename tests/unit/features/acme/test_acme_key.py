"""External account keys, as the lines of `orchid acme key` have them."""

import secrets

import pytest

from orchid.features.acme.commands.acme import KEY_BYTES, new_key


def test_a_key_does_not_look_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """`certbot --eab-hmac-key -abc` fails: one of 64 keys began with a dash."""
    with_dash, other = b"\xf8" * KEY_BYTES, b"\xf7" * KEY_BYTES
    keys = iter((with_dash, with_dash, other))
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(keys))

    key, text = new_key()

    assert key == other
    assert not text.startswith("-")
