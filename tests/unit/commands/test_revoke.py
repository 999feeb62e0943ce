"""The command that revokes: what it reads of a token."""

import base64
import json
from typing import Any, cast

import pytest

from orchid.commands.certificates.revoke import _of_token
from orchid.commands.terminal.output import Complaint


@pytest.mark.parametrize("claims", [{"jti": 7}, {"jti": None}, {"jti": "7", "sub": ["a"]}, {}])
def test_a_token_whose_id_is_no_text_is_not_said_to_be_revoked(claims: dict[str, Any]) -> None:
    """A revocation names a text, so it would have no effect on the token."""
    claims = {"iss": "https://issuer", "sub": "jane", **claims}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")

    with pytest.raises(Complaint, match="no token with an id"):
        _of_token(cast("Any", None), b"e30." + payload + b".c2ln")
