"""Outside issuers: whose keys count for whose tokens, and what their claims become."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.oidc.authenticator import OidcAuthenticator
from orchid.features.sign_in.oidc.configuration import (
    ClaimMapping,
    IssuerSettings,
    read_configuration,
)
from orchid.features.sign_in.oidc.keys import Fetch, fetching
from orchid.kernel.credentials.keys import TokenKey, b64url_encode, generate
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.expressions.cel import Expression, ExpressionInput
from orchid.kernel.outbound.failures import AnswerRefused
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.revoked_credentials import RevokedToken, RevokedUser
from tests.unit.kernel.access.presenting import API, START, FakeClock
from tests.unit.kernel.access.world import REVOCABLE, revocation, world_of
from tests.unit.kernel.outbound.loopback import OK, PEM, serving

A, B = "https://a.example", "https://b.example/tenant"
KEY_A, KEY_B, NEW_KEY = generate(), generate(), generate()
NOW = int(START.timestamp())
SETTINGS = IssuerSettings(
    url=A,
    audiences=("orchid", "orchid-2"),
    username=ClaimMapping("sub", "a:"),
    groups=ClaimMapping("groups", "a:"),
)


class Web:
    """The pages of the issuers. A missing page is refused; a gate can hold answers back."""

    def __init__(self, *issuers: tuple[str, TokenKey]) -> None:
        self.pages: dict[str, Any] = {}
        self.fetched: list[str] = []
        self.gate: asyncio.Event | None = None
        for url, key in issuers:
            self.publish(url, key)

    def publish(self, url: str, *keys: TokenKey) -> None:
        where = f"{url}/keys"
        self.pages[f"{url}/.well-known/openid-configuration"] = {"issuer": url, "jwks_uri": where}
        self.pages[where] = {"keys": [key.public.jwk() for key in keys]}

    def fetching(self, settings: IssuerSettings) -> Fetch:
        return self.fetch

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        if self.gate is not None:
            await self.gate.wait()
        if url not in self.pages:
            raise AnswerRefused("answered with status 404", 404)
        page = self.pages[url]
        return page if isinstance(page, bytes) else json.dumps(page).encode()


def token(key: TokenKey = KEY_A, issuer: str = A, **change: Any) -> str:
    claims = {"sub": "jane", "aud": "orchid", "exp": NOW + 600, "iat": NOW, "jti": "j-1", **change}
    kept = {name: value for name, value in claims.items() if value is not None}
    return TokenSigner(key, issuer, "x").sign_payload(kept).reveal()


async def authenticator(
    web: Web,
    *settings: IssuerSettings,
    clock: FakeClock | None = None,
    revocations: Revocations | None = None,
) -> OidcAuthenticator:
    made = OidcAuthenticator(
        settings or (SETTINGS,),
        clock or FakeClock(),
        API,
        ORCH,
        fetch=web.fetching,
        revocations=revocations,
    )
    for source in made.sources.values():
        await source.refresh()
    return made


async def refusal(of: Awaitable[object]) -> str:
    with pytest.raises(Rejected) as raised:
        await of
    return str(raised.value)


async def test_claims_become_a_user_with_prefixes() -> None:
    """Name and groups carry the issuer's prefix; the token's id is kept."""
    tokens = await authenticator(Web((A, KEY_A)))

    found = await tokens.authenticate_token(token(groups=["devs", "ops"]), API)

    assert found is not None
    assert found.user.username == "a:jane"
    assert found.user.groups == ("a:devs", "a:ops")
    assert found.user.extra == {"authentication.orch.io/credential-id": ("JTI=j-1",)}
    assert found.audiences == API


async def test_issuer_cannot_sign_for_another() -> None:
    """B's key, under A's name and with B's key id, proves nothing."""
    web = Web((A, KEY_A), (B, KEY_B))
    other = IssuerSettings(url=B, audiences=("orchid",), username=ClaimMapping("sub", "b:"))
    tokens = await authenticator(web, SETTINGS, other)

    assert await tokens.authenticate_token(token(KEY_B, B), API) is not None
    text = await refusal(tokens.authenticate_token(token(KEY_B, A), API))

    assert text == "oidc: verify token: invalid signature, no keys found"


@pytest.mark.parametrize("issuer", [f"{A}/", "https://A.example", "https://a.example.evil", ""])
async def test_issuer_is_compared_as_a_whole_string(issuer: str) -> None:
    """A token of an issuer that only resembles a configured one is ignored."""
    web = Web((A, KEY_A))
    tokens = await authenticator(web)
    fetched = list(web.fetched)

    assert await tokens.authenticate_token(token(issuer=issuer), API) is None
    assert web.fetched == fetched


async def test_configuration_that_names_another_issuer_is_not_taken() -> None:
    """Otherwise one issuer could publish the keys of another."""
    web = Web((A, KEY_A))
    web.pages[f"{A}/.well-known/openid-configuration"]["issuer"] = B
    tokens = await authenticator(web)

    assert not tokens.sources[A].ready
    assert "another issuer" in tokens.sources[A].problem


@pytest.mark.parametrize("page", [b"", b"[]", b"<html>", b'{"keys":5}', b'{"keys":[{}]}', b"\xff"])
async def test_unusable_key_set_leaves_the_old_keys(page: bytes) -> None:
    """A bad publication is a problem to report, not a reason to lock everybody out."""
    web = Web((A, KEY_A))
    tokens = await authenticator(web)
    web.pages[f"{A}/keys"] = page

    await tokens.sources[A].refresh()

    assert tokens.sources[A].problem
    assert await tokens.authenticate_token(token(), API) is not None


async def test_jwks_over_plain_http_is_not_fetched() -> None:
    """Keys that anybody on the way can change are no keys."""
    web = Web((A, KEY_A))
    web.pages[f"{A}/.well-known/openid-configuration"]["jwks_uri"] = "http://a.example/keys"
    made = OidcAuthenticator((SETTINGS,), FakeClock(), API, ORCH)  # with the real client
    source = made.sources[A]

    async def fetch(url: str, real: Callable[[str], Awaitable[bytes]] = source._fetch) -> bytes:
        return await (web.fetch(url) if url.startswith("https") else real(url))

    source._fetch = fetch
    await source.refresh()

    assert not source.ready
    assert "not an https address" in source.problem


def answered(document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_keys_come_over_real_tls_from_the_issuer_alone() -> None:
    """Configuration and keys are fetched with the configured authority, redirects are not."""
    async with serving(None) as server:
        url = f"https://127.0.0.1:{server.port}"
        settings = IssuerSettings(url, ("orchid",), ClaimMapping("sub"), authorities=PEM)
        tokens = OidcAuthenticator((settings,), FakeClock(), API, ORCH)
        source = tokens.sources[url]

        server.answers = [b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"]
        await source.refresh()
        assert "redirect" in source.problem

        server.answers = [
            answered({"issuer": url, "jwks_uri": f"{url}/keys"}),
            answered({"keys": [KEY_A.public.jwk()]}),
        ]
        await source.refresh()

    assert source.problem == ""
    assert await tokens.authenticate_token(token(issuer=url), API) is not None


async def test_token_before_the_keys_are_there_is_refused_not_left_to_others() -> None:
    """A token of a configured issuer without keys yet is refused."""
    clock = FakeClock()
    tokens = await authenticator(Web(), clock=clock)

    text = await refusal(tokens.authenticate_token(token(), API))

    assert text == "oidc: authenticator not initialized"


async def test_token_that_meets_the_first_fetch_waits_for_it() -> None:
    """A request in the first moments after a start is not refused for being early."""
    web = Web((A, KEY_A))
    web.gate = asyncio.Event()
    tokens = OidcAuthenticator((SETTINGS,), FakeClock(), API, ORCH, fetch=web.fetching)
    running = asyncio.create_task(tokens.run())
    waiting = asyncio.create_task(tokens.authenticate_token(token(), API))
    for _ in range(5):
        await asyncio.sleep(0)
    assert web.fetched
    web.gate.set()

    found = await waiting

    assert found is not None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("seconds", [60, -3600])
async def test_new_key_is_fetched_once_it_is_seen(seconds: int) -> None:
    """An issuer that rotated its key is asked again, also when our clock has stepped back."""
    clock, web = FakeClock(), Web((A, KEY_A))
    tokens = await authenticator(web, clock=clock)
    running = asyncio.create_task(tokens.run())
    await asyncio.sleep(0)
    web.publish(A, KEY_A, NEW_KEY)
    clock.advance(seconds)

    found = await tokens.authenticate_token(token(NEW_KEY), API)

    assert found is not None
    assert await tokens.authenticate_token(token(), API) is not None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_made_up_key_ids_do_not_have_us_hammer_the_issuer() -> None:
    """Within the interval an unknown key is refused without another fetch."""
    web = Web((A, KEY_A))
    tokens = await authenticator(web)
    fetched = len(web.fetched)

    for _ in range(20):
        text = await refusal(tokens.authenticate_token(token(generate()), API))
        assert text == "oidc: verify token: invalid signature, no keys found"

    assert len(web.fetched) == fetched


async def test_slow_issuer_blocks_nobody_elses_tokens() -> None:
    """While the keys of one issuer are fetched, tokens of the others are verified."""
    clock = FakeClock()
    web = Web((A, KEY_A), (B, KEY_B))
    other = IssuerSettings(url=B, audiences=("orchid",), username=ClaimMapping("sub", "b:"))
    tokens = await authenticator(web, SETTINGS, other, clock=clock)
    running = asyncio.create_task(tokens.run())
    await asyncio.sleep(0)
    web.gate = asyncio.Event()
    clock.advance(60)

    waiting = asyncio.create_task(tokens.authenticate_token(token(NEW_KEY), API))
    for _ in range(5):
        await asyncio.sleep(0)
    found = await tokens.authenticate_token(token(KEY_B, B), API)

    assert found is not None
    assert not waiting.done()
    for task in (waiting, running):
        task.cancel()
    await asyncio.gather(waiting, running, return_exceptions=True)


@pytest.mark.parametrize("audience", ["elsewhere", [], None, ["x", "y"]])
async def test_token_for_another_audience_is_refused(audience: Any) -> None:
    """A token that a user gave to another service does not open this one."""
    tokens = await authenticator(Web((A, KEY_A)))

    text = await refusal(tokens.authenticate_token(token(aud=audience), API))

    assert "expected audiences" in text


async def test_any_of_several_audiences_will_do() -> None:
    """MatchAny: one of ours among the token's."""
    tokens = await authenticator(Web((A, KEY_A)))

    assert await tokens.authenticate_token(token(aud=["x", "orchid-2"]), API) is not None


async def test_a_token_is_valid_in_its_first_and_last_second() -> None:
    """And a minute before the first: clocks differ."""
    clock = FakeClock()
    tokens = await authenticator(Web((A, KEY_A)), clock=clock)
    assert await tokens.authenticate_token(token(nbf=NOW + 60), API) is not None
    clock.advance(600)

    assert await tokens.authenticate_token(token(), API) is not None


@pytest.mark.parametrize(
    ("change", "move", "text"),
    [
        ({}, 601, "token is expired"),
        ({"exp": None}, 0, "token is expired"),
        ({"nbf": NOW + 61}, 0, "token is not valid yet"),
    ],
)
async def test_times_have_no_leeway_at_the_end(
    change: dict[str, Any], move: int, text: str
) -> None:
    """A minute at the beginning, none at the end, and no token without an end."""
    clock = FakeClock()
    tokens = await authenticator(Web((A, KEY_A)), clock=clock)
    clock.advance(move)

    found = await refusal(tokens.authenticate_token(token(**change), API))

    assert found == f"oidc: verify token: {text}"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sub": None}, 'oidc: parse username claims "sub": claim not present'),
        ({"sub": ""}, 'oidc: parse username claims "sub": claim is not a string with content'),
        ({"sub": 5}, 'oidc: parse username claims "sub": claim is not a string with content'),
        ({"groups": [1]}, 'oidc: parse groups claim "groups": not a list of strings'),
        ({"groups": {"a": 1}}, 'oidc: parse groups claim "groups": not a list of strings'),
    ],
)
async def test_claims_of_the_wrong_sort_are_refused(change: dict[str, Any], text: str) -> None:
    """Nothing is guessed from a claim that is not what it should be."""
    tokens = await authenticator(Web((A, KEY_A)))

    assert await refusal(tokens.authenticate_token(token(**change), API)) == text


async def test_single_group_may_be_a_plain_string() -> None:
    """Some issuers write one group without a list."""
    tokens = await authenticator(Web((A, KEY_A)))

    found = await tokens.authenticate_token(token(groups="devs"), API)

    assert found is not None
    assert found.user.groups == ("a:devs",)


@pytest.mark.parametrize(
    ("verified", "good"), [(True, True), (None, True), (False, False), ("true", False)]
)
async def test_unverified_email_is_no_name(verified: Any, good: bool) -> None:
    """An address that the issuer did not verify could be anybody's."""
    by_email = IssuerSettings(url=A, audiences=("orchid",), username=ClaimMapping("email"))
    tokens = await authenticator(Web((A, KEY_A)), by_email)
    made = token(email="jane@a.example", email_verified=verified)

    if good:
        found = await tokens.authenticate_token(made, API)
        assert found is not None
        assert found.user.username == "jane@a.example"
    else:
        text = await refusal(tokens.authenticate_token(made, API))
        assert text == "oidc: email not verified"


async def test_required_claims_and_uid() -> None:
    """The token must have the required claims with the required values."""
    strict = IssuerSettings(
        url=A,
        audiences=("orchid",),
        username=ClaimMapping("sub"),
        uid=ClaimMapping("oid"),
        required_claims=(("hd", "a.example"),),
    )
    tokens = await authenticator(Web((A, KEY_A)), strict)

    found = await tokens.authenticate_token(token(oid="u-1", hd="a.example"), API)

    assert found is not None
    assert found.user.uid == "u-1"
    for change, text in (
        ({"hd": "a.example"}, 'oidc: parse uid claim "oid": claim not present or not a string'),
        ({"oid": "u"}, "oidc: required claim hd not present in ID token"),
        (
            {"oid": "u", "hd": "b"},
            'oidc: required claim hd value does not match. Got = "b", want = a.example',
        ),
    ):
        assert await refusal(tokens.authenticate_token(token(**change), API)) == text


def configured(**jwt: Any) -> IssuerSettings:
    """Settings as a file gives them, whose username is an expression unless said otherwise."""
    document = {
        "apiVersion": "apiserver.config.orch.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [
            {
                "issuer": {"url": A, "audiences": ["orchid"]},
                "claimMappings": {"username": {"expression": "'a:' + claims.sub"}},
                **jwt,
            }
        ],
    }
    return read_configuration(json.dumps(document), ORCH).issuers[0]


def by(**mappings: Any) -> IssuerSettings:
    return configured(claimMappings={"username": {"expression": "'a:' + claims.sub"}, **mappings})


async def test_expressions_make_the_whole_user() -> None:
    """Name, groups, uid and extra; an extra without a value is left out."""
    settings = by(
        groups={"expression": "claims.roles.split(',').map(role, 'a:' + role)"},
        uid={"expression": "claims.oid"},
        extra=[
            {"key": "example.com/team", "valueExpression": "claims.team"},
            {"key": "example.com/none", "valueExpression": "''"},
        ],
    )
    tokens = await authenticator(Web((A, KEY_A)), settings)

    found = await tokens.authenticate_token(token(roles="devs,ops", oid="u-1", team=["x", ""]), API)

    assert found is not None
    assert found.user.username == "a:jane"
    assert found.user.groups == ("a:devs", "a:ops")
    assert found.user.uid == "u-1"
    assert found.user.extra == {
        "authentication.orch.io/credential-id": ("JTI=j-1",),
        "example.com/team": ("x",),
    }


@pytest.mark.parametrize(
    ("settings", "change", "text"),
    [
        (
            {},
            {"sub": None},
            "oidc: error evaluating username claim expression: "
            "expression ''a:' + claims.sub' resulted in error: no such key: sub",
        ),
        (
            {"username": {"expression": "claims.sub"}},
            {"sub": 5},
            "oidc: error evaluating username claim expression: "
            "username claim expression must return a string",
        ),
        (
            {"username": {"expression": "claims.sub"}},
            {"sub": ""},
            "oidc: empty username via CEL expression is not allowed",
        ),
        (
            {"username": {"expression": "claims.sub"}},
            {"sub": "admin\0x"},
            "oidc: error evaluating username claim expression: expression 'claims.sub' resulted "
            "in error: a text with a NUL character",
        ),
        (
            {"groups": {"expression": "claims.groups"}},
            {"groups": ["a", 5]},
            "oidc: error evaluating group claim expression: "
            "expression must return a string or a list of strings",
        ),
        (
            {"groups": {"expression": "claims.groups"}},
            {},
            "oidc: error evaluating group claim expression: "
            "expression 'claims.groups' resulted in error: no such key: groups",
        ),
        (
            {"uid": {"expression": "claims.oid"}},
            {"oid": ["a"]},
            "oidc: error evaluating uid claim expression: "
            "uid claim expression must return a string",
        ),
        (
            {"extra": [{"key": "a.b/c", "valueExpression": "claims.x"}]},
            {"x": {"y": 1}},
            "oidc: error evaluating extra claim expression: claims.x: "
            "expression must return a string or a list of strings",
        ),
    ],
)
async def test_expressions_refuse_claims_of_the_wrong_sort(
    settings: dict[str, Any], change: dict[str, Any], text: str
) -> None:
    """The reference's words, and never a user that is half made."""
    tokens = await authenticator(Web((A, KEY_A)), by(**settings))

    assert await refusal(tokens.authenticate_token(token(**change), API)) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hd": "a", "level": 2, "sub": "jane"}, ""),
        (
            {"level": 2},
            "oidc: required claim hd not present in ID token",
        ),
        (
            {"hd": "a", "level": 1},
            "oidc: error evaluating claim validation expression: "
            "validation expression 'claims.level > 1' failed: too low",
        ),
        (
            {"hd": "a"},
            "oidc: error evaluating claim validation expression: "
            "expression 'claims.level > 1' resulted in error: no such key: level",
        ),
        (
            {"hd": "a", "level": "x"},
            "oidc: error evaluating claim validation expression: "
            "expression 'claims.level > 1' resulted in error: no such overload",
        ),
        (
            {"hd": "a", "level": 2, "sub": "system:admin"},
            "oidc: error evaluating user info validation rule: "
            "validation expression '!user.username.startsWith('system:')' failed: not yours",
        ),
        (
            {"hd": "a", "level": 2, "jti": None},
            "oidc: error evaluating user info validation rule: expression "
            "'user.extra['authentication.orch.io/credential-id'].size() == 1' "
            "resulted in error: no such key: authentication.orch.io/credential-id",
        ),
    ],
)
async def test_rules_are_asked_in_order(change: dict[str, Any], text: str) -> None:
    """Required claims, then rules about claims, then rules about the user they made."""
    settings = configured(
        claimMappings={"username": {"claim": "sub", "prefix": ""}},
        claimValidationRules=[
            {"expression": "claims.level > 1", "message": "too low"},
            {"claim": "hd", "requiredValue": "a"},
        ],
        userValidationRules=[
            {"expression": "!user.username.startsWith('system:')", "message": "not yours"},
            {"expression": "user.extra['authentication.orch.io/credential-id'].size() == 1"},
        ],
    )
    tokens = await authenticator(Web((A, KEY_A)), settings)

    if text:
        assert await refusal(tokens.authenticate_token(token(**change), API)) == text
    else:
        assert await tokens.authenticate_token(token(**change), API) is not None


async def test_claims_are_evaluated_once_and_times_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result for a token is cached with its signature, good or bad; its expiry is not."""
    evaluated: list[str] = []
    real = Expression.text

    def counting(self: Expression, given: ExpressionInput) -> str | None:
        evaluated.append(self.source)
        return real(self, given)

    monkeypatch.setattr(Expression, "text", counting)
    clock = FakeClock()
    tokens = await authenticator(Web((A, KEY_A)), by(), clock=clock)
    good, bad = token(), token(sub=5)

    for _ in range(3):
        found = await tokens.authenticate_token(good, API)
        assert found is not None
        assert found.user.username == "a:jane"
        assert "no such overload" in await refusal(tokens.authenticate_token(bad, API))
    assert len(evaluated) == 2

    clock.advance(601)
    assert "expired" in await refusal(tokens.authenticate_token(good, API))


async def test_hostile_claims_end_in_a_refusal() -> None:
    """Deep, many, endless to split: a sentence, without what the claims hold."""
    settings = by(groups={"expression": "claims.roles.split(',').filter(role, role != '')"})
    tokens = await authenticator(Web((A, KEY_A)), settings)
    deep: Any = "canary"
    for _ in range(400):
        deep = [deep]

    for change in (
        {"x": deep},
        {"x": ["canary"] * 1100},
        {"x": {f"k{number}": "canary" for number in range(600)}, "y": [1] * 400},
        {"roles": "canary," * 1200},
        {"roles": "canary\0"},
        {"roles": {"canary": "canary"}},
        {"roles": ["canary"]},
    ):
        text = await refusal(tokens.authenticate_token(token(**{"roles": "", **change}), API))
        assert "resulted in error" in text
        assert "canary" not in text


async def test_outside_tokens_are_good_for_the_api_alone() -> None:
    """Their own audiences say whom the issuer meant, not whom a review asks for."""
    tokens = await authenticator(Web((A, KEY_A)))

    assert await tokens.authenticate_token(token(), ("orchid",)) is None


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "x" * 99_999, "é.é.é"])
async def test_garbage_is_left_to_others(text: str) -> None:
    """Not a token: no opinion."""
    tokens = await authenticator(Web((A, KEY_A)))

    assert await tokens.authenticate_token(text, API) is None


async def test_an_algorithm_that_is_not_accepted_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To the caller of a review and in the log: the setting is what has to change."""
    settings = msgspec.structs.replace(SETTINGS, algorithms=("RS256",))
    tokens = await authenticator(Web((A, KEY_A)), settings)

    text = await refusal(tokens.authenticate_token(token(), API))

    problem = tokens.sources[A].problem
    assert "the signature algorithm ES256 is not accepted from this issuer, only RS256" in text
    assert "the published keys are for ES256, and only RS256 is accepted" in problem
    assert "--oidc-signing-algs" in text
    assert [record.problem for record in caplog.records if hasattr(record, "problem")] == [problem]


async def test_an_algorithm_that_nobody_knows_is_not_repeated() -> None:
    """The text of a token header is in no answer."""
    tokens = await authenticator(Web((A, KEY_A)))
    head, body, tail = token(NEW_KEY).split(".")
    odd = b64url_encode(b'{"alg":"canary","kid":"other"}').decode()

    text = await refusal(tokens.authenticate_token(f"{odd}.{body}.{tail}", API))

    assert head != odd
    assert text == "oidc: verify token: invalid signature, no keys found"


async def test_documents_are_asked_for_by_every_media_type_of_theirs() -> None:
    """An API server sends its keys as application/jwk-set+json alone (406 otherwise)."""
    async with serving(OK) as server:
        settings = msgspec.structs.replace(SETTINGS, authorities=PEM)
        await fetching(settings)(server.url)

    head = server.requests[0].partition(b"\r\n\r\n")[0]
    assert b"Accept: application/json, application/jwk-set+json, */*" in head.split(b"\r\n")


async def test_a_revoked_token_is_refused_in_every_use() -> None:
    """Remembered claims are no acceptance; an id counts for its issuer, or for all."""
    web = Web((A, KEY_A), (B, KEY_B))
    other = IssuerSettings(url=B, audiences=("orchid",), username=ClaimMapping("sub", "b:"))
    async with world_of(*REVOCABLE) as here:
        tokens = await authenticator(
            web, SETTINGS, other, clock=here.clock, revocations=Revocations(here.feed)
        )
        of_a, of_b = token(jti="j-9"), token(KEY_B, B, jti="j-9")
        assert await tokens.authenticate_token(of_a, API) is not None

        await here.put(revocation("a", RevokedToken(jti="j-9", issuer=A)))
        first = await refusal(tokens.authenticate_token(of_a, API))
        assert await tokens.authenticate_token(of_b, API) is not None
        await here.put(revocation("b", RevokedToken(jti="j-9", namespace="ci", name="builder")))
        assert await tokens.authenticate_token(of_b, API) is not None
        await here.put(revocation("c", RevokedToken(jti="j-9")))

        assert first == "the token has been revoked"
        assert await refusal(tokens.authenticate_token(of_b, API)) == first
        assert await tokens.authenticate_token(token(jti=7), API) is not None


async def test_tokens_of_a_revoked_user_are_refused_by_their_time_of_issue() -> None:
    """A token without a time of issue counts as old."""
    web = Web((A, KEY_A))
    async with world_of(*REVOCABLE) as here:
        tokens = await authenticator(
            web, SETTINGS, clock=here.clock, revocations=Revocations(here.feed)
        )
        moment = here.clock.now()
        found = await tokens.authenticate_token(token(), API)
        assert found is not None
        user = RevokedUser(username=found.user.username, issued_before=moment)
        await here.put(revocation("r", user))
        seconds = int(moment.timestamp())

        assert await tokens.authenticate_token(token(iat=seconds + 1), API) is not None
        for iat in (seconds, seconds + 0.9, seconds - 100, None):
            text = await refusal(tokens.authenticate_token(token(iat=iat), API))
            assert text == "the credentials of this user have been revoked"
