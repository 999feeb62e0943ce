"""The command that revokes: what it reads of a token, and its question."""

import base64
import json
from typing import Any, cast

import pytest

from orchid.features.revoking.commands.revoke import _of_authority, _of_key, _of_token
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.wire.naming import ORCH


@pytest.mark.parametrize("claims", [{"jti": 7}, {"jti": None}, {"jti": "7", "sub": ["a"]}, {}])
def test_a_token_whose_id_is_no_text_is_not_said_to_be_revoked(claims: dict[str, Any]) -> None:
    """A revocation names a text, so it would have no effect on the token."""
    claims = {"iss": "https://issuer", "sub": "jane", **claims}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")

    with pytest.raises(Complaint, match="no token with an id"):
        _of_token(cast("Any", None), b"e30." + payload + b".c2ln")


class Server:
    """Answers every request with one object."""

    naming = ORCH

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def get(self, place: str) -> dict[str, Any]:
        return self._answer


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"state": "Active"}, "every token that it has signed"),
        ({"state": "Active", "authority": "web"}, "every certificate that it has signed"),
    ],
    ids=["tokens", "an authority"],
)
def test_revoking_a_key_names_what_it_affects(
    spec: dict[str, str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the number of credentials that depend on it."""
    answer = {"spec": spec, "status": {"dependents": {"live": 12}}}

    text, wanted = _of_key(cast("Any", Server(answer)), "k-1")

    assert what in text
    assert wanted == {"key": {"name": "k-1"}}
    assert "k-1: 12" in capsys.readouterr().err


def test_the_authority_of_the_platform_has_no_single_signer() -> None:
    """A revocation names one signer, so the answer lists those to choose from."""
    answer = {"spec": {"signerName": "", "signerNames": ["orch.io/a", "orch.io/b"]}}

    with pytest.raises(Complaint, match=r"several signers.*orch\.io/a, orch\.io/b"):
        _of_authority(cast("Any", Server(answer)), "cluster", "")
