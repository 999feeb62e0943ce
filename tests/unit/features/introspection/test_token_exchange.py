"""POST /oauth2/token: each parameter that is refused, and what the audit record has."""

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from orchid.features.exchange.exchange import (
    ACCESS_TOKEN,
    GRANT,
    ID_TOKEN,
    JWT,
    MOST_TARGETS,
    SHORTEST,
    TokenExchange,
)
from orchid.features.exchange.exchanger import (
    INVALID,
    LIMITED,
    REFUSED,
    TARGET,
    UNAVAILABLE,
    ExchangeRefused,
    WantedToken,
)
from orchid.features.exchange.subject_tokens import SubjectToken
from orchid.features.introspection.addresses import MOST_CONCURRENT, AddressLimits
from orchid.features.introspection.forms import FORM, OAuthRefusal
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.naming import EXPIRES_PARAMETER, ORCH
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.server.request_states import state_of

SENT = {"grant_type": GRANT, "subject_token": "t", "subject_token_type": JWT}
ANNOTATION = ORCH.extra
SUBJECT = SubjectToken("https://idp.example", "repo:a", {}, 0, 0, jti="7")


class Policy:
    revision = 5

    def __str__(self) -> str:
        return "ci/jobs"


class Exchanger:
    """Issues one token, or refuses."""

    def __init__(self, problem: Exception | None = None) -> None:
        self._problem = problem
        self.wanted: list[WantedToken] = []

    async def exchange(self, wanted: WantedToken) -> Any:
        self.wanted.append(wanted)
        if self._problem:
            raise self._problem
        return SimpleNamespace(
            token="new", credential_id="JTI=9", seconds=600, subject=SUBJECT, policy=Policy()
        )


class Page:
    def __init__(self, problem: Exception | None = None) -> None:
        self.exchanger: Any = Exchanger(problem)
        self.limits = AddressLimits(FakeClock().monotonic)
        self.used: list[Any] = []
        uses: Any = SimpleNamespace(used=lambda policy, now: self.used.append(policy))
        self._page = TokenExchange(ORCH, self.exchanger, self.limits, uses)
        self.notes: dict[str, str] = {}

    async def answer(self, query: str = "", **sent: Any) -> dict[str, Any]:
        form = {name: value for name, value in {**SENT, **sent}.items() if value is not None}
        body = urlencode(form, doseq=True).encode()
        exchange = state_of("POST", f"/oauth2/token{query}", body, content_type=FORM)
        assert exchange.request is not None
        self.notes = exchange.request.audit_annotations
        answer = await self._page(exchange)
        assert b"no-store" in answer.headers
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def refusal(self, query: str = "", **sent: Any) -> OAuthRefusal:
        with pytest.raises(OAuthRefusal) as found:
            await self.answer(query, **sent)
        assert found.value.text.endswith("(audit id the-id)")
        return found.value


@pytest.mark.parametrize("kind", [JWT, ID_TOKEN])
async def test_the_parameters_reach_the_exchange(kind: str) -> None:
    page = Page()

    answer = await page.answer(
        "?account=ci/robot",
        subject_token=" t\n",
        subject_token_type=kind,
        audience=["a", ""],
        resource=["b"],
        **{EXPIRES_PARAMETER: str(SHORTEST)},
    )

    (wanted,) = page.exchanger.wanted
    assert (wanted.subject_token, wanted.account) == ("t", ("ci", "robot"))
    assert (wanted.audiences, wanted.seconds) == (("a", "b"), SHORTEST)
    assert answer == {
        "access_token": "new",
        "issued_token_type": ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": 600,
    }
    assert [str(one) for one in page.used] == ["ci/jobs"]
    assert page.notes[ANNOTATION("exchange-policy")] == "ci/jobs@5"
    assert page.notes[ANNOTATION("exchange-credential-id")] == "JTI=7"
    assert page.notes[ORCH.issued_credential_id] == "JTI=9"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": None}, "invalid_request"),
        ({"subject_token": " "}, "invalid_request"),
        ({"subject_token": None}, "invalid_request"),
        ({"subject_token_type": ACCESS_TOKEN}, "invalid_request"),
        ({"subject_token_type": None}, "invalid_request"),
        ({"actor_token": "t"}, "invalid_request"),
        ({"actor_token_type": JWT}, "invalid_request"),
        ({"requested_token_type": ID_TOKEN}, "invalid_request"),
        ({"audience": ["a"] * MOST_TARGETS, "resource": "b"}, "invalid_target"),
        *(
            ({EXPIRES_PARAMETER: text}, "invalid_request")
            for text in ("59", "-60", "60.5", "1" * 10, "٦٠", "1h")
        ),
    ],
)
async def test_each_parameter_is_checked(sent: dict[str, Any], code: str) -> None:
    """Before the token is judged."""
    page = Page()

    assert (await page.refusal(**sent)).code == code
    assert page.exchanger.wanted == []
    assert page.used == []


@pytest.mark.parametrize(
    "query",
    [
        "?account=robot",
        "?account=/robot",
        "?account=ci/",
        "?account=ci/robot/x",
        "?account=ci/robot&account=ci/robot",
        "?account=ci/robot&audience=x",
        "?subject_token=t",
        f"?account=ci/{'r' * 512}",
    ],
)
async def test_the_query_names_one_account_and_nothing_else(query: str) -> None:
    """It is in logs, so a token never belongs there."""
    assert (await Page().refusal(query)).code == "invalid_request"


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (TARGET, 400, "invalid_target"),
        (INVALID, 400, "invalid_request"),
        (REFUSED, 400, "invalid_request"),
        (LIMITED, 429, "temporarily_unavailable"),
        (UNAVAILABLE, 503, "temporarily_unavailable"),
    ],
)
async def test_a_refusal_is_recorded_with_its_reason(outcome: str, status: int, code: str) -> None:
    """The holder learns less; the subject is recorded once it is verified."""
    for subject in (None, SUBJECT):
        problem = ExchangeRefused(outcome, "no", reason="rule 3 of ci/jobs", retry_after=7)
        problem.subject = subject
        page = Page(problem)

        found = await page.refusal()

        assert (found.status, found.code) == (status, code)
        assert "rule 3" not in found.text
        assert (b"Retry-After: 7" in found.headers) == (status != 400)
        assert page.notes[ANNOTATION("exchange-refusal")] == "rule 3 of ci/jobs"
        assert (ANNOTATION("exchange-subject") in page.notes) == (subject is not None)
        assert page.used == []


async def test_a_server_that_cannot_answer_asks_to_come_later() -> None:
    found = await Page(Unavailable("no store")).refusal()

    assert (found.status, found.code) == (503, "temporarily_unavailable")
    assert b"Retry-After: 1" in found.headers


async def test_an_address_over_its_limit_is_refused_and_one_that_left_is_not() -> None:
    """Refused requests make room as well."""
    page = Page(ExchangeRefused(REFUSED, "no"))
    for _ in range(2 * MOST_CONCURRENT):
        assert (await page.refusal()).code == "invalid_request"

    for _ in range(MOST_CONCURRENT):
        page.limits.enter("10.0.0.9:2")
    found = await page.refusal()

    assert found.status == 429
    assert b"Retry-After: 1" in found.headers
