"""The file of static tokens: what it may hold, and what it says about its mistakes."""

from pathlib import Path

import pytest

from orchid.features.sign_in.authenticators.static_token import (
    InvalidTokenFile,
    StaticTokenAuthenticator,
    read_users,
)
from tests.unit.kernel.access.presenting import API


def load(tmp_path: Path, text: str) -> StaticTokenAuthenticator:
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    return StaticTokenAuthenticator.load(path, API)


async def test_row_gives_user_uid_and_groups(tmp_path: Path) -> None:
    """Groups are in one quoted column, separated by commas."""
    tokens = load(tmp_path, 'alice-token,alice,uid-alice,"dev,ops"\nbob-token,bob,uid-bob\n')

    alice = await tokens.authenticate_token("alice-token", API)
    bob = await tokens.authenticate_token("bob-token", API)

    assert alice is not None
    assert alice.user.username == "alice"
    assert alice.user.uid == "uid-alice"
    assert alice.user.groups == ("dev", "ops", "system:authenticated")
    assert alice.audiences == API
    assert bob is not None
    assert bob.user.groups == ("system:authenticated",)


async def test_unknown_token_is_not_ours(tmp_path: Path) -> None:
    """Also what only begins like one, and what is no text at all."""
    tokens = load(tmp_path, "alice-token,alice,uid\n")

    for token in ("alice", "alice-token2", "", "\ud800", "alice-token\x00"):
        assert await tokens.authenticate_token(token, API) is None


async def test_static_token_is_good_for_the_apis_own_audiences_alone(tmp_path: Path) -> None:
    """It knows no audiences, so it cannot be meant for another service."""
    tokens = load(tmp_path, "alice-token,alice,uid\n")

    assert await tokens.authenticate_token("alice-token", ("x",)) is None
    found = await tokens.authenticate_token("alice-token", ("x", *API))
    assert found is not None
    assert found.audiences == API


async def test_last_row_of_a_token_wins_and_empty_tokens_are_skipped(tmp_path: Path) -> None:
    """As in the reference; a row without token opens nothing."""
    tokens = load(tmp_path, "t,first,1\n,nobody,2\n\nt,second,3\n")

    found = await tokens.authenticate_token("t", API)

    assert found is not None
    assert found.user.username == "second"
    assert await tokens.authenticate_token("", API) is None


def test_short_row_is_a_start_up_error_that_quotes_no_token() -> None:
    """The message names the columns it wants and how many it found."""
    with pytest.raises(InvalidTokenFile) as refusal:
        read_users("s3cret,alice\n", "tokens.csv")

    assert "must have at least 3 columns (token, user name, user uid), found 2" in str(
        refusal.value
    )
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("text", ['a,"b"c,d\n', 'a,b,c,"open\n', "a" * 200_000 + ",b,c\n"])
def test_broken_quoting_is_a_start_up_error(text: str) -> None:
    """Nothing is guessed about what a broken row may have meant."""
    with pytest.raises(InvalidTokenFile):
        read_users(text, "tokens.csv")


def test_missing_or_unreadable_file_is_a_start_up_error(tmp_path: Path) -> None:
    """A missing file, a directory and bytes that are no text."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe,a,b\n")

    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(InvalidTokenFile):
            StaticTokenAuthenticator.load(path, API)


def test_tokens_do_not_print(tmp_path: Path) -> None:
    """Neither the authenticator nor what it holds shows a token."""
    tokens = load(tmp_path, "s3cret-token,alice,uid\n")

    assert "s3cret" not in repr(tokens) + repr(vars(tokens))
