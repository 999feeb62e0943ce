"""The attack: approval policies that take long to compile or to judge by.

A policy may have 32 rules; one of 8 kB took 0.2 s to compile, and one of 2 kB with a hostile
regular expression 0.35 s each time it was evaluated. Rules that count as cheap were evaluated one
after the other, and a thousand names were matched with 256 patterns, all on the event loop.
"""

import base64
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from orchid.approval.compiled import CompiledPolicy
from orchid.expressions.cel import MOST_OF_RULE, Compiler
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REVIEWS, terms
from tests.api.world import Api
from tests.extras import needs_cel
from tests.security.test_large_collections import answered
from tests.security.threads import threads_of
from tests.unit.approval.cases import ALLOWS
from tests.unit.controllers.beside import beside, told_of_policies
from tests.unit.controllers.test_policy_approval import controller_of
from tests.unit.credentials import samples

MOST_RULES = 32


def review(*expressions: str, hosts: int = 1, **policy: Any) -> dict[str, Any]:
    names = tuple(x509.DNSName(f"host-{number}.web.example.com") for number in range(hosts))
    request = base64.b64encode(samples.request("", (), alternative_names=names)).decode()
    rules = [{"expression": expression} for expression in expressions]
    given = {"signerNames": ["*"], "allows": ALLOWS, "rules": rules, **policy}
    return {"spec": {**terms(), "request": request, "policy": given}}


@pytest.mark.parametrize(
    "expression",
    [
        "true || " * (MOST_OF_RULE // 8) + "true",
        "[1, " + "2, " * (MOST_OF_RULE // 6) + "optional.of(1).optMap(x, x).orValue(1)].size() > 0",
    ],
)
async def test_a_rule_has_a_limit(server: Api, expression: str) -> None:
    """In what is stored and in what is tried."""
    needs_cel()
    stored = body("a", rules=[{"expression": expression}])

    answers = [
        await server.call("POST", POLICIES, stored),
        await server.call("POST", REVIEWS, review(expression)),
    ]

    assert {answer.status for answer in answers} == {422}
    assert all(f"at most {MOST_OF_RULE} characters" in answer.text for answer in answers)


async def test_no_expression_is_compiled_on_the_event_loop(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a policy is stored, tried, followed by the controller, or asked about."""
    needs_cel()
    threads = threads_of(monkeypatch, Compiler, "_compile")
    async with beside(server_files) as world:
        server = Api(world.server)
        await server.make(POLICIES, body("a", rules=[{"expression": "1 < 2"}]))
        await told_of_policies(controller_of(world))
        await server.make(REVIEWS, review("2 < 3"))
        await server.make(REVIEWS, {"spec": terms()})

    assert len(threads) > 4
    assert threading.main_thread() not in threads


async def test_what_callers_send_is_compiled_by_few_threads(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by those that sign revocation lists and write files: these would wait for the callers."""
    needs_cel()
    threads = threads_of(monkeypatch, Compiler, "_compile")

    await server.make(REVIEWS, review("2 < 3"))

    assert threads
    assert all(thread.name.startswith("offload") for thread in threads)


async def test_others_are_served_between_rules(server: Api) -> None:
    """As many turns of the event loop as there are rules, at least."""
    needs_cel()
    rules = [f"request.dnsNames.all(name, name != 'a{number}')" for number in range(MOST_RULES)]

    answer, turns = await answered(server, "POST", REVIEWS, review(*rules, hosts=20))

    assert answer.status == 201
    assert len(answer.json["status"]["policies"][0]["checks"]) > MOST_RULES
    assert turns > MOST_RULES


async def test_many_names_are_matched_beside_the_event_loop(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred names with 256 patterns held it for 0.1 s."""
    threads = threads_of(monkeypatch, CompiledPolicy, "selection")
    allows = {**ALLOWS, "dnsNames": [f"*.w*b.*{number}" for number in range(256)]}

    answer = await server.call("POST", REVIEWS, review(hosts=100, allows=allows))

    assert answer.status == 201
    assert threads
    assert threading.main_thread() not in threads
