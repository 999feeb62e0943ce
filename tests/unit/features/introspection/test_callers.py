"""The caller of an OAuth endpoint: a client id is a user name, the secret a token of that user."""

import base64
from typing import Any

import pytest

from orchid.features.introspection.callers import LONGEST_CREDENTIALS, Callers, presented_secret
from orchid.features.introspection.forms import FORM, FormParameters, OAuthRefusal
from orchid.kernel.engine.interfaces import Authenticated, Rejected
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.server.request_states import state_of

API = ("https://orchid.test",)
ROBOT = "system:serviceaccount:ci:robot"


class Tokens:
    """One valid token of an account, a revoked one, and no others."""

    async def authenticate_token(
        self, token: str, audiences: tuple[str, ...]
    ) -> Authenticated | None:
        assert audiences == API
        if token == "revoked":
            raise Rejected("revoked")
        user = UserInfo(username=ROBOT)
        return Authenticated(user, audiences) if token == "good" else None


def form(**values: str) -> FormParameters:
    return FormParameters({name: [value] for name, value in values.items()})


def basic(text: str) -> dict[str, Any]:
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


async def caller(sent: FormParameters | None = None, **options: Any) -> str:
    exchange = state_of("POST", "/oauth2/revoke", content_type=FORM, **options)
    return (await Callers(Tokens(), API).user_of(exchange, sent or form())).username


async def refusal(sent: FormParameters | None = None, **options: Any) -> tuple[int, str]:
    with pytest.raises(OAuthRefusal) as found:
        await caller(sent, **options)
    return found.value.status, found.value.code


@pytest.mark.parametrize(
    "credentials",
    [f"{ROBOT}:good", "system%3Aserviceaccount%3Aci%3Arobot:good", f"{ROBOT}:%67ood"],
)
async def test_an_id_and_a_secret_are_an_account_and_its_token(credentials: str) -> None:
    """In a header, encoded or not: many clients do not; or in the form."""
    assert await caller(**basic(credentials)) == ROBOT
    assert await caller(form(client_id=ROBOT, client_secret="good")) == ROBOT


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("system:serviceaccount:ci:other", "good"),
        ("", "good"),
        (ROBOT, "revoked"),
        (ROBOT, "unknown"),
        (ROBOT, ""),
    ],
)
async def test_the_token_of_another_user_is_no_secret(name: str, secret: str) -> None:
    unauthorized = (401, "invalid_client")

    assert await refusal(**basic(f"{name}:{secret}")) == unauthorized
    assert await refusal(form(client_id=name, client_secret=secret)) == unauthorized


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic !",
        "Basic Z29vZA==",
        "Basic /w==",
        "Basic Ong=!",
        f"Basic {'A' * LONGEST_CREDENTIALS}AAAA",
    ],
)
async def test_a_malformed_header_is_refused(header: str) -> None:
    assert await refusal(authorization=header) == (401, "invalid_client")
    with pytest.raises(OAuthRefusal) as found:
        await caller(authorization=header)
    assert found.value.text == "the Authorization header is malformed"


async def test_without_a_credential_there_is_no_caller() -> None:
    """The challenge says which one is expected (RFC 6749, section 5.2)."""
    assert await refusal() == (401, "invalid_client")
    with pytest.raises(OAuthRefusal) as found:
        await caller(authorization="Negotiate x")
    assert b"WWW-Authenticate: Basic" in found.value.headers


async def test_the_user_of_the_connection_is_the_caller() -> None:
    """A client id beside it is not a second credential."""
    assert await caller(user="jane", authorization="Bearer t") == "jane"
    assert await caller(form(client_id=ROBOT), user="jane") == "jane"


@pytest.mark.parametrize("user", ["jane", "system:anonymous"])
async def test_two_credentials_are_refused(user: str) -> None:
    """A program on the path could look at the other one."""
    both = form(client_id=ROBOT, client_secret="good")

    assert await refusal(both, user=user, **basic(f"{ROBOT}:good")) == (400, "invalid_request")
    assert await refusal(both, user=user, authorization="Bearer t") == (400, "invalid_request")


@pytest.mark.parametrize(
    ("sent", "options", "secret"),
    [
        (form(), {}, ""),
        (form(), {"authorization": "Bearer  t "}, "t"),
        (form(), {"authorization": "bearer t"}, "t"),
        (form(), basic(f"{ROBOT}:good"), "good"),
        (form(client_id=ROBOT, client_secret="good"), {}, "good"),
        (form(client_id=ROBOT), {}, ""),
        (form(), {"user": "jane"}, "certificate"),
    ],
)
def test_a_credential_is_seen_in_each_place(
    sent: FormParameters, options: dict[str, Any], secret: str
) -> None:
    """A certificate is one, too: its user does not act as the holder of a token."""
    assert presented_secret(state_of("POST", "/oauth2/revoke", **options), sent) == secret
