"""Arguments of `orchid token`, and the content of a token that it shows."""

import argparse
import base64
import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.cli import main
from orchid.features.accounts.commands import token
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.terminal.objects import account_of
from orchid.kernel.terminal.output import Complaint


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


TOKEN = f"{encoded({'alg': 'ES256'})}.{encoded({'sub': 'me', 'aud': 'x', 'exp': 5})}.c2ln"


@pytest.mark.parametrize(
    ("text", "account"),
    [("ci/builder", ("ci", "builder")), ("builder", ("default", "builder"))],
)
def test_accounts_are_read(text: str, account: tuple[str, str]) -> None:
    """A name alone is in the default namespace."""
    assert account_of(text) == account


def test_a_name_alone_is_in_the_namespace_of_the_kubeconfig() -> None:
    """As other clients have it."""
    assert account_of("builder", "ci") == ("ci", "builder")


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a/b/c"])
def test_what_is_no_account_is_a_mistake(text: str) -> None:
    """The message shows how one is written."""
    with pytest.raises(Complaint, match="NAMESPACE/ACCOUNT"):
        account_of(text)


@pytest.mark.parametrize("text", ["pod", "pod/", "pod/a/b", "service/x", ""])
def test_a_token_is_bound_to_pods_secrets_and_nodes_alone(text: str) -> None:
    """Anything else is a mistake before a server is asked."""
    with pytest.raises(argparse.ArgumentTypeError):
        token.bound_object(text)


def test_decoding_says_that_nothing_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    """The output says whether the claims were verified."""
    code = main(["token", "show", TOKEN])

    first, *rest = capsys.readouterr().out.splitlines()
    assert code == 0
    assert first.startswith("Verified:   NO, only decoded")
    assert "Subject:    me" in rest


def test_a_token_comes_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it is seen by no list of processes."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN}\n"))

    assert main(["token", "show", "-", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is None


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "....", f"{encoded([])}.{encoded({})}.x"])
def test_what_is_no_token_is_a_mistake(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one line, and not a word of what might be a secret."""
    code = main(["token", "show", text or "x"])

    assert code == 2
    assert capsys.readouterr().err.startswith("orchid: that is not a JSON web token")


@given(st.text(max_size=200))
def test_no_text_makes_decoding_fail_otherwise(text: str) -> None:
    """Claims, or a Complaint."""
    with contextlib.suppress(Complaint):
        token.decode(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=9,
    ),
    st.sampled_from(["aud", "exp", "iat", "sub", "iss", "other"]),
)
def test_any_claim_can_be_shown(value: Any, name: str) -> None:
    """Claims are whatever somebody wrote."""
    _, claims = token.decode(f"{encoded({})}.{encoded({name: value})}.")

    assert token._described({}, claims)


def test_flags_of_the_one_form_are_refused_with_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A flag that would do nothing is not taken in silence."""
    assert main(["token", "show", TOKEN, "--for", "1h"]) == 2
    assert main(["token", "ci/builder", "--verify"]) == 2
    assert capsys.readouterr().out == ""


def test_a_server_without_exchange_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path is then closed to anonymous requests; a job has no credential that could expire."""
    answer = (401, b'{"kind":"Status","message":"Unauthorized"}')
    monkeypatch.setattr(ServerConnection, "_exchange", lambda *_: answer)
    monkeypatch.setenv("ORCHID_ID_TOKEN", TOKEN)

    code = main(["token", "exchange", "--gitlab", "--server", "https://orchid.test"])

    assert code == 1
    assert "without --token-exchange-config" in capsys.readouterr().err
