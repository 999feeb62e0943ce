"""The attack: a small request that makes the server do much work in one turn of the event loop.

A certificate request of 82 kB had 6,681 extensions. Each became a sentence, every policy joined all
of them, and one review of policies had 24 MB: with 20 policies each such request blocked the event
loop for half a second.
"""

import asyncio
import base64
from typing import Any

import pytest

from orchid.features.approving.kinds.approval_review import MOST_CHECKS
from orchid.kernel.base.scheduling import batched_work
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.signing_request import MOST_REQUESTED
from orchid.kernel.server.pages import conditional
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REQUESTS, REVIEWS, terms
from tests.api.world import Api
from tests.unit.features.acme.acme_client import b64
from tests.unit.features.acme.conftest import prepared
from tests.unit.features.acme.test_acme_accounts import problem
from tests.unit.kernel.credentials.samples import as_pem, extension, name, raw_request

FORTY_POLICIES = 40
REVIEW_BYTES = 256 * 1024


def with_extensions(count: int) -> bytes:
    """A signed request (DER) with many extensions of nine bytes."""
    return raw_request(name(), *(extension(f"1.2.{number}", b"") for number in range(count)))


def sent(der: bytes) -> dict[str, Any]:
    return {**terms(), "request": base64.b64encode(as_pem(der)).decode()}


async def test_a_request_with_thousands_of_extensions_is_refused(server: Api) -> None:
    """As an object, and in a review."""
    spec = sent(with_extensions(4000))

    answers = [
        await server.call("POST", REQUESTS, {"metadata": {"name": "many"}, "spec": spec}),
        await server.call("POST", REVIEWS, {"spec": spec}),
    ]

    assert [answer.status for answer in answers] == [422, 422]
    assert all(f"at most {MOST_REQUESTED} attributes" in answer.text for answer in answers)
    assert all(len(answer.text) < 2 * len(spec["request"]) for answer in answers)


async def test_a_finalized_order_with_thousands_of_extensions_is_refused(server: Api) -> None:
    world = await prepared(server)
    client = await world.client()
    new = await client.order("web-1.example.com")

    csr = b64(with_extensions(4000))
    answer = await client.post(new.json["finalize"], {"csr": csr})

    assert problem(answer) == (400, "badCSR")
    assert f"at most {MOST_REQUESTED} attributes" in answer.json["detail"]


@pytest.mark.parametrize("otherwise", ["leave", "deny"])
async def test_a_review_by_many_policies_is_short(server: Api, otherwise: str) -> None:
    """As many extensions as are allowed, and names of which no policy allows any."""
    for number in range(FORTY_POLICIES):
        await server.make(POLICIES, body(f"p{number}", otherwise=otherwise))
    spec = sent(with_extensions(MOST_REQUESTED - 2))

    answer = await server.call("POST", REVIEWS, {"spec": spec})

    status = answer.json["status"]
    assert len(status["policies"]) == FORTY_POLICIES
    assert len(answer.body) < REVIEW_BYTES
    assert max(len(policy["checks"]) for policy in status["policies"]) <= MOST_CHECKS
    assert status["message"].count("it asks for the extension 1.2.0,") == 1


async def test_slow_requests_of_one_turn_are_verified_in_several(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 32 were verified in one turn, whatever each took: P-521 and many names 5 ms.

    With a budget that a single one exceeds, each has a turn of its own.
    """
    monkeypatch.setattr(batched_work, "LONGEST_BATCH", 0.0, raising=False)
    verified = [0]
    prove = signing_request._prove_key

    def count(data: bytes) -> Any:
        verified[-1] += 1
        return prove(data)

    monkeypatch.setattr(signing_request, "_prove_key", count)
    specs = [sent(with_extensions(number)) for number in range(40)]
    asking = asyncio.gather(
        *(
            server.call("POST", REQUESTS, {"metadata": {"name": f"r{number}"}, "spec": spec})
            for number, spec in enumerate(specs)
        )
    )
    while not asking.done():
        await asyncio.sleep(0)
        verified.append(0)

    assert {answer.status for answer in await asking} == {201}
    assert sum(verified) >= len(specs)
    assert max(verified) == 1


class PanicException(BaseException):
    """As the X.509 library raises it: not an ordinary Exception."""


async def test_a_panic_fails_no_other_request_of_its_turn(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others got no answer until their deadline."""
    parse = signing_request.parse_once
    bad = as_pem(with_extensions(1))

    def panic_for_one(text: bytes) -> signing_request.SigningRequest:
        if text == bad:
            raise PanicException
        return parse(text)

    monkeypatch.setattr(signing_request, "parse_once", panic_for_one)
    texts = [as_pem(with_extensions(2)), bad, as_pem(with_extensions(3))]
    specs = [{**terms(), "request": base64.b64encode(text).decode()} for text in texts]
    async with asyncio.timeout(20):
        answers = await asyncio.gather(
            *(
                server.call("POST", REQUESTS, {"metadata": {"name": f"r{number}"}, "spec": spec})
                for number, spec in enumerate(specs)
            )
        )

    assert [answer.status for answer in answers] == [201, 500, 201]


TOO_LATE = "Sun, 15 Nov 99999999999999999999 00:36:47 GMT"


@pytest.mark.parametrize("name", ["if-modified-since", "if-unmodified-since"])
@pytest.mark.parametrize("date", [TOO_LATE, "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_date_that_no_calendar_has_is_no_error(server: Api, name: str, date: str) -> None:
    """It raised OverflowError: 500 and a traceback for each request."""
    answer = await server.call("GET", "/openapi/v2", headers={name: date})

    assert answer.status in (200, 304)


async def test_few_tags_of_a_condition_are_compared(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 of them cost 17 ms for each comparison."""
    compared: list[str] = []
    tags = conditional._TAGS

    def count(text: str) -> list[str]:
        found = tags(text)
        compared.extend(found)
        return found

    monkeypatch.setattr(conditional, "_TAGS", count)

    answer = await server.call("GET", "/openapi/v2", headers={"if-none-match": '"",' * 40_000})

    assert answer.status == 200
    assert 0 < len(compared) < 2000
