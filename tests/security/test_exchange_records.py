"""The attack: to exchange a token, or to change who may, without a trace."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from orchid.features.exchange.ports import ConfiguredExchange
from orchid.features.ledger.token_counts import TokenCounts
from orchid.kernel.engine.ledger import store_keys
from orchid.kernel.engine.ledger.entries import object_seal, seal
from tests.api.world import Api
from tests.e2e.outside_issuer import OutsideIssuer
from tests.security.exchanging import FORM, POLICIES, exchange, exchanging, make_policy, policy
from tests.security.test_revocations import jti_of

CI = POLICIES.format("ci")
PREFIX = "authentication.orch.io"


@pytest.fixture(scope="module")
def issuer() -> Iterator[OutsideIssuer]:
    with OutsideIssuer() as made:
        yield made


@pytest.fixture
async def server(server_files: Path, issuer: OutsideIssuer, tmp_path: Path) -> AsyncIterator[Api]:
    async with exchanging(server_files, issuer, tmp_path) as made:
        yield made


async def entries(server: Api, type_: str) -> list[dict[str, Any]]:
    """The entries of a type that wait for the ledger."""
    records = (await server.server.store.read(store_keys.PENDING)).records
    found = [json.loads(record.value) for record in records]
    return [one for one in found if one["type"] == type_]


async def test_audit_names_both_identities_and_the_policy(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """The user is anonymous; a refusal names the rule, and no event has a token."""
    rules, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    text = "apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"
    rules.write_text(text)
    audit = {"audit_policy_file": str(rules), "audit_log_path": str(log)}
    good, other = issuer.github(), issuer.github(ref="refs/heads/x")
    event = issuer.github(event_name="pull_request")
    async with exchanging(server_files, issuer, tmp_path, **audit) as server:
        rule = {"expression": "claims.event_name == 'push'"}
        made = await make_policy(server, issuer, rules=[rule])
        issued = (await exchange(server, good)).json["access_token"]
        for token in (other, event, "nonsense"):
            assert (await exchange(server, token)).status == 400

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [one for one in lines if one["requestURI"].startswith("/oauth2/token")]
    notes = [one["annotations"] for one in found if one["stage"] == "ResponseComplete"]
    outside = {
        f"{PREFIX}/exchange-issuer": issuer.url,
        f"{PREFIX}/exchange-subject": "repo:acme@123456/app@456789:ref:refs/heads/main",
    }
    assert {one["user"]["username"] for one in found} == {"system:anonymous"}
    assert {one["requestURI"] for one in found} == {"/oauth2/token?account=ci/deployer"}
    assert len(notes) == 4
    assert (
        notes[0].items()
        >= {
            **outside,
            f"{PREFIX}/exchange-credential-id": f"JTI={jti_of(good)}",
            f"{PREFIX}/exchange-policy": f"ci/acme-deploy@{made['metadata']['resourceVersion']}",
            f"{PREFIX}/issued-credential-id": f"JTI={jti_of(issued)}",
        }.items()
    )
    assert notes[1][f"{PREFIX}/exchange-refusal"] == "ci/acme-deploy: claims[ref]"
    assert notes[1][f"{PREFIX}/exchange-credential-id"] == f"JTI={jti_of(other)}"
    assert notes[2].items() >= {
        **outside, f"{PREFIX}/exchange-refusal": "ci/acme-deploy: rules[0]"
    }.items()  # fmt: skip
    assert f"{PREFIX}/exchange-subject" not in notes[3], "a claim that nobody verified"
    assert not any(token.split(".")[2] in log.read_text() for token in (good, other, issued))


async def test_audit_names_a_token_that_its_holder_revoked(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """The request is anonymous: the annotation shows that the token itself was the credential."""
    rules, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    text = "apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
    rules.write_text(text)
    audit = {"audit_policy_file": str(rules), "audit_log_path": str(log)}
    async with exchanging(server_files, issuer, tmp_path, **audit) as server:
        await make_policy(server, issuer)
        token = (await exchange(server, issuer.github())).json["access_token"]
        body = urlencode({"token": token}).encode()
        await server.call("POST", "/oauth2/revoke", body, token=None, headers=FORM)

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (found,) = [
        one
        for one in lines
        if one["requestURI"] == "/oauth2/revoke" and one["stage"] == "ResponseComplete"
    ]
    assert found["annotations"]["orch.io/revoked-by-holder"] == f"JTI={jti_of(token)}"


async def test_the_ledger_has_every_change_of_a_policy(server: Api, issuer: OutsideIssuer) -> None:
    """Who wrote which terms, sealed; a change of the status is none."""
    made = await make_policy(server, issuer)
    uid = made["metadata"]["uid"]
    changed = {**made, "spec": {**made["spec"], "maxDuration": "20m"}}
    await server.call("PUT", f"{CI}/acme-deploy", changed)
    await exchange(server, issuer.github())
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    await parts.leave()
    await server.call("DELETE", f"{CI}/acme-deploy")

    about = {"namespace": "ci", "name": "acme-deploy", "user": "admin"}
    for type_, spec in (
        ("exchange-policy.made", {"spec": made["spec"]}),
        ("exchange-policy.changed", {"spec": changed["spec"]}),
        ("exchange-policy.removed", {}),
    ):
        [entry] = await entries(server, type_)
        assert entry["object"] == object_seal(uid)
        assert entry["sealed"] == seal(uid, {**about, **spec})


async def test_the_ledger_counts_exchanges_and_their_tokens(
    server: Api, issuer: OutsideIssuer
) -> None:
    """By policy and hour; and the issued tokens like all others."""
    made = await make_policy(server, issuer)
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    before = server.server.clock.now()
    for _ in range(3):
        assert (await exchange(server, issuer.github())).status == 200
    assert (await exchange(server, issuer.github(ref="x"))).status == 400

    await parts.leave()
    await server.server.context.port(TokenCounts).write()

    rows = [row for one in await entries(server, "exchanges.counted") for row in one["exchanges"]]
    tokens = [row for one in await entries(server, "tokens.counted") for row in one["tokens"]]
    hours = {
        moment.strftime("%Y-%m-%dT%H:00:00Z") for moment in (before, server.server.clock.now())
    }
    assert {uid for uid, _, _ in rows} == {made["metadata"]["uid"]}
    assert {hour for _, hour, _ in rows} <= hours
    assert sum(count for _, _, count in rows) == 3
    assert sum(row[-1] for row in tokens) == 3


async def test_a_policy_shows_when_it_was_used(server: Api, issuer: OutsideIssuer) -> None:
    """To the hour: at most one write an hour, however many exchanges."""
    await make_policy(server, issuer)
    unused = (await server.call("GET", f"{CI}/acme-deploy")).json
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    await exchange(server, issuer.github())
    await parts.uses.write()
    first = (await server.call("GET", f"{CI}/acme-deploy")).json
    for _ in range(3):
        await exchange(server, issuer.github())
    await parts.uses.write()
    again = (await server.call("GET", f"{CI}/acme-deploy")).json

    [used] = parts.policies.candidates(issuer.url, policy(issuer)["spec"]["claims"], None)
    later = server.server.clock.now() + timedelta(hours=2)
    parts.uses.used(used, later)
    await parts.uses.write()
    last = (await server.call("GET", f"{CI}/acme-deploy")).json

    assert "lastUsed" not in unused["status"]
    assert first["status"]["lastUsed"]
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert last["status"]["lastUsed"] > first["status"]["lastUsed"]
    assert last["metadata"]["generation"] == 1
    assert last["status"]["conditions"] == unused["status"]["conditions"]


async def test_the_metric_counts_outcomes_by_issuer(server: Api, issuer: OutsideIssuer) -> None:
    """An issuer that is not configured has no series of its own: anybody can send its name."""
    await make_policy(server, issuer)
    await exchange(server, issuer.github())
    await exchange(server, issuer.github(ref="x"))
    await exchange(server, issuer.github(exp=1))
    await exchange(server, issuer.github(), audiences=["https://other.example"])
    await exchange(server, issuer.github(iss="https://evil.example"))
    await exchange(server, "nonsense")

    page = (await server.call("GET", "/metrics")).text

    name = "orchid_token_exchanges_total"
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(f"{name}{{"))
    assert found == {
        f'{name}{{issuer="{issuer.url}",outcome="issued"}}': "1",
        f'{name}{{issuer="{issuer.url}",outcome="refused"}}': "1",
        f'{name}{{issuer="{issuer.url}",outcome="invalid_token"}}': "1",
        f'{name}{{issuer="{issuer.url}",outcome="invalid_target"}}': "1",
        f'{name}{{issuer="other",outcome="invalid_token"}}': "2",
    }
