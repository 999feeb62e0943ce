"""The attack: approval policies that take long to compile or to judge by.

A policy may have 32 rules; one of 8 kB took 0.2 s to compile, and one of 2 kB with a hostile
regular expression 0.35 s each time it was evaluated. Rules that count as cheap were evaluated one
after the other, and a thousand names were matched with 256 patterns, all on the event loop.
With one slow policy and 40 requests that it selects, no request was approved for over a minute.
"""

import base64
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from orchid.features.approval.compiled import CompiledPolicy
from orchid.features.approving.kinds.approval_policy import ApprovalPolicy
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.kernel.expressions import isolated
from orchid.kernel.expressions.cel import MOST_OF_RULE, Compiler
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REVIEWS, terms
from tests.api.world import Api
from tests.security.test_large_collections import answered
from tests.security.threads import threads_of
from tests.unit.features.approval.cases import ALLOWS
from tests.unit.features.approving.test_approve_requests import BOOT, NODE, grant
from tests.unit.features.approving.test_approve_requests import REQUESTS as NODE_RIGHTS
from tests.unit.features.approving.test_policy_approval import (
    ask,
    controller_of,
    may_request,
    may_use,
    write,
)
from tests.unit.features.beside import PATIENCE, Beside, beside, policies_loaded
from tests.unit.kernel.credentials import samples

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
    threads = threads_of(monkeypatch, Compiler, "_compile")
    async with beside(server_files) as world:
        server = Api(world.server)
        await server.make(POLICIES, body("a", rules=[{"expression": "1 < 2"}]))
        await policies_loaded(controller_of(world))
        await server.make(REVIEWS, review("2 < 3"))
        await server.make(REVIEWS, {"spec": terms()})

    assert len(threads) > 4
    assert threading.main_thread() not in threads


async def test_what_callers_send_is_compiled_by_few_threads(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by those that sign revocation lists and write files: these would wait for the callers."""
    threads = threads_of(monkeypatch, Compiler, "_compile")

    await server.make(REVIEWS, review("2 < 3"))

    assert threads
    assert all(thread.name.startswith("offload") for thread in threads)


async def test_others_are_served_between_rules(server: Api) -> None:
    """As many turns of the event loop as there are rules, at least."""
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


SLOW_RULE = "['aaaaaaaa']" + ".map(x, x + x)" * 26 + "[0].size() > 3"
MANY = 40


async def many_slow_requests(world: Beside) -> None:
    """A policy with a slow rule, and requests for one signer that it selects."""
    await may_request(world)
    await may_use(world, "fast", "slow")
    await write(world, "slow", rules=[{"expression": SLOW_RULE}])
    for number in range(MANY):
        await ask(world, f"slow-{number:02d}")


async def test_slow_rules_hold_up_no_request_that_needs_none(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While evaluations do not end, the requests of a node and of a quick policy are approved."""
    ended = threading.Event()

    def stuck(_question: str, _seconds: float) -> list[dict[str, Any]]:
        ended.wait(PATIENCE)
        return [{"holds": True}]

    monkeypatch.setattr(isolated, "_ask", stuck)
    async with beside(server_files) as world:
        await many_slow_requests(world)
        await grant(world, "system:node-bootstrapper", BOOT)
        await grant(world, f"{NODE_RIGHTS}:nodeclient", BOOT)
        await write(world, "fast", signerNames=["quick.com/*"])
        try:
            async with world.running("csrapproving"):
                await world.request("node", NODE, signer=ORCH.node_client_signer, user=BOOT)
                await ask(world, "other", signer="quick.com/web")
                for name in ("node", "other"):
                    await world.until_like(Request, name, condition=lambda csr: csr.is_approved)
                waiting = await world.admin.get(Request, "slow-39")
                ended.set()
                await world.until_like(Request, "slow-39", condition=lambda csr: csr.is_approved)
        finally:
            ended.set()

    assert not waiting.is_decided


async def test_a_policy_that_exceeds_its_limits_is_not_ready(
    server_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One evaluation is enough, however many wait; the condition says why, a new spec counts."""
    asked = []

    def exceeded(question: str, _seconds: float) -> list[dict[str, Any]]:
        asked.append(question)
        raise isolated.Overrun("it took too long")

    monkeypatch.setattr(isolated, "_ask", exceeded)
    async with beside(server_files) as world:
        await many_slow_requests(world)
        async with world.running("csrapproving"):
            stopped = await world.until_like(
                ApprovalPolicy, "slow", condition=lambda policy: not policy.is_ready
            )
            await world.admin.update(replace(stopped, spec=replace(stopped.spec, rules=())))
            for number in range(MANY):
                name = f"slow-{number:02d}"
                await world.until_like(Request, name, condition=lambda csr: csr.is_approved)

    (ready,) = stopped.status.conditions
    assert (ready.status, ready.reason) == ("False", "TooSlow")
    assert "it took too long" in ready.message
    assert len(asked) == 1
