"""Sign-in with an OpenID Connect provider: what the console sends, and what it refuses."""

import base64
import hashlib
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from orchid.features.console.sign_in.openid import (
    Login,
    OpenIdProvider,
    OpenIdSettings,
    ProviderUnavailable,
    SignInFailed,
)
from orchid.features.console.sign_in.sessions import Tokens
from orchid.features.console.web.messages import Fields
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import ServerUnreachable

ISSUER = "https://login.example"
SETTINGS = OpenIdSettings(
    ISSUER, f"{ISSUER}/configuration", "console", "https://console.example/callback", ("openid",)
)
METADATA: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
}


def id_token(**claims: Any) -> str:
    usual = {"iss": ISSUER, "aud": "console", "sub": "jane", "exp": 2_000_000_000}
    payload = json.dumps({**usual, **claims}).encode()
    return f"e30.{base64.urlsafe_b64encode(payload).rstrip(b'=').decode()}.x"


class Provider:
    """A provider that answers as the test says."""

    def __init__(self, secret: str = "", **metadata: Any) -> None:
        self.metadata = {**METADATA, **metadata}
        self.answer: Any = {}
        self.status = 200
        self.forms: list[tuple[Fields, str]] = []
        self.fetches = 0
        given = SecretValue(secret) if secret else None
        self.console = OpenIdProvider(SETTINGS, self._call, lambda: 0.0, lambda: given)

    async def _call(self, url: str, form: Fields | None, authorization: str) -> Answer:
        if form is None:
            self.fetches += 1
            return Answer(200, json.dumps(self.metadata).encode())
        assert url == f"{ISSUER}/token"
        self.forms.append((form, authorization))
        return Answer(self.status, json.dumps(self.answer).encode())


async def test_the_browser_is_sent_to_the_provider_with_pkce_state_and_nonce() -> None:
    provider, login = Provider(), Login.begin("/requests?state=Waiting")

    url = urlsplit(await provider.console.sign_in_url(login))
    sent = {name: values[0] for name, values in parse_qs(url.query).items()}

    digest = hashlib.sha256(login.verifier.encode()).digest()
    assert f"{url.scheme}://{url.netloc}{url.path}" == METADATA["authorization_endpoint"]
    assert sent == {
        "response_type": "code",
        "client_id": "console",
        "redirect_uri": "https://console.example/callback",
        "scope": "openid",
        "state": login.state,
        "nonce": login.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    assert len({login.secret, login.state, login.nonce, login.verifier}) == 4
    assert Login.of_cookie(login.cookie) == login


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil", "", "x"])
def test_no_other_site_is_the_page_after_signing_in(target: str) -> None:
    assert Login.begin(target).target == "/"


def test_another_target_is_another_sign_in() -> None:
    """A cookie whose page was changed does not match the state that the provider returns."""
    login = Login.begin("/requests")

    assert Login(login.secret, "/revoke?authority=web").state != login.state


@pytest.mark.parametrize("text", ["", ".", "a.%%%", ".Lw==", "a.\xff"])
def test_a_broken_cookie_is_no_sign_in(text: str) -> None:
    assert Login.of_cookie(text) is None


async def test_a_code_is_exchanged_with_its_verifier() -> None:
    provider, login = Provider(), Login.begin("/")
    provider.answer = {"id_token": id_token(nonce=login.nonce), "refresh_token": "again"}

    tokens = await provider.console.redeem(login, {"code": "abc", "state": login.state})

    assert provider.forms == [
        (
            {
                "grant_type": "authorization_code",
                "code": "abc",
                "redirect_uri": "https://console.example/callback",
                "code_verifier": login.verifier,
                "client_id": "console",
            },
            "",
        )
    ]
    assert (tokens.expires, tokens.refresh_token) == (2_000_000_000, "again")
    assert "again" not in repr(tokens)


@pytest.mark.parametrize(
    ("query", "claims", "metadata"),
    [
        ({"state": "another"}, {}, {}),
        ({"state": ""}, {}, {}),
        ({"iss": "https://evil.example"}, {}, {}),
        ({}, {}, {"authorization_response_iss_parameter_supported": True}),
        ({"error": "access_denied"}, {}, {}),
        ({}, {"nonce": "another"}, {}),
        ({}, {"nonce": None}, {}),
        ({}, {"iss": "https://evil.example"}, {}),
        ({}, {"aud": "another"}, {}),
        ({}, {"exp": "soon"}, {}),
    ],
)
async def test_another_response_is_refused(
    query: Fields, claims: dict[str, Any], metadata: dict[str, Any]
) -> None:
    """Another state, issuer, nonce or audience."""
    provider, login = Provider(**metadata), Login.begin("/")
    provider.answer = {"id_token": id_token(**{"nonce": login.nonce, **claims})}

    with pytest.raises(SignInFailed):
        await provider.console.redeem(login, {"code": "abc", "state": login.state, **query})


@pytest.mark.parametrize(
    ("methods", "is_basic"), [(None, True), (["client_secret_post"], False), ([], False)]
)
async def test_the_client_secret_is_sent_as_the_provider_supports_it(
    methods: list[str] | None, is_basic: bool
) -> None:
    more = {} if methods is None else {"token_endpoint_auth_methods_supported": methods}
    provider, login = Provider("a:b c", **more), Login.begin("/")
    provider.answer = {"id_token": id_token(nonce=login.nonce)}

    await provider.console.redeem(login, {"code": "abc", "state": login.state})

    form, authorization = provider.forms[0]
    basic = "Basic " + base64.b64encode(b"console:a%3Ab%20c").decode()
    assert authorization == (basic if is_basic else "")
    assert form.get("client_secret") == (None if is_basic else "a:b c")


async def test_a_token_is_renewed_for_the_same_user_only() -> None:
    provider = Provider()
    before = Tokens(id_token(), 1.0, "again")
    provider.answer = {"id_token": id_token(exp=2_000_000_100)}

    renewed = await provider.console.renew(before)
    provider.answer = {"id_token": id_token(sub="mallory")}

    assert (renewed.expires, renewed.refresh_token) == (2_000_000_100, "again")
    with pytest.raises(SignInFailed):
        await provider.console.renew(before)


@pytest.mark.parametrize(("status", "is_later"), [(400, False), (401, False), (500, True)])
async def test_a_refusal_differs_from_a_failure(status: int, is_later: bool) -> None:
    """A refused renewal ends the session; a failed one may succeed later."""
    provider = Provider()
    provider.status, provider.answer = status, {"error": "invalid_grant"}

    with pytest.raises(SignInFailed) as failure:
        await provider.console.renew(Tokens(id_token(), 1.0, "again"))

    assert isinstance(failure.value, ProviderUnavailable) is is_later
    assert "again" not in str(failure.value)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "http://login.example/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": None},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)
async def test_unusable_metadata_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(ProviderUnavailable):
        await Provider(**metadata).console.sign_in_url(Login.begin("/"))


async def test_a_provider_without_a_response_is_unavailable() -> None:
    async def call(url: str, form: Fields | None, authorization: str) -> Answer:
        raise ServerUnreachable("connection failed")

    with pytest.raises(ProviderUnavailable):
        await OpenIdProvider(SETTINGS, call, lambda: 0.0).sign_in_url(Login.begin("/"))


async def test_metadata_are_fetched_once_for_many_sign_ins() -> None:
    provider = Provider(scopes_supported=["openid", "offline_access"])
    url = ""
    for _ in range(3):
        url = await provider.console.sign_in_url(Login.begin("/"))

    assert provider.fetches == 1
    assert "openid+offline_access" in url  # for a refresh token
